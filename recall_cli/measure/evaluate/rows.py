"""From runs to rows: rates with their n and interval, over all seeds of one policy and target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.measure.evaluate.policies import ADAPTIVE, GIVEN, HINDSIGHT, STATIC, TAUS, Outcome
from recall_cli.measure.evaluate.replay import ReplayCounts

TESTABLE_HITS = 5
"""A run can show that it holds a target only with 5 / target hits: with fewer, one wrong hit breaks it."""


def row(
    workload: str,
    policy: str,
    target: float,
    outcomes: Sequence[Outcome],
    confidence: float,
    *,
    one_stream: bool = False,
) -> dict[str, Any]:
    """Return one row of the document (DESIGN.md section 4). Exact hits are in no rate.

    A false-hit rate is of the hits that can be judged; its bounds are of all: with none, and with all, of the
    others wrong. Where every answer has a known class the three are one.

    :param one_stream: whether all runs ask the same questions.
    """
    tallies = [outcome.tallies[policy, target] for outcome in outcomes]
    hits, wrong, unsure, queries = _sums(tallies, slice(None))
    late_hits, late_wrong, late_unsure, late_queries = _sums(tallies, slice(1, None, 2))
    judged, late_judged = hits - unsure, late_hits - late_unsure
    over = int((wrong > target * judged).sum())
    n = len(tallies)
    share = stats.wilson(over, n)
    adaptive = policy == ADAPTIVE
    interval = partial(rate_interval, one_stream=one_stream)
    return {
        "workload": workload,
        "policy": policy,
        "target": target,
        "hindsight": policy in HINDSIGHT,
        "hit_rate": _rate(hits, queries),
        "hit_rate_interval": interval(hits, queries),
        "hit_rate_second_half": _rate(late_hits, late_queries),
        "hit_rate_second_half_interval": interval(late_hits, late_queries),
        "false_hit_rate": _rate(wrong, judged),
        "false_hit_interval": interval(wrong, judged),
        "false_hit_bounds": [_rate(wrong, hits), _rate(wrong + unsure, hits)],
        "false_hit_bounds_interval": [interval(wrong, hits)[0], interval(wrong + unsure, hits)[1]],
        "false_hit_rate_second_half": _rate(late_wrong, late_judged),
        "false_hit_second_half_interval": interval(late_wrong, late_judged),
        "error_per_query": _rate(wrong, queries),
        "error_per_query_interval": interval(wrong, queries),
        "error_per_query_bounds": [_rate(wrong, queries), _rate(wrong + unsure, queries)],
        "hits": int(hits.sum()),
        "judged_hits": int(judged.sum()),
        "unsure_hits": int(unsure.sum()),
        "false_hits": int(wrong.sum()),
        "queries": int(queries.sum()),
        "exact_hits": sum(tally.exact for tally in tallies),
        "runs": n,
        "runs_over_target": over,
        "runs_over_interval": list(share),
        "runs_over_bounds": [int((wrong > target * hits).sum()), int((wrong + unsure > target * hits).sum())],
        "holds": over <= round(allowed_over(confidence) * n, 9),
        "testable": int((judged >= TESTABLE_HITS / target).sum()),
        "feasible": sum(tally.feasible for tally in tallies),
        "audits": sum(tally.audits for tally in tallies),
        "reasks": sum(tally.reasks for tally in tallies),
        "unlabelled": sum(tally.unlabelled for tally in tallies),
        # An audited hit is served and paid for; a hit that is asked again is paid for twice.
        "calls_saved_net": int(hits.sum()) - sum(tally.audits + tally.reasks for tally in tallies),
        "labels_to_first_hit": _median([tally.first_hit_label for tally in tallies]) if adaptive else None,
        "runs_cold": sum(tally.first_hit_label is None for tally in tallies) if adaptive else None,
        "labels_needed": _median([t.labels_needed for t in tallies if t.first_hit_label is None]) if adaptive else None,
    }


def allowed_over(confidence: float) -> float:
    """Return the share of runs that may end over the target: 0.1 for 0.9, which binary fractions make a little less."""
    return round(1 - confidence, 12)


def rate_interval(part: Any, whole: Any, *, one_stream: bool = False) -> list[float]:
    """Return a 95 % interval of a rate pooled over runs.

    Hits of one run share their cache and depend on each other, so whole runs are resampled; the binomial
    interval stands in where that one is narrower, as it is when nothing went wrong at all. Runs that ask
    the same questions in other orders add no questions: that interval then counts those of one run.
    """
    times = len(part) if one_stream else 1
    low, high = stats.wilson(int(part.sum()) / times, int(whole.sum()) / times)
    if len(part) > 1 and whole.sum():
        picks = np.random.default_rng(0).integers(0, len(part), size=(stats.BOOTSTRAP_RESAMPLES, len(part)))
        wholes = whole[picks].sum(axis=1)
        rates = part[picks].sum(axis=1)[wholes > 0] / wholes[wholes > 0]
        ends = stats.middle(rates)
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
    return [low, high]


def comparisons(target: float, outcomes: Sequence[Outcome], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return adaptive against each other policy, seed by seed; only where both hold the target.

    More hits by breaking the promise are no more hits: such a pair gets a reason instead of a number.
    """
    by_policy = {row["policy"]: row for row in rows}
    if ADAPTIVE not in by_policy:
        return []
    found = []
    ours = _hit_rates(outcomes, ADAPTIVE, target)
    for policy, other in by_policy.items():
        if policy == ADAPTIVE:
            continue
        entry: dict[str, Any] = {"target": target, "policy": ADAPTIVE, "against": policy, "runs": len(outcomes)}
        broken = [row["policy"] for row in (by_policy[ADAPTIVE], other) if not row["holds"]]
        if broken:
            found.append(entry | {"compared": False, "reason": f"target not held by {' and '.join(broken)}"})
            continue
        theirs = _hit_rates(outcomes, policy, target)
        picks = np.random.default_rng(0).integers(0, len(ours), size=(stats.BOOTSTRAP_RESAMPLES, len(ours)))
        a, b = ours[picks].mean(axis=1), theirs[picks].mean(axis=1)
        ratios = a[b > 0] / b[b > 0]
        found.append(
            entry
            | {
                "compared": True,
                "reason": "",
                "hit_rate_difference": float((ours - theirs).mean()),
                "hit_rate_difference_interval": stats.middle(a - b).tolist(),
                "hit_rate_ratio": float(ours.mean() / theirs.mean()) if theirs.mean() else None,
                "hit_rate_ratio_interval": stats.middle(ratios).tolist() if len(ratios) else None,
            }
        )
    return found


def by_namespace(
    target: float, policy: str, outcomes: Sequence[Outcome], *, one_stream: bool = False
) -> list[dict[str, Any]]:
    """Return what each namespace got: a promise kept on the whole may be broken in one."""
    table = []
    for space, name in enumerate(outcomes[0].namespaces):
        tallies = [outcome.tallies[policy, target] for outcome in outcomes]
        hits, wrong, unsure, queries = _sums(tallies, slice(2 * space, 2 * space + 2))
        cutoffs = [tally.cutoffs[name] for tally in tallies if name in tally.cutoffs]
        table.append(
            {
                "namespace": name,
                "target": target,
                "policy": policy,
                "queries": int(queries.sum()),
                "hits": int(hits.sum()),
                "hit_rate": _rate(hits, queries),
                "hit_rate_interval": rate_interval(hits, queries, one_stream=one_stream),
                "unsure_hits": int(unsure.sum()),
                "false_hits": int(wrong.sum()),
                "false_hit_rate": _rate(wrong, hits - unsure),
                "false_hit_interval": rate_interval(wrong, hits - unsure, one_stream=one_stream),
                "cutoff": float(np.median(cutoffs)) if cutoffs else None,
            }
        )
    return table


def curve(outcomes: Sequence[Outcome], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return precision against hit rate: every static cutoff, and each target of the policies that have one."""
    hits = sum(outcome.grid.hits.sum(axis=1) for outcome in outcomes)
    wrong = sum(outcome.grid.wrong.sum(axis=1) for outcome in outcomes)
    judged = hits - sum(outcome.grid.unsure.sum(axis=1) for outcome in outcomes)
    queries = sum(outcome.grid.queries.sum(axis=1) for outcome in outcomes)
    points = [
        {
            "policy": "static",
            "setting": tau,
            "hit_rate": float(hits[i] / queries[i]) if queries[i] else None,
            "precision": float(1 - wrong[i] / judged[i]) if judged[i] else None,
            "hits": int(hits[i]),
            "judged_hits": int(judged[i]),
            "queries": int(queries[i]),
        }
        for i, tau in enumerate(TAUS)
    ]
    return points + [
        {
            "policy": row["policy"],
            "setting": row["target"],
            "hit_rate": row["hit_rate"],
            "precision": None if row["false_hit_rate"] is None else 1 - row["false_hit_rate"],
            "hits": row["hits"],
            "judged_hits": row["judged_hits"],
            "queries": row["queries"],
        }
        for row in rows
        if row["policy"] not in (STATIC, GIVEN)  # no target of theirs: the one is a point of the curve already
    ]


def _sums(tallies: Sequence[ReplayCounts], cells: slice) -> tuple[Any, Any, Any, Any]:
    """Return hits, wrong hits, hits of which nobody can tell, and questions of each run."""
    return (
        np.array([sum(tally.hits[cells]) for tally in tallies]),
        np.array([sum(tally.wrong[cells]) for tally in tallies]),
        np.array([sum(tally.unsure[cells]) for tally in tallies]),
        np.array([sum(tally.queries[cells]) for tally in tallies]),
    )


def _hit_rates(outcomes: Sequence[Outcome], policy: str, target: float) -> Any:
    hits, _, _, queries = _sums([outcome.tallies[policy, target] for outcome in outcomes], slice(None))
    return hits / np.maximum(queries, 1)


def _rate(part: Any, whole: Any) -> float | None:
    return float(part.sum() / whole.sum()) if whole.sum() else None


def _median(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
