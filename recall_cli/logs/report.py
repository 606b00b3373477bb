"""What reading a log found beside its records, so that nothing is lost unsaid.

A reason is a name in documents and the end of a sentence on a terminal. Names from a log are cleaned before they are
shown: a log is written by others, and a terminal obeys what it is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SKIPPED = {
    "malformed_json": "no JSON",
    "malformed_csv": "no row of the table that can be read",
    "not_an_object": "JSON, but no object",
    "line_too_long": "longer than any request",
    "unexpected_shape": "of a shape the format does not have",
    "no_request": "without a request",
    "request_not_an_object": "with a request that is no object",
    "no_messages": "with a request that has no messages",
    "no_prompt": "without a prompt",
    "no_tokens": "without token counts",
    "no_payload": "without a payload",
    "no_custom_id": "without the id that joins request and answer",
    "id_used_twice": "with an id that several requests have",
    "answer_without_request": "an answer whose request is not in the log",
    "duplicate": "seen before",
    "not_a_generation": "of another kind than a model's call",
    "not_a_turn": "no turn of the conversation",
    "not_a_call": "a turn that no model answered",
}
"""Every reason that `ReadReport.skipped` counts."""


def words(reason: str) -> str:
    """Return a reason in words."""
    return SKIPPED.get(reason, reason.replace("_", " "))


def told(skipped: Mapping[str, int]) -> str:
    """Return counted reasons as one clause, the most frequent first."""
    most = sorted(skipped.items(), key=lambda reason: (-reason[1], reason[0]))
    return ", ".join(f"{count:,} {words(reason)}" for reason, count in most)


def clean(name: str) -> str:
    r"""Return a name with everything unprintable written out: ESC as `\x1b`, a line end as `\n`.

    Also marks that turn the reading direction or stand for a lone surrogate, which no output can encode.
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


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
class ReadReport:
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
