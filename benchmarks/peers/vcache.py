"""vCache's decision, written from its paper, over our embedder: every stored prompt learns its own threshold.

Schroeder et al., "vCache: Verified Semantic Prompt Caching" (arXiv 2502.03771), algorithms 1 and 2, equations 9-11.
It promises P(served and wrong) <= delta for each query, not for each hit: a miss counts as correct, so a share of its
hits may be wrong that is as many times larger as hits are rare. It asks the model at random, as often as the
promise needs, and compares only then.

Where observations are cleanly separated the likelihood has no maximum. The authors' program then looks the variance
up in a table that it carries; VARIANCE follows that table's ends. Everything else follows from the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.measure.evaluate.replay import CacheReplay, ReplayCounts, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DEFAULT_DELTA = 0.02
"""What its package sets."""
OBSERVATIONS = 6
"""A stored prompt with fewer, the two it starts with among them, is always asked anew."""
SEEDS = ((0.0, False), (1.0, True))
"""Every stored prompt starts with these: what has nothing in common is wrong, what is equal is right."""
EPSILONS = np.linspace(1e-6, 1 - 1e-6, 50)
Z = np.array([NormalDist().inv_cdf(1 - epsilon) for epsilon in EPSILONS.tolist()])
VARIANCE = ((6, 11), (0.035, 0.012))
"""Of the threshold where observations are separated: at six of them, and from eleven on."""
SURE = math.log(1e8)
"""The logit of the nearest observation at which a fit of separated observations is stopped."""
STEPS = 30
"""Newton steps of a fit: it converges in about ten."""


@dataclass(slots=True)
class Threshold:
    """What one stored prompt has seen, and the sigmoid fitted to it."""

    seen: list[tuple[float, bool]] = field(default_factory=lambda: list(SEEDS))
    """(similarity, whether its answer was right)."""
    fitted: tuple[float, float, float] | None = None
    """(threshold, slope, standard error of the threshold); None when there is something new to fit."""

    def observe(self, similarity: float, right: bool) -> None:
        """Add what asking the model showed."""
        self.seen.append((similarity, right))
        self.fitted = None

    def explore(self, similarity: float, delta: float) -> float:
        """Return the probability with which the model must be asked although there is a neighbour, at most 1.

        Below 0 it is never asked.
        """
        if len(self.seen) < OBSERVATIONS:
            return 1.0
        if self.fitted is None:
            self.fitted = fit(self.seen)
        threshold, slope, error = self.fitted
        above = np.clip(threshold + Z * error, 0.0, 1.0)
        right = (1 - EPSILONS) / (1 + np.exp(-np.clip(slope * (similarity - above), -SURE, SURE)))
        return float((1 - delta / (1 - right)).min())


def fit(seen: list[tuple[float, bool]]) -> tuple[float, float, float]:
    """Return (threshold, slope, standard error of the threshold) of P(right) = sigmoid(slope * (s - threshold))."""
    similarities = np.array([similarity for similarity, _ in seen])
    right = np.array([was for _, was in seen])
    low, high = float(similarities[~right].max()), float(similarities[right].min())
    if low < high:
        variance = float(np.interp(len(seen), *VARIANCE))
        return (low + high) / 2, 2 * SURE / (high - low), math.sqrt(variance)
    level, slope, covariance = _logistic(similarities, right.astype(np.float64))
    slope = max(slope, 1e-6)  # more alike is never more likely wrong
    gradient = np.array([-1 / slope, level / slope**2])
    return min(max(-level / slope, 0.0), 1.0), slope, math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))


def _logistic(x: Floats, y: Floats) -> tuple[float, float, Floats]:
    """Return level, slope and covariance of the most likely logistic curve, by damped Newton steps."""
    design = np.column_stack([np.ones_like(x), x])
    at = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ at, -SURE, SURE)))
        information = (design.T * np.maximum(p * (1 - p), 1e-9)) @ design
        step = np.linalg.solve(information, design.T @ (y - p))
        at += step * min(1.0, 10 / float(np.abs(step).max() + 1e-12))
        if float(np.abs(step).max()) < 1e-6:
            break
    return float(at[0]), float(at[1]), np.linalg.inv(information)


def replay(trace: Trace, delta: float, seed: int) -> ReplayCounts:
    """Run the decision over a stream, in time order: an exact repeat of a stored text is counted apart.

    A new prompt is stored where the neighbour's answer was wrong, as the paper has it: the others have an entry.
    """
    stream, cache = trace.stream, CacheReplay(trace)
    cells = 2 * len(stream.namespaces)
    tally = ReplayCounts([0] * cells, [0] * cells, [0] * cells, [0] * cells)
    draws = np.random.default_rng([seed, 4]).random(len(stream)).tolist()
    learned: dict[int, Threshold] = {}
    for i, namespace in enumerate(trace.space):
        if any(cache.held[j] for j in trace.twins[i]):
            tally.exact += 1
            continue
        cell = 2 * namespace + trace.half[i]
        tally.queries[cell] += 1
        found = cache.candidate(i, 1)
        if found is None:
            cache.insert(i, i)
            continue
        j, similarity, _ = found
        threshold = learned.setdefault(j, Threshold())
        right = trace.answer[i] == trace.answer[j]
        if draws[i] > threshold.explore(similarity, delta):
            tally.hits[cell] += 1
            tally.wrong[cell] += not right
            continue
        threshold.observe(similarity, right)
        if not right:
            cache.insert(i, i)
    return tally
