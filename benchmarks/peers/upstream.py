"""A provider for the proxies to ask: both chat APIs, whole or streamed, text or a tool call, and embeddings.

    python -m benchmarks.peers.upstream --port P

An answer repeats what was asked, so that a wrong one is seen; a prompt with the word "tool" is answered by a call of
one. `GET /calls` tells how many chat calls came. An answer takes 50 ms, in which others that ask the same find no
stored one.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ANSWER_S = 0.05
TOOL, ARGUMENTS = "look_up", {"city": "Graz", "days": 3}
INPUT, OUTPUT = 21, 34
"""Tokens that every answer says it took."""


class Provider:
    """The answers, and the count of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.embedder: Any = None

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        asked = await self.asked(request)
        text = last_text(asked)
        if not asked.get("stream"):
            return JSONResponse(completion(text))
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        return streamed(chunks(text, usage=usage))

    async def messages(self, request: Request) -> Response:
        """Answer Anthropic's messages."""
        asked = await self.asked(request)
        body = message(last_text(asked))
        return streamed(events(body)) if asked.get("stream") else JSONResponse(body)

    async def asked(self, request: Request) -> Any:
        """Return the body, after the time that an answer takes."""
        self.calls += 1
        body = await request.json()
        await asyncio.sleep(ANSWER_S)
        return body

    async def embeddings(self, request: Request) -> Response:
        """Return our static embedder's vectors."""
        from recall_cli.cache.embed.registry import make_embedder

        asked = await request.json()
        self.embedder = self.embedder or make_embedder("static")
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        packed = asked.get("encoding_format") == "base64"
        vectors = [self.embedder.embed(text) for text in texts]
        data = [base64.b64encode(one.tobytes()).decode() if packed else one.tolist() for one in vectors]
        rows = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(data)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return JSONResponse({"object": "list", "data": rows, "model": "static", "usage": usage})

    async def told(self, request: Request) -> Response:
        """Return the count of chat calls."""
        return JSONResponse({"calls": self.calls})


def last_text(asked: Any) -> str:
    """Return the last turn's text, of either API."""
    content = asked["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def answer_to(text: str) -> str:
    """Return what the provider says to a text."""
    return f"You asked: {text} " + "That takes a sentence or two. " * 12


def tool_call() -> dict[str, Any]:
    """Return OpenAI's shape of the call."""
    return {"id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": json.dumps(ARGUMENTS)}}


def completion(text: str) -> dict[str, Any]:
    """Return a chat completion."""
    said: dict[str, Any] = {"role": "assistant", "content": answer_to(text), "refusal": None}
    tool = "tool" in text
    if tool:
        said |= {"content": None, "tool_calls": [tool_call()]}
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "tool_calls" if tool else "stop"}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-4o-2024-08-06"}
    return {**head, "choices": [choice], "usage": usage}


def chunks(text: str, *, usage: bool) -> Iterator[bytes]:
    """Yield a chat completion as OpenAI streams it."""
    body = completion(text)
    (choice,) = body["choices"]
    whole = choice["message"]["content"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if whole is None else ""}]
    if whole is None:
        call = tool_call()
        said = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": 0, **call, "function": {"name": TOOL, "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts(said)]
    else:
        deltas += [{"content": part} for part in parts(whole)]
    head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    endings = [None] * len(deltas) + [choice["finish_reason"]]
    for delta, ending in zip([*deltas, {}], endings, strict=True):
        row = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ending}
        yield b"data: " + json.dumps({**head, "choices": [row]}).encode() + b"\n\n"
    if usage:
        yield b"data: " + json.dumps({**head, "choices": [], "usage": body["usage"]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def message(text: str) -> dict[str, Any]:
    """Return an Anthropic message."""
    tool = "tool" in text
    block = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": ARGUMENTS}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-bench",
        "content": [block if tool else {"type": "text", "text": answer_to(text)}],
        "stop_reason": "tool_use" if tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT, "output_tokens": OUTPUT},
    }


def events(body: dict[str, Any]) -> Iterator[bytes]:
    """Yield a message as Anthropic streams it."""

    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    (block,) = body["content"]
    tool = block["type"] == "tool_use"
    said = json.dumps(block["input"]) if tool else block["text"]
    usage = {**body["usage"], "output_tokens": 1}
    yield event("message_start", message={**body, "content": [], "stop_reason": None, "usage": usage})
    yield event("content_block_start", index=0, content_block={**block, "input": {}} if tool else {**block, "text": ""})
    for part in parts(said):
        delta = {"type": "input_json_delta", "partial_json": part} if tool else {"type": "text_delta", "text": part}
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": OUTPUT})
    yield event("message_stop")


def parts(text: str) -> list[str]:
    """Return a text in pieces of a token's size."""
    return [text[at : at + 8] for at in range(0, len(text), 8)]


def streamed(frames: Iterator[bytes]) -> Response:
    """Return a stream of events, each a write of its own."""

    async def paced() -> AsyncIterator[bytes]:
        for frame in frames:
            yield frame
            await asyncio.sleep(0)

    return StreamingResponse(paced(), media_type="text/event-stream")


def application() -> Starlette:
    """Return the provider as an application."""
    provider = Provider()
    return Starlette(
        routes=[
            Route("/v1/chat/completions", provider.chat, methods=["POST"]),
            Route("/v1/messages", provider.messages, methods=["POST"]),
            Route("/v1/embeddings", provider.embeddings, methods=["POST"]),
            Route("/calls", provider.told),
        ]
    )


def main() -> None:
    """Serve until the process is ended."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(application(), host="127.0.0.1", port=parser.parse_args().port, log_level="warning")


if __name__ == "__main__":
    main()
