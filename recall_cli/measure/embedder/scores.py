"""The arithmetic of `model eval`: pairs, AUC, cutoffs and their bootstrap. Pure; a seed decides all.

Resamples depend on the seed and the number of rows alone, never on scores: two embedders measured on
the same rows see the same resamples, so their differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.errors import InputError
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

RESAMPLES = 1000
"""Enough for two digits of a 95 % interval; more would move the ends by less than they print."""
MAX_FPR = 0.01
CHUNK = 1024
"""Rows a matrix product: bounds memory at about 20 MB."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A value with its bootstrap resamples, kept so that two embedders can be compared in pairs.

    NaN stands for "no value": the share of false hits among no hits at all.
    """

    value: float
    resamples: Floats

    def interval(self) -> list[float]:
        """Return the 95 % percentile interval over the resamples that have a value."""
        known = self.resamples[~np.isnan(self.resamples)]
        if math.isnan(self.value) or len(known) == 0:
            return [math.nan, math.nan]
        low, high = stats.middle(known)
        return [float(low), float(high)]

    def minus(self, other: Sampled) -> Sampled:
        """Return the paired difference."""
        return Sampled(self.value - other.value, self.resamples - other.resamples)


def sample_pairs(intents: Ints, n: int, seed: int) -> tuple[Ints, Ints]:
    """Return the ends of n pairs of one intent and n of two, drawn with replacement."""
    rng = np.random.default_rng([seed, 1])
    order = np.argsort(intents, kind="stable")
    _, start, size = np.unique(intents[order], return_index=True, return_counts=True)
    able = np.flatnonzero(size[intents] > 1)
    if len(able) == 0 or len(size) < 2:
        raise InputError("pairs need two intents, one of them with two utterances")
    left = rng.choice(able, n)
    group = intents[left]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - start[intents[order]]
    # A shift of 1..size-1 inside the group never lands on the utterance itself.
    shift = rng.integers(1, size[group])
    mate = order[start[group] + (place[left] + shift) % size[group]]
    other = rng.integers(0, len(intents), n)
    shift = rng.integers(0, len(intents) - size[intents[other]])
    stranger = order[(start[intents[other]] + size[intents[other]] + shift) % len(intents)]
    return np.concatenate([left, other]), np.concatenate([mate, stranger])


def nearest_pairs(vectors: Vector, intents: Ints) -> tuple[Ints, Ints]:
    """Return, for each utterance, its nearest of the same intent and its nearest of another.

    Far more utterances are of another intent, so an embedder without meaning scores near 0 here, not 0.5.
    """
    left, right = [], []
    for first in range(0, len(vectors), CHUNK):
        rows = np.arange(first, min(first + CHUNK, len(vectors)))
        scores = vectors[rows] @ vectors.T
        scores[rows - first, rows] = -np.inf
        same = intents[rows, np.newaxis] == intents
        for wanted in (same, ~same):
            masked = np.where(wanted, scores, -np.inf)
            best = masked.argmax(axis=1)
            found = masked[rows - first, best] > -np.inf
            left.append(rows[found])
            right.append(best[found])
    return np.concatenate(left), np.concatenate(right)


def auc_and_tpr(
    scores: Floats, positive: Bools, cluster: Ints, clusters: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[Sampled, Sampled]:
    """Return AUC (ties count half) and the true positive rate at 1 % false positives.

    Pairs that share their first utterance depend on each other: whole utterances are resampled.
    """
    order, ends = ladder(scores)
    positive, cluster = positive[order], cluster[order]

    def both(weights: Floats) -> tuple[float, float]:
        hit = np.cumsum(weights * positive)[ends]
        miss = np.cumsum(weights * ~positive)[ends]
        if hit[-1] == 0 or miss[-1] == 0:
            return math.nan, math.nan
        allowed = int(np.count_nonzero(miss <= MAX_FPR * miss[-1]))
        return area(hit, miss), float(hit[allowed - 1] / hit[-1]) if allowed else 0.0

    draws = [both(counts[cluster]) for counts in resampled_counts(clusters, seed, resamples)]
    auc, tpr = both(np.ones(len(scores)))
    columns = np.array(draws, dtype=np.float64).reshape(-1, 2)
    return Sampled(auc, columns[:, 0]), Sampled(tpr, columns[:, 1])


def nearest(entries: Vector, queries: Vector) -> tuple[Floats, Ints]:
    """Return the best cosine of each query and the entry that has it."""
    scores, best = np.empty(len(queries), dtype=np.float64), np.empty(len(queries), dtype=np.int64)
    for first in range(0, len(queries), CHUNK):
        block = queries[first : first + CHUNK] @ entries.T
        best[first : first + CHUNK] = block.argmax(axis=1)
        scores[first : first + CHUNK] = block.max(axis=1)
    return scores, best


def choose(scores: Floats, right: Bools, budget: float, share: str, weights: Floats | None = None) -> float:
    """Return the lowest cutoff whose false hits stay within the budget; infinity when none does."""
    if weights is not None:
        drawn = weights > 0
        scores, right, weights = scores[drawn], right[drawn], weights[drawn]
    order, ends = ladder(scores)
    weight = np.ones(len(scores)) if weights is None else weights[order]
    hits = np.cumsum(weight)[ends]
    false = np.cumsum(weight * ~right[order])[ends]
    within = np.flatnonzero(false <= budget * (hits if share == "hits" else hits[-1]))
    return float(scores[order[ends[within[-1]]]]) if len(within) else math.inf


def held_out(
    scores: Floats, right: Bools, budget: float, share: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Return hit and false-hit rates with each half of the queries judged by the other half's cutoff.

    A resample draws queries within each half and chooses the cutoffs anew, so its spread holds that too.
    `hit_rate_in_sample` is the bound that no cutoff within the budget can beat: chosen and scored on the
    same queries. A held-out rate above it has overspent the budget; its `false_hit_rate` says so.
    """
    n = len(scores)
    if n < 2:
        raise InputError(f"{n} queries cannot be halved", hint="use a data set with more test utterances")
    halves = np.array_split(np.random.default_rng([seed, 3]).permutation(n), 2)

    def rates(weights: Floats) -> tuple[float, float, float, list[float]]:
        served = np.zeros(n, dtype=np.bool_)
        cutoffs = []
        for fit, judge in (halves, halves[::-1]):
            cutoffs.append(choose(scores[fit], right[fit], budget, share, weights[fit]))
            served[judge] = scores[judge] >= cutoffs[-1]
        hits, false = float(weights @ served), float(weights @ (served & ~right))
        return hits / n, false / n, false / hits if hits else math.nan, cutoffs

    hit, false, wrong, cutoffs = rates(np.ones(n))
    draws = np.empty((resamples, 3))
    both = zip(*(resampled_counts(len(half), seed, resamples, i) for i, half in enumerate(halves)), strict=True)
    for at, counts in enumerate(both):
        weights = np.empty(n)
        for half, count in zip(halves, counts, strict=True):
            weights[half] = count
        draws[at] = rates(weights)[:3]
    upper = choose(scores, right, budget, share)
    return {
        "hit_rate": Sampled(hit, draws[:, 0]),
        "false_hit_rate": Sampled(false, draws[:, 1]),
        "false_per_hit": Sampled(wrong, draws[:, 2]),
        "cutoffs": [c if math.isfinite(c) else None for c in cutoffs],
        "hit_rate_in_sample": float(np.mean(scores >= upper)),
        "cutoff_in_sample": upper if math.isfinite(upper) else None,
    }


def ladder(scores: Floats) -> tuple[Ints, Ints]:
    """Return the order from high to low, and the last place of each run of equal scores."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    return order, np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def area(hit: Floats, miss: Floats) -> float:
    """Return the AUC: the chance that a hit scores above a miss, ties counting half.

    :param hit: weight of the hits down to each step of the `ladder`, and `miss` of the rest; neither all zero.
    """
    before = np.concatenate([[0.0], miss[:-1]])
    return float(np.diff(hit, prepend=0.0) @ (miss[-1] - (before + miss) / 2)) / float(hit[-1] * miss[-1])


def resampled_counts(n: int, seed: int, times: int, stream: int = 0) -> Iterator[Floats]:
    """Yield how often each of n rows was drawn, `times` times."""
    rng = np.random.default_rng([seed, 4, stream])
    for _ in range(times):
        yield np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)
