"""The pictures of a savings report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from recall_cli.cli.commands.savings_tables import size_of
from recall_cli.cli.render.blocks import count
from recall_cli.cli.render.svg import OTHER, Bar, BarChart, Chart, LineChart, Point, Series
from recall_cli.logs.times import dated
from recall_cli.measure.savings.wording import usd, usd_digits
from recall_cli.types import Result

DAY_S = 86_400
TICKS = 6
MAX_BARS = 8
NAMES = {"exact": "exact keys", "normalised": "normalised keys", "semantic": "the semantic tier",
         "combined": "all tiers, if every answer holds"}  # fmt: skip
"""Of each tier; all but the last stand for what they add to the ones before them."""
COLOURS = {"exact": 0, "normalised": 3, "semantic": 1, "combined": 2}


def charts(result: Result, reasons: Mapping[str, str]) -> list[Chart]:
    """Return the charts that the result has figures for.

    :param reasons: what each reason for an exclusion is called.
    """
    s = result.summary
    found: list[Chart] = []
    if s["cacheable"]:
        found.append(_tiers(s))
    if s["spend_usd"]:
        found.append(_spend(s, reasons))
    if len([part for part in s["over_time"] if part["n"]]) > 1:
        found.append(_over_time(s["over_time"]))
    if len(s["capacity"]) > 1 and s["tiers"]["combined"]["hits"]:
        found.append(_misses(s["capacity"]))
    return found


def _tiers(s: Mapping[str, Any]) -> BarChart:
    tiers = {name: s["tiers"][name] for name in NAMES if name in s["tiers"]}
    if any(tier["usd"] for tier in tiers.values()):
        digits = usd_digits(tier["usd"] for tier in tiers.values())
        sums = [Bar(NAMES[name], t["usd"], _pair(t["usd_interval"]), COLOURS[name]) for name, t in tiers.items()]
        note = f"Of {usd(s['spend_usd'])} spent; each tier adds to the one before it. Whiskers: 90 % intervals."
        return BarChart("Saved by tier", tuple(sums), lambda value: usd(value, digits), note=note)
    rates = [
        Bar(NAMES[name], t["hit_rate"] or 0.0, _pair(t["hit_rate_interval"]), COLOURS[name])
        for name, t in tiers.items()
    ]
    note = f"Of {count(s['cacheable'])} cacheable requests. No dollars: no price is known, or nothing is saved."
    return BarChart("Answered by tier", tuple(rates), _percent, note=note)


def _spend(s: Mapping[str, Any], reasons: Mapping[str, str]) -> BarChart:
    """Return where the dollars go: saved, missed, kept out and why."""
    answered = [(f"answered by {NAMES[name]}", s["tiers"][name]["usd"], COLOURS[name])
                for name in NAMES if name in s["tiers"] and name != "combined"]  # fmt: skip
    out = [(reasons.get(reason, reason), group["usd"]) for reason, group in s["excluded"].items()]
    missed = s["spend_usd"] - sum(part[1] for part in answered) - sum(amount for _, amount in out)
    parts = [
        *answered,
        ("cacheable, and not answered before", max(0.0, missed), OTHER),
        *((f"kept out: {name}", amount, OTHER) for name, amount in out),
    ]
    # What is left of sums that were rounded is no part of the spend.
    digits = usd_digits(part[1] for part in parts)
    shown = [part for part in parts if part[1] >= 10.0**-digits / 2]
    rest = shown[MAX_BARS:]
    if rest:
        shown = [*shown[:MAX_BARS], ("kept out: other reasons", sum(part[1] for part in rest), OTHER)]
    bars = tuple(Bar(name, amount, None, colour) for name, amount, colour in shown)
    return BarChart("Where the spend goes", bars, lambda value: usd(value, digits))


def _over_time(parts: Sequence[Mapping[str, Any]]) -> LineChart:
    width = parts[1]["start"] - parts[0]["start"]
    middle = [part["start"] + width / 2 for part in parts]
    named = [f"{moment(part['start'])}, {count(part['n'])} requests" for part in parts]
    rates = [Point(at, part["hit_rate"], _pair(part["hit_rate_interval"]), name)
             for at, part, name in zip(middle, parts, named, strict=True)]  # fmt: skip
    keys = [Point(at, part["hit_rate_exact"], None, name)
            for at, part, name in zip(middle, parts, named, strict=True)]  # fmt: skip
    every = Series("all tiers", tuple(rates), COLOURS["combined"])
    exact = Series("exact keys alone", tuple(keys), COLOURS["exact"])
    days = width * len(parts) >= 2 * DAY_S
    step = max(1, len(parts) // TICKS)
    ticks = tuple((middle[at], moment(parts[at]["start"], days=days)) for at in range(0, len(parts), step))
    clock = "UTC" if dated(parts[0]["start"]) else "from the start of the trace"
    note = f"Cacheable requests in 24 equal parts of the span, {clock}. The band shows how few requests a point has."
    return LineChart("Hit rate over time", (every, exact), ticks, _percent, note=note)


def _misses(sweep: Sequence[Mapping[str, Any]]) -> LineChart:
    """Return the miss ratio of keys by the size of the cache, on a scale of powers."""
    known = sorted((row["held_bytes"], 1 - row["hit_rate"]) for row in sweep if row["hit_rate"] is not None)
    points = tuple(Point(math.log10(max(1, held)), miss, None, size_of(held)) for held, miss in known)
    ticks = tuple((point.x, point.label) for point in points)
    note = (
        "Of cacheable requests, keys alone; the least recently used answer goes first. The last point holds them all."
    )
    return LineChart("Miss ratio by size of the cache", (Series("misses", points),), ticks, _percent, note=note)


def moment(seconds: float, *, days: bool | None = None) -> str:
    """Return a time (UTC): its day and minute, or the one of them that tells points apart.

    A time that counts from the start of a trace is told as such.
    """
    if not dated(seconds):
        return f"{seconds / DAY_S:.1f} days" if days else f"{seconds / 60:.0f} min"
    form = "%Y-%m-%d %H:%M" if days is None else "%b %d" if days else "%H:%M"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _pair(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0], interval[1])


def _percent(value: float) -> str:
    shown = 100 * value
    return f"{shown:.0f} %" if shown == round(shown) else f"{shown:.1f} %"
