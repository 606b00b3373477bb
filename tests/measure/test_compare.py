"""Two documents compared: what is called different, what is not, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure import compare
from recall_cli.measure.compare import Better, better, estimates
from recall_cli.measure.result import load
from recall_cli.stats import wilson
from recall_cli.types import Result

RESULTS = sorted((Path(__file__).resolve().parents[2] / "results").glob("*.json"))
QUIET = {"system": "Linux", "cpu": "one", "cores": 2, "usable_cores": 2, "load_1m": 0.1, "python": "3.11"}


def document(command: str = "bench", **row: Any) -> Result:
    return Result(command, {"seed": 0}, dict(QUIET), "2026-11-30T00:00:00+00:00", [{"embedder": "static", **row}])


def hits(wrong: int, n: int) -> dict[str, Any]:
    return {"false_hit_rate": wrong / n, "false_hit_interval": list(wilson(wrong, n))}


def timed(us: float, spread: float = 0.01) -> dict[str, Any]:
    return {"lookup_us": {"n": 2000, "p50": us, "p50_interval": [us * (1 - spread), us * (1 + spread)]}}


def verdict(a: Result, b: Result) -> str:
    (row,) = compare.run(a, b).rows
    return str(row["verdict"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_document_differs_from_itself_in_nothing(path: Path) -> None:
    result = compare.run(load(str(path)), load(str(path)))
    assert {row["verdict"] for row in result.rows} <= {"no difference shown", "not tested"}
    assert not result.summary["only_in_a"]
    assert not result.summary["only_in_b"]
    # Single figures without interval or rounds cannot be tested, and the comparison says so.
    assert bool(result.rows) or any(warning.code == "NOTHING_TESTED" for warning in result.warnings)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_interval_of_a_recorded_row_is_found(path: Path) -> None:
    result = load(str(path))
    found = {measure for _, measure in estimates(result)}
    for row in result.rows:
        for key, value in row.items():
            # Bounds are no estimate; a gain is taken against another row; runs over are a count without its rate.
            skipped = ("bounds_interval", "gain_interval", "runs_over_interval")
            if key.endswith("_interval") and isinstance(value, list) and not key.endswith(skipped):
                stem = key.removesuffix("_interval").split("_")[0]
                assert any(measure.startswith(stem) for measure in found), key


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (hits(10, 1000), hits(60, 1000), "worse"),
        (hits(60, 1000), hits(10, 1000), "better"),
        (hits(10, 1000), hits(12, 1000), "no difference shown"),
        (hits(1, 10), hits(4, 10), "no difference shown"),  # four times as many, of ten
        (timed(20), timed(30), "worse"),
        (timed(30), timed(20), "better"),
        (timed(20), timed(21.5), "no difference shown"),  # sure, and smaller than what two runs differ by
        (timed(20, 0.5), timed(30, 0.5), "no difference shown"),  # large, and far from sure
        ({"ratio": 2.0, "interval": [1.9, 2.1]}, {"ratio": 3.0, "interval": [2.9, 3.1]}, "changed"),
    ],
)
def test_the_verdicts(before: dict[str, Any], after: dict[str, Any], expected: str) -> None:
    assert verdict(document(**before), document(**after)) == expected


def test_what_differs_the_good_way_turns_around_with_the_direction() -> None:
    for name in ("hit_rate", "right_rate", "recall_at_1"):
        rows = [{name: share, f"{name}_interval": [share - 0.01, share + 0.01]} for share in (0.4, 0.6)]
        assert verdict(document("eval", **rows[0]), document("eval", **rows[1])) == "better"
        assert verdict(document("eval", **rows[1]), document("eval", **rows[0])) == "worse"


def test_of_kinds_only_repeats_and_paraphrases_should_be_served() -> None:
    found = estimates(load(str(next(path for path in RESULTS if path.stem == "bench"))))
    ways = {key[1].split(".")[-2]: better("bench", one) for key, one in found.items() if key[1].startswith("by_kind")}
    assert {kind for kind, way in ways.items() if way is Better.HIGHER} == {"repeat", "paraphrase"}
    assert {"lookalike", "new", "trap:negation"} <= {kind for kind, way in ways.items() if way is Better.LOWER}


def test_many_equal_values_raise_no_alarm_together() -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(60):
        rows = [
            {f"v{i}": {"hit_rate": k / 400, "hit_rate_interval": list(wilson(k, 400))} for i, k in enumerate(counts)}
            for counts in rng.binomial(400, 0.3, size=(2, 80)).tolist()
        ]
        result = compare.run(document("eval", **rows[0]), document("eval", **rows[1]))
        alarms += any(row["verdict"] in ("better", "worse") for row in result.rows)
    assert alarms <= 8  # 3 are expected; without the adjustment nearly all 60 raise one


def test_rounds_are_compared_by_their_ranks() -> None:
    rng = np.random.default_rng(1)

    def served(scale: float, rounds: int) -> Result:
        rows = [{"arm": "exact", "connections": 1, "cpu_us": scale * v} for v in rng.normal(100, 3, rounds)]
        return Result("benchmarks/serve", {}, dict(QUIET), "", rows)

    assert verdict(served(1, 12), served(1.5, 12)) == "worse"
    assert verdict(served(1, 12), served(1, 12)) == "no difference shown"
    assert verdict(served(1, 3), served(1.5, 3)) == "not tested"


def test_times_of_another_machine_are_not_compared_and_ratios_within_a_run_are() -> None:
    ratio = {"speedup_vs_exact": {"ratio": 2.0, "interval": [1.9, 2.1], "rounds": 20}}
    a, b = document(**timed(20), **ratio), document(**timed(60), **copy.deepcopy(ratio))
    b.environment["cpu"] = "another"
    result = compare.run(a, b)
    assert {row["measure"]: row["verdict"] for row in result.rows} == {
        "lookup_us.p50": "not tested",
        "speedup_vs_exact.ratio": "no difference shown",
    }
    assert [warning.code for warning in result.warnings] == ["OTHER_MACHINE"]
    assert "cpu one against another" in result.warnings[0].message


def test_other_software_and_load_are_said() -> None:
    a, b = document(**hits(1, 10)), document(**hits(1, 10))
    b.environment |= {"python": "3.13", "load_1m": 7.5}
    assert [warning.code for warning in compare.run(a, b).warnings] == ["OTHER_ENVIRONMENT", "BUSY_MACHINE"]


def test_under_load_only_large_differences_of_times_count() -> None:
    ratio = [{"speedup_vs_exact": {"ratio": r, "interval": [0.99 * r, 1.01 * r]}} for r in (2.0, 3.0)]
    a, b = document(**timed(20), **ratio[0]), document(**timed(28), **ratio[1])
    verdicts = [row["verdict"] for row in compare.run(a, b).rows]
    assert verdicts == ["worse", "better"]
    b.environment["load_1m"] = 8.0
    verdicts = [row["verdict"] for row in compare.run(a, b).rows]
    assert verdicts == ["no difference shown", "better"], "a ratio within a run has met the load on both sides"
    slow = document(**timed(60), **ratio[1])
    assert compare.run(slow, b).rows[0]["verdict"] == "better"


def test_what_may_be_no_time_at_all_has_no_ratio() -> None:
    rows = [{"over": {"difference_us": d, "difference_us_interval": [d - 1, d + 1]}} for d in (0.5, 30.0)]
    assert verdict(document(**rows[0]), document(**rows[1])) == "not tested"


def test_unlike_documents_are_refused(tmp_path: Path) -> None:
    one = document(**hits(1, 10))
    with pytest.raises(UsageError, match=r"recall bench.*recall eval"):
        compare.run(one, document("eval", **hits(1, 10)))
    other = document(**hits(1, 10))
    other.params["seed"] = 1
    with pytest.raises(UsageError, match=r"seed \(0 against 1\)"):
        compare.run(one, other)
    other.params = {"seed": 0, "policy": "static"}
    assert [warning.code for warning in compare.run(one, other).warnings] == ["OLDER_PARAMS"]
    with pytest.raises(InputError, match="cannot be read"):
        load(str(tmp_path / "nowhere.json"))


def test_the_gate_names_what_got_worse() -> None:
    same = compare.run(document(**hits(1, 10)), document(**hits(1, 10)))
    compare.check(same)
    with pytest.raises(GateFailed, match="static: false_hit_rate"):
        compare.check(compare.run(document(**hits(1, 900)), document(**hits(90, 900))))


def test_dollars_have_their_own_level() -> None:
    # At 90 % the interval is narrower: read as one of 95 % it would find differences that are not there.
    usd = {"usd": 10.0, "usd_interval": [8.0, 12.0]}
    (found,) = estimates(document("savings", **usd)).values()
    assert found.ends[0] == pytest.approx(10 - 2 * 1.96 / 1.645, abs=2e-3)
