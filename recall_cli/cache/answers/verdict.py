"""The verdict on two answers: same, different or unsure, and the rule that gave it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Same(StrEnum):
    """The verdict on two answers."""

    SAME = "same"
    DIFFERENT = "different"
    UNSURE = "unsure"

    @property
    def label(self) -> bool | None:
        """True for same, False for different, None for no label."""
        return None if self is Same.UNSURE else self is Same.SAME


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict and the rule that gave it."""

    verdict: Same
    reason: str

    @property
    def label(self) -> bool | None:
        """True for same, False for different, None for no label."""
        return self.verdict.label


def same(reason: str) -> Comparison:
    """Return that two answers say the same."""
    return Comparison(Same.SAME, reason)


def different(reason: str) -> Comparison:
    """Return that two answers say different things."""
    return Comparison(Same.DIFFERENT, reason)


def unsure(reason: str) -> Comparison:
    """Return that nobody can tell."""
    return Comparison(Same.UNSURE, reason)
