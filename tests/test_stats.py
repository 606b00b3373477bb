"""Statistics against exact answers and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli import stats


@given(n=st.integers(1, 2_000), data=st.data())
def test_wilson_holds_its_rate_and_stays_in_bounds(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = stats.wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1


def test_wilson_against_published_values() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20.
    assert stats.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert stats.wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    assert stats.wilson(0, 0) == (0, 1)
    with pytest.raises(ValueError, match="3 successes of 2"):
        stats.wilson(3, 2)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_quantile_interval_covers_the_true_quantile(q: float) -> None:
    rng = np.random.default_rng(5)
    true = -np.log(1 - q)  # of the exponential distribution
    covered = 0
    for _ in range(400):
        low, high = stats.quantile_interval(rng.exponential(size=1_500), q)
        covered += low <= true <= high
    assert covered >= 0.93 * 400


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_lie_within_their_interval(samples: list[float], q: float) -> None:
    low, high = stats.quantile_interval(samples, q)
    assert min(samples) <= low <= high <= max(samples)
    assert low <= stats.quantile(samples, q) + 1e-6
    assert stats.quantile(samples, q) <= high + 1e-6


def test_ratio_interval_uses_the_pairs() -> None:
    rng = np.random.default_rng(0)
    speed = rng.uniform(1, 2, size=40)  # the machine drifts by half, both arms alike
    ratio, low, high = stats.ratio_interval(list(2 * speed), list(speed))
    assert (ratio, low, high) == pytest.approx((2, 2, 2))
    with pytest.raises(ValueError, match="1 against 2"):
        stats.ratio_interval([1.0], [1.0, 2.0])


def test_block_bootstrap_covers_the_sum() -> None:
    low, high = stats.block_bootstrap([10.0] * 20)
    assert (low, high) == (200, 200)
    low, high = stats.block_bootstrap([0.0, 20.0] * 10)
    assert low < 200 < high
    assert stats.block_bootstrap([]) == (0, 0)


def test_outliers_are_far_values_only() -> None:
    rng = np.random.default_rng(1)
    assert stats.outlier_share(rng.normal(100, 5, 1_000)) == 0
    assert stats.outlier_share([*rng.normal(100, 5, 980), *[1_000.0] * 20]) == pytest.approx(0.02)
    assert stats.outlier_share([]) == 0


@pytest.mark.parametrize("function", [lambda: stats.quantile([], 0.5), lambda: stats.quantile_interval([], 0.5)])
def test_nothing_has_no_quantile(function: object) -> None:
    with pytest.raises(ValueError, match="no samples"):
        function()  # type: ignore[operator]


def test_a_difference_uses_the_pairs_too() -> None:
    rng = np.random.default_rng(0)
    drift = rng.uniform(1, 2, size=40)
    difference, low, high = stats.difference_interval(list(drift + 3), list(drift))
    assert (difference, low, high) == pytest.approx((3, 3, 3))
    with pytest.raises(ValueError, match="0 against 0"):
        stats.difference_interval([], [])


def test_the_middle_leaves_as_much_on_either_side() -> None:
    draws = np.arange(1001.0)
    assert stats.middle(draws).tolist() == pytest.approx([25, 975])
    assert stats.middle(draws, 0.5).tolist() == pytest.approx([250, 750])
    ends = stats.middle(np.stack([draws, 2 * draws], axis=1), axis=0)
    np.testing.assert_allclose(ends, [[25, 50], [975, 1950]])


def test_a_difference_of_rates_against_published_intervals() -> None:
    # Newcombe 1998, table II, method 10: 56/70 against 48/80, and 9/10 against 3/10.
    for (x, n), (y, m), expected in (((56, 70), (48, 80), (0.0524, 0.3339)), ((9, 10), (3, 10), (0.1705, 0.8090))):
        found = stats.independent_difference(y / m, stats.wilson(y, m), x / n, stats.wilson(x, n))
        assert found[1:] == pytest.approx(expected, abs=5e-5)


def test_a_p_value_agrees_with_its_interval() -> None:
    assert stats.p_beyond(1.0, 0.0, 2.0) == pytest.approx(0.05)
    assert stats.p_beyond(-1.0, -2.0, 0.0) == pytest.approx(0.05)
    assert stats.p_beyond(1.0, 0.5, 1.5) < 0.05 < stats.p_beyond(1.0, -0.5, 2.5)
    assert stats.p_beyond(1.0, 0.9, 1.1, margin=1.0) == 1.0
    assert stats.p_beyond(1.0, 1.0, 1.0) == 0.0


def test_the_rank_sum_against_exact_probabilities() -> None:
    # All of one side below the other: 2 / C(10, 5) = 0.0079, by the normal approximation 0.0122 (Siegel 1956).
    assert stats.rank_sum([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(0.0122, abs=1e-4)
    assert stats.rank_sum([1, 1, 1], [1, 1, 1]) == 1.0
    with pytest.raises(ValueError, match="no samples"):
        stats.rank_sum([], [1.0])


def test_the_rank_sum_raises_alarm_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(stats.rank_sum(*rng.integers(0, 6, size=(2, 12))) < 0.05 for _ in range(600))
    assert alarms <= 50  # 30 are expected; ties would raise more without their correction


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_p_values_keep_their_order(p_values: list[float]) -> None:
    adjusted = stats.holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_holm_against_its_own_example() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_ratio_of_unpaired_medians_covers_the_truth() -> None:
    rng = np.random.default_rng(9)
    covered = 0
    for seed in range(150):
        _, low, high = stats.median_ratio(rng.normal(30, 3, 30), rng.normal(20, 2, 40), seed=seed)
        covered += low <= 1.5 <= high
    assert covered >= 0.9 * 150
