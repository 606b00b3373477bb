"""How a savings report writes its figures: the same in the tables, the warnings and the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SIGNIFICANT = 3
"""Figures shown of a sum below a dollar."""
MAX_DIGITS = 8
"""Decimals that are kept at all."""
NO_MODEL = "(no model)"
REASONS = {
    "no_text": "no text in the log, nor a key of it",
    "hidden_prompt": "the log does not show all that was asked",
    "sampled": "sampled: temperature unset or above 0",
    "tools": "tools offered in the request",
    "tool_calls": "answer calls tools",
    "tool_result": "last turn is a tool result",
    "last_turn_not_user": "last turn is not the user's",
    "media": "images, files or audio",
    "server_state": "relies on state at the provider",
    "web_search": "the model searches the web",
    "no_content": "last turn has no content",
    "no_messages": "no messages",
    "not_canonical_json": "holds what no JSON key can be made of",
    "truncated": "answer cut off by a token limit",
    "stream_cut_off": "stream without its end",
    "unknown_ending": "answer ended for a reason not known to be good",
    "refusal": "answer refused or filtered",
    "error": "failed call",
    "no_answer": "no answer in the log",
    "answer_unreadable": "answer not readable",
    "empty_answer": "empty answer",
    "already_cached": "already served by a cache",
}
"""Why no cache may answer a call, by the name it has in documents."""
UNSEEN = ("no_text", "hidden_prompt", "no_answer")
"""Reasons that are the log's: a cache in front of the traffic would see what these rows do not show."""


def usd_digits(amounts: Iterable[float | None]) -> int:
    """Return the decimals a column of dollars needs: cents from a dollar up, else three figures of its largest sum."""
    largest = max((abs(amount) for amount in amounts if amount), default=1.0)
    return 2 if largest >= 1 else min(MAX_DIGITS, SIGNIFICANT - 1 - math.floor(math.log10(largest)))


def usd(amount: float, digits: int | None = None) -> str:
    """Return dollars; a sum too small for the decimals of its column is "<$0.01", never zero."""
    digits = usd_digits([amount]) if digits is None else digits
    smallest = 10.0**-digits
    return f"<${smallest:.{digits}f}" if 0 < amount < smallest / 2 else f"${amount:,.{digits}f}"


def percent(share: float, digits: int = 1) -> str:
    """Return a fraction as per cent."""
    return f"{100 * share:.{digits}f} %"


def agreement(equal: int, n: int) -> str:
    """Return `22 of 102 (22 %)`; a share that would round to all or nothing keeps a decimal."""
    rounds_away = round(100 * equal / n) in (0, 100) and 0 < equal < n
    return f"{equal:,} of {n:,} ({percent(equal / n, 1 if rounds_away else 0)})"


def model_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each model; one that several providers serve is told apart by its provider."""
    served = Counter(row["model"] for row in rows)
    return [(row["model"] or NO_MODEL) + (f" ({row['provider']})" if served[row["model"]] > 1 else "") for row in rows]
