"""Which calls may share answers: a log's tenants, told apart by field and by value."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from recall_cli.types import Json

TENANT = ("tenant", "tenant_id", "team", "team_id", "organization", "organization_id", "org_id", "user", "user_id")
"""The first one present is the wall. Only fields of the row: a body's own `user` names an end user."""
_TENANT = frozenset(TENANT)
EXACT_FLOAT = 2.0**53
"""From here on a float stands for several whole numbers: two ids may have been read as one."""


def wall(row: Json, source: str) -> tuple[str, str]:
    """Return (key, deciding field) of the wall around a row; ("", "") when it names no tenant.

    The key is canonical JSON of field and value, so neither 7 and "7" nor a tenant and a user of one name meet.
    False, 0 and empty objects may mean "none": they are part of the key, and so is the next field.

    :param source: names the row; what has no canonical form is walled off alone under it.
    """
    if _TENANT.isdisjoint(row):
        return "", ""
    found: list[tuple[str, Any]] = []
    for name in TENANT:
        value = row.get(name)
        if value is None or value == "":
            continue
        if not found and value and (type(value) is int or (type(value) is str and "\ufffd" not in value)):
            return _plain_wall(name, value), name
        found.append((name, value))
        if value:
            break
    if not found:
        return "", ""
    try:
        key = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        key = ""
    # U+FFFD stands where bytes could not be read: two names may have become one.
    if not key or "\\ufffd" in key or _inexact([value for _, value in found]):
        key = json.dumps([source])
    return key, found[-1][0]


@lru_cache(maxsize=4096)
def _plain_wall(name: str, value: str | int) -> str:
    """Return the key of the usual case, a name or a number: a log has far fewer tenants than rows."""
    return json.dumps([(name, value)], separators=(",", ":"))


def _inexact(values: list[Any]) -> bool:
    """Return whether a number among the values may stand for several."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and abs(value) >= EXACT_FLOAT:
            return True
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False
