"""Counting waits by bucket: plain numbers, added to in a fraction of a microsecond."""

from __future__ import annotations

from bisect import bisect_left

STEPS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency buckets in seconds: from a hit to a long answer."""


class Histogram:
    """Counts by bucket, for one kind of wait."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(STEPS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one wait."""
        self.counts[bisect_left(STEPS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as the exposition format has them."""
        total, rows = 0, []
        for bound, count in zip((*map(str, STEPS), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows
