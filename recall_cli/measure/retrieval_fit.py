"""The weight of the vector leg, fitted to labelled questions, and what that is worth on questions it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.types import Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

STEP = 0.05
"""Of the weights that are tried; between neighbours no set of labels this tool is for tells a difference."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted weight, and what is said about it."""

    alpha: float
    summary: dict[str, Any]
    warnings: tuple[Warn, ...] = ()


def fit(score: Callable[[float], Sequence[float]], *, present: float, seed: int = 0) -> Fit:
    """Return the weight with the best mean, and its cross-validated gain over the present one.

    :param score: returns each question's nDCG@10 at a weight, the questions always in the same order.
    """
    alphas = np.round(np.arange(0.0, 1.0 + STEP / 2, STEP), 2)
    table: Floats = np.array([score(float(alpha)) for alpha in alphas])
    now: Floats = np.asarray(score(present))
    n = table.shape[1]
    fold: Ints = np.random.default_rng(seed).permutation(n) % min(FOLDS, n)
    unseen, chosen = np.empty(n), []
    for number in range(fold.max() + 1):
        best = _best(table[:, fold != number], alphas, present) if n > 1 else _best(table, alphas, present)
        chosen.append(float(alphas[best]))
        unseen[fold == number] = table[best, fold == number]
    alpha = float(alphas[_best(table, alphas, present)])
    mean, low, high = stats.mean_interval(unseen, seed=seed)
    gain, least, most = stats.mean_interval(unseen - now, seed=seed)
    summary = {
        "alpha": alpha,
        "present_alpha": present,
        "folds": len(chosen),
        "fold_alphas": chosen,
        "ndcg_at_10_unseen": mean,
        "ndcg_at_10_unseen_interval": [low, high],
        "gain": gain,
        "gain_interval": [least, most],
        "curve": [{"alpha": float(a), "ndcg_at_10": float(m)} for a, m in zip(alphas, table.mean(axis=1), strict=True)],
    }
    if least > 0.0:
        return Fit(alpha, summary)
    said = Warn(
        "NO_GAIN_SHOWN",
        f"a weight fitted to other questions of this file gains {gain:+.3f} nDCG@10 over {present:g} "
        f"[{least:+.3f}, {most:+.3f}]: no gain is shown",
        "keep the present weight, or label more questions",
    )
    return Fit(alpha, summary, (said,))


def _best(table: Floats, alphas: Floats, present: float) -> int:
    """Return the position of the weight with the best mean; of equal ones the nearest to the present weight."""
    means = table.mean(axis=1)
    best = np.flatnonzero(means >= means.max() - 1e-12)
    return int(best[np.argmin(np.abs(alphas[best] - present))])
