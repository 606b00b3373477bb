"""Why a row is no call, in words: a reason is a name in documents and a sentence's end on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

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
"""Every reason that `Tally.skipped` counts."""


def words(reason: str) -> str:
    """Return a reason in words."""
    return SKIPPED.get(reason, reason.replace("_", " "))


def told(skipped: Mapping[str, int]) -> str:
    """Return counted reasons as one clause, the most frequent first."""
    most = sorted(skipped.items(), key=lambda reason: (-reason[1], reason[0]))
    return ", ".join(f"{count:,} {words(reason)}" for reason, count in most)
