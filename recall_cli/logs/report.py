"""What reading a log found beside its records: for the report, so that nothing is lost unsaid."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sniffed:
    """Which format a file was taken for, by its first rows."""

    file: str
    format: str
    score: int
    """Sum of the rows' scores: how many of the format's own keys they had."""
    runner_up: str = ""
    """The format that came second, "" when no other knew a row."""
    runner_up_score: int = 0


@dataclass(slots=True)
class Tally:
    """Counts of one reading. `lines == records + sum(skipped) + sum(merged)` once it is over."""

    lines: int = 0
    """Rows: lines of text, rows of a table, items of a document."""
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    merged: Counter[str] = field(default_factory=Counter)
    """Rows that are part of a record another row gave (a batch's input, a transcript's turn), by format."""
    faults: list[str] = field(default_factory=list)
    """Sentences: files that could not be read, or not to their end."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Lines that only the lenient parser could read, by what was wrong with them."""
    sniffed: list[Sniffed] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    """Records by the adapter that read them: a file may mix formats."""
    naive_times: int = 0
    day_only_times: int = 0
    bad_times: int = 0
    bad_durations: int = 0
    """Negative ones and those over `spans.MAX_DURATION_S`."""
    usage_read: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(provider, how its input tokens were read) -> rows."""
    tenant_fields: Counter[str] = field(default_factory=Counter)
