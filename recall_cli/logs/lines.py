"""From one line of text to a row: strict and fast first, lenient for the few that need it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from recall_cli.logs.formats.otlp import spans
from recall_cli.logs.report import Tally
from recall_cli.types import Json

WRAPPERS = frozenset(
    ("resourceSpans", "resource_spans", "log", "batch", "post", "patch", "requests", "data", "runs", "spans",
     "observations", "traces", "items", "results")
)  # fmt: skip
"""Keys under which exports and API answers hold their rows."""
MAX_DEPTH = 8
"""Wrappers within wrappers: a page of exports, each with its batch, is three."""
ROW_KEYS = frozenset(("request", "response", "messages", "body", "custom_id", "attributes"))
"""A row that has one of these is a row, whatever else it holds."""


def parse_line(line: bytes, tally: Tally) -> Any:
    """Return the JSON value of a line, or MALFORMED."""
    try:
        return orjson.loads(line)
    except ValueError:
        pass
    # orjson is strict and fast; the few lines it refuses get a second, lenient reading.
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text.removeprefix("\ufeff").rstrip().removesuffix(","))
    except (ValueError, RecursionError):
        return MALFORMED
    tally.repaired[_oddity(line, text)] += 1
    return value


MALFORMED = object()
"""Stands for a line that is no JSON; None would be the JSON value null."""


ODDITIES = {
    "byte_order_mark": "a byte order mark",
    "invalid_utf8": "bytes that are no UTF-8, shown as \N{REPLACEMENT CHARACTER}",
    "comma_at_its_end": "a comma at the end",
    "not_strict_json": "what strict JSON does not allow, as NaN",
}
"""What makes a line need the lenient reading, in words."""


def _oddity(line: bytes, text: str) -> str:
    if text.startswith("\ufeff"):
        return "byte_order_mark"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "invalid_utf8"
    return "comma_at_its_end" if text.rstrip().endswith(",") else "not_strict_json"


def is_row(value: Json) -> bool:
    """Return whether an object is a row itself and wraps no others."""
    return WRAPPERS.isdisjoint(value) or not ROW_KEYS.isdisjoint(value)


def unfold(value: Any, depth: int = 0) -> Iterator[dict[str, Any] | str]:
    """Yield the rows in a JSON value: itself, the items of a list, what an export's wrapper holds."""
    if isinstance(value, dict):
        if depth > MAX_DEPTH or is_row(value):
            yield value
        else:
            yield from _unwrapped(value, depth)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for item in value:
            yield from unfold(item, depth + 1)
    else:
        yield "not_an_object"


def _unwrapped(value: Json, depth: int) -> Iterator[dict[str, Any] | str]:
    if isinstance(value.get("resourceSpans", value.get("resource_spans")), list):
        yield from spans(value)
        return
    log = value.get("log")
    held = log.get("entries") if isinstance(log, dict) else None
    lists = (
        [held] if isinstance(held, list) else [value[k] for k in WRAPPERS_IN_ORDER if isinstance(value.get(k), list)]
    )
    rows = [row for rows in lists for row in rows]
    if not lists or not all(isinstance(row, dict) for row in rows):
        yield dict(value)
        return
    for row in rows:
        yield from unfold(row, depth + 1)


WRAPPERS_IN_ORDER = ("post", "patch", *sorted(WRAPPERS - {"post", "patch", "log", "resourceSpans", "resource_spans"}))
"""A run is posted before it is patched."""
