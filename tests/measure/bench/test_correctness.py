"""The check before the clock: a cache that answers wrongly is not timed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.index.exact import ExactIndex
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.errors import GateFailed
from recall_cli.measure.bench import bench, correctness
from recall_cli.measure.bench.correctness import BENCH_ANSWER, by_kind, rates, tally
from recall_cli.measure.prompts import Kind, Query
from recall_cli.types import Ids, Vector

STATIC = make_embedder("static")
ALWAYS = partial(bool, 1)
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
        Query("how can i reset my password", Kind.PARAPHRASE, 1),  # served another entry's answer
        Query("How do I reset the password?", Kind.LOOKALIKE, 0, "scope"),
        Query("Which river flows through Vienna?", Kind.NEW, None),
        Query("How do I reset my password!", Kind.UNLABELLED, None),
    ]
    counts = tally(cache, queries, ids, "n", vectors, exact=ALWAYS)
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
        tally(cache, [Query("how do i reset my password", Kind.PARAPHRASE, 0)], ids, "n", vectors, exact=ALWAYS)


def test_an_index_is_held_to_what_it_is_at_the_time_of_the_search() -> None:
    cache, ids, vectors = filled(Forgetful)
    answers = iter([False, True])
    queries = [Query(text, Kind.PARAPHRASE, 0) for text in ("how do i reset my password", "reset my password how")]
    with pytest.raises(GateFailed, match="reset my password how"):
        tally(cache, queries, ids, "n", vectors, exact=lambda: next(answers))


def test_the_matrix_is_not_copied_for_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Vector] = []
    real = correctness._is_nearest

    def spy(query, similarity, vector, vectors, *, exact):  # type: ignore[no-untyped-def]
        seen.append(vectors)
        return real(query, similarity, vector, vectors, exact=exact)

    monkeypatch.setattr(correctness, "_is_nearest", spy)
    cache, ids, vectors = filled()
    queries = [Query(f"What is {thing}?", Kind.UNLABELLED, None) for thing in ("rain", "snow", "hail", "fog")]
    tally(cache, queries, ids, "n", vectors, exact=ALWAYS)
    assert [len(rows) for rows in seen] == [2, 3, 4, 5]
    assert all(np.shares_memory(rows, seen[0]) for rows in seen)
    np.testing.assert_allclose(seen[-1][2:], STATIC.embed_many([query.text for query in queries[:3]]), atol=1e-6)


@pytest.mark.parametrize(
    ("index", "label"),
    [
        ("auto:scan_at=60", "auto:scan_at=60 (scan)"),
        ("auto:scan_at=1000", "auto:scan_at=1000 (exact)"),
        ("exact", "exact"),
    ],
)
def test_auto_may_grow_during_the_replay(
    index: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The move is made by the write itself: beside it, it may come after the end of so short a replay.
    monkeypatch.setitem(AutoIndex.__init__.__kwdefaults__, "background", False)
    (tmp_path / "p.txt").write_text("".join(f"how do I clean the {n}th window\n" for n in range(60)))
    plan = bench.BenchPlan(("hash-v1",), (50,), index, lookups=5, warmup=0, prompts=str(tmp_path / "p.txt"))
    (row,) = bench.run(plan).rows
    assert row["index"] == label


def test_auto_is_not_blamed_for_what_a_scan_may_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoIndex, "_scan", lambda self: Forgetful(self._dim))
    lines = [f"how do I clean the window of house {n} in the long street by the river\n" for n in range(60)]
    (tmp_path / "p.txt").write_text("".join(lines))
    plan = bench.BenchPlan(("static",), (50,), "auto:scan_at=60", lookups=5, warmup=0, prompts=str(tmp_path / "p.txt"))
    (row,) = bench.run(plan).rows
    assert row["nearest_found_rate"] < 1


def test_a_stored_prompt_that_misses_stops_the_run() -> None:
    cache, ids, vectors = filled()
    cache.delete([ids[0]])
    with pytest.raises(GateFailed, match="did not hit its own entry"):
        tally(cache, [Query(SEEDS[0], Kind.REPEAT, 0)], ids, "n", vectors[1:], exact=ALWAYS)


def test_vectors_that_differ_from_model2vec_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(STATIC).embed_many

    def off(self: object, texts: list[str]) -> Vector:
        return real(self, texts) + np.float32(1e-3)  # type: ignore[arg-type]

    monkeypatch.setattr(type(STATIC), "embed_many", off)
    with pytest.raises(GateFailed, match="differs from model2vec"):
        bench.run(bench.BenchPlan(embedders=("hash-v1",), lookups=5, warmup=0, reference=True))
