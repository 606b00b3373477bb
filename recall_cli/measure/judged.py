"""How many of some answers are wrong, where a part of them nobody could judge: a bound, never a rate of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Judged:
    """Answers by verdict."""

    right: int
    wrong: int
    unsure: int

    @property
    def n(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.unsure

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The share of wrong ones if none, and if all, of the others were wrong; None where nothing was judged."""
        if self.right + self.wrong == 0:
            return None, None
        return self.wrong / self.n, (self.wrong + self.unsure) / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval around both bounds."""
        from recall_cli.stats import wilson  # numpy, which no --help should wait for

        return wilson(self.wrong, self.n)[0], wilson(self.wrong + self.unsure, self.n)[1]

    def said(self, digits: int = 1) -> str:
        """Return the share of wrong ones in words: a rate where all were judged, else its bounds."""
        low, high = self.bounds
        if low is None or high is None:
            return f"{NOT_KNOWN} (none of {self.n:,} could be judged)" if self.n else NOT_KNOWN
        if not self.unsure:
            ends = ", ".join(f"{100 * end:.{digits}f}" for end in self.interval)
            return f"{100 * low:.{digits}f} % [{ends}]"
        return f"{between(low, high, digits)} ({self.unsure:,} of {self.n:,} could not be judged)"


def between(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return the bounds of a share as they are read: "0 to 61.0 %"; "not known" without them."""
    if low is None or high is None or (low, high) == (0.0, 1.0):
        return NOT_KNOWN
    if low == high:
        return f"{100 * low:.{digits}f} %"
    start = "0" if low == 0 else f"{100 * low:.{digits}f}"
    return f"{start} to {100 * high:.{digits}f} %"


def at_most(row: Mapping[str, Any]) -> float:
    """Return the share of wrong hits of a policy that judged some, with all that nobody could judge among them."""
    found: float = row["false_hit_bounds"][1] if row.get("unsure_hits") else row["false_hit_rate"]
    return found


def point_at_most(point: Mapping[str, Any]) -> float:
    """Return the same for a point of the curve."""
    unsure = point["hits"] - point["judged_hits"]
    wrong = (1 - point["precision"]) * point["judged_hits"]
    return float((wrong + unsure) / point["hits"]) if unsure else float(1 - point["precision"])
