"""`recall eval --pairs`: what bare similarity, the shipped evidence weights and cross-fitted ones tell apart."""

from __future__ import annotations

from recall_cli.cache.answers.second_opinion import opinion_of
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy.static import check_tau
from recall_cli.measure.evaluate import pairs_eval
from recall_cli.measure.evaluate.pairs import load_pairs
from recall_cli.measure.evaluate.pairs_evidence import scorings
from recall_cli.measure.prompts import standard_input
from recall_cli.measure.result import new_result
from recall_cli.types import Result

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
