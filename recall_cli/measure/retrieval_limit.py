"""`min_score` learned from questions that a hub can answer and questions that it cannot.

It is the cache's own problem: serve when the best candidate is near enough, and hold the share of wrong answers. So
the cache's adaptive policy learns it, with the cosine as the only evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.measure.evaluate.evidence_fit import auc
from recall_cli.types import Evidence, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

FOLDS = 5
LEAST_WINDOW = 100
"""The smallest window that the policy takes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The learned limit, None when none keeps the promise, and what is said about it."""

    min_score: float | None
    summary: dict[str, Any]
    warnings: tuple[Warn, ...] = ()


def learn(answerable: Sequence[float], foreign: Sequence[float], *, target: float, seed: int = 0) -> Limit:
    """Return the lowest cosine that keeps the foreign ones among the answered questions at or under the target.

    Both kinds are taken to be asked as often as the files have them. The shares are of questions held out: the limit
    that each is held against was learned from the other folds.

    :param answerable: best cosine of each question that the hub can answer.
    :param foreign: best cosine of each question that it cannot.
    """
    cosines: Floats = np.array([*answerable, *foreign])
    right: Bools = np.arange(len(cosines)) < len(answerable)
    fold = np.random.default_rng(seed).permutation(len(cosines)) % FOLDS
    answered: Bools = np.zeros(len(cosines), dtype=bool)
    for number in range(FOLDS):
        limit = _learned(cosines[fold != number], right[fold != number], target, seed)
        answered[fold == number] = limit is not None and cosines[fold == number] >= limit
    learned = _learned(cosines, right, target, seed)
    kept, let_through = int(answered[right].sum()), int(answered[~right].sum())
    summary = {
        "min_score": learned,
        "target": target,
        "auc": auc(cosines, right),
        "answerable": len(answerable),
        "answerable_answered": kept / len(answerable),
        "answerable_answered_interval": stats.wilson(kept, len(answerable)),
        "foreign": len(foreign),
        "foreign_answered": let_through / len(foreign),
        "foreign_answered_interval": stats.wilson(let_through, len(foreign)),
        "false_answers": let_through / (kept + let_through) if kept + let_through else None,
        "false_answers_interval": stats.wilson(let_through, kept + let_through),
    }
    if learned is not None:
        return Limit(learned, summary)
    said = Warn(
        "NO_MIN_SCORE",
        f"no cosine keeps foreign questions at {target:.1%} of the answered ones: "
        f"{len(answerable):,} answerable and {len(foreign):,} foreign questions, AUC {summary['auc']:.3f}",
        "give more questions of both kinds, or allow more with --false-answers",
    )
    return Limit(None, summary, (said,))


def _learned(cosines: Floats, right: Bools, target: float, seed: int) -> float | None:
    """Return the cutoff that the policy learns from these labels, rounded up; None when it would serve nothing."""
    n = len(cosines)
    # Everything is labelled beforehand, so there is one fit, at the last label.
    policy = AdaptivePolicy(target_false_hit=target, window=max(n, LEAST_WINDOW), warmup=n, seed=seed)
    for at in np.random.default_rng(seed).permutation(n).tolist():
        policy.observe("", Evidence(float(cosines[at])), same=bool(right[at]))
    cutoff = policy.cutoffs()[""]
    return float(np.ceil(cutoff * 1e4) / 1e4) if cutoff <= 1.0 else None
