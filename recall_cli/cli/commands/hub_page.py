"""The HTML page of `recall hub eval`: the legs side by side, and how the weight of vectors moves the order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from recall_cli.cli.render.planes import Axis, Cloud, Mark, PlaneChart
from recall_cli.cli.render.svg import OTHER, Bar, BarChart, Chart
from recall_cli.types import Result

COLOURS = {"lexical": 3, "vector": 1}
"""Of the legs; what is made of both has the first colour."""


def charts(result: Result) -> list[Chart]:
    """Return for each hub its legs, and the curve of the weight where it was fitted."""
    found: list[Chart] = []
    for hub, rows in groupby(result.rows, key=lambda row: row["hub"]):
        found.append(_legs(hub, list(rows)))
        fit = result.summary["hubs"].get(hub, {}).get("fit")
        if fit:
            found.append(_weight(hub, fit))
    return found


def _legs(hub: str, rows: Sequence[Mapping[str, Any]]) -> BarChart:
    bars = tuple(
        Bar(
            row["leg"],
            row["ndcg_at_10"],
            (row["ndcg_at_10_interval"][0], row["ndcg_at_10_interval"][1]),
            COLOURS.get(row["leg"], 0),
        )
        for row in rows
    )
    note = f"{rows[0]['queries']:,} questions. Whiskers: 95 % intervals, by bootstrap over questions."
    return BarChart(f"{hub}: nDCG@10 of each leg", bars, _digits, note=note)


def _weight(hub: str, fit: Mapping[str, Any]) -> PlaneChart:
    curve = tuple(Mark(point["alpha"], point["ndcg_at_10"]) for point in fit["curve"])
    values = [mark.y for mark in curve]
    low, high = math.floor(min(values) * 20) / 20, math.ceil(max(values) * 20 + 1e-9) / 20
    best = next(mark for mark in curve if mark.x == fit["alpha"])
    across = Axis(
        "weight of vectors (0: words alone, 1: vectors alone)", (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), _short
    )
    up = Axis("nDCG@10", (low, high), tuple(low + (high - low) * part / 4 for part in range(5)), _digits)
    clouds = (Cloud("of all questions", curve, OTHER, joined=True), Cloud(f"fitted: {fit['alpha']:g}", (best,), 0))
    note = (
        "Dashed: the present weight. The curve is of the questions it is fitted to; "
        f"on unseen ones the gain is {_gain(fit)}."
    )
    return PlaneChart(f"{hub}: what the weight does", clouds, across, up, (fit["present_alpha"],), note)


def _gain(fit: Mapping[str, Any]) -> str:
    low, high = fit["gain_interval"]
    return f"{fit['gain']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _digits(value: float) -> str:
    return f"{value:.3f}"


def _short(value: float) -> str:
    return f"{value:g}"


def lead(result: Result) -> str:
    """Return the sentence to be read first: whether fusing gains over the better leg."""
    hubs: Mapping[str, Mapping[str, Any]] = result.summary["hubs"]
    gains = [hub for hub, learned in hubs.items() if learned["gain_over_better_leg_interval"][0] > 0]
    if len(hubs) == 1:
        ((hub, learned),) = hubs.items()
        low, high = learned["gain_over_better_leg_interval"]
        return (
            f"{hub}: the fused order is {learned['gain_over_better_leg']:+.3f} [{low:+.3f}, {high:+.3f}] nDCG@10 "
            f"against the better leg, which is the {learned['better_leg']} one."
        )
    return f"The fused order is shown to be better than the better leg on {len(gains)} of {len(hubs)} hubs."
