"""Timestamps as people write them, to seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

EPOCH_MIN, EPOCH_MAX = 1e9, 1e10
"""2001 to 2286 in seconds. Ranges in ms, µs and ns follow by 1000 and do not overlap, so the unit is certain."""
UNITS = (1.0, 1e3, 1e6, 1e9)
DAY_S = 86_400.0

_SPACED_ZONE = re.compile(r"\s+(UTC|GMT|Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
_CLOCK = re.compile(r"\s*(\d?\d:\d\d(:\d\d([.,]\d+)?)?(\s*(UTC|GMT|Z|[+-]\d\d:?\d\d))?)\s*", re.IGNORECASE)
_LONGEST_DAY = len("2025-W23-7")


class Moment(NamedTuple):
    """A time that was read."""

    seconds: float
    """Since the epoch."""
    naive: bool = False
    """True when the zone was missing; UTC was assumed."""
    day_only: bool = False
    """True when only the day was named: the first second of it stands for all."""


def parse_time(value: Any) -> Moment | None:
    """Return the moment, or None when the value is no time at all.

    A missing zone is read as UTC. Numbers may count seconds, milli-, micro- or nanoseconds.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _epoch(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    # Most logs write ISO 8601: "2026-" needs no look at whether it is a number.
    if text[4:5] != "-":
        try:
            return _epoch(float(text))
        except ValueError:
            pass
    when = _iso(text) or _http_date(text)
    if when is None:
        return None
    naive = when.tzinfo is None
    seconds = (when.replace(tzinfo=UTC) if naive else when).timestamp()
    # The year 1 is how several languages write "no time".
    return Moment(seconds, naive, _is_day(text)) if EPOCH_MIN <= seconds < EPOCH_MAX else None


def dated(seconds: float) -> bool:
    """Return whether seconds count since the epoch; those of a trace may count from its own start, and NaN is none."""
    return seconds >= EPOCH_MIN


def clock(value: Any) -> str:
    """Return a time of day without its day ("9:05:07" as "09:05:07"), or "" when the value is none."""
    # A date has its first hyphen before any colon; the expression is asked about the rest.
    found = _CLOCK.fullmatch(value) if isinstance(value, str) and value[4:5] != "-" else None
    if found is None:
        return ""
    time = found.group(1)
    return f"0{time}" if time[1] == ":" else time


def _epoch(number: int | float) -> Moment | None:
    if EPOCH_MIN <= number < EPOCH_MAX:
        return Moment(float(number))
    for unit in UNITS[1:]:
        if EPOCH_MIN * unit <= number < EPOCH_MAX * unit:
            return Moment(number / unit)
    return None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        pass
    spaced = _SPACED_ZONE.search(text)
    if spaced:
        zone = spaced.group(1).upper()
        text = text[: spaced.start()] + ("Z" if zone in ("UTC", "GMT") else zone)
    try:
        # Upper case for "t" and "z", which RFC 3339 allows.
        return datetime.fromisoformat(text.upper())
    except (ValueError, OverflowError):
        return None


def _is_day(text: str) -> bool:
    if len(text) > _LONGEST_DAY:
        return False
    try:
        date.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
