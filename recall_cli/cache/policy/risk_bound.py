"""The certificate: up to which estimated P(wrong) may be served, so that P(wrong | served) stays under the target.

Decisions are counted in bins of their estimated P(wrong), with edges relative to the target. A bound
answers with the edge below which everything may be served, or with minus infinity: nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.policy.risk_model import probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

NOTHING = -math.inf
"""The threshold that serves nothing."""

EDGES = (0.35, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 34, 48)
"""Bin edges in targets: fine where the cutoff can fall. What is surely right shares one bin.

Below 0.35 targets finer bins share the few audits among them and each pays its own FLOOR: the bound then
says 0.9 % where the truth is 0.1 %, and 4 to 6 points of hit rate are lost (seeds 0-9).
"""
LAST_EDGE = 0.95
"""Nobody would serve what is almost surely wrong; edges beyond it say nothing."""
TRUST = 4.0
"""Labels that the model's own estimate counts for in a bin without any."""
FLOOR = 0.1
"""Wrong and right pseudo-labels on top, so that no bin is certain."""
LUCK = 2.0
"""The bound is on what users will count, the wrong among the served, not on a rate behind it.

So the luck of the draw adds its variance: once for independent hits, and once more since a wrong answer
tends to be served again. It matters where hits are few (real texts at 1 %), hardly elsewhere.
"""
MIN_TRAFFIC = 30
"""Decisions below an edge before it can pass: fewer say nothing about the mix."""


def logit(p: float) -> float:
    """Return the log odds of a probability strictly between 0 and 1."""
    return math.log(p / (1 - p))


def upper_logits(multiples: tuple[float, ...], target: float) -> list[float]:
    """Return the edges as logits."""
    return [logit(target * multiple) for multiple in multiples if target * multiple < LAST_EDGE]


class BayesBound:
    """A stratified, traffic-weighted upper bound: each bin's error rate is estimated, its traffic is known.

    Labels are dense where nothing is served (every miss gives one) and thin where something is (audits
    alone). Weighting the bins by all their traffic corrects for it with less variance than weighting labels.
    The bound is moment-matched (gamma, Wilson-Hilferty), not distribution-free.
    """

    def __init__(self, target: float, confidence: float) -> None:
        self.target = target
        self.edges = upper_logits(EDGES, target)
        self._z = NormalDist().inv_cdf(confidence)
        n = len(self.edges) + 1
        self._traffic = [0] * n
        self._q = [0.0] * n
        self._labels = [0] * n
        self._wrong = [0] * n

    def see(self, z: float) -> int:
        """Count a decision."""
        bin = bisect_left(self.edges, z)
        self._traffic[bin] += 1
        self._q[bin] += probability(z)
        return bin

    def leave(self, bin: int, label: int) -> None:
        """Take out a decision; the mean estimate of its bin stays."""
        left = self._traffic[bin] - 1
        self._q[bin] *= left / (left + 1)
        self._traffic[bin] = left
        if label <= 1:
            self._labels[bin] -= 1
            self._wrong[bin] -= label

    def label(self, bin: int, wrong: int) -> None:
        """Count a label."""
        self._labels[bin] += 1
        self._wrong[bin] += wrong

    def rebuild(self, z: Floats, labels: Ints) -> Ints:
        """Start again from these decisions."""
        bins = np.searchsorted(self.edges, z, side="left")
        n = len(self.edges) + 1
        self._traffic = np.bincount(bins, minlength=n).tolist()
        self._q = np.bincount(bins, weights=1 / (1 + np.exp(-z)), minlength=n).tolist()
        self._labels = np.bincount(bins[labels <= 1], minlength=n).tolist()
        self._wrong = np.bincount(bins[labels == 1], minlength=n).tolist()
        return bins

    def threshold(self, extra: int = 0) -> float:
        """Return the last edge whose bound is within the target."""
        best, mean, variance, seen = NOTHING, 0.0, 0.0, 0
        third = self._z / 3
        for j, edge in enumerate(self.edges):
            traffic = self._traffic[j]
            if traffic > 0:
                n = self._labels[j] + extra
                traffic, extra = traffic + extra, 0
                total = n + TRUST + 2 * FLOOR
                rate = (self._wrong[j] + TRUST * self._q[j] / self._traffic[j] + FLOOR) / total
                mean += traffic * rate
                variance += traffic * rate * (1 - rate) * (LUCK + traffic / (total + 1))
                seen += traffic
            if seen >= MIN_TRAFFIC and variance > 0:
                shape = mean * mean / variance
                root = 1 - 1 / (9 * shape) + third / math.sqrt(shape)
                if root <= 0 or mean / seen * root * root * root <= self.target:
                    best = edge
        return best
