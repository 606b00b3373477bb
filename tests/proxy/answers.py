"""Answers of both APIs as bodies, and as the streams that a provider would send for them."""

from __future__ import annotations

import json
from typing import Any

from tests.proxy.fake import Handler, Reply, Seen

SSE = [("Content-Type", "text/event-stream; charset=utf-8")]
USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


def chat(text: str = "Use the link.", **more: Any) -> dict[str, Any]:
    """An OpenAI body."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-2024-08-06",
        "choices": [choice],
        "usage": USAGE,
        "system_fingerprint": "fp_1",
        "service_tier": "default",
    } | more


def chat_stream(body: dict[str, Any], *, usage: bool, size: int = 4) -> list[bytes]:
    """The chunks in which OpenAI streams a body of text answers: `size` characters each."""
    head = {k: v for k, v in body.items() if k not in ("choices", "usage")} | {"object": "chat.completion.chunk"}
    rows: list[dict[str, Any]] = []
    for choice in body["choices"]:
        index = choice["index"]
        text = choice["message"]["content"] or ""
        rows.append({"index": index, "delta": {"role": "assistant", "content": "", "refusal": None}})
        rows += [{"index": index, "delta": {"content": text[at : at + size]}} for at in range(0, len(text), size)]
        rows.append({"index": index, "delta": {}, "finish_reason": choice["finish_reason"]})
    chunks = [{**head, "choices": [{"logprobs": None, "finish_reason": None, **row}]} for row in rows]
    if usage:
        for chunk in chunks:
            chunk["usage"] = None
        chunks.append({**head, "choices": [], "usage": body["usage"]})
    frames = [b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n" for chunk in chunks]
    return [*frames, b"data: [DONE]\n\n"]


def message(text: str = "Use the link.", **more: Any) -> dict[str, Any]:
    """An Anthropic body."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 7, "cache_read_input_tokens": 0, "service_tier": "standard"},
    } | more


def message_stream(body: dict[str, Any], *, size: int = 4) -> list[bytes]:
    """The events in which Anthropic streams a body, with a ping among them."""

    def frame(event: dict[str, Any]) -> bytes:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    usage = {**body["usage"], "output_tokens": 1}
    start = {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    frames = [frame({"type": "message_start", "message": start}), frame({"type": "ping"})]
    fields = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
    for index, block in enumerate(body["content"]):
        kind = block["type"]
        opening = dict(block)
        deltas: list[dict[str, Any]] = []
        if kind in fields:
            delta, name = fields[kind]
            opening[name] = ""
            text = block[name]
            deltas = [{"type": delta, name: text[at : at + size]} for at in range(0, len(text), size)]
            if "signature" in block:
                opening["signature"] = ""
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "tool_use":
            opening["input"] = {}
            text = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": text[at : at + size]} for at in range(0, len(text), size)
            ]
        frames.append(frame({"type": "content_block_start", "index": index, "content_block": opening}))
        frames += [frame({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        frames.append(frame({"type": "content_block_stop", "index": index}))
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    frames.append(
        frame({"type": "message_delta", "delta": ending, "usage": {"output_tokens": body["usage"]["output_tokens"]}})
    )
    frames.append(frame({"type": "message_stop"}))
    return frames


def reply_with(answer: dict[str, Any], seen: Seen) -> Reply:
    """What a provider does with a body: as JSON, or as the stream that was asked for."""
    asked = seen.json
    if not asked.get("stream"):
        return Reply(
            [json.dumps(answer).encode()], headers=[("Content-Type", "application/json"), ("X-Request-Id", "u1")]
        )
    if answer.get("type") == "message":
        return Reply(list(message_stream(answer)), headers=SSE, chunked=True)
    usage = bool((asked.get("stream_options") or {}).get("include_usage"))
    return Reply(list(chat_stream(answer, usage=usage)), headers=SSE, chunked=True)


def provider(text: Any = "Use the link.") -> Handler:
    """An upstream that speaks both APIs; the answer to a prompt may be made from its last turn."""

    def handle(seen: Seen) -> Reply:
        if seen.method != "POST" or not seen.target.split("?")[0].endswith(("/chat/completions", "/messages")):
            return Reply([b'{"data": []}'])
        content = seen.json["messages"][-1]["content"]
        said = text(content) if callable(text) else text
        return reply_with(message(said) if "/messages" in seen.target else chat(said), seen)

    return handle
