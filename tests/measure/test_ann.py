"""ann-bench: the truth it counts by, the data it makes, the gate, and going on after an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.core.embed import make_embedder
from recall_cli.core.exact import ExactIndex
from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure import ann, ann_data, ann_tune
from recall_cli.measure.ann_data import Clusters, at_cosine, clustered, load, make_cell, nearest, random_units
from recall_cli.measure.result import from_json, to_json
from recall_cli.types import Ids, Result, Vector

SMALL = ann.Plan(dims=(16,), corpus=(300,), queries=60, lookups=20, ef_search=(16,))


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
    result = ann.run(SMALL)
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
        for rate in ("recall_at_1", "recall_at_1_near"):
            low, high = row[f"{rate}_interval"]
            assert low <= row[rate] <= high
    exact = result.rows[0]
    assert exact["recall_at_1"] == exact["recall_at_1_near"] == 1
    assert exact["speedup_vs_exact"]["ratio"] == 1


class Blind(ExactIndex):
    """Finds the second nearest."""

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        ids, similarities = super().search(vector, k + 1)
        return ids[1:], similarities[1:]


def test_what_an_index_loses_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Blind)
    rows = {row["engine"]: row for row in ann.run(SMALL).rows}
    assert rows["scan"]["recall_at_1"] == rows["scan"]["recall_at_1_near"] == 0
    assert rows["exact"]["recall_at_1"] == 1


class Boaster(ExactIndex):
    """Always the same answer, and always sure of it."""

    answer = 0

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        return np.array([self.answer]), np.ones(1, np.float32)


def scan_is(monkeypatch: pytest.MonkeyPatch, kind: type[ExactIndex]) -> None:
    real = ann.make_index
    monkeypatch.setattr(ann, "make_index", lambda name, dim, **o: kind(dim) if name == "scan" else real(name, dim, **o))


def test_what_an_engine_claims_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Boaster)
    rows = {row["engine"]: row for row in ann.run(SMALL).rows}
    assert rows["scan"]["recall_at_1"] < 0.1
    assert rows["scan"]["recall_at_1_planted"] < 0.1


@pytest.mark.parametrize("answer", [-1, 300])
def test_an_id_that_nobody_added_stops_the_run(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scan_is(monkeypatch, Boaster)
    monkeypatch.setattr(Boaster, "answer", answer)
    with pytest.raises(GateFailed, match="nobody added"):
        ann.run(SMALL)


def test_an_engine_without_an_answer_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(ExactIndex):
        def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
            return np.empty(0, np.int64), np.empty(0, np.float32)

    scan_is(monkeypatch, Silent)
    assert ann.run(SMALL).rows[1]["recall_at_1"] == 0


def test_ties_count_as_found() -> None:
    rng = np.random.default_rng(0)
    row = random_units(1, 8, rng)
    corpus = np.repeat(row, 50, axis=0)
    index = ExactIndex(8)
    index.add(np.arange(50), corpus)
    truth = ann_data.Truth(corpus[:5], nearest(corpus, corpus[:5]))
    assert ann._hits(index, corpus, truth, 1).all()


def test_one_graph_serves_every_breadth_and_breadth_finds_more() -> None:
    plan = ann.Plan(
        dims=(64,),
        corpus=(2_000,),
        queries=200,
        lookups=20,
        engines=("hnsw",),
        M=(4,),
        ef_construction=(20,),
        ef_search=(4, 256),
    )
    narrow, wide = ann.run(plan).rows[1:]
    assert narrow["build_s"] == wide["build_s"]
    assert narrow["params"]["ef_search"], wide["params"]["ef_search"] == (4, 256)
    assert narrow["recall_at_1"] < wide["recall_at_1"]


def test_asking_for_more_neighbours_is_a_setting_of_its_own() -> None:
    plan = ann.Plan(dims=(16,), corpus=(300,), queries=20, lookups=10, engines=("scan",), top_k=(1, 5))
    assert [row["params"].get("top_k", 1) for row in ann.run(plan).rows if row["engine"] == "scan"] == [1, 5]


@pytest.mark.parametrize("engines", [("scan",), ("exact", "scan")])
def test_plain_exact_search_is_measured_whatever_is_asked_for(engines: tuple[str, ...]) -> None:
    plan = ann.Plan(dims=(16,), corpus=(300,), queries=20, lookups=10, engines=engines, top_k=(10,))
    rows = ann.run(plan).rows
    assert (rows[0]["engine"], rows[0]["params"]) == ("exact", {})
    assert [row["params"].get("top_k") for row in rows[1:]] == [10] * len(engines)


def test_equal_seeds_give_equal_recall() -> None:
    one, two = (ann.run(SMALL) for _ in "ab")
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a["recall_at_1"] == b["recall_at_1"]
        assert a["nearest_cosine_median"] == b["nearest_cosine_median"]


# --- the user's own vectors ------------------------------------------------------------------

STATIC = make_embedder("static")


def test_own_vectors_are_scaled_and_made_distinct(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6))
    np.save(tmp_path / "v.npy", np.vstack([rows, rows[:10] * 3]))
    loaded = load(str(tmp_path / "v.npy"), STATIC)
    assert loaded.shape == (50, 6)
    np.testing.assert_allclose(np.linalg.norm(loaded, axis=1), 1, atol=1e-6)


def test_own_prompts_and_logs_are_embedded(tmp_path: Path) -> None:
    texts = [f"how do I clean the {thing}" for thing in ("oven", "car", "sofa", "roof", "oven")]
    (tmp_path / "p.txt").write_text("\n".join(texts))
    body = {"model": "m", "messages": [{"role": "user", "content": ""}]}
    lines = [{"request": {**body, "messages": [{"role": "user", "content": t}]}, "response": {}} for t in texts]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    from_text, from_log = (load(str(tmp_path / name), STATIC) for name in ("p.txt", "log.jsonl"))
    assert from_text.shape == (4, STATIC.dim)
    np.testing.assert_array_equal(from_text, from_log)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((3, 4)), "zeros"),
        (np.full((3, 4), np.nan), "NaN"),
        (np.ones(4), "shape"),
        (np.ones((0, 4)), "shape"),
        (np.array([["a", "b"]]), "not rows of numbers"),
    ],
)
def test_arrays_that_are_no_vectors(tmp_path: Path, rows: np.ndarray, said: str) -> None:
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(InputError, match=said) as raised:
        load(str(tmp_path / "v.npy"), STATIC)
    assert raised.value.hint


def test_pickled_arrays_are_not_executed(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        load(str(tmp_path / "v.npy"), STATIC)


def test_a_corpus_larger_than_the_file_is_reduced_and_said(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(100, 6)))
    result = ann.run(
        ann.Plan(data=(str(tmp_path / "v.npy"),), corpus=(50, 1_000), queries=500, lookups=10, engines=("exact",))
    )
    assert [row["corpus"] for row in result.rows] == [50, 80]
    assert [row["n"] for row in result.rows] == [20, 20]
    assert "CORPUS_REDUCED" in {warning.code for warning in result.warnings}


# --- the gate --------------------------------------------------------------------------------


@given(st.floats(0.5, 0.9995))
def test_enough_queries_are_asked_to_prove_the_limit(limit: float) -> None:
    n = ann_tune.Gate(limit).queries()
    row = {"recall_at_1_near_interval": ann.stats.wilson(n, n)}
    assert ann_tune.Gate(limit).holds(row)


@pytest.mark.parametrize("bad", [0, 1, 1.5, -1])
def test_limits_that_cannot_be_proved(bad: float) -> None:
    with pytest.raises(UsageError, match="min-recall"):
        ann_tune.Gate(bad)


def test_tuning_names_the_cheapest_that_holds() -> None:
    plan = ann.Plan(
        dims=(32,),
        corpus=(1_500,),
        queries=10,
        lookups=20,
        engines=("scan", "hnsw"),
        M=(4,),
        ef_construction=(20,),
        ef_search=(4, 200),
    )
    gate = ann_tune.Gate(0.9, "all")
    result = ann_tune.run(plan, gate, tune=True)
    (chosen,) = result.summary["chosen"]
    holding = [row for row in result.rows if row["holds"] and row["engine"] != "exact"]
    assert chosen["p50_us"] == min(row["p50_us"] for row in holding)
    assert chosen["index"].startswith(("scan:", "hnsw:"))
    assert not all(row["holds"] for row in result.rows)
    assert "QUERIES_RAISED" in {warning.code for warning in result.warnings}
    from recall_cli.core.index import index_maker

    assert len(index_maker(chosen["index"])(32)) == 0  # the flag is one that recall takes
    ann_tune.check(result, gate)


def test_nothing_that_holds_is_exit_3() -> None:
    plan = ann.Plan(
        dims=(64,),
        corpus=(2_000,),
        queries=100,
        lookups=10,
        engines=("hnsw",),
        M=(2,),
        ef_construction=(4,),
        ef_search=(2,),
    )
    gate = ann_tune.Gate(0.99, "all")
    tuned = ann_tune.run(plan, gate, tune=True)
    assert tuned.summary["chosen"][0]["index"] is None or tuned.summary["chosen"][0]["index"]
    plain = ann_tune.run(plan, gate)
    with pytest.raises(GateFailed, match="do not hold") as raised:
        ann_tune.check(plain, gate)
    assert raised.value.exit_code == 3
    plain.summary["chosen"] = [{"data": "random", "dims": 64, "corpus": 2_000, "index": None}]
    with pytest.raises(GateFailed, match="no setting holds"):
        ann_tune.check(plain, gate)


# --- interruptions ---------------------------------------------------------------------------

TWO = ann.Plan(dims=(8, 16), corpus=(200,), queries=20, lookups=10, engines=("exact",))


def interrupted_after_first(monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[int]]:
    written: list[int] = []
    real = ann.measure_cell

    def once(plan, cell, grid, progress):  # type: ignore[no-untyped-def]
        if written:
            raise KeyboardInterrupt
        return real(plan, cell, grid, progress)

    monkeypatch.setattr(ann, "measure_cell", once)
    return ann.run(TWO, checkpoint=lambda result: written.append(len(result.rows))), written


def test_finished_cells_survive_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    half, written = interrupted_after_first(monkeypatch)
    assert written == [1]
    assert [row["dims"] for row in half.rows] == [8]
    assert half.summary["interrupted"]
    with pytest.raises(KeyboardInterrupt):
        ann_tune.check(half, None)
    monkeypatch.undo()
    whole = ann.run(TWO, done=from_json(to_json(half)))
    assert [row["dims"] for row in whole.rows] == [8, 16]
    assert whole.rows[0]["p50_us"] == half.rows[0]["p50_us"]
    assert "interrupted" not in whole.summary


def test_another_plan_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    half, _ = interrupted_after_first(monkeypatch)
    with pytest.raises(UsageError, match="other options"):
        ann.run(SMALL, done=half)


@pytest.mark.parametrize(
    "bad",
    [
        {"engines": ("faiss",)},
        {"near": (0.9, 0.8)},
        {"near": (0.5, 1.5)},
        {"dims": (1,)},
        {"queries": 0},
        {"lookups": 0},
    ],
)
def test_plans_that_make_no_sense(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ann.Plan(**bad)  # type: ignore[arg-type]
