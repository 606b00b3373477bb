"""What a second opinion costs and what it refuses: asked of labelled queries and the entries that tempt them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from recall_cli import stats
from recall_cli.core.opinion import SecondOpinion, opinion_of
from recall_cli.errors import UsageError
from recall_cli.measure.prompts import Kind, Query, Workload
from recall_cli.measure.timing import Arm, microseconds

CALLS = 1_000
WARMUP = 20
KINDS = (Kind.PARAPHRASE, Kind.LOOKALIKE)


def prepared(work: Workload, name: str) -> Callable[[], dict[str, Any]] | None:
    """Return what measures an opinion; None when none is asked.

    Raises UsageError or EmbedderError for one that cannot be asked: before anything is timed.
    """
    opinion = opinion_of(name)
    if opinion is None:
        return None
    asked = [query for query in work.queries if query.kind in KINDS and query.seed is not None]
    if not asked:
        raise UsageError("a second opinion is measured on labelled prompts, and these have no labels")
    return partial(_measured, work, asked, name, opinion)


def _measured(work: Workload, asked: Sequence[Query], name: str, opinion: SecondOpinion) -> dict[str, Any]:
    """Return microseconds of an opinion and the share it agrees to, by kind of query.

    The stored text was read before, as a popular entry's was; the new one never.
    """
    stored = [work.seeds[query.seed or 0] for query in asked]
    agreed: Counter[Kind] = Counter()
    for query, entry in zip(asked, stored, strict=True):
        agreed[query.kind] += opinion.agrees(query.text, entry)
    # A mark the query did not end in makes it a new text to the opinion, and hardly another length.
    fresh = [(f"{query.text} .{turn}", entry) for turn in range(-(-CALLS // len(asked)) + 1)
             for query, entry in zip(asked, stored, strict=True)]  # fmt: skip
    arm = Arm("opinion", lambda pair: opinion.agrees(*pair), fresh)
    arm.block(WARMUP)
    arm.samples += arm.block(CALLS)[0]
    return {
        "name": name,
        "us": microseconds(arm),
        "agrees": {
            str(kind): {"agreed": agreed[kind], "n": n, "rate": agreed[kind] / n,
                        "rate_interval": list(stats.wilson(agreed[kind], n))}
            for kind, n in Counter(query.kind for query in asked).items()
        },
    }  # fmt: skip
