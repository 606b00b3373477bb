"""Spans as exporters write them, to rows with plain attributes.

OTLP's JSON nests spans under resources and scopes and wraps each value in its type, with whole numbers as strings.
Other exporters (Phoenix, a table of spans) write attributes as nested objects, dotted names or columns. All of them
become one form here: dotted names, plain values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recall_cli.logs.json_path import dig, mapping
from recall_cli.types import Json

MAX_DEPTH = 32
"""Attributes nest a handful of levels deep; what nests deeper was not written by an exporter."""


def spans(document: Json) -> Iterator[dict[str, Any] | str]:
    """Yield the spans of an OTLP export, with `attributes` and `resource` as plain objects."""
    for group in _list(document, "resourceSpans", "resource_spans"):
        resource = _attributes(dig(group, "resource", "attributes"))
        for scope in _list(group, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            for span in _list(scope, "spans"):
                if isinstance(span, dict):
                    yield {**span, "attributes": _attributes(span.get("attributes")), "resource": resource}
                else:
                    yield "not_an_object"


def attributes(row: Json) -> dict[str, Any]:
    """Return the attributes of a span under dotted names, however its exporter wrote them."""
    given = row.get("attributes")
    if isinstance(given, list):
        return _attributes(given)
    if isinstance(given, str):
        given = mapping(given)
    found: dict[str, Any] = {}
    if isinstance(given, dict):
        _flatten(given, "", found, 0)
    for name, value in row.items():
        # A table of spans has a column for each that any span has: most are empty.
        if name.startswith("attributes.") and value is not None:
            _flatten({name.removeprefix("attributes."): value}, "", found, 0)
    return found


def events(row: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, attributes) of a span's events."""
    for event in _list(row, "events"):
        if isinstance(event, dict):
            yield str(event.get("name", "")), attributes(event)


def indexed(found: Json, prefix: str) -> list[dict[str, Any]]:
    """Return the objects that were written as `prefix.0.name`, `prefix.1.name`, ..., in their order."""
    items: dict[int, dict[str, Any]] = {}
    start = prefix + "."
    for name, value in found.items():
        if name.startswith(start):
            at, _, rest = name[len(start) :].partition(".")
            if at.isdecimal() and rest and len(at) < 6:
                items.setdefault(int(at), {})[rest] = value
    return [items[at] for at in sorted(items)]


def _list(value: Any, *names: str) -> list[Any]:
    return next((found for name in names if isinstance(found := dig(value, name), list)), [])


def _flatten(value: Any, prefix: str, into: dict[str, Any], depth: int) -> None:
    for name, item in value.items():
        if isinstance(item, dict) and depth < MAX_DEPTH and item:
            _flatten(item, f"{prefix}{name}.", into, depth + 1)
        elif isinstance(item, list) and item and all(isinstance(i, dict) for i in item) and depth < MAX_DEPTH:
            for at, inner in enumerate(item):
                _flatten(inner, f"{prefix}{name}.{at}.", into, depth + 1)
        else:
            into[f"{prefix}{name}"] = item


def _attributes(pairs: Any) -> dict[str, Any]:
    if isinstance(pairs, dict):
        return pairs
    found: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict) and isinstance(pair.get("key"), str):
            found[pair["key"]] = _plain(pair.get("value"), 0)
    return found


def _plain(value: Any, depth: int) -> Any:
    """Return the value in an OTLP AnyValue."""
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return value
    for name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if name in value:
            return value[name]
    if "intValue" in value:
        try:
            return int(value["intValue"])
        except (TypeError, ValueError, OverflowError):
            return None
    if "arrayValue" in value:
        values = dig(value, "arrayValue", "values")
        return [_plain(item, depth + 1) for item in values] if isinstance(values, list) else []
    if "kvlistValue" in value:
        pairs = dig(value, "kvlistValue", "values")
        return {
            pair["key"]: _plain(pair.get("value"), depth + 1)
            for pair in (pairs if isinstance(pairs, list) else ())
            if isinstance(pair, dict) and isinstance(pair.get("key"), str)
        }
    return None
