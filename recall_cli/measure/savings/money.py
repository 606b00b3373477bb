"""The money part of a savings report: from replayed columns to costs, a month, groups and clusters.

The month is what the cache would go on to save, once warm, and why that may be too much to say. The groups are tenants,
namespaces and hours; the clusters are the prompts that recur most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.logs.times import EPOCH_MIN
from recall_cli.measure.result import plain
from recall_cli.measure.savings.costs import CostPlan, Embedded, Metered, cache_costs
from recall_cli.measure.savings.replay import NO_HIT
from recall_cli.measure.savings.rows import PICO, Rows, Uncounted
from recall_cli.measure.savings.tiers import BY_EXACT, BY_SEMANTIC, Replayed
from recall_cli.measure.savings.totals import (
    TIERS,
    Examples,
    Labels,
    Traffic,
    group_counts,
    group_totals,
    lookups,
    total,
    traffic_of,
)
from recall_cli.stats import block_bootstrap, wilson

if TYPE_CHECKING:
    from recall_cli.measure.savings.replay import Bools

DAY_S = 86_400.0
MONTH_DAYS = 365.25 / 12
MIN_SPAN_S = DAY_S
"""A log of under a day has not seen the night: no month follows from it unless it is asked for."""
WARM_UP = 0.5
"""Share of the span taken as warm-up. In a public trace of an hour the hit rate of the first sixth was 28.9 % and that
of the later ones 36 to 40 %: half leaves room for logs that warm up slower."""
BLOCKS = 20
"""Blocks of equal time in the window, resampled whole; days when there are as many."""
LEVEL = 0.90
"""Of intervals of dollars, beside which the sum itself is an extrapolation."""


def monthly(traffic: Traffic, *, forced: bool, seed: int) -> dict[str, Any]:
    """Return dollars saved a month after the warm-up, or why there is no such figure.

    "Same corpus": the prompts stay those of the log, whose answers the cache by then has: the rate of the window after
    the warm-up. "With growth": prompts go on changing as they did over the whole log, cold start included.
    """
    known = ~np.isnan(traffic.start)
    if not known.all() or not len(known):
        return _none("the log has no times" if not known.any() else "some requests have no time")
    first, last = float(traffic.start.min()), float(traffic.start.max())
    span = last - first
    if span <= 0:
        return _none("all requests have one time")
    if span < MIN_SPAN_S and not forced:
        return _none(f"the log spans {span / 3600:.1f} hours, under a day; --monthly asks for one all the same")
    whole = np.ones(len(known), np.bool_)
    warm = traffic.start >= first + WARM_UP * span
    return {
        "reason": "",
        "forced": span < MIN_SPAN_S,
        "level": LEVEL,
        "window": {"start": first + WARM_UP * span, "span_s": (1 - WARM_UP) * span, "requests": int(warm.sum())},
        "same_corpus": _per_month(traffic, warm, (1 - WARM_UP) * span, seed),
        "with_growth": _per_month(traffic, whole, span, seed),
    }


def _per_month(traffic: Traffic, rows: Bools, seconds: float, seed: int) -> dict[str, Any]:
    scale = MONTH_DAYS * DAY_S / seconds
    start, saved = traffic.start[rows], traffic.saved[rows].astype(np.float64) / float(PICO)
    days = int(seconds // DAY_S)
    count = days if days >= BLOCKS else BLOCKS
    block = np.minimum((start - (start.max() - seconds)) / seconds * count, count - 1).astype(np.int64)
    sums = np.bincount(np.maximum(block, 0), weights=saved, minlength=count).tolist()
    low, high = block_bootstrap(sums, seed=seed, level=LEVEL)
    return {
        "spend_usd": float(total(traffic.spent[rows])) * scale,
        "saved_usd": float(total(traffic.saved[rows])) * scale,
        "saved_usd_interval": [low * scale, high * scale],
    }


def _none(reason: str) -> dict[str, Any]:
    return {"reason": reason, "forced": False, "same_corpus": None, "with_growth": None}


SHOWN = 50
"""Groups listed by name; the others are one row together."""
OTHERS = "(others)"
CLUSTERS = 10
EXAMPLE_CHARS = 200
PERIODS = 24
"""Points of the hit rate over time."""
SECONDS_A_DAY, HOUR_S = 86_400, 3_600


def by_group(traffic: Traffic, kind: str) -> list[dict[str, Any]]:
    """Return one row a group, dearest first; past SHOWN of them the rest together, so that sums still add up."""
    chosen = hours(traffic) if kind == "hour" else traffic.labels[kind]
    n = len(chosen.names)
    spent = group_totals(chosen.of, traffic.spent, n)
    order = sorted(range(n), key=lambda at: (-spent[at], chosen.names[at]))
    names, of = list(chosen.names), chosen.of
    if kind == "hour":
        order.sort(key=lambda at: chosen.names[at])
    elif n > SHOWN:
        place = np.full(n, SHOWN, np.int64)
        place[order[:SHOWN]] = np.arange(SHOWN)
        names, of = [*(names[at] for at in order[:SHOWN]), OTHERS], place[of]
        order, n = list(range(SHOWN + 1)), SHOWN + 1
        spent = group_totals(of, traffic.spent, n)
    everything = np.ones(len(of), np.bool_)
    counts = {
        "requests": group_counts(of, everything, n),
        "cacheable": group_counts(of, traffic.cacheable, n),
        **{name: group_counts(of, traffic.by(outcome), n) for name, outcome in TIERS.items()},
    }
    saved = group_totals(of, traffic.saved, n)
    priced = group_counts(of, traffic.priced, n)
    return [
        {
            kind: names[at],
            **{fact: column[at] for fact, column in counts.items()},
            # No price is not the same as free.
            "spend_usd": spent[at] if priced[at] else None,
            "saved_usd": saved[at] if priced[at] else None,
        }
        for at in order
        if counts["requests"][at]
    ]


def hours(traffic: Traffic) -> Labels:
    """Return the hour of the day (UTC) as a label of each row."""
    # A trace that counts from its own start has no hour of the day.
    known = traffic.start >= EPOCH_MIN
    of = np.full(len(known), SECONDS_A_DAY // HOUR_S, np.int64)
    of[known] = (traffic.start[known] % SECONDS_A_DAY // HOUR_S).astype(np.int64)
    present = np.unique(of)
    names = ["no time" if hour == SECONDS_A_DAY // HOUR_S else f"{hour:02d}:00" for hour in present.tolist()]
    return Labels(np.searchsorted(present, of).astype(np.int64), names)


def over_time(traffic: Traffic) -> list[dict[str, Any]]:
    """Return the hit rate of cacheable rows in equal parts of the span; [] for a log without a span.

    A part without a cacheable row has no rate. Its interval is Wilson's: within a part rows still depend on each
    other, so it shows how few rows a point rests on and no more.
    """
    known = ~np.isnan(traffic.start)
    if not known.any():
        return []
    first, last = float(traffic.start[known].min()), float(traffic.start[known].max())
    if last <= first:
        return []
    part = np.zeros(len(known), np.int64)
    part[known] = np.minimum((traffic.start[known] - first) / (last - first) * PERIODS, PERIODS - 1).astype(np.int64)
    n = group_counts(part, traffic.cacheable & known, PERIODS)
    exact = group_counts(part, traffic.by(BY_EXACT) & known, PERIODS)
    hits = group_counts(part, traffic.hit & known, PERIODS)
    saved = group_totals(part[known], traffic.saved[known], PERIODS)
    return [
        {
            "start": first + at * (last - first) / PERIODS,
            "n": n[at],
            "hit_rate_exact": exact[at] / n[at] if n[at] else None,
            "hit_rate": hits[at] / n[at] if n[at] else None,
            "hit_rate_interval": list(wilson(hits[at], n[at])) if n[at] else None,
            "saved_usd": saved[at],
        }
        for at in range(PERIODS)
    ]


def clusters(traffic: Traffic, example: Callable[[int], str] | None = None) -> dict[str, Any]:
    """Return the answers that would be served most dollars' worth, and what share of all saved the first ten are.

    A hit stores nothing, so every hit of a cluster is served by the same earlier row.

    :param example: row position -> the prompt of that row; None hides the texts.
    """
    hits = np.flatnonzero(traffic.source != NO_HIT)
    roots, cluster = np.unique(traffic.source[hits], return_inverse=True)
    n = len(roots)
    served, spent = np.bincount(cluster, minlength=n), traffic.spent[hits]
    # Whoever leads by sums in floats holds the leaders by exact ones, which would be an object a cluster.
    near = np.bincount(cluster, weights=spent, minlength=n)
    leaders = np.lexsort((roots, -served, -near))[: 2 * CLUSTERS].tolist()
    saved = {at: total(spent[cluster == at]) for at in leaders}
    # Where no price is known the number of hits must do.
    top = sorted(leaders, key=lambda at: (-saved[at], -int(served[at]), int(roots[at])))[:CLUSTERS]
    everything = total(traffic.saved)
    return {
        "n": n,
        "largest_hits": int(served.max()) if n else 0,
        "top_share_of_hits": int(served[top].sum()) / len(hits) if n else None,
        "top_share_of_saved": float(sum((saved[at] for at in top), Decimal(0)) / everything) if everything else None,
        "top": [
            {
                "row": int(roots[at]),
                "hits": int(served[at]),
                "saved_usd": saved[at] if everything else None,
                "example": None if example is None else _short(example(int(roots[at]))),
            }
            for at in top
        ],
    }


def _short(text: str) -> str:
    plain = " ".join(text[: 4 * EXAMPLE_CHARS].split())
    return plain if len(plain) <= EXAMPLE_CHARS else plain[: EXAMPLE_CHARS - 1] + "…"


@dataclass(frozen=True, slots=True)
class MoneyPlan:
    """What the user says of prices and costs."""

    prices: str = ""
    """A file of prices, "" for none."""
    price: tuple[str, ...] = ()
    """Flags as `MODEL=IN,OUT[,READ,WRITE]`."""
    costs: CostPlan = field(default_factory=CostPlan)
    invoice: Decimal | None = None
    monthly: bool = False
    """Ask for a month also from a log of under a day."""
    count_tokens: bool = False
    text: bool = True
    """Show an example of each cluster."""

    def __post_init__(self) -> None:
        if self.invoice is not None and self.invoice <= 0:
            raise UsageError(f"--invoice {self.invoice} is no bill", hint="give the dollars billed for the log's span")


def money(
    plan: MoneyPlan, rows: Rows, found: Replayed, embedder: Metered | None, uncounted: Uncounted, *, seed: int
) -> dict[str, Any]:
    """Return the parts of the summary that are about dollars beyond the tiers' sums."""
    traffic = traffic_of(rows, found)
    saved, by_semantic = total(traffic.saved), traffic.by(BY_SEMANTIC)
    semantic, hits = total(np.where(by_semantic, traffic.spent, 0)), int(by_semantic.sum())
    embedded = Embedded(0, 0, 0.0, 0) if embedder is None else embedder.embedded(lookups(rows, found))
    costs = plan.costs
    if found.walked is not None and found.walked.audits and hits:
        # The adaptive policy says itself how many of its hits it had checked.
        costs = replace(costs, verify_sample=min(Decimal(1), Decimal(found.walked.audits) / hits))
    told = {
        "cache_costs": cache_costs(
            costs,
            embedded,
            saved=saved,
            semantic=semantic,
            hits=hits,
            opinion_cpu_s=found.walked.opinion_cpu_s if found.walked else 0.0,
        ),
        "monthly": monthly(traffic, forced=plan.monthly, seed=seed),
        "reconciliation": uncounted.reconciliation.summary(
            spend=total(traffic.spent), saved=saved, invoice=plan.invoice
        ),
        "estimated_usage": uncounted.estimator.summary(len(rows)),
        "clusters": _clusters(rows, traffic, text=plan.text),
        "over_time": over_time(traffic),
        "groups": _groups(traffic),
    }
    return {name: plain(part) for name, part in told.items()}


def _clusters(rows: Rows, traffic: Traffic, *, text: bool) -> dict[str, Any]:
    """Return the clusters, with the lines of the log that were first."""
    found = clusters(traffic, Examples(rows) if text else None)
    line = rows.columns.read("line")
    found["top"] = [{"line": int(line[one.pop("row")]), **one} for one in found["top"]]
    return found


def _groups(traffic: Traffic) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by tenant, namespace and hour; a kind with one group alone says nothing new."""
    found = {kind: by_group(traffic, kind) for kind in (*traffic.labels, "hour")}
    return {kind: rows for kind, rows in found.items() if len(rows) > 1}


def params(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a plan as one flat level, money's beside the others."""
    flat = {key: value for key, value in plan.items() if key != "money"}
    inner = dict(plan["money"])
    return {**inner.pop("costs"), **inner, **flat}
