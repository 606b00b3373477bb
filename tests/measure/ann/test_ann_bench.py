"""ann-bench: the truth it counts by, the data it makes, what is timed, and what cannot be measured."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from recall_cli.cache.index import hnsw, hnsw_library, scan
from recall_cli.cache.index.exact import ExactIndex
from recall_cli.cache.index.hnsw import HnswIndex
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure.ann import ann_bench, data, measure
from recall_cli.measure.ann import plan as ann_plan
from recall_cli.measure.ann.data import Clusters, at_cosine, clustered, make_cell, nearest, random_units
from recall_cli.measure.timing import Arm
from recall_cli.types import Ids, Vector

SMALL = ann_plan.AnnPlan(dims=(16,), corpus=(300,), queries=60, lookups=20, ef_search=(16,))


@given(st.integers(2, 40), st.floats(-1, 1), st.integers(0, 5))
def test_planted_rows_lie_at_the_cosine_asked_for(dim: int, cosine: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_units(5, dim, rng)
    made = at_cosine(rows, np.full(5, cosine), rng)
    np.testing.assert_allclose(np.einsum("ij,ij->i", rows, made), cosine, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_clusters_are_as_dense_as_asked() -> None:
    rng = np.random.default_rng(0)
    for cosine in (0.0, 0.5, 0.9):
        rows = clustered(2_000, 64, Clusters(rows=20, cosine=cosine), rng)
        others = rows @ rows.T - 2 * np.eye(len(rows), dtype=np.float32)
        # Two rows of one cluster are at cosine squared, give or take 1/sqrt(dim) of noise.
        assert float(np.median(others.max(axis=1))) == pytest.approx(cosine**2, abs=0.45 if cosine == 0 else 0.2)


@pytest.mark.parametrize("bad", [{"rows": 0}, {"cosine": 1.0}, {"cosine": -0.1}])
def test_clusters_that_cannot_be_made(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="cannot be made"):
        Clusters(**bad)  # type: ignore[arg-type]


def test_truth_is_brute_force_and_queries_are_not_in_the_corpus() -> None:
    rng = np.random.default_rng(3)
    pool = random_units(700, 8, rng)
    cell = make_cell("random", pool, 500, 100, (0.8, 0.99), rng)
    products = cell.fresh.queries.astype(np.float64) @ cell.corpus.T.astype(np.float64)
    np.testing.assert_allclose(cell.fresh.best, products.max(axis=1), atol=1e-6)
    assert cell.fresh.best.max() < 0.9999999
    assert (cell.planted.best >= 0.8 - 1e-4).all()
    assert nearest(cell.corpus, cell.corpus[:3]) == pytest.approx(1, abs=1e-6)


def test_rows_have_the_columns_of_the_blueprint() -> None:
    result = ann_bench.run(SMALL)
    assert [row["engine"] for row in result.rows] == ["exact", "scan", "hnsw"]
    columns = [
        "data",
        "dims",
        "corpus",
        "engine",
        "params",
        "p5_us",
        "p50_us",
        "p99_us",
        "cpu_us",
        "speedup_vs_exact",
        "recall_at_1",
        "recall_at_1_near",
        "near_n",
        "build_s",
        "bytes_per_vector",
    ]
    for row in result.rows:
        assert set(columns) <= row.keys()
        assert (row["data"], row["dims"], row["corpus"], row["n"]) == ("random", 16, 300, 60)
        assert row["p99_us"] is None
        assert row["near_n"] >= 60  # the planted ones at least
        assert row["cpu_us"] > 0
        assert 16 * 4 <= row["bytes_per_vector"] < 16 * 4 + 1_000
        for rate in ("recall_at_1", "recall_at_1_near"):
            low, high = row[f"{rate}_interval"]
            assert low <= row[rate] <= high
    exact = result.rows[0]
    assert exact["recall_at_1"] == exact["recall_at_1_near"] == 1
    assert exact["speedup_vs_exact"]["ratio"] == 1
    assert len({row["bytes_per_vector"] for row in result.rows}) >= 2  # small sets are held alike


class Blind(ExactIndex):
    """Finds the second nearest."""

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        ids, similarities = super().search(vector, k + 1)
        return ids[1:], similarities[1:]


def test_what_an_index_loses_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Blind)
    rows = {row["engine"]: row for row in ann_bench.run(SMALL).rows}
    assert rows["scan"]["recall_at_1"] == rows["scan"]["recall_at_1_near"] == 0
    assert rows["exact"]["recall_at_1"] == 1


class Boaster(ExactIndex):
    """Always the same answer, and always sure of it."""

    answer = 0

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        return np.array([self.answer]), np.ones(1, np.float32)


def scan_is(monkeypatch: pytest.MonkeyPatch, kind: type[ExactIndex]) -> None:
    real = measure.make_index
    monkeypatch.setattr(
        measure, "make_index", lambda name, dim, **o: kind(dim) if name == "scan" else real(name, dim, **o)
    )


def test_what_an_engine_claims_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Boaster)
    rows = {row["engine"]: row for row in ann_bench.run(SMALL).rows}
    assert rows["scan"]["recall_at_1"] < 0.1
    assert rows["scan"]["recall_at_1_planted"] < 0.1


@pytest.mark.parametrize("answer", [-1, 300])
def test_an_id_that_nobody_added_stops_the_run(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Boaster)
    monkeypatch.setattr(Boaster, "answer", answer)
    with pytest.raises(GateFailed, match="nobody added"):
        ann_bench.run(SMALL)


def test_an_engine_without_an_answer_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(ExactIndex):
        def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
            return np.empty(0, np.int64), np.empty(0, np.float32)

    scan_is(monkeypatch, Silent)
    assert ann_bench.run(SMALL).rows[1]["recall_at_1"] == 0
    copies = np.repeat(random_units(1, 8, np.random.default_rng(0)), 5, axis=0)
    assert not measure._hits(Silent(8), copies, data.Truth(copies, nearest(copies, copies)), 1).any()


def test_ties_count_as_found() -> None:
    rng = np.random.default_rng(0)
    row = random_units(1, 8, rng)
    corpus = np.repeat(row, 50, axis=0)
    index = ExactIndex(8)
    index.add(np.arange(50), corpus)
    truth = data.Truth(corpus[:5], nearest(corpus, corpus[:5]))
    assert measure._hits(index, corpus, truth, 1).all()


def test_one_graph_serves_every_breadth_and_breadth_finds_more() -> None:
    plan = ann_plan.AnnPlan(
        dims=(64,),
        corpus=(2_000,),
        queries=200,
        lookups=20,
        engines=("hnsw",),
        M=(4,),
        ef_construction=(20,),
        ef_search=(4, 256),
    )
    narrow, wide = ann_bench.run(plan).rows[1:]
    assert narrow["build_s"] == wide["build_s"]
    assert (narrow["params"]["ef_search"], wide["params"]["ef_search"]) == (4, 256)
    assert narrow["recall_at_1"] < wide["recall_at_1"]


def recorded_arms(monkeypatch: pytest.MonkeyPatch) -> list[Arm]:
    arms: list[Arm] = []
    real = measure.interleave

    def spy(given: list[Arm], **how: object) -> None:
        arms.extend(given)
        real(given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "interleave", spy)
    return arms


def test_every_breadth_is_timed_at_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: Counter[int] = Counter()
    real = HnswIndex.search

    def search(self: HnswIndex, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        if counting:
            timed[self.ef_search] += 1
        return real(self, vector, k)

    counting = False
    monkeypatch.setattr(HnswIndex, "search", search)
    interleave = measure.interleave

    def spy(*args: object, **how: object) -> None:
        nonlocal counting
        counting = True
        interleave(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "interleave", spy)
    plan = ann_plan.AnnPlan(dims=(16,), corpus=(300,), queries=20, lookups=100, engines=("hnsw",), ef_search=(16, 64))
    ann_bench.run(plan)
    assert timed.keys() == {16, 64}
    assert timed[16] == timed[64] >= 100


def test_all_queries_are_timed_fresh_and_planted_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = recorded_arms(monkeypatch)
    ann_bench.run(SMALL)
    assert [arm.name for arm in arms] == ["exact", "scan", "hnsw"]
    for arm in arms:
        assert len(np.unique(np.array(arm.inputs), axis=0)) == 2 * SMALL.queries
        np.testing.assert_array_equal(arm.inputs, arms[0].inputs)


def test_a_slower_engine_has_a_speedup_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ExactIndex):
        def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
            time.sleep(0.001)
            return super().search(vector, k)

    scan_is(monkeypatch, Slow)
    rows = {row["engine"]: row for row in ann_bench.run(SMALL).rows}
    assert rows["scan"]["p50_us"] > 1_000
    assert rows["scan"]["speedup_vs_exact"]["ratio"] < 0.5


def test_engines_are_built_asked_and_timed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    class Watching(ExactIndex):
        def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
            threads.update(pool["num_threads"] for pool in threadpool_info())
            return super().search(vector, k)

    scan_is(monkeypatch, Watching)
    with threadpool_limits(2):
        ann_bench.run(SMALL)
    assert threads == {1}


def test_a_cell_that_does_not_fit_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ann_bench, "make_cell", lambda *_: pytest.fail("made"))
    with pytest.raises(UsageError, match="GB of memory") as raised:
        ann_bench.run(ann_plan.AnnPlan(dims=(16, 4_096), corpus=(1_000_000_000,)))
    assert "--corpus" in raised.value.hint


def test_memory_that_runs_out_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ann_bench, "measure_cell", full)
    with pytest.raises(UsageError, match="300 rows of 16 dimensions") as raised:
        ann_bench.run(SMALL)
    assert "--corpus" in raised.value.hint


def test_the_free_memory_is_known_or_nothing_is_claimed() -> None:
    free = ann_bench.available_bytes()
    assert free is None or 1 << 20 < free < 1 << 50


@pytest.mark.parametrize(
    ("codes", "measured", "warned"), [((16,), [None], True), ((0, 4), [None, 4], False), ((4, 16), [4, None], True)]
)
def test_codes_beyond_the_dimensions_are_said(codes: tuple[int, ...], measured: list[int | None], warned: bool) -> None:
    plan = ann_plan.AnnPlan(dims=(8,), corpus=(200,), queries=20, lookups=10, engines=("scan",), codes=codes)
    result = ann_bench.run(plan)
    assert [row["params"].get("m") for row in result.rows[1:]] == measured
    assert [warning.code for warning in result.warnings] == ["CODES_REDUCED"] * warned


def test_lists_that_were_not_given_are_the_engines_own_defaults() -> None:
    plan = ann_plan.filled(ann_plan.AnnPlan())
    graph = dict(ann_plan.settings(plan, 32)[-1].options)
    assert graph == {"M": hnsw.LINKS, "ef_construction": hnsw.EF_CONSTRUCTION, "ef_search": hnsw.EF_SEARCH}
    assert dict(ann_plan.settings(plan, 32)[1].options) == {"refine": scan.REFINE}
    given = ann_plan.AnnPlan(M=(8,), ef_construction=(40,), ef_search=(9,), refine=(7,))
    assert ann_plan.filled(given) == given


def test_asking_for_more_neighbours_is_a_setting_of_its_own() -> None:
    plan = ann_plan.AnnPlan(dims=(16,), corpus=(300,), queries=20, lookups=10, engines=("scan",), top_k=(1, 5))
    assert [row["params"].get("top_k", 1) for row in ann_bench.run(plan).rows if row["engine"] == "scan"] == [1, 5]


@pytest.mark.parametrize("engines", [("scan",), ("exact", "scan")])
def test_plain_exact_search_is_measured_whatever_is_asked_for(engines: tuple[str, ...]) -> None:
    plan = ann_plan.AnnPlan(dims=(16,), corpus=(300,), queries=20, lookups=10, engines=engines, top_k=(10,))
    rows = ann_bench.run(plan).rows
    assert (rows[0]["engine"], rows[0]["params"]) == ("exact", {})
    assert [row["params"].get("top_k") for row in rows[1:]] == [10] * len(engines)


def test_equal_seeds_give_equal_recall() -> None:
    one, two = (ann_bench.run(SMALL) for _ in "ab")
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a["recall_at_1"] == b["recall_at_1"]
        assert a["nearest_cosine_median"] == b["nearest_cosine_median"]


def test_a_corpus_larger_than_the_file_is_reduced_and_said(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(100, 6)))
    result = ann_bench.run(
        ann_plan.AnnPlan(
            data=(str(tmp_path / "v.npy"),), corpus=(50, 1_000), queries=500, lookups=10, engines=("exact",)
        )
    )
    assert [row["corpus"] for row in result.rows] == [50, 80]
    assert [row["n"] for row in result.rows] == [20, 20]
    assert "CORPUS_REDUCED" in {warning.code for warning in result.warnings}


@pytest.mark.parametrize(
    "bad",
    [
        {"engines": ("faiss",)},
        {"near": (0.9, 0.8)},
        {"near": (0.5, 1.5)},
        {"dims": (1,)},
        {"queries": 0},
        {"lookups": 0},
        {"tau": 1.5},
        {"tau": -0.1},
        {"data": ("random", "clustered", "random")},
    ],
)
def test_plans_that_make_no_sense(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ann_plan.AnnPlan(**bad)  # type: ignore[arg-type]


def test_without_hnswlib_the_graph_is_faiss_and_the_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw_library, "find_spec", lambda name: None)
    hnsw_library.graph_library.cache_clear()
    try:
        monkeypatch.setattr(hnsw, "GRAPH_FROM", 30)
        plan = ann_plan.AnnPlan(dims=(16,), corpus=(300,), queries=20, lookups=100, engines=("hnsw",))
        result = ann_bench.run(plan)
    finally:
        hnsw_library.graph_library.cache_clear()
    assert [warning.code for warning in result.warnings] == ["FAISS_GRAPH"]
    assert all(row["recall_at_1"] > 0.9 for row in result.rows)
