"""Timestamps as people write them, to seconds since the epoch; and from a log row, when a call started and ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from recall_cli.types import Json

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


START = (
    "start_time", "startTime", "request_start_time", "request_created_at", "started_at", "ts", "timestamp",
    "@timestamp", "time", "date", "datetime", "created_at", "createdAt", "created",
)  # fmt: skip
END = ("end_time", "endTime", "ended_at", "finished_at", "completed_at", "response_created_at")
LATENCY = {"latency_ms": 1e3, "duration_ms": 1e3, "latency_s": 1.0, "duration_s": 1.0, "latency_seconds": 1.0,
           "duration_seconds": 1.0}  # fmt: skip
"""A bare `latency` is left alone: half the tools mean seconds by it, half milliseconds."""
_STARTS, _ENDS, _TOOK = frozenset(START), frozenset(END), frozenset(LATENCY)
MAX_DURATION_S = 3_600.0
"""No call to a chat API lasts an hour: both vendors' clients give up after ten minutes. What says more is a mistake
(another unit, an end in 2100), and believed, it would keep a finished answer from all calls of that hour."""


@dataclass(slots=True)
class Span:
    """What a row says of its time, and what of it could not be believed."""

    start: float | None = None
    end: float | None = None
    naive: bool = False
    day_only: bool = False
    bad_times: int = 0
    bad_durations: int = 0


def read_span(row: Json, body: Json) -> Span:
    """Return when a call started and ended.

    A day and a time of day in fields of their own are joined. Of several times the first that says more than
    the day counts; the answer's own comes last.
    """
    span = Span()
    names = _STARTS.intersection(row)
    start, day = _only_time(row[next(iter(names))]) if len(names) == 1 else None, ""
    if start is None:
        start, day = _best_time(row, names, body, span)
    if start is not None:
        span.start, span.naive, span.day_only = start
        span.end = _end(row, span, day)
    return span


def _only_time(value: Any) -> Moment | None:
    """Return the one time of a row, if it is one to the second or better: nearly all rows have just that."""
    found = parse_time(value) if type(value) is not str or value[4:5] == "-" else None
    return None if found is None or found.day_only else found


def _best_time(row: Json, names: frozenset[str], body: Json, span: Span) -> tuple[Moment | None, str]:
    """Return the start by all that a row and its answer say, and the day that goes with a time of day."""
    named = [row[name] for name in START if name in names]
    hours = [clock(value) if type(value) is str else "" for value in named]
    day, hour = "", next(filter(None, hours), "")
    start: Moment | None = None
    for value, hour_only in zip(named, hours, strict=True):
        if value is None or hour_only:
            continue
        found = parse_time(value)
        if found is None:
            span.bad_times += 1
            continue
        if found.day_only:
            day = day or str(value).strip()
            found = (parse_time(f"{day} {hour}") if hour else None) or found
        if start is None or not found.day_only:
            start = found
        if not found.day_only:
            break
    if hour and (start is None or start.day_only):
        # A time of day that belongs to no day, or is none: 25:00.
        span.bad_times += 1
    created = parse_time(body.get("created")) if start is None or start.day_only else None
    # A day of slack: the row's zone is not known.
    if created and (start is None or -DAY_S <= created.seconds - start.seconds < 2 * DAY_S):
        start = created
    return start, day


def _end(row: Json, span: Span, day: str) -> float | None:
    assert span.start is not None
    for took in _durations(row, span, day):
        if 0 <= took <= MAX_DURATION_S:
            return span.start + took
        span.bad_durations += 1
    return None


def _durations(row: Json, span: Span, day: str) -> Iterator[float]:
    """Yield the seconds that the call took, as each field that tells has it."""
    ends, took_in = _ENDS.intersection(row), _TOOK.intersection(row)
    for name in END if ends else ():
        if name not in ends:
            continue
        value = row[name]
        ended = parse_time(f"{day} {hour}" if day and (hour := clock(value)) else value)
        # Days tell nothing of seconds.
        if ended is not None and not ended.day_only and not span.day_only:
            yield ended.seconds - (span.start or 0.0)
    for name, unit in LATENCY.items() if took_in else ():
        if name not in took_in:
            continue
        took: Any = row.get(name)
        if isinstance(took, (int, float)) and not isinstance(took, bool):
            # A number of any size may stand there, also one that no float can hold.
            yield took / unit if abs(took) <= MAX_DURATION_S * unit else -1.0
