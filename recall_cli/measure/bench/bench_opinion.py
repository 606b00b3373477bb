"""What a second opinion costs and what it refuses: asked of labelled queries and the entries that tempt them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from recall_cli import stats
from recall_cli.cache.answers.second_opinion import SecondOpinion, opinion_of
from recall_cli.errors import UsageError
from recall_cli.measure.prompts import Kind, Query, Workload
from recall_cli.measure.timing import Arm, microseconds

CALLS = 1_000
WARMUP = 20


def prepared(work: Workload, name: str) -> Callable[[], dict[str, Any]] | None:
    """Return what measures an opinion; None when none is asked.

    Raises UsageError or EmbedderError for one that cannot be asked: before anything is timed.
    """
    opinion = opinion_of(name)
    if opinion is None:
        return None
    asked = work.compared()
    if not asked:
        raise UsageError("a second opinion is measured on labelled prompts, and these have no labels")
    return partial(_measured, asked, name, opinion)


def _measured(asked: Sequence[tuple[Query, str]], name: str, opinion: SecondOpinion) -> dict[str, Any]:
    """Return microseconds of an opinion and the share it agrees to, by kind of query.

    The stored text was read before, as a popular entry's was; the new one never.
    """
    agreed: Counter[Kind] = Counter()
    for query, entry in asked:
        agreed[query.kind] += opinion.agrees(query.text, entry)
    # A mark the query did not end in makes it a new text to the opinion, and hardly another length.
    turns = range(-(-CALLS // len(asked)) + 1)
    fresh = [(f"{query.text} .{turn}", entry) for turn in turns for query, entry in asked]
    arm = Arm("opinion", lambda pair: opinion.agrees(*pair), fresh)
    arm.block(WARMUP)
    arm.samples += arm.block(CALLS)[0]
    return {
        "name": name,
        "us": microseconds(arm),
        "agrees": {
            str(kind): {"agreed": agreed[kind], "n": n, "rate": agreed[kind] / n,
                        "rate_interval": list(stats.wilson(agreed[kind], n))}
            for kind, n in Counter(query.kind for query, _ in asked).items()
        },
    }  # fmt: skip
