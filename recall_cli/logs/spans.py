"""When a call started and ended, from the fields of its log row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recall_cli.logs.times import DAY_S, Moment, clock, parse_time
from recall_cli.types import Json

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
