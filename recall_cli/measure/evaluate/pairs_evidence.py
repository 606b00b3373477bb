"""Scorings of labelled pairs for `pairs_eval`: bare similarity, the shipped weights as they are, and cross-fitted.

Where a second opinion is asked, its weights likewise.

Higher is more surely the same answer; pairs in other contexts keep NEVER.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.answers import doubts
from recall_cli.cache.answers.second_opinion import SecondOpinion
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import facts
from recall_cli.cache.policy.prior import FIELDS, row, shipped
from recall_cli.measure.evaluate.evidence_fit import fit
from recall_cli.measure.evaluate.evidence_sets import Rows
from recall_cli.measure.evaluate.pairs import Pair
from recall_cli.measure.evaluate.pairs_eval import NEVER, cross_fitted, last_text, similarities
from recall_cli.types import Embedder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def scorings(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    opinion: SecondOpinion | None = None,
    folds: int = 5,
    seed: int = 0,
) -> dict[str, Floats]:
    """Return the scores of each pair by scoring; "cross-fitted" is left out where there are too few pairs for it.

    :param opinion: asked about every pair in one context; adds "second opinion" and its cross-fitted weights.
    """
    similarity = similarities(pairs, embedder)
    x = rows(pairs, similarity)
    prior = shipped()
    never = np.isneginf(similarity)
    found = {"similarity": similarity}
    found |= _weighed(
        pairs, x, never, similarity, prior.level, prior.weights, FIELDS, ("evidence", "cross-fitted"), folds, seed
    )
    if opinion is not None:
        given, seen = opinion.weights, opinion_rows(pairs, opinion, never)
        names = ("second opinion", "second opinion, cross-fitted")
        fields = doubts.FIELDS
        found |= _weighed(pairs, seen, never, similarity, given.level, given.weights, fields, names, folds, seed)
    return found


def _weighed(
    pairs: Sequence[Pair],
    x: Floats,
    never: NDArray[np.bool_],
    similarity: Floats,
    level: float,
    weights: Sequence[float],
    fields: Sequence[str],
    names: tuple[str, str],
    folds: int,
    seed: int,
) -> dict[str, Floats]:
    """Return the scores by the weights given, and by weights fitted to the other pairs with those as the centre."""
    centre = tuple(weights)

    def scored(at: float, by: Sequence[float], which: Ints) -> Floats:
        return np.where(never[which], NEVER, -(at + x[which] @ np.array(by)))

    def learn(train: Ints) -> Callable[[Ints], Floats]:
        usable = train[~never[train]]
        same = np.array([pairs[i].same for i in usable], dtype=np.bool_)
        if same.all() or not same.any():
            return lambda which: scored(level, centre, which)
        seen = Rows("pairs", "pairs", x[usable], similarity[usable], same, np.zeros(len(usable), dtype=np.int64))
        at, by = fit([seen], centre=centre, own_slopes=False, fields=fields)
        return lambda which: scored(at, by, which)

    found = {names[0]: scored(level, centre, np.arange(len(pairs)))}
    # ValueError: too few groups of pairs for the folds.
    with contextlib.suppress(ValueError):
        found[names[1]] = cross_fitted(pairs, learn, folds=folds, seed=seed)
    return found


def rows(pairs: Sequence[Pair], similarity: Floats) -> Floats:
    """Return the evidence of each pair, shape (n, len(FIELDS)); a is the stored text, b the new one."""
    x = np.zeros((len(pairs), len(FIELDS)))
    for i, (pair, value) in enumerate(zip(pairs, similarity.tolist(), strict=True)):
        x[i] = row(evidence(facts(last_text(pair.b)), facts(last_text(pair.a)), max(value, -1.0)))
    return x


def opinion_rows(pairs: Sequence[Pair], opinion: SecondOpinion, never: NDArray[np.bool_]) -> Floats:
    """Return what the opinion weighs of each pair, shape (n, len(doubts.FIELDS)); 0 where it is never asked."""
    x = np.zeros((len(pairs), len(doubts.FIELDS)))
    for i in np.flatnonzero(~never).tolist():
        x[i] = opinion.row(last_text(pairs[i].a), last_text(pairs[i].b))
    return x
