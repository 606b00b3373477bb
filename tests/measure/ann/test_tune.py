"""ann-bench: the limit on recall, the search for the cheapest that holds it, and going on with an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli import stats
from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure.ann import ann_bench
from recall_cli.measure.ann import plan as ann_plan
from recall_cli.measure.ann import tune as ann_tune
from recall_cli.measure.result import from_json, to_json
from recall_cli.types import Result


@given(st.floats(0.5, 0.9995))
def test_enough_queries_are_asked_to_prove_the_limit(limit: float) -> None:
    n = ann_tune.RecallGate(limit).queries()
    row = {"recall_at_1_near_interval": stats.wilson(n, n)}
    assert ann_tune.RecallGate(limit).holds(row)


@pytest.mark.parametrize("bad", [0, 1, 1.5, -1])
def test_limits_that_cannot_be_proved(bad: float) -> None:
    with pytest.raises(UsageError, match="min-recall"):
        ann_tune.RecallGate(bad)


def test_tuning_names_the_cheapest_that_holds() -> None:
    plan = ann_plan.AnnPlan(
        dims=(32,),
        corpus=(1_500,),
        queries=10,
        lookups=20,
        engines=("scan", "hnsw"),
        M=(4,),
        ef_construction=(20,),
        ef_search=(4, 200),
    )
    gate = ann_tune.RecallGate(0.9, "all")
    result = ann_tune.run(plan, gate, tune=True)
    (chosen,) = result.summary["chosen"]
    holding = [row for row in result.rows if row["holds"] and row["engine"] != "exact"]
    assert chosen["p50_us"] == min(row["p50_us"] for row in holding)
    assert chosen["exact_p50_us"] == result.rows[0]["p50_us"]
    assert chosen["index"].startswith(("scan:", "hnsw:"))
    assert not all(row["holds"] for row in result.rows)
    assert "QUERIES_RAISED" in {warning.code for warning in result.warnings}
    from recall_cli.cache.index.auto import index_maker

    assert len(index_maker(chosen["index"])(32)) == 0  # the flag is one that recall takes
    ann_tune.check(result, gate)


BAD = ann_plan.AnnPlan(
    dims=(64,),
    corpus=(2_000,),
    queries=100,
    lookups=10,
    engines=("hnsw",),
    M=(2,),
    ef_construction=(4,),
    ef_search=(2,),
)


@pytest.mark.parametrize(("tune", "said"), [(True, "no setting holds"), (False, "do not hold")])
def test_nothing_that_holds_is_exit_3(tune: bool, said: str) -> None:
    gate = ann_tune.RecallGate(0.99, "all")
    result = ann_tune.run(BAD, gate, tune=tune)
    if tune:
        assert [cell["index"] for cell in result.summary["chosen"]] == [None]
    with pytest.raises(GateFailed, match=said) as raised:
        ann_tune.check(result, gate)
    assert raised.value.exit_code == 3


def test_a_limit_is_held_by_the_lower_end_of_the_interval() -> None:
    row = {"recall_at_1_interval": [0.97, 0.99], "recall_at_1_near_interval": [0.98, 1.0]}
    assert not ann_tune.RecallGate(0.98, "all").holds(row)
    assert ann_tune.RecallGate(0.97, "all").holds(row)
    assert ann_tune.RecallGate(0.98, "near").holds(row)
    assert not ann_tune.RecallGate(0.98, "near").holds(row | {"recall_at_1_near_interval": None})


def test_tuning_keeps_the_lists_that_were_given() -> None:
    given = ann_plan.AnnPlan(M=(32,), ef_search=(64, 160), refine=(48,), codes=(0,))
    for dim in (32, 256):
        tuned = ann_tune._grid(ann_tune.wide(given), dim)
        assert tuned == ann_plan.settings(ann_plan.filled(given), dim)
        assert len(tuned) == 4


def test_tuning_walks_wide_lists_where_none_was_given() -> None:
    grid = ann_tune._grid(ann_tune.wide(ann_plan.AnnPlan(M=(8,))), 32)
    assert len(grid) == 1 + 2 * 4 + 1 * 6
    assert {dict(s.options)["m"] for s in grid if s.engine == "scan"} == {16, 32}
    assert {dict(s.options)["M"] for s in grid if s.engine == "hnsw"} == {8}


def test_tuning_finds_an_index_not_a_number_of_neighbours() -> None:
    with pytest.raises(UsageError, match="--index"):
        ann_tune.run(ann_plan.AnnPlan(top_k=(1, 10)), ann_tune.RecallGate(0.9), tune=True)


@pytest.mark.parametrize("on", ["", "some"])
@pytest.mark.parametrize("limit", [None, 0.9])
def test_an_unknown_gate_is_refused_with_and_without_a_limit(on: str, limit: float | None) -> None:
    with pytest.raises(UsageError, match="--gate"):
        ann_tune.gate(limit, on, tune=False)


@pytest.mark.parametrize("tune", [True, False])
def test_a_near_gate_without_near_queries_says_so(tune: bool) -> None:
    plan = ann_plan.AnnPlan(dims=(64,), corpus=(300,), lookups=10, engines=("scan",), near=(0.1, 0.2), tau=0.95)
    gate = ann_tune.RecallGate(0.9)
    result = ann_tune.run(plan, gate, tune=tune)
    assert {row["near_n"] for row in result.rows} == {0}
    with pytest.raises(GateFailed, match=r"no query has a neighbour at cosine 0\.95") as raised:
        ann_tune.check(result, gate)
    assert "--near" in raised.value.hint


def test_too_few_queries_to_prove_anything_are_said(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(60, 6)))
    plan = ann_plan.AnnPlan(data=(str(tmp_path / "v.npy"),), lookups=10, engines=("exact",))
    gate = ann_tune.RecallGate(0.99, "all")
    with pytest.raises(GateFailed, match="12 queries cannot prove"):
        ann_tune.check(ann_tune.run(plan, gate), gate)


# --- interruptions ---------------------------------------------------------------------------

TWO = ann_plan.AnnPlan(dims=(8, 16), corpus=(200,), queries=20, lookups=10, engines=("exact",))


def interrupted_after_first(monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[int]]:
    written: list[int] = []
    real = ann_bench.measure_cell

    def once(plan, cell, grid, progress):  # type: ignore[no-untyped-def]
        if written:
            raise KeyboardInterrupt
        return real(plan, cell, grid, progress)

    monkeypatch.setattr(ann_bench, "measure_cell", once)
    return ann_bench.run(TWO, checkpoint=lambda result: written.append(len(result.rows))), written


def test_finished_cells_survive_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    half, written = interrupted_after_first(monkeypatch)
    assert written == [1]
    assert [row["dims"] for row in half.rows] == [8]
    assert half.summary["interrupted"]
    with pytest.raises(KeyboardInterrupt):
        ann_tune.check(half, None)
    monkeypatch.undo()
    whole = ann_bench.run(TWO, done=from_json(to_json(half)))
    assert [row["dims"] for row in whole.rows] == [8, 16]
    assert whole.rows[0]["p50_us"] == half.rows[0]["p50_us"]
    assert "interrupted" not in whole.summary


def test_an_interruption_is_exit_130_even_without_a_gate() -> None:
    with pytest.raises(KeyboardInterrupt):
        ann_tune.check(Result("ann-bench", {}, {}, "", summary={"interrupted": True}), ann_tune.RecallGate(0.9))


@pytest.fixture(scope="module")
def before() -> Result:
    return from_json(to_json(ann_tune.run(TWO, ann_tune.RecallGate(0.5, "all"))))


@pytest.mark.parametrize(
    ("limit", "tune"),
    [
        (None, False),
        (ann_tune.RecallGate(0.6, "all"), False),
        (ann_tune.RecallGate(0.5), False),
        (ann_tune.RecallGate(0.5, "all"), True),
    ],
)
def test_another_limit_or_tuning_is_not_resumed(before: Result, limit: ann_tune.RecallGate | None, tune: bool) -> None:
    with pytest.raises(UsageError, match="other options"):
        ann_tune.run(TWO, limit, tune=tune, done=before)


def test_the_same_is_resumed(before: Result) -> None:
    again = ann_tune.run(TWO, ann_tune.RecallGate(0.5, "all"), done=before)
    assert again.rows == before.rows


def test_another_file_of_the_same_name_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "v.npy"
    plan = ann_plan.AnnPlan(data=(str(path),), corpus=(40,), queries=10, lookups=10, engines=("exact",))
    np.save(path, np.random.default_rng(0).normal(size=(60, 6)))
    first = ann_bench.run(plan)
    assert ann_bench.run(plan, done=from_json(to_json(first))).rows == first.rows
    np.save(path, np.random.default_rng(1).normal(size=(60, 6)))
    with pytest.raises(UsageError, match="other files"):
        ann_bench.run(plan, done=from_json(to_json(first)))


@pytest.mark.parametrize(
    "damage",
    [
        {"data": None},
        {"dims": "8"},
        {"p50_us": None},
        {"params": []},
        {"speedup_vs_exact": {}},
        {"recall_at_1_interval": [1]},
        {"recall_at_1_near_interval": ["a", "b"]},
    ],
)
def test_a_malformed_row_is_an_input_error(before: Result, damage: dict[str, object]) -> None:
    broken = replace(before, rows=[before.rows[0] | damage, *before.rows[1:]])
    with pytest.raises(InputError, match=f"row 0 .*{next(iter(damage))}"):
        ann_tune.run(TWO, ann_tune.RecallGate(0.5, "all"), done=broken)


@pytest.mark.parametrize("rows", [None, [7], [{}], "rows"])
def test_rows_that_are_none(before: Result, rows: object) -> None:
    with pytest.raises(InputError, match="row 0"):
        ann_tune.run(TWO, ann_tune.RecallGate(0.5, "all"), done=replace(before, rows=rows))  # type: ignore[arg-type]


def test_a_cell_with_other_settings_is_measured_again(before: Result) -> None:
    other = replace(before, rows=[before.rows[0] | {"params": {"m": 4}}, *before.rows[1:]])
    again = ann_tune.run(TWO, ann_tune.RecallGate(0.5, "all"), done=other)
    assert [row["params"] for row in again.rows] == [{}, {}]
    assert again.rows[1] == before.rows[1]


def test_another_plan_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    half, _ = interrupted_after_first(monkeypatch)
    with pytest.raises(UsageError, match="other options"):
        ann_bench.run(replace(TWO, seed=1), done=half)
