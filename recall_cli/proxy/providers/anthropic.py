"""Anthropic messages: a stream to the body that the same call returns unstreamed, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from recall_cli.types import Json

NAME = "anthropic"

EMPTIED: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
    "mcp_tool_use": {"input": {}},
}
"""Blocks whose content comes in deltas, and what stands in their start instead. Other blocks come whole."""

PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""Deltas that are joined to a string of their block."""

ENDS = (b"message_stop", b"error")
"""Events after which there is no more to come."""


class Ending:
    """Follows a stream, and says whether all of it has come.

    :param choices: there for the other API's sake.
    """

    __slots__ = ("is_said",)

    def __init__(self, choices: int = 1) -> None:
        self.is_said = False
        """The stream said that it ends: message_stop, or an error."""

    def take(self, event: bytes, data: bytes) -> None:
        """Take the next event. Its name stands in its data too, which is all that some servers send."""
        if not event:
            try:
                event = str(orjson.loads(data)["type"]).encode()
            except (ValueError, TypeError, LookupError):
                return
        self.is_said = self.is_said or event in ENDS

    @property
    def is_whole(self) -> bool:
        """Whether a connection that ends cleanly here ends a whole stream.

        Without message_stop it does not, not even after a message_delta with its stop_reason: the protocol makes
        message_stop the last event, and allows several message_delta before it.
        """
        return self.is_said


def join(events: Iterable[tuple[bytes, bytes]], *, choices: int | None = None) -> tuple[dict[str, Any] | None, bool]:
    """Return (body, whole?) of a stream's events; the body is None when there is none to be had.

    Whole: message_stop came, every block ended, and nothing in it was of a kind unknown here.

    :param choices: there for the other API's sake.
    """
    message: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    open_blocks: set[int] = set()
    stopped = False
    known = True
    try:
        for _, data in events:
            event = orjson.loads(data)
            kind = event["type"]
            if kind == "message_start":
                message = dict(event["message"])
                message["usage"] = dict(message.get("usage") or {})
            elif kind == "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
                open_blocks.add(event["index"])
            elif kind == "content_block_delta":
                known &= _add_delta(blocks[event["index"]], inputs.setdefault(event["index"], []), event["delta"])
            elif kind == "content_block_stop":
                index = event["index"]
                open_blocks.discard(index)
                if inputs.get(index):
                    blocks[index]["input"] = orjson.loads("".join(inputs[index]))
            elif kind == "message_delta":
                assert message is not None
                message |= {k: v for k, v in event.items() if k not in ("type", "usage", "delta")}
                message |= event["delta"]
                # Counts are cumulative: they replace those of message_start.
                message["usage"] |= {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
            elif kind == "message_stop":
                stopped = True
            elif kind == "error":
                return None, False
            else:
                known &= kind == "ping"
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
        return None, False
    if message is None:
        return None, False
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message, stopped and known and not open_blocks


def _add_delta(block: dict[str, Any], pieces: list[str], delta: Json) -> bool:
    """Take a delta into its block; return False for one of an unknown kind."""
    kind = delta["type"]
    field = PIECES.get(kind)
    if field is not None:
        block[field] = (block.get(field) or "") + delta[field]
    elif kind == "input_json_delta":
        pieces.append(delta["partial_json"])
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]
    else:
        return False
    return True


def split(body: Json, *, usage: bool = True) -> bytes:
    """Return the stream that says a body: every block's content in one delta.

    :param usage: there for the other API's sake; this one always tells the usage.
    """
    counts = dict(body.get("usage") or {})
    closing = {name: body.get(name) for name in ("stop_reason", "stop_sequence")}
    closing |= {name: body[name] for name in ("stop_details", "container") if body.get(name) is not None}
    opening = {**body, "content": [], **dict.fromkeys(closing), "usage": counts}
    frames = [_frame({"type": "message_start", "message": opening})]
    for index, block in enumerate(body["content"]):
        start, deltas = _unfold(block)
        frames.append(_frame({"type": "content_block_start", "index": index, "content_block": start}))
        frames += [_frame({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        frames.append(_frame({"type": "content_block_stop", "index": index}))
    # The counts that a message_delta may carry; the others stand in message_start.
    told = {
        name: counts[name]
        for name in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
            "server_tool_use",
        )
        if counts.get(name) is not None
    }
    frames.append(_frame({"type": "message_delta", "delta": closing, "usage": told}))
    frames.append(_frame({"type": "message_stop"}))
    return b"".join(frames)


def _unfold(block: Json) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what a block's start says, and the deltas that follow."""
    kind = str(block.get("type"))
    empty = EMPTIED.get(kind)
    if empty is None:
        return dict(block), []
    start = {**block, **{name: value for name, value in empty.items() if name in block}}
    deltas: list[dict[str, Any]] = []
    if block.get("citations"):
        start["citations"] = []
        deltas += [{"type": "citations_delta", "citation": citation} for citation in block["citations"]]
    deltas += [
        {"type": piece, field: block[field]} for piece, field in PIECES.items() if field in empty and block.get(field)
    ]
    if "input" in empty and block.get("input"):
        deltas.append({"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()})
    return start, deltas


def _frame(event: Json) -> bytes:
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


def error_body(status: int, kind: str, message: str) -> bytes:
    """Return an error as the API words it."""
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


def stream_error(kind: str, message: str) -> bytes:
    """Return the event that tells a caller in mid-stream that there is no more to come."""
    return b"event: error\ndata: " + error_body(502, kind, message) + b"\n\n"
