"""The HTML page of `recall ann-bench`: what each engine finds against what a search costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from recall_cli.cli.render.planes import Axis, Cloud, Mark, PlaneChart
from recall_cli.cli.render.svg import OTHER, Chart
from recall_cli.types import Result

COLOURS = {"exact": OTHER, "scan": 0, "hnsw": 1}
GOOD = 0.98
"""Share of nearest neighbours from which on an engine counts as one that finds them, where no limit was given."""
STEPS = (1, 2, 5)


def charts(result: Result) -> list[Chart]:
    """Return a chart for each data set, dimension and size."""
    found: list[Chart] = []
    for (data, dims, corpus), group in _groups(result):
        title = f"{data}, {dims} dims, {corpus:,} rows"
        found.append(_chart(title, group, result.summary.get("min_recall")))
    return found


def _groups(result: Result) -> list[tuple[tuple[str, int, int], list[dict[str, Any]]]]:
    def key(row: dict[str, Any]) -> tuple[str, int, int]:
        return row["data"], row["dims"], row["corpus"]

    return [(name, list(rows)) for name, rows in groupby(result.rows, key=key)]


def _chart(title: str, rows: Sequence[Mapping[str, Any]], limit: float | None) -> PlaneChart:
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    clouds = tuple(
        Cloud(engine, tuple(_mark(row) for row in rows if row["engine"] == engine), COLOURS.get(engine, 2))
        for engine in engines
    )
    times = [row["p50_us"] for row in rows]
    across = Axis("us a search, p50, on a logarithmic scale", *_powers(min(times), max(times)), _us, math.log10)
    lowest = min(row["recall_at_1_interval"][0] for row in rows)
    floor = max(0.0, math.floor(lowest * 10 - 0.5) / 10)
    ticks = tuple(floor + (1 - floor) * part / 4 for part in range(5))
    up = Axis("recall@1, all fresh queries", (floor, 1.0), ticks, _percent)
    note = "Up and to the left is better. Bars: 95 % intervals."
    if limit is not None:
        note += " Hollow: not proved to hold the limit."
    return PlaneChart(title, clouds, across, up, note=note)


def _mark(row: Mapping[str, Any]) -> Mark:
    interval = (row["recall_at_1_interval"][0], row["recall_at_1_interval"][1])
    return Mark(row["p50_us"], row["recall_at_1"], None, interval, row_name(row), not row.get("holds", True))


def _powers(low: float, high: float) -> tuple[tuple[float, float], tuple[float, ...]]:
    """Return the ends of a logarithmic axis and its ticks: 1, 2 and 5 times the powers of ten around the values."""
    steps = [step * 10.0**power for power in range(-2, 9) for step in STEPS]
    first = max(step for step in steps if step <= low)
    last = min(step for step in steps if step >= high and step > first)
    return (first, last), tuple(step for step in steps if first <= step <= last)


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def lead(result: Result) -> str:
    """Return the sentence to be read first: the fastest engine that finds enough, on the last and largest set."""
    if not result.rows:
        return "Nothing was measured."
    (data, dims, corpus), rows = _groups(result)[-1]
    limit = result.summary.get("min_recall") or GOOD
    good = [row for row in rows if row["recall_at_1"] >= limit]
    where = f"{data}, {dims} dimensions, {corpus:,} rows"
    best = min(good or rows, key=lambda row: float(row["p50_us"]))
    exact = next((row for row in rows if row["engine"] == "exact"), None)
    said = (
        f"{where}: {row_name(best)} is the fastest that finds at least {_percent(limit)} of the nearest rows, in "
        f"{best['p50_us']:,.0f} us."
        if good
        else f"{where}: no setting finds {_percent(limit)} of the nearest rows."
    )
    return said if exact is None or best is exact else f"{said} Exact search takes {exact['p50_us']:,.0f} us."


SHORT = {"M": "M", "ef_construction": "efc", "ef_search": "ef", "m": "m", "refine": "r", "top_k": "k"}


def row_name(row: Mapping[str, Any]) -> str:
    """Return the engine with the options that tell it from its neighbours in the table."""
    usual = _usual(row["engine"])
    return " ".join([row["engine"], *(f"{SHORT[k]}{v}" for k, v in row["params"].items() if usual.get(k) != v)])


@cache
def _usual(engine: str) -> dict[str, int]:
    """Return the defaults that go without saying."""
    if engine == "scan":
        from recall_cli.cache.index.scan import REFINE

        return {"refine": REFINE}
    if engine == "hnsw":
        from recall_cli.cache.index.hnsw import EF_CONSTRUCTION

        return {"ef_construction": EF_CONSTRUCTION}
    return {}
