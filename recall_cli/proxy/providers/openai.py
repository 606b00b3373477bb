"""OpenAI chat completions: a stream to the body that the same call returns unstreamed, and back.

Strings of a delta are joined, as the SDK joins them; an id, a role or a name that a vendor repeats in every
chunk is taken once. Fields nobody here has heard of (reasoning, annotations, audio) survive both ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from recall_cli.cache.finish_reasons import OPENAI, is_good, is_said
from recall_cli.proxy.providers.sse import DONE, read_rest
from recall_cli.types import Json

NAME = "openai"
DONE_FRAME = b"data: [DONE]\n\n"

ONE = {0}
"""The choices under way where one answer was asked for."""
NOT_ENDED = b'"finish_reason":null'

ONCE = frozenset({"id", "role", "type", "name", "object"})
"""Fields that are said once; repeated with the same value they are not joined."""


class Ending:
    """Follows a stream, and says whether all of it has come.

    :param choices: how many answers were asked for.
    """

    __slots__ = ("_choices", "_ended", "_open", "is_said")

    def __init__(self, choices: int = 1) -> None:
        self.is_said = False
        """The stream said that it ends: [DONE], or an error."""
        self._choices = choices
        self._open: set[int] = set()
        self._ended: set[int] = set()

    def take(self, event: bytes, data: bytes) -> None:
        """Take the next event."""
        if self._open == ONE and _goes_on(data):
            return
        if data.strip() == DONE:
            self.is_said = True
            return
        try:
            chunk = orjson.loads(data)
        except ValueError:
            return
        if not isinstance(chunk, dict):
            return
        if chunk.get("error") is not None:
            self.is_said = True
        parts = chunk.get("choices")
        for part in parts if isinstance(parts, list) else ():
            index = part.get("index", 0) if isinstance(part, dict) else None
            if not isinstance(index, int):
                continue
            if is_said(part.get("finish_reason")):
                self._ended.add(index)
                self._open.discard(index)
            elif index not in self._ended:
                self._open.add(index)

    @property
    def is_whole(self) -> bool:
        """Whether a connection that ends cleanly here ends a whole stream.

        Not every server sends [DONE]: without it, every choice must have said why it ended.
        """
        return self.is_said or (not self._open and len(self._ended) >= self._choices)


def _goes_on(data: bytes) -> bool:
    """Return whether a chunk only adds to the first choice, as most do: told without decoding it.

    In a string the quotes of these names would be escaped.
    """
    return (
        data.count(b'"finish_reason"') == 1
        and NOT_ENDED in data
        and data.count(b'"index"') == 1
        and b'"index":0' in data
        and b'"error"' not in data
    )


def join(events: Iterable[tuple[bytes, bytes]], *, choices: int | None = None) -> tuple[dict[str, Any] | None, bool]:
    """Return (body, whole?) of a stream's events; the body is None when there is none to be had.

    Whole: every choice said why it ended, and [DONE] came or the stream is known to have ended cleanly.

    :param choices: how many were asked for, where the stream ended cleanly; None where nobody knows that it did.
    """
    body: dict[str, Any] = {}
    found: dict[int, dict[str, Any]] = {}
    done = sound = False
    try:
        for _, data in events:
            if data.strip() == DONE:
                done = True
                continue
            chunk = orjson.loads(data)
            if not isinstance(chunk, dict) or chunk.get("error") is not None:
                return None, False
            for name, value in chunk.items():
                if name == "choices":
                    for part in value or ():
                        _add_choice(found, part)
                elif name != "obfuscation" and (value is not None or name not in body):
                    body[name] = value
            sound = True
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, False
    if not sound or not found:
        return None, False
    ended = done or (choices is not None and len(found) >= choices)
    whole_choices = all(is_said(choice["finish_reason"]) for choice in found.values())
    whole = {"id": body.pop("id", ""), "object": "chat.completion"}
    body.pop("object", None)
    usage = body.pop("usage", None)
    whole |= body
    whole["choices"] = [_closed(found[index]) for index in sorted(found)]
    if usage is not None:
        whole["usage"] = usage
    return whole, ended and whole_choices


def _add_choice(choices: dict[int, dict[str, Any]], part: Json) -> None:
    index = int(part.get("index", 0))
    choice = choices.get(index)
    if choice is None:
        choice = choices[index] = {"index": index, "message": {}, "logprobs": None, "finish_reason": None}
    for name, value in part.items():
        if name == "delta":
            if value is not None:
                _add(choice["message"], value)
        elif name == "logprobs":
            if value is not None:
                choice["logprobs"] = choice["logprobs"] or {}
                _add(choice["logprobs"], value)
        elif name == "finish_reason":
            # Of several endings the worst counts: a good word after a bad one does not make the answer whole.
            if is_said(value) and (not is_said(choice[name]) or is_good(choice[name], OPENAI)):
                choice[name] = value
        elif name != "index" and (value is not None or name not in choice):
            choice[name] = value


def _add(held: dict[str, Any], delta: Json) -> None:
    """Take a delta into what is held: strings joined, lists lengthened, numbers replaced."""
    for name, value in delta.items():
        old = held.get(name)
        if value is None:
            held.setdefault(name, None)
        elif name == "tool_calls":
            calls = held[name] = old or []
            for call in value:
                _add_call(calls, call)
        elif old is None:
            held[name] = {} if isinstance(value, dict) else value
            if isinstance(value, dict):
                _add(held[name], value)
        elif isinstance(value, str) and isinstance(old, str):
            held[name] = old if name in ONCE and old == value else old + value
        elif isinstance(value, list) and isinstance(old, list):
            held[name] = old + value
        elif isinstance(value, dict) and isinstance(old, dict):
            _add(old, value)
        else:
            held[name] = value


def _add_call(calls: list[dict[str, Any]], call: Json) -> None:
    index = call.get("index", len(calls))
    for held in calls:
        if held["index"] == index:
            _add(held, {name: value for name, value in call.items() if name != "index"})
            return
    held = {"index": index}
    _add(held, {name: value for name, value in call.items() if name != "index"})
    calls.append(held)


def _closed(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice as the unstreamed body has it."""
    message = {"role": "assistant", "content": None, "refusal": None} | choice["message"]
    calls = message.get("tool_calls")
    if calls is not None:
        calls.sort(key=lambda call: call["index"])
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
    return {**choice, "message": message}


def split(body: Json, *, usage: bool) -> bytes:
    """Return the stream that says a body: every choice's content in one delta.

    :param usage: the caller asked for the usage: null in every chunk, and the counts in one of their own.
    """
    head = {name: value for name, value in body.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    frames: list[bytes] = []

    def say(choices: list[dict[str, Any]], counts: Any = None) -> None:
        chunk = {**head, "choices": choices}
        if usage:
            chunk["usage"] = counts
        frames.append(b"data: " + orjson.dumps(chunk) + b"\n\n")

    for choice in body["choices"]:
        message, logprobs = dict(choice.get("message") or {}), choice.get("logprobs")
        said = {name: value for name, value in choice.items() if name not in ("message", "logprobs", "finish_reason")}
        opening: dict[str, Any] = {"role": message.pop("role", "assistant")}
        content = message.pop("content", None)
        calls = message.pop("tool_calls", None)
        opening["content"] = "" if isinstance(content, str) else content
        if message.get("refusal") is None:
            opening["refusal"] = message.pop("refusal", None)
        say([{**said, "delta": opening, "logprobs": None, "finish_reason": None}])
        delta = {name: value for name, value in message.items() if value is not None}
        if content and isinstance(content, str):
            delta["content"] = content
        if calls:
            delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
        if delta or logprobs is not None:
            say([{**said, "delta": delta, "logprobs": logprobs, "finish_reason": None}])
        say([{**said, "delta": {}, "logprobs": None, "finish_reason": choice.get("finish_reason")}])
    if usage and body.get("usage") is not None:
        say([], body["usage"])
    return b"".join(frames) + DONE_FRAME


def wants_usage(body: Json) -> bool:
    """Return True when a streaming caller asked for the usage chunk."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def ask_usage(raw: bytes, body: Json) -> bytes | None:
    """Return a streaming request that asks for the usage too, None when there is nowhere to say it.

    Where it can, it adds to the caller's bytes and leaves them as they are.
    """
    options = body.get("stream_options")
    if options is None and "stream_options" not in body:
        trimmed = raw.rstrip()
        if not trimmed.endswith(b"}"):
            return None
        return trimmed[:-1] + b',"stream_options":{"include_usage":true}}'
    if options is not None and not isinstance(options, dict):
        return None
    return orjson.dumps({**body, "stream_options": {**(options or {}), "include_usage": True}})


class WithoutUsage:
    """A stream for a caller that asked for no usage, where the upstream was asked for it on recall's account.

    What goes out is the chunk that this brings: one without choices, right before the end. All else stays to the byte:
    usage that the upstream sends by itself, beside an answer or in the middle, is the caller's.
    """

    __slots__ = ("_behind", "_held")

    def __init__(self) -> None:
        self._held = b""
        self._behind = b""
        """What carries no data, after the held chunk."""

    def take(self, frame: bytes, data: bytes | None) -> bytes:
        """Take the next frame; return what the caller gets now."""
        if data is None:
            if not self._held:
                return frame
            self._behind += frame
            return b""
        if data.strip() == DONE:
            return self._drop() + frame
        before, self._held, self._behind = self._held + self._behind, b"", b""
        if b'"usage"' in data and _is_usage_alone(data):
            self._held = frame
            return before
        return before + frame if before else frame

    def end(self, rest: bytes) -> bytes:
        """Return what the caller gets at the end.

        :param rest: what came behind the last blank line.
        """
        last = read_rest(rest)
        if last is None:
            return self._drop() + rest
        return self.take(rest, last[1]) + self._drop()

    def give_up(self, rest: bytes) -> bytes:
        """Return what the caller gets where the stream cannot be followed any more: all that came."""
        held, self._held = self._held, b""
        return held + self._drop() + rest

    def _drop(self) -> bytes:
        self._held = b""
        behind, self._behind = self._behind, b""
        return behind


def _is_usage_alone(data: bytes) -> bool:
    if data.count(b'"usage"') == data.count(b'"usage":null') == 1:
        return False
    try:
        chunk = orjson.loads(data)
    except ValueError:
        return False
    return isinstance(chunk, dict) and chunk.get("usage") is not None and not chunk.get("choices")


def error_body(status: int, kind: str, message: str) -> bytes:
    """Return an error as the API words it."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": f"recall_{status}"}})


def stream_error(kind: str, message: str) -> bytes:
    """Return the event that tells a caller in mid-stream that there is no more to come."""
    return b"data: " + error_body(502, kind, message) + b"\n\n"
