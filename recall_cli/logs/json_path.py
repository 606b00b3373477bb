"""Values out of rows that may have any shape: a wrong turn gives None, never an error."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from recall_cli.logs.sse import BLANK
from recall_cli.types import Json

MAX_COST = Decimal(1_000_000)
"""Dollars. No single call costs a million; a number beyond is in another unit, or not a price."""


def dig(value: Any, *path: str | int) -> Any:
    """Return what stands at the end of a path of keys and positions, None where the path ends early."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def first(row: Json, names: Iterable[str]) -> Any:
    """Return the first value under one of the names that is neither None nor an empty string."""
    for name in names:
        value = row.get(name)
        if value is not None and value != "":
            return value
    return None


def decoded(value: Any) -> Any:
    """Return JSON that was logged as a string, decoded; everything else as it is."""
    if isinstance(value, str):
        text = value.lstrip(BLANK)
        if text.startswith(("{", "[")):
            try:
                return orjson.loads(text)
            except ValueError:
                return value
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, decoded when it was logged as a string; {} for everything else."""
    value = decoded(value)
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a string, or a number as one; "" for everything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else ""


def whole(value: Any) -> int | None:
    """Return a count, also one logged as a string or as 12.0; None for everything else."""
    if isinstance(value, str) and len(value) < 20:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return int(value)


def number(value: Any) -> float | None:
    """Return a finite number, also one logged as a string; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def money(value: Any) -> Decimal | None:
    """Return dollars as they were written, digit by digit; None for what is no sum of money."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or value == "":
        return None
    if isinstance(value, str):
        value = value.strip().removeprefix("$")
    try:
        found = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    return found if found.is_finite() and 0 <= found < MAX_COST else None


def truth(value: Any) -> bool:
    """Return whether a flag is set, in the spellings of several languages and proxies."""
    return value == 1 or (isinstance(value, str) and value.strip().lower() in ("true", "hit", "1", "yes"))
