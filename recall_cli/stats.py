"""Pure statistics: quantiles, intervals of quantiles and rates, bootstrap ratios, comparison tests.

Nothing here reads a clock, prints or keeps state. Every constant names its reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Z_95 = 1.959963984540054
"""Two-sided 95 % normal quantile: recall prints 95 % intervals."""
MIN_SAMPLES_P99 = 1000
"""A p99 from fewer samples rests on under ten values; we print none."""
BOOTSTRAP_RESAMPLES = 2000
"""Enough that the end of a 95 % interval moves by under 2 % of its width between seeds."""


def quantile(samples: Sequence[float] | Floats, q: float) -> float:
    """Return the q-quantile (0..1) by linear interpolation. Raises ValueError when empty."""
    if len(samples) == 0:
        raise ValueError("no samples")
    return float(np.quantile(np.asarray(samples, dtype=np.float64), q))


def quantile_interval(samples: Sequence[float] | Floats, q: float, z: float = Z_95) -> tuple[float, float]:
    """Return an interval of the q-quantile from order statistics: no distribution is assumed.

    The rank of the true quantile is binomial(n, q); its normal approximation picks two samples.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples")
    spread = z * math.sqrt(n * q * (1 - q))
    low = max(0, math.floor(n * q - spread) - 1)
    high = min(n - 1, math.ceil(n * q + spread))
    return float(ordered[low]), float(ordered[high])


def middle(draws: Floats | Sequence[float], level: float = 0.95, axis: int | None = None) -> Floats:
    """Return the two ends between which the middle `level` of the draws lies: what a bootstrap's interval is.

    :param axis: along which the draws lie; None: all values are draws. The ends are the result's first axis.
    """
    ends: Floats = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=axis)
    return ends


def wilson(successes: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson score interval of a rate (Wilson 1927); (0, 1) when n is 0."""
    if n == 0:
        return 0.0, 1.0
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the exact value is 0 or 1, which floating point misses by an ulp.
    low = 0.0 if successes == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if successes == n else min(1.0, (centre + spread) / scale)
    return low, high


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """Return (ratio, low, high) of the medians of two paired lists, by bootstrap over pairs.

    Pairs are rounds in which both arms ran, so drift of the machine cancels.
    """
    a, b, picks = _pairs(numerators, denominators, seed)
    low, high = middle(np.median(a[picks], axis=1) / np.median(b[picks], axis=1), level)
    return float(np.median(a) / np.median(b)), float(low), float(high)


def difference_interval(
    values: Sequence[float], others: Sequence[float], *, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """Return (difference, low, high) of the medians of two paired lists, by the same bootstrap as a ratio."""
    a, b, picks = _pairs(values, others, seed)
    low, high = middle(np.median(a[picks], axis=1) - np.median(b[picks], axis=1), level)
    return float(np.median(a) - np.median(b)), float(low), float(high)


def _pairs(first: Sequence[float], second: Sequence[float], seed: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return both lists as arrays, and the resampled positions, shape (resamples, pairs). Raises ValueError."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"{len(a)} against {len(b)} values")
    return a, b, np.random.default_rng(seed).integers(0, len(a), size=(BOOTSTRAP_RESAMPLES, len(a)))


def mean_interval(
    values: Sequence[float] | Floats, *, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """Return (mean, low, high), by bootstrap over the values. Raises ValueError when there is none."""
    n = len(values)
    if n == 0:
        raise ValueError("no values")
    low, high = block_bootstrap(values, seed=seed, level=level)
    return float(np.mean(values)), low / n, high / n


def block_bootstrap(
    totals: Sequence[float] | Floats, *, seed: int = 0, level: float = 0.95, resamples: int = BOOTSTRAP_RESAMPLES
) -> tuple[float, float]:
    """Return an interval of the sum of block totals, resampling whole blocks.

    Rows inside a block (a day, a tenant) depend on each other; blocks much less so.
    """
    values = np.asarray(totals, dtype=np.float64)
    if len(values) == 0:
        return 0.0, 0.0
    picks = np.random.default_rng(seed).integers(0, len(values), size=(resamples, len(values)))
    low, high = middle(values[picks].sum(axis=1), level)
    return float(low), float(high)


def outlier_share(samples: Sequence[float] | Floats) -> float:
    """Return the share of samples above median + 10 robust standard deviations.

    1.4826 turns the median absolute deviation into a standard deviation for normal data
    (Iglewicz & Hoaglin 1993); 10 keeps the ordinary right tail of timings out of it.
    """
    values = np.asarray(samples, dtype=np.float64)
    if len(values) == 0:
        return 0.0
    median = float(np.median(values))
    deviation = 1.4826 * float(np.median(np.abs(values - median)))
    if deviation == 0.0:
        return 0.0
    return float(np.mean(values > median + 10 * deviation))


def independent_difference(
    a: float, a_ends: tuple[float, float], b: float, b_ends: tuple[float, float]
) -> tuple[float, float, float]:
    """Return (b - a, low, high) of two independent estimates, from the interval of each (Zou & Donner 2008).

    Of two rates with Wilson intervals this is Newcombe's hybrid score interval (1998, method 10).
    """
    low = b - a - math.hypot(b - b_ends[0], a_ends[1] - a)
    high = b - a + math.hypot(b_ends[1] - b, a - a_ends[0])
    return b - a, low, high


def p_beyond(difference: float, low: float, high: float, margin: float = 0.0) -> float:
    """Return the two-sided p-value of a difference no further from 0 than `margin`, from its 95 % interval.

    The half of the interval that faces 0 is taken for 1.96 standard errors.
    """
    excess = abs(difference) - margin
    if excess <= 0:
        return 1.0
    half = difference - low if difference > 0 else high - difference
    return math.erfc(Z_95 * excess / half / math.sqrt(2)) if half > 0 else 0.0


def rank_sum(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p-value of the rank-sum test of two samples (Mann & Whitney 1947).

    By its normal approximation with corrections for ties and continuity: from about five values a side on.
    Raises ValueError when a sample is empty.
    """
    if not len(a) or not len(b):
        raise ValueError("no samples")
    n, m = len(a), len(b)
    ranked, counts = ranks([*a, *b])
    u = float(ranked[:n].sum()) - n * (n + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)
    if len(counts) == 1 or variance <= 0:
        return 1.0
    return math.erfc(max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(2 * variance))


def ranks(values: Sequence[float] | Floats) -> tuple[Floats, Ints]:
    """Return (rank of each value from 1 on, how often each distinct value occurs); equal values share a mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: Floats = np.cumsum(counts) - (counts - 1) / 2
    return means[places], counts


def median_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, seed: int = 0
) -> tuple[float, float, float]:
    """Return (ratio, low, high) of the medians of two unpaired samples, by bootstrap of each."""
    rng = np.random.default_rng(seed)
    a, b = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    tops, bottoms = (
        np.median(sample[rng.integers(0, len(sample), size=(BOOTSTRAP_RESAMPLES, len(sample)))], axis=1)
        for sample in (a, b)
    )
    low, high = middle(tops / bottoms)
    return float(np.median(a) / np.median(b)), float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for how many there are (Holm 1979): below 0.05, one false alarm in 20 runs of all."""
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = worst
    return adjusted
