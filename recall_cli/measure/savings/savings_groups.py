"""Where the savings come from: by tenant, namespace and hour, over time, and the prompts that recur most."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from recall_cli.logs.times import EPOCH_MIN
from recall_cli.measure.savings.replay import NOBODY
from recall_cli.measure.savings.savings_columns import TIERS, Labels, Traffic, group_counts, group_totals, total
from recall_cli.measure.savings.tiers import BY_EXACT
from recall_cli.stats import wilson

SHOWN = 50
"""Groups listed by name; the others are one row together."""
OTHERS = "(others)"
CLUSTERS = 10
EXAMPLE_CHARS = 200
PERIODS = 24
"""Points of the hit rate over time."""
DAY_S, HOUR_S = 86_400, 3_600


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
    of = np.full(len(known), DAY_S // HOUR_S, np.int64)
    of[known] = (traffic.start[known] % DAY_S // HOUR_S).astype(np.int64)
    present = np.unique(of)
    names = ["no time" if hour == DAY_S // HOUR_S else f"{hour:02d}:00" for hour in present.tolist()]
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
    hits = np.flatnonzero(traffic.source != NOBODY)
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
