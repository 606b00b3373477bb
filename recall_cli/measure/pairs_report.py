"""`recall eval --pairs`: what bare similarity, the shipped evidence weights and cross-fitted ones tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.core import prior
from recall_cli.core.embed import make_embedder
from recall_cli.core.evidence import evidence
from recall_cli.core.policy import check_tau
from recall_cli.core.text_facts import facts
from recall_cli.measure import pairs_eval, prior_fit
from recall_cli.measure.pairs import PairSet, load_pairs
from recall_cli.measure.prior_sets import Rows
from recall_cli.measure.result import new_result
from recall_cli.types import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SIMILARITY, SHIPPED, CROSS_FITTED = "similarity", "shipped", "cross_fitted"
FOLDS = 5


def run(path: str, *, embedder: str = "static", tau: float = 0.8, seed: int = 0) -> Result:
    """Return the trap report as rows (what a cutoff of tau serves), and the scorings' comparison as summary.

    Pairs in different contexts are served by no scoring: their partitions differ. Raises InputError.
    """
    check_tau(tau)
    found = load_pairs(path)
    result = new_result("eval", {"pairs": path, "embedder": embedder, "tau": tau, "seed": seed, "folds": FOLDS})
    result.warnings += found.warnings
    scorings, similarity = _scorings(found, embedder, seed)
    result.summary = pairs_eval.summary(found.pairs, scorings, seed=seed) | {"skipped": dict(found.skipped)}
    result.rows = pairs_eval.trap_report(found.pairs, similarity, tau)
    return result


def _scorings(found: PairSet, name: str, seed: int) -> tuple[dict[str, Floats], Floats]:
    """Return each scoring's values, higher is safer to serve, and the bare similarities."""
    similarity = pairs_eval.similarities(found.pairs, make_embedder(name))
    texts = [(pairs_eval.last_text(pair.a), pairs_eval.last_text(pair.b)) for pair in found.pairs]
    x = np.array(
        [
            prior.row(evidence(facts(b), facts(a), float(s) if np.isfinite(s) else 0.0))
            for (a, b), s in zip(texts, similarity, strict=True)
        ],
        dtype=np.float64,
    ).reshape(len(texts), len(prior.FIELDS))
    weights = prior.shipped()
    shipped = np.where(np.isfinite(similarity), -(x @ np.array(weights.weights)), pairs_eval.NEVER)
    scorings = {SIMILARITY: similarity, SHIPPED: shipped}
    if int(pairs_eval.groups(found.pairs).max(initial=-1)) + 1 >= FOLDS and np.isfinite(similarity).any():
        same = np.array([pair.same for pair in found.pairs], dtype=np.bool_)
        rows = Rows("pairs", "pairs", x, similarity, same, np.zeros(len(same), dtype=np.int64))
        fitted = pairs_eval.cross_fitted(found.pairs, _learner(rows, similarity), folds=FOLDS, seed=seed)
        scorings[CROSS_FITTED] = np.where(np.isfinite(similarity), fitted, pairs_eval.NEVER)
    return scorings, similarity


def _learner(rows: Rows, similarity: Floats) -> Callable[[Ints], Callable[[Ints], Floats]]:
    """Return what fits weights to some of the pairs, leaning on the shipped ones, and scores others."""
    able = np.isfinite(similarity)
    centre = prior.shipped().weights

    def learn(some: Ints) -> Callable[[Ints], Floats]:
        chosen = np.zeros(len(similarity), dtype=np.bool_)
        chosen[some] = True
        level, weights = prior_fit.fit([rows.take(chosen & able)], centre=centre)

        def score(others: Ints) -> Floats:
            logit: Floats = level + rows.x[others] @ np.array(weights)
            return -logit

        return score

    return learn
