"""The check before the clock: a cache that answers wrongly is not timed."""

from __future__ import annotations

import numpy as np
import pytest

from recall_cli.core.cache import Cache
from recall_cli.core.embed import make_embedder
from recall_cli.core.index import ExactIndex
from recall_cli.core.policy import StaticPolicy
from recall_cli.core.request import text_request
from recall_cli.errors import GateFailed
from recall_cli.measure import bench
from recall_cli.measure.check import BENCH_ANSWER, by_kind, rates, tally
from recall_cli.measure.prompts import Kind, Query
from recall_cli.types import Ids, Vector

STATIC = make_embedder("static")
SEEDS = ["How do I reset my password?", "What time does the pharmacy open on Sunday?"]


def filled(make_index: type[ExactIndex] = ExactIndex) -> tuple[Cache, list[int], Vector]:
    cache = Cache(embedder=STATIC, policy=StaticPolicy(0.8), make_index=make_index)
    ids = [cache.put(text_request(text, "n"), BENCH_ANSWER) for text in SEEDS]
    return cache, [id for id in ids if id is not None], STATIC.embed_many(SEEDS)


def test_what_counts_as_wrong() -> None:
    cache, ids, vectors = filled()
    queries = [
        Query(SEEDS[0], Kind.REPEAT, 0),
        Query("how do i reset my password", Kind.PARAPHRASE, 0),
        Query("how do i reset my Password", Kind.PARAPHRASE, 1),  # served another entry's answer
        Query("How do I reset the password?", Kind.LOOKALIKE, 0, "scope"),
        Query("Which river flows through Vienna?", Kind.NEW, None),
        Query("How do I reset my password!", Kind.UNLABELLED, None),
    ]
    counts = tally(cache, queries, ids, "n", vectors, exact=True)
    row = rates(counts)
    assert (row["queries"], row["hits"], row["exact_hits"], row["semantic_hits"]) == (6, 5, 1, 4)
    assert row["false_hits"] == 2
    assert row["false_hit_rate"] == pytest.approx(2 / 3)  # the unlabelled hit is in neither
    kinds = by_kind(counts)
    assert kinds["trap:scope"] == kinds["lookalike"]
    assert (kinds["new"]["served"], kinds["paraphrase"]["wrong"]) == (0, 1)
    assert len(ids) == 3  # the unlabelled one was stored


class Forgetful(ExactIndex):
    """Loses the neighbour it should return."""

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        ids, similarities = super().search(vector, 2)
        return ids[1:], similarities[1:]


def test_a_wrong_neighbour_stops_the_run() -> None:
    cache, ids, vectors = filled(Forgetful)
    with pytest.raises(GateFailed, match="the nearest has"):
        tally(cache, [Query("how do i reset my password", Kind.PARAPHRASE, 0)], ids, "n", vectors, exact=True)


def test_a_stored_prompt_that_misses_stops_the_run() -> None:
    cache, ids, vectors = filled()
    cache.delete([ids[0]])
    with pytest.raises(GateFailed, match="did not hit its own entry"):
        tally(cache, [Query(SEEDS[0], Kind.REPEAT, 0)], ids, "n", vectors[1:], exact=True)


def test_vectors_that_differ_from_model2vec_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(STATIC).embed_many

    def off(self: object, texts: list[str]) -> Vector:
        return real(self, texts) + np.float32(1e-3)  # type: ignore[arg-type]

    monkeypatch.setattr(type(STATIC), "embed_many", off)
    with pytest.raises(GateFailed, match="differs from model2vec"):
        bench.run(bench.Plan(embedders=("hash-v1",), lookups=5, warmup=0, reference=True))
