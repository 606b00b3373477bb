"""Scorings of labelled pairs for `pairs_eval`: bare similarity, the shipped weights as they are, and cross-fitted.

Higher is more surely the same answer; pairs in other contexts keep NEVER.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.core.evidence import evidence, facts
from recall_cli.core.prior import FIELDS, row, shipped
from recall_cli.measure.pairs import Pair
from recall_cli.measure.pairs_eval import NEVER, cross_fitted, last_text, similarities
from recall_cli.measure.prior_fit import fit
from recall_cli.measure.prior_sets import Rows
from recall_cli.types import Embedder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def scorings(pairs: Sequence[Pair], embedder: Embedder, *, folds: int = 5, seed: int = 0) -> dict[str, Floats]:
    """Return the scores of each pair by scoring; "cross-fitted" is left out where there are too few pairs for it."""
    similarity = similarities(pairs, embedder)
    x = rows(pairs, similarity)
    prior = shipped()
    never = np.isneginf(similarity)

    def scored(level: float, weights: Sequence[float], which: Ints) -> Floats:
        return np.where(never[which], NEVER, -(level + x[which] @ np.array(weights)))

    def learn(train: Ints) -> Callable[[Ints], Floats]:
        usable = train[~never[train]]
        same = np.array([pairs[i].same for i in usable], dtype=np.bool_)
        if same.all() or not same.any():
            return lambda which: scored(prior.level, prior.weights, which)
        seen = Rows("pairs", "pairs", x[usable], similarity[usable], same, np.zeros(len(usable), dtype=np.int64))
        level, weights = fit([seen], centre=prior.weights, own_slopes=False)
        return lambda which: scored(level, weights, which)

    found = {"similarity": similarity, "evidence": scored(prior.level, prior.weights, np.arange(len(pairs)))}
    # ValueError: too few groups of pairs for the folds.
    with contextlib.suppress(ValueError):
        found["cross-fitted"] = cross_fitted(pairs, learn, folds=folds, seed=seed)
    return found


def rows(pairs: Sequence[Pair], similarity: Floats) -> Floats:
    """Return the evidence of each pair, shape (n, len(FIELDS)); a is the stored text, b the new one."""
    x = np.zeros((len(pairs), len(FIELDS)))
    for i, (pair, value) in enumerate(zip(pairs, similarity.tolist(), strict=True)):
        x[i] = row(evidence(facts(last_text(pair.b)), facts(last_text(pair.a)), max(value, -1.0)))
    return x
