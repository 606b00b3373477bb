"""What a logged response says: its text, how it ended, and whether a cache could ever store it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from recall_cli.cache.finish_reasons import is_good, is_said
from recall_cli.logs import sse
from recall_cli.types import Json

TRUNCATED = ("length", "max_tokens", "pause_turn", "model_context_window_exceeded",
             "max_output_tokens", "incomplete", "in_progress", "cancelled", "model_length")  # fmt: skip
REFUSED = ("content_filter", "refusal", "safety", "recitation")
TOOLS = ("tool_calls", "function_call", "tool_use")
"""Endings that have a flaw of their own, in lower case. Any other that is not known to be good is "unknown_ending"."""


@dataclass(slots=True)
class Answer:
    """The parts of a response that a report needs."""

    body: Json = field(default_factory=dict)
    text: str | None = None
    finish: str = ""
    flaw: str = ""
    tier: str = ""


def read(response: Any, *, status: int | None = None) -> Answer:
    """Return the answer in a decoded response: a body, a list of stream chunks, or text as logged."""
    complete = True
    streamed = False
    if isinstance(response, str) and sse.looks_like_sse(response):
        response, complete = sse.collapse_text(response)
        streamed = True
    elif isinstance(response, list) and response and all(isinstance(event, dict) for event in response):
        response, complete = sse.collapse(response)
        streamed = True
    if not isinstance(response, dict):
        missing = response is None or response in ("", [])
        return Answer(flaw="error" if _failed(status) else "no_answer" if missing else "answer_unreadable")
    if is_anthropic(response):
        text, finish, tools, refused = _anthropic(response)
    elif "output" in response:
        text, finish, tools, refused = _responses(response)
    else:
        text, finish, tools, refused = _openai(response)
    if _failed(status) or response.get("error") is not None:
        flaw = "error"
    elif streamed and not complete:
        flaw = "stream_cut_off"
    elif text is None:
        flaw = "answer_unreadable"
    elif finish.lower() in TRUNCATED:
        flaw = "truncated"
    elif refused or finish.lower() in REFUSED:
        flaw = "refusal"
    elif tools or finish.lower() in TOOLS:
        flaw = "tool_calls"
    elif finish and not is_good(finish):
        # Many logs do not say how an answer ended, which proves nothing; what they do say must be known to be good.
        flaw = "unknown_ending"
    else:
        flaw = "" if text.strip() else "empty_answer"
    return Answer(response, text, finish, flaw, _tier(response))


def _responses(body: Json) -> tuple[str | None, str, bool, bool]:
    """Read a body of OpenAI's Responses API."""
    items = body.get("output")
    if not isinstance(items, list):
        return None, "", False, False
    items = [item for item in items if isinstance(item, dict)]
    messages = [item for item in items if item.get("type") == "message"]
    parts = [part for item in messages if isinstance(item.get("content"), list) for part in item["content"]]
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    # "max_output_tokens" or "content_filter"; the status alone says that it is not whole.
    finish = str(reason or body.get("status") or "")
    refused = any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)
    tools = any(str(item.get("type", "")).endswith("_call") for item in items)
    return "".join(_text(item.get("content")) for item in messages), finish, tools, refused


def is_anthropic(body: Json) -> bool:
    """True for a body of Anthropic's; those written by hand often lack its "type": "message"."""
    return body.get("type") == "message" or ("choices" not in body and isinstance(body.get("content"), list))


def _failed(status: int | None) -> bool:
    # 3xx included: a redirect is no answer either.
    return status is not None and not 200 <= status < 300


def _openai(body: Json) -> tuple[str | None, str, bool, bool]:
    choices = body.get("choices")
    if isinstance(choices, list) and len(choices) == 1:
        # Nearly every body: no lists are made for it.
        only = choices[0]
        message = only.get("message") if isinstance(only, dict) else None
        if isinstance(message, dict):
            tools = bool(message.get("tool_calls") or message.get("function_call"))
            return _text(message.get("content")), _finish(only), tools, bool(message.get("refusal"))
    choices = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    messages = [c["message"] for c in choices if isinstance(c.get("message"), dict)]
    if not messages:
        # The API before chat: a choice is its text.
        messages = [{"content": c["text"]} for c in choices if isinstance(c.get("text"), str)]
        if not messages:
            return None, "", False, False
    finishes = [_finish(c) for c in choices]
    # With n answers the worst ending decides: all of them would be replayed.
    finish = next((f for f in finishes if f and not is_good(f)), finishes[0])
    tools = any(m.get("tool_calls") or m.get("function_call") for m in messages)
    refused = any(m.get("refusal") for m in messages)
    return "\n".join(_text(m.get("content")) for m in messages), finish, tools, refused


def _finish(choice: Json) -> str:
    reason = choice.get("finish_reason")
    return str(reason) if is_said(reason) else ""


def _anthropic(body: Json) -> tuple[str | None, str, bool, bool]:
    blocks = body.get("content")
    tools = isinstance(blocks, list) and any(
        isinstance(b, dict) and str(b.get("type", "")).endswith("tool_use") for b in blocks
    )
    reason = body.get("stop_reason")
    finish = str(reason) if is_said(reason) else ""
    return _text(blocks), finish, tools, finish in REFUSED


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def _tier(body: Json) -> str:
    usage = body.get("usage")
    tier = body.get("service_tier") or (usage.get("service_tier") if isinstance(usage, dict) else None)
    return tier if isinstance(tier, str) else ""
