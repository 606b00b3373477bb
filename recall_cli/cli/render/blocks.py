"""What a command shows, before it is drawn: tables, bars and sentences.

A command's view turns a result into blocks; `render` draws blocks on a terminal or as Markdown.
README is made of the same blocks, so that it cannot say anything else than the command does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NONE = "–"
"""What stands where there is no value: never a zero that was not measured."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of text; the first `left` columns are names, the rest numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True, slots=True)
class Bars:
    """One stacked bar a row: how a whole splits into parts."""

    title: str
    parts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence."""

    text: str


Block = Table | Bars | Line


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """Return a table from any sequences."""
    return Table(title, tuple(columns), tuple(tuple(row) for row in rows), left)


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separators, or a dash for none."""
    return NONE if value is None else f"{value:,.{digits}f}"


def count(value: int | None) -> str:
    """Return a whole number with thousands separators, or a dash for none."""
    return NONE if value is None else f"{value:,}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a fraction as per cent, or a dash for none."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def rate(value: float | None, interval: Sequence[float] | None, digits: int = 1) -> str:
    """Return a rate with its interval: `12.3 % [10.1, 14.8]`."""
    if value is None or interval is None:
        return NONE
    return f"{100 * value:.{digits}f} % [{100 * interval[0]:.{digits}f}, {100 * interval[1]:.{digits}f}]"


def bare(value: float | None, interval: Sequence[float] | None, digits: int) -> str:
    """Return a number with its interval and no unit, which stands in the column's head: `12.3 [10.1, 14.8]`."""
    if value is None or interval is None:
        return NONE
    return f"{value:.{digits}f} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row for CSV: nested values under dotted names, an interval or bounds as their two ends."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        elif key.endswith(("interval", "bounds")):
            flat[f"{prefix}{key}_low"], flat[f"{prefix}{key}_high"] = value or (None, None)
        else:
            flat[f"{prefix}{key}"] = value
    return flat
