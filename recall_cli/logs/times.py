"""Timestamps as people write them, to seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

EPOCH_MIN, EPOCH_MAX = 1e9, 1e10
"""2001 to 2286 in seconds. Ranges in ms, µs and ns follow by 1000 and do not overlap, so the unit is certain."""
UNITS = (1.0, 1e3, 1e6, 1e9)

_SPACED_ZONE = re.compile(r"\s+(UTC|GMT|Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)


def parse_time(value: Any) -> tuple[float, bool] | None:
    """Return (seconds since the epoch, was the zone missing?), or None when it is no time at all.

    A missing zone is read as UTC. Numbers may count seconds, milli-, micro- or nanoseconds.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _epoch(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
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
    return (seconds, naive) if EPOCH_MIN <= seconds < EPOCH_MAX else None


def _epoch(number: int | float) -> tuple[float, bool] | None:
    for unit in UNITS:
        if EPOCH_MIN * unit <= number < EPOCH_MAX * unit:
            return number / unit, False
    return None


def _iso(text: str) -> datetime | None:
    spaced = _SPACED_ZONE.search(text)
    if spaced:
        zone = spaced.group(1).upper()
        text = text[: spaced.start()] + ("Z" if zone in ("UTC", "GMT") else zone)
    try:
        # Upper case for "t" and "z", which RFC 3339 allows.
        return datetime.fromisoformat(text.upper())
    except (ValueError, OverflowError):
        return None


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
