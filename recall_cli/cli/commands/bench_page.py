"""The HTML page of `recall bench`: what is answered, where the time goes, and how it is spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recall_cli.cli.render.blocks import percent
from recall_cli.cli.render.stacks import StackChart
from recall_cli.cli.render.svg import OTHER, Chart, LineChart, Point, Series
from recall_cli.types import Result

PARTS = {"identity": 3, "embed": 0, "search": 1, "rest": OTHER}
"""Of a lookup, with their colours."""
DRAWN = (*range(0, 95, 5), *range(95, 100))
"""Percentiles of a curve: its tail is where it bends, and beyond p99 one interruption sets the scale."""
MARKS = (0, 25, 50, 75, 90, 99)


def charts(result: Result) -> list[Chart]:
    """Return the charts that the result has figures for."""
    rows = [row for row in result.rows if "lookup_us" in row]
    return [_answers(rows), _shares(rows), _spread(result.summary["samples"], rows)]


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['embedder']}@{row['entries']}"


def _answers(rows: Sequence[Mapping[str, Any]]) -> StackChart:
    known = all(row["right_rate"] is not None for row in rows)
    shown = 3 if known else 2
    drawn = tuple(
        (
            f"{_name(row)}: {percent(row['hit_rate'])} hit",
            tuple(
                count / row["queries"]
                for count in (
                    row["exact_hits"],
                    row["semantic_hits"] - (row["false_hits"] or 0),
                    row["false_hits"] or 0,
                )[:shown]
            ),
        )
        for row in rows
    )
    parts = (("exact", 0), ("near, and right" if known else "near", 2), ("near, and wrong", 1))
    note = "Of all queries; what is empty was not answered." + ("" if known else " Nobody knows which are wrong.")
    return StackChart("What is answered", parts[:shown], drawn, percent, note, 1.0)


def _shares(rows: Sequence[Mapping[str, Any]]) -> StackChart:
    drawn = tuple((_name(row), tuple(float(row["share_us"][part]) for part in PARTS)) for row in rows)
    note = "Medians. identity: the digest of a request; rest: the decision and Python between the parts."
    return StackChart("Where a semantic lookup's time goes", tuple(PARTS.items()), drawn, _us, note)


def _spread(samples: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> LineChart:
    """Return the lookups' percentiles, of the largest cache of each embedder and of an exact hit in it."""
    largest = {row["embedder"]: row for row in sorted(rows, key=lambda row: int(row["entries"]))}
    series = []
    for colour, row in enumerate(list(largest.values())[:3]):
        series.append(Series(_name(row), _percentiles(samples[f"{_name(row)}.lookup"]), colour))
    series.append(Series("an exact hit", _percentiles(samples[f"{_name(rows[-1])}.exact"]), 3))
    ticks = tuple((float(at), f"p{at}") for at in MARKS)
    note = "Every percentile of the timed calls up to p99: half of the calls are faster than p50."
    return LineChart("How a lookup's time is spread", tuple(series), ticks, _us, note=note)


def _percentiles(arm: Mapping[str, Any]) -> tuple[Point, ...]:
    return tuple(Point(float(at), arm["percentiles_us"][at], None, f"p{at}") for at in DRAWN)


def _us(value: float) -> str:
    return f"{value:,.0f} us" if value >= 100 else f"{value:,.1f} us"


def lead(result: Result) -> str:
    """Return the sentence to be read first: of the last row, the best embedder among the most entries."""
    row = [row for row in result.rows if "lookup_us" in row][-1]
    said = f"{row['embedder']} answered {percent(row['hit_rate'])} of {row['queries']:,} queries"
    said += f" from {row['entries']:,} entries"
    if row["false_hits"] is not None:
        said += f", {row['false_hits']:,} of them wrongly"
    return f"{said}. A lookup takes {_us(row['lookup_us']['p50'])} at the median."
