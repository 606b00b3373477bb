"""Why an answer ended, and which of these reasons mean that it is all there: the one list for every route and reader.

It is a list of what may be kept. A list of what may not would keep every torn answer whose provider has a word of
its own for it.
"""

from __future__ import annotations

from typing import Any

from recall_cli.types import Json

OPENAI = ("stop", "eos", "eos_token", "stop_sequence")
"""What the chat API says of a whole answer in words. The last three are those of Together and of TGI."""
ANTHROPIC = ("end_turn", "stop_sequence")
OTHERS = ("completed", "STOP", "COMPLETE")
"""Further words for it: the Responses API, Gemini, Cohere. They stand in logs and traces, not on the cached routes."""
GOOD = (*OPENAI, *ANTHROPIC, *OTHERS)


def is_good(reason: Any, among: tuple[str, ...] = GOOD) -> bool:
    """Return whether an answer that ended so is whole. Only the exact word counts."""
    return isinstance(reason, str) and reason in among


def is_said(reason: Any) -> bool:
    """Return whether a reason says anything: some servers send an empty one until the answer ends."""
    return reason is not None and reason != ""


def is_whole(body: Json) -> bool:
    """Return whether an unstreamed body of a cached route ended well; of several choices, each one."""
    choices = body.get("choices")
    if isinstance(choices, list):
        return bool(choices) and all(
            isinstance(one, dict) and is_good(one.get("finish_reason"), OPENAI) for one in choices
        )
    return is_good(body.get("stop_reason"), ANTHROPIC)
