"""The HTML page of `recall eval`: how many hits at how many false ones, and whether the promise was kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from recall_cli.cli.render.blocks import percent, rate
from recall_cli.cli.render.planes import Axis, Cloud, Mark, PlaneChart
from recall_cli.cli.render.svg import OTHER, Chart
from recall_cli.measure.judged import Judged, at_most, point_at_most
from recall_cli.types import Result

COLOURS = {"static@0.8": 1, "static@best": OTHER, "oracle/namespace": 2, "naive/namespace": 3, "adaptive": 0}
"""Of each policy; one that is not listed is grey."""
SCORINGS = {"similarity": OTHER, "shipped": 0, "cross_fitted": 2}
MIN_HITS = 20
"""Judged hits below which a cutoff's false-hit rate is noise, and no point of the curve."""
TICKS = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1)
LEAST_SHOWN = 0.03
"""The axis of false hits reaches at least here, so that a target is never at its edge."""


def charts(result: Result) -> list[Chart]:
    """Return a chart for each workload."""
    groups = groupby(result.rows, key=lambda row: row["workload"])
    return [_chart(name, list(rows), result.summary["workloads"][name]) for name, rows in groups]


def _chart(name: str, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> PlaneChart:
    drawn = [row for row in rows if row["false_hit_rate"] is not None]
    most = max([LEAST_SHOWN, *(1.25 * at_most(row) for row in drawn), *(1.25 * row["target"] for row in rows)])
    unsure = sum(row.get("unsure_hits", 0) for row in rows)
    across = _false_hits(f"wrong{' at most' if unsure else ''}, of served semantic hits", min(1.0, most))
    curve = tuple(
        Mark(point_at_most(point), point["hit_rate"])
        for point in summary["curve"]
        if point["policy"] == "static" and point["judged_hits"] >= MIN_HITS and point_at_most(point) <= most
    )
    clouds = [Cloud("every fixed cutoff", curve, OTHER, joined=True)] if len(curve) > 1 else []
    for policy in dict.fromkeys(row["policy"] for row in drawn):
        marks = tuple(_mark(row) for row in drawn if row["policy"] == policy)
        clouds.append(Cloud(policy, marks, COLOURS.get(policy, OTHER)))
    targets = tuple(dict.fromkeys(row["target"] for row in rows))
    said = ", ".join(percent(target) for target in targets)
    note = (
        f"Dashed: the target ({said}). Hollow: more runs ended over it than the promise allows. Bars: 95 % intervals."
    )
    if unsure:
        note += " Hits that could not be judged are drawn as wrong ones; bars begin where they are all right."
    runs = rows[0]["runs"]
    return PlaneChart(f"{name}: {runs:,} run{'s' * (runs > 1)}", tuple(clouds), across, _hit_rate(), targets, note)


def _mark(row: Mapping[str, Any]) -> Mark:
    x, y = row["false_hit_interval"], row["hit_rate_interval"]
    if row.get("unsure_hits"):
        x = row["false_hit_bounds_interval"]
    ends = (x[0], x[1]), (y[0], y[1])
    # Its colour names it: five labels would cover each other.
    return Mark(at_most(row), row["hit_rate"], *ends, hollow=not row["holds"])


def _hit_rate() -> Axis:
    return Axis("hit rate", (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), _percent)


def _false_hits(name: str, most: float) -> Axis:
    """Return an axis on which a few per cent get room, and none at all has a place too."""
    return Axis(name, (0.0, most), tuple(tick for tick in TICKS if tick <= most), _percent, math.sqrt)


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def lead(result: Result) -> str:
    """Return the sentence to be read first: what adaptive gave at the smallest target, and where it broke."""
    target = min((row["target"] for row in result.rows), default=0.0)
    rows = [row for row in result.rows if row["policy"] == "adaptive" and row["target"] == target]
    if not rows:
        return "No policy that learns was replayed."
    broke = [row["workload"] for row in rows if not row["holds"]]
    kept = f"kept its promise on {len(rows) - len(broke)} of {len(rows)} workloads"
    if len(rows) == 1:
        (row,) = rows
        wrong = rate(row["false_hit_rate"], row["false_hit_interval"], 2)
        if row.get("unsure_hits"):
            judged = row["judged_hits"]
            wrong = Judged(judged - row["false_hits"], row["false_hits"], row["unsure_hits"]).said(2)
            least, worst = row["runs_over_bounds"]
            return (
                f"At a target of {percent(target)} adaptive answered {percent(row['hit_rate'])} of {row['queries']:,} "
                f"queries; of its hits {wrong} were wrong: whether the promise was kept is "
                + ("not known." if least != worst else f"known all the same: {'broken' if least else 'kept'}.")
            )
        return (
            f"At a target of {percent(target)} adaptive answered {percent(row['hit_rate'])} of {row['queries']:,} "
            f"queries; of its hits {wrong} were wrong, and {row['runs_over_target']:,} of {row['runs']:,} runs ended "
            f"over the target: the promise was {'broken' if broke else 'kept'}."
        )
    return f"At a target of {percent(target)} adaptive {kept}" + (
        f"; it broke on {', '.join(broke)}." if broke else "."
    )


def pairs_charts(result: Result) -> list[Chart]:
    """Return how many pairs that should hit are served against how many traps, for each scoring."""
    summary = result.summary
    clouds = tuple(
        Cloud(
            f"{scoring.replace('_', '-')} (AUC {summary['auc'][scoring]:.2f})",
            (Mark(0.0, 0.0), *(Mark(p["false_hit_share"], p["hit_rate"]) for p in points)),
            SCORINGS.get(scoring, 3),
            joined=True,
        )
        for scoring, points in groupby(summary["curve"], key=lambda point: point["scoring"])
    )
    if not clouds:
        return []
    across = _false_hits("traps served, of all traps", 1.0)
    note = f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps."
    return [PlaneChart("What tells paraphrases from look-alikes", clouds, across, _hit_rate(), note=note)]


def pairs_lead(result: Result) -> str:
    """Return the sentence to be read first."""
    found = [f"{name.replace('_', '-')} {value:.3f}" for name, value in result.summary["auc"].items()]
    return f"The chance that a pair that should hit scores above a trap (AUC): {', '.join(found)}."
