"""Pure statistics: quantiles, intervals of quantiles and rates, bootstrap ratios.

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


def block_bootstrap(
    totals: Sequence[float], *, seed: int = 0, level: float = 0.95, resamples: int = BOOTSTRAP_RESAMPLES
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
