"""What a check of `recall doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How something is."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, and nothing needs it."""
    SLOW = "slow"
    """Works, and costs more than it should."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: how it is, what was seen, and, unless it is well, what to do."""

    check: str
    state: State
    found: str
    hint: str = ""
