"""Interleaving: who runs when. No duration is asserted."""

from __future__ import annotations

from recall_cli.measure.timing import BLOCK, Arm, interleave, microseconds, ratio, sketch, timer_floor_ns


def test_arms_take_turns_in_a_seeded_order() -> None:
    log: list[str] = []
    arms = [Arm(name, lambda _, name=name: log.append(name), [0]) for name in "abc"]  # type: ignore[misc]
    interleave(arms, calls=3 * BLOCK + 1, warmup=2, seed=1)
    assert log[:6] == ["a", "a", "b", "b", "c", "c"]
    rounds = log[6:]
    for start in range(0, 9 * BLOCK, 3 * BLOCK):
        turn = rounds[start : start + 3 * BLOCK]
        assert sorted(turn[::BLOCK]) == ["a", "b", "c"]
        assert all(len(set(turn[i : i + BLOCK])) == 1 for i in range(0, 3 * BLOCK, BLOCK))
    assert [len(arm.samples) for arm in arms] == [3 * BLOCK + 1] * 3
    assert [len(arm.rounds) for arm in arms] == [4] * 3


def test_inputs_are_taken_in_turn_and_wrap() -> None:
    seen: list[int] = []
    arm = Arm("a", seen.append, [1, 2, 3])
    interleave([arm], calls=4, warmup=2, seed=0)
    assert seen == [1, 2, 3, 1, 2, 3]


def test_preparation_runs_before_every_call() -> None:
    log: list[str] = []
    arm = Arm("a", lambda _: log.append("call"), [0], before=lambda: log.append("before"))
    interleave([arm], calls=2, warmup=0, seed=0)
    assert log == ["before", "call"] * 2


def test_no_p99_from_few_samples() -> None:
    few, many = Arm("few", int, [0], samples=[1_000] * 999), Arm("many", int, [0], samples=[1_000] * 1_000)
    assert microseconds(few)["p99"] is None
    assert microseconds(many) == {
        "n": 1_000,
        "p50": 1.0,
        "p50_interval": [1.0, 1.0],
        "p99": 1.0,
        "p99_interval": [1.0, 1.0],
    }


def test_ratio_and_sketch() -> None:
    one = Arm("one", int, [0], samples=[2_000, 4_000], rounds=[2_000.0, 4_000.0])
    two = Arm("two", int, [0], samples=[1_000, 2_000], rounds=[1_000.0, 2_000.0])
    assert ratio(one, two)["ratio"] == 2
    kept = sketch(one)
    assert (kept["percentiles_us"][0], kept["percentiles_us"][-1]) == (2.0, 4.0)
    assert kept["round_medians_us"] == [2.0, 4.0]


def test_the_clock_has_a_floor() -> None:
    assert timer_floor_ns() > 0
