"""A recorded event stream, back to the body that the same call would have returned unstreamed.

Pure: text or decoded events in, a body out. Only what a log reader needs is rebuilt (text, usage, finish
reason, whether tools were called), not every field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from recall_cli.types import Json

DONE = "[DONE]"
RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")
BLANK = "\ufeff \t\r\n"
"""What may stand before the first character of a body that was logged as text: a byte order mark, white space."""


def looks_like_sse(text: str) -> bool:
    """True when the text starts as an event stream does."""
    return text.lstrip(BLANK).startswith(("data:", "event:", "id:", "retry:", ":"))


def data_fields(text: str) -> Iterator[str]:
    """Yield the data of each event; the last may lack its blank line, as loggers trim."""
    held: list[str] = []
    # Not str.splitlines: it would also break at U+2028, which JSON strings may hold.
    for line in text.lstrip(BLANK).replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.startswith("data:"):
            held.append(line[5:].removeprefix(" "))
        elif not line and held:
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def collapse_text(text: str) -> tuple[dict[str, Any], bool]:
    """Return (body, complete?) of a recorded stream."""
    events: list[Json] = []
    done = broken = False
    for data in data_fields(text):
        if data.strip() == DONE:
            done = True
            continue
        try:
            event = orjson.loads(data)
        except ValueError:
            broken = True
            continue
        if isinstance(event, dict):
            events.append(event)
    body, complete = collapse(events, need_done=True, done=done)
    return body, complete and not broken


def collapse(events: Iterable[Json], *, need_done: bool = False, done: bool = False) -> tuple[dict[str, Any], bool]:
    """Return (body, complete?) of decoded events.

    :param need_done: an OpenAI stream counts as complete only when its [DONE] was there too; a log of
        decoded chunks cannot hold that mark.
    """
    openai, anthropic = _OpenAI(), _Anthropic()
    whole: dict[str, Any] | None = None
    error: Any = None
    for event in events:
        if event.get("error") is not None:
            error = event["error"]
        elif "choices" in event:
            openai.feed(event)
        elif isinstance(event.get("type"), str):
            if event["type"] in RESPONSE_ENDS and isinstance(event.get("response"), dict):
                # The Responses API repeats the whole body at the end.
                whole = event["response"]
            anthropic.feed(event)
    if whole is not None:
        body, complete = whole, True
    elif anthropic.seen:
        body, complete = anthropic.body(), anthropic.stopped
    else:
        body, complete = openai.body(), bool(openai.finish) and (done or not need_done)
    if error is not None:
        body["error"] = error
    return body, complete and error is None


@dataclass(slots=True)
class _OpenAI:
    head: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    finish: str = ""
    tools: bool = False
    usage: Any = None

    def feed(self, chunk: Json) -> None:
        for name in ("id", "created", "model", "service_tier"):
            if chunk.get(name) is not None:
                self.head[name] = chunk[name]
        # Every chunk may say "usage": null; the real one comes last, with no choices.
        if chunk.get("usage") is not None:
            self.usage = chunk["usage"]
        choices = chunk["choices"]
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            if isinstance(delta.get("content"), str):
                self.text.append(delta["content"])
            if isinstance(delta.get("refusal"), str):
                self.refusal.append(delta["refusal"])
            self.tools = self.tools or bool(delta.get("tool_calls") or delta.get("function_call"))
            self.finish = str(choice.get("finish_reason") or self.finish)

    def body(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text)}
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        if self.tools:
            message["tool_calls"] = [{}]
        choice = {"index": 0, "message": message, "finish_reason": self.finish or None}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self.usage}


@dataclass(slots=True)
class _Anthropic:
    seen: bool = False
    head: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str = ""
    stopped: bool = False

    def feed(self, event: Json) -> None:
        kind = event["type"]
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self.seen = True
            self.head = {k: v for k, v in event["message"].items() if k in ("id", "model", "role")}
            self._count(event["message"].get("usage"))
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            block = event["content_block"]
            if block.get("type") == "text":
                self.text.append(str(block.get("text") or ""))
            else:
                self.blocks.append({"type": block.get("type")})
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            if event["delta"].get("type") == "text_delta":
                self.text.append(str(event["delta"].get("text") or ""))
        elif kind == "message_delta":
            delta = event.get("delta")
            if isinstance(delta, dict):
                self.finish = str(delta.get("stop_reason") or self.finish)
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.stopped = True

    def _count(self, usage: Any) -> None:
        # Counts in message_delta are cumulative: they replace those of message_start, never add to them.
        if isinstance(usage, dict):
            self.usage.update({k: v for k, v in usage.items() if v is not None})

    def body(self) -> dict[str, Any]:
        content = [*self.blocks, {"type": "text", "text": "".join(self.text)}]
        return {**self.head, "type": "message", "content": content, "stop_reason": self.finish or None,
                "usage": self.usage or None}  # fmt: skip
