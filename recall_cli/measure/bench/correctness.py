"""What a cache answers to a workload with known truth: the rates, and the proof that it answers right.

Runs before anything is timed: a benchmark of a lookup that returns the wrong neighbour is worthless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.cache import Cache
from recall_cli.cache.request import text_request
from recall_cli.errors import GateFailed
from recall_cli.measure.prompts import Kind, Query
from recall_cli.types import Completion, Outcome, Vector

SCORE_TOLERANCE = 1e-5
"""Cosines of one pair by two summation orders in float32 differ by less than this."""


BENCH_ANSWER = Completion(b'{"bench":true}')
"""What stands for an answer: a bench looks at which entry is served, not at what it says."""


@dataclass(slots=True)
class AnswerCounts:
    """Counts over one pass of the queries."""

    queries: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    exact: int = 0
    semantic: int = 0
    labelled_semantic: int = 0
    wrong: int = 0
    wrong_by_kind: Counter[str] = field(default_factory=Counter)
    searches: int = 0
    lost: int = 0
    """Searches whose answer was not the nearest row: what an approximate index costs."""


def tally(
    cache: Cache,
    queries: Sequence[Query],
    seed_ids: list[int],
    namespace: str,
    vectors: Vector,
    *,
    exact: Callable[[], bool],
) -> AnswerCounts:
    """Look every query up once and count what was served, and what was served wrongly.

    An unlabelled query enters the cache after its lookup, as it would in traffic; its id is
    appended to `seed_ids`.

    :param seed_ids: by seed index, the id of the entry that holds its answer.
    :param vectors: all vectors in the partition, shape (n, dim): brute force stands beside the index.
    :param exact: whether the index promises the nearest row; one that is not raises GateFailed. Asked after each
        search, because an index may move to another kind while the replay fills it.
    """
    counts = AnswerCounts()
    rows, known = _reserved(vectors, queries), len(vectors)
    for query in queries:
        request = text_request(query.text, namespace)
        found = cache.get(request)
        decision = found.decision
        if found.vector is not None and decision.similarity is not None:
            counts.searches += 1
            counts.lost += not _is_nearest(query, decision.similarity, found.vector, rows[:known], exact=exact())
        if query.kind is Kind.UNLABELLED:
            id = cache.put(request, BENCH_ANSWER, found.vector)
            assert id is not None  # no byte cap is set
            seed_ids.append(id)
            if found.vector is not None:
                rows[known] = found.vector
                known += 1
        kind = query.kind.value
        counts.queries[kind] += 1
        if query.trap:
            counts.queries[f"trap:{query.trap}"] += 1
        if decision.outcome is Outcome.EXACT:
            counts.exact += 1
        if query.kind is Kind.REPEAT and (decision.outcome, decision.entry) != (
            Outcome.EXACT,
            None if query.seed is None else seed_ids[query.seed],
        ):
            raise GateFailed(
                f"a stored prompt did not hit its own entry: {query.text!r} gave {decision.outcome}",
                hint="this is a defect in recall: report it with the command you ran",
            )
        if found.completion is None:
            continue
        counts.served[kind] += 1
        if query.trap:
            counts.served[f"trap:{query.trap}"] += 1
        if decision.outcome is Outcome.SEMANTIC:
            counts.semantic += 1
            if query.kind is not Kind.UNLABELLED:
                counts.labelled_semantic += 1
                right = query.kind is Kind.PARAPHRASE and query.seed is not None
                if not (right and decision.entry == seed_ids[query.seed or 0]):
                    counts.wrong += 1
                    counts.wrong_by_kind[kind] += 1
    return counts


def rates(counts: AnswerCounts) -> dict[str, Any]:
    """Return the rates of a tally, each beside its n and its interval.

    `hit_rate` is over all queries, exact repeats included, and `right_rate` is the part of it that was
    served its own answer. `false_hit_rate` is over served *semantic* hits alone: exact hits cannot be
    wrong and must not dilute it. What nobody labelled is None, never 0.
    """
    queries = sum(counts.queries[kind.value] for kind in Kind)
    hits = counts.exact + counts.semantic
    judged = counts.labelled_semantic
    known = judged == counts.semantic
    right = hits - counts.wrong
    return {
        "queries": queries,
        "hits": hits,
        "hit_rate": hits / queries if queries else None,
        "hit_rate_interval": list(stats.wilson(hits, queries)),
        "right_rate": right / queries if queries and known else None,
        "right_rate_interval": list(stats.wilson(right, queries)) if known else None,
        "exact_hits": counts.exact,
        "semantic_hits": counts.semantic,
        "false_hits": counts.wrong if judged or not counts.semantic else None,
        "false_hit_rate": counts.wrong / judged if judged else None,
        "false_hit_interval": list(stats.wilson(counts.wrong, judged)) if judged else None,
        "searches": counts.searches,
        "nearest_found_rate": 1 - counts.lost / counts.searches if counts.searches else None,
        "nearest_found_interval": list(stats.wilson(counts.searches - counts.lost, counts.searches)),
    }


def by_kind(counts: AnswerCounts) -> dict[str, dict[str, Any]]:
    """Return, for each kind of query and each category of trap, how many were served of how many."""
    table = {}
    for kind, n in counts.queries.items():
        served = counts.served[kind]
        wrong = served if kind.startswith("trap:") else counts.wrong_by_kind[kind]
        table[kind] = {
            "queries": n,
            "served": served,
            "served_rate": served / n,
            "served_interval": list(stats.wilson(served, n)),
            "wrong": None if kind == Kind.UNLABELLED else wrong,
        }
    return table


def _reserved(vectors: Vector, queries: Sequence[Query]) -> Vector:
    """Return the vectors with room below for what the unlabelled queries add."""
    room = sum(query.kind is Kind.UNLABELLED for query in queries)
    rows: Vector = np.empty((len(vectors) + room, vectors.shape[1]), np.float32)
    rows[: len(vectors)] = vectors
    return rows


def _is_nearest(query: Query, similarity: float, vector: Vector, vectors: Vector, *, exact: bool) -> bool:
    """Return whether no row is closer than what the index returned. Ties count as found."""
    best = float(np.max(vectors @ vector))
    if similarity >= best - SCORE_TOLERANCE:
        return True
    if exact:
        raise GateFailed(
            f"exact search returned similarity {similarity:.6f} for {query.text!r}; the nearest has {best:.6f}",
            hint="this is a defect in recall: report it with the command you ran",
        )
    return False
