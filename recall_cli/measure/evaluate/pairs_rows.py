"""Rows of a labelled file: CSV with a header, JSON Lines or JSON, told apart by what the file holds."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import orjson

from recall_cli.errors import InputError
from recall_cli.types import Warn

DELIMITERS = (",", ";", "\t")

IsHeader = Callable[[set[str]], bool]
"""Tells whether a first line, as names in lower case, is the header of what is looked for."""


def rows_of(
    text: str, source: str, skipped: Counter[str], hint: str, is_header: IsHeader
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows, keys in lower case; what is no row is counted. Raises InputError for an unknown header."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        values = _json_values(text, skipped)
    elif start:
        values = _csv_values(text, source, skipped, hint, is_header)
    else:
        return
    for value in values:
        if isinstance(value, dict):
            yield {str(key).strip().lower(): item for key, item in value.items() if key is not None}
        elif isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
            yield {"text": value[0], "class": value[1]}  # a row of CLINC150
        else:
            skipped["not an object"] += 1


def _json_values(text: str, skipped: Counter[str]) -> Iterator[Any]:
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        whole = None
    if isinstance(whole, list):
        yield from whole
    elif isinstance(whole, dict) and whole and all(isinstance(rows, list) for rows in whole.values()):
        for name, rows in whole.items():
            # {"a": [...], "b": [...]} is one row of two conversations, not two splits.
            if name.lower() in ("a", "b"):
                yield whole
                return
            yield from rows
    elif whole is not None:
        yield whole
    else:
        # Not splitlines(): a JSON string may hold U+2028 and other characters that it would cut at.
        for line in text.split("\n"):
            if line.strip():
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError:
                    skipped["not valid JSON"] += 1


def _csv_values(text: str, source: str, skipped: Counter[str], hint: str, is_header: IsHeader) -> Iterator[Any]:
    for delimiter in DELIMITERS:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            names = [name.strip().lower() for name in reader.fieldnames or ()]
        except csv.Error:
            continue
        if is_header(set(names)):
            break
    else:
        first = text.lstrip().split("\n", 1)[0][:80].strip()
        raise InputError(f"{source} names no column that is known: its first line is {first!r}.", hint=hint)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            skipped["not valid CSV"] += 1
            continue
        if None in row:
            skipped["more fields than the header"] += 1
        else:
            yield row


def first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the row's value under the first of the names that has one, else None."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def finite(value: Any) -> float | None:
    """Return the number that a value says, None when it says none; NaN and infinity are none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def insist(found: Sized, source: str, skipped: Counter[str], what: str, hint: str) -> None:
    """Raise InputError when nothing was found, saying what became of the rows."""
    if not found:
        reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.most_common()) or "it is empty"
        raise InputError(f"{source} holds no {what} ({reasons}).", hint=hint)


def left_out(skipped: Mapping[str, int], source: str) -> Iterator[Warn]:
    """Yield a warning for each reason for which rows were left out."""
    for why, count in skipped.items():
        yield Warn("ROWS_LEFT_OUT", f"{count:,} rows of {source} {why}: left out", "mend or remove them")
