"""`recall eval --pairs`: what bare similarity, the shipped evidence weights and cross-fitted ones tell apart.

Where a second opinion is asked, its weights likewise. A higher score means more surely the same answer; pairs in other
contexts keep NEVER.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.answers import second_opinion
from recall_cli.cache.answers.second_opinion import SecondOpinion, opinion_of
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import facts
from recall_cli.cache.policy.risk_model import FIELDS, row, shipped
from recall_cli.cache.policy.static import check_tau
from recall_cli.measure.evaluate import pairs_eval
from recall_cli.measure.evaluate.evidence_fit import fit
from recall_cli.measure.evaluate.evidence_sets import Rows
from recall_cli.measure.evaluate.pairs import Pair, load_pairs
from recall_cli.measure.evaluate.pairs_eval import NEVER, cross_fitted, last_text, similarities
from recall_cli.measure.prompts import standard_input
from recall_cli.measure.result import new_result
from recall_cli.types import Embedder, Result

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
        fields = second_opinion.FIELDS
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
    x = np.zeros((len(pairs), len(second_opinion.FIELDS)))
    for i in np.flatnonzero(~never).tolist():
        x[i] = opinion.row(last_text(pairs[i].a), last_text(pairs[i].b))
    return x


FOLDS = 5
NAMES = {
    "similarity": "similarity",
    "evidence": "shipped",
    "cross-fitted": "cross_fitted",
    "second opinion": "second_opinion",
    "second opinion, cross-fitted": "second_opinion_cross_fitted",
}
"""What the scorings are called in the document."""


def run(path: str, *, embedder: str = "static", tau: float = 0.8, verify_on_hit: str = "auto", seed: int = 0) -> Result:
    """Return the trap report as rows (what a cutoff of tau serves), and the scorings' comparison as summary.

    :param verify_on_hit: "model" scores the pairs by the local second opinion as well.
    Pairs in different contexts are served by no scoring: their partitions differ. Raises InputError.
    """
    check_tau(tau)
    found = load_pairs(path, standard_input())
    result = new_result("eval", {"pairs": path, "embedder": embedder, "tau": tau, "seed": seed, "folds": FOLDS})
    opinion = opinion_of(verify_on_hit)
    if opinion is not None:
        result.params["verify_on_hit"] = verify_on_hit
    scores = scorings(found.pairs, make_embedder(embedder), opinion=opinion, folds=FOLDS, seed=seed)
    named = {NAMES[name]: values for name, values in scores.items()}
    result.summary = pairs_eval.summary(found.pairs, named, seed=seed)
    result.summary["curve"] = pairs_eval.curve(found.pairs, named)
    result.summary["skipped"] = dict(found.skipped)
    result.rows = pairs_eval.trap_report(found.pairs, scores["similarity"], tau)
    result.warnings += found.warnings
    return result
