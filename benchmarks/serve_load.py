"""The other side of `benchmarks/serve.py`: callers, an upstream and a bare application, each a process of its own.

    python benchmarks/serve_load.py load --port P --bodies FILE --connections 64 --seconds 4
    python benchmarks/serve_load.py upstream --port P
    python benchmarks/serve_load.py bare --port P

Callers and upstream are protocols on uvloop, so that what is measured is the server between them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import uvloop

FIRST_BYTE_S = 0.005
CHUNKS, CHUNK_S = 50, 0.001
HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer sk-bench-0123456789abcdef\r\nContent-Length: {length}\r\n\r\n"
)


def answer(text: str) -> bytes:
    """Return a chat completion of about 1 kB."""
    message = {"role": "assistant", "content": text, "refusal": None}
    return json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "gpt-4o-2024-08-06",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 120, "completion_tokens": 130, "total_tokens": 250},
        }
    ).encode()


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, run: Run, first: int) -> None:
        self.run = run
        self.at = first
        self.held = b""
        self.body_left = -1
        self.chunked = False
        self.first_byte = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        if time.perf_counter() >= self.run.until:
            self.transport.close()
            self.run.left -= 1
            if not self.run.left:
                self.run.done.set_result(None)
            return
        requests = self.run.requests
        self.at += self.run.step
        if self.at >= len(requests) and self.run.once:
            self.run.until = 0.0
            self.ask()
            return
        self.first_byte = 0.0
        self.started = time.perf_counter()
        self.transport.write(requests[self.at % len(requests)])

    def data_received(self, data: bytes) -> None:
        if not self.first_byte:
            self.first_byte = time.perf_counter()
        if self.body_left < 0:
            self.held += data
            end = self.held.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self.held[:end].lower(), self.held[end + 4 :]
            self.held = b""
            self.run.statuses[int(head[9:12])] += 1
            at = head.find(b"x-recall:")
            self.run.outcomes[
                head[at + 9 : at + 30].split(b"\r")[0].split(b";")[0].strip().decode() if at > 0 else ""
            ] += 1
            self.chunked = b"transfer-encoding: chunked" in head
            length = head.find(b"content-length:")
            self.body_left = 1 << 60 if self.chunked else int(head[length + 15 :].split(b"\r")[0])
        if self.chunked:
            self.run.chunks += data.count(b"\ndata: ") + data.startswith(b"data: ")
            tail = (self.held + data)[-5:]
            self.held = tail
            if tail != b"0\r\n\r\n":
                return
            self.held = b""
        else:
            self.body_left -= len(data)
            if self.body_left > 0:
                return
        self.body_left = -1
        now = time.perf_counter()
        self.run.took.append(now - self.started)
        self.run.first.append(self.first_byte - self.started)
        if self.run.pause:
            asyncio.get_running_loop().call_later(self.run.pause, self.ask)
        else:
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if self.body_left >= 0 or (error is not None):
            self.run.errors += 1


class Run:
    """One load."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        with open(arguments.bodies, encoding="utf-8") as file:
            lines = file.read().splitlines()[arguments.skip :]
        self.requests = [
            HEAD.format(path=arguments.path, length=len(line.encode())).encode() + line.encode() for line in lines
        ]
        self.once = arguments.once
        self.step = arguments.connections
        self.pause = arguments.pause
        self.took: list[float] = []
        self.first: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.chunks = self.errors = 0
        self.left = arguments.connections
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.until = time.perf_counter() + arguments.seconds


async def load(arguments: argparse.Namespace) -> None:
    """Ask for some seconds, and print what came."""
    run = Run(arguments)
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    for n in range(arguments.connections):
        await loop.create_connection(lambda n=n: Caller(run, n - arguments.connections), "127.0.0.1", arguments.port)
    await asyncio.wait_for(run.done, arguments.seconds + 120)
    took, first = sorted(run.took), sorted(run.first)

    def at(values: list[float], q: float) -> float:
        return round(values[min(len(values) - 1, int(q * len(values)))] * 1e6, 1) if values else 0.0

    print(
        json.dumps(
            {
                "n": len(took),
                "seconds": time.perf_counter() - started,
                "p50_us": at(took, 0.5),
                "p99_us": at(took, 0.99),
                "first_byte_p50_us": at(first, 0.5),
                "chunks": run.chunks,
                "statuses": run.statuses,
                "outcomes": run.outcomes,
                "errors": run.errors,
            }
        )
    )


def after(seconds: float, then: Callable[[], None], *, exactly: bool) -> None:
    """Call something later.

    The loop's timers go by whole milliseconds, counted from its own clock's ticks: a caller that asks right after a
    tick waits less than one that asks before it, by more than what a proxy adds. So the last two are waited awake,
    where one caller is measured alone.
    """
    loop = asyncio.get_running_loop()
    if not exactly:
        loop.call_later(seconds, then)
        return
    due = time.perf_counter() + seconds

    def look() -> None:
        if time.perf_counter() >= due:
            then()
        else:
            loop.call_soon(look)

    loop.call_later(max(0.0, seconds - 0.002), look)


class Upstream(asyncio.Protocol):
    """Answers after 5 ms, as JSON or as a stream of 50 chunks a millisecond apart."""

    plain = answer("word " * 130)
    callers: ClassVar[set[asyncio.Protocol]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.held = b""
        self.callers.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.callers.discard(self)

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r")[0]) if at >= 0 else 0
            if len(self.held) < end + 4 + length:
                return
            body, self.held = self.held[end + 4 : end + 4 + length], self.held[end + 4 + length :]
            streams = b'"stream":true' in body or b'"stream": true' in body
            reply = self.stream if streams else self.whole
            after(FIRST_BYTE_S, reply, exactly=len(self.callers) == 1)

    def whole(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(self.plain)
        self.transport.write(head + self.plain)

    def stream(self, n: int = 0) -> None:
        if not n:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2024-08-06"}
        if n < CHUNKS:
            delta = {"role": "assistant", "content": ""} if not n else {"content": "word "}
            ends = "stop" if n == CHUNKS - 1 else None
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ends}
            self.say(json.dumps({**chunk, "choices": [choice], "usage": None}, separators=(",", ":")).encode())
            asyncio.get_running_loop().call_later(CHUNK_S, self.stream, n + 1)
            return
        usage = {"prompt_tokens": 120, "completion_tokens": 50, "total_tokens": 170}
        self.say(json.dumps({**chunk, "choices": [], "usage": usage}, separators=(",", ":")).encode())
        self.say(b"[DONE]")
        self.transport.write(b"0\r\n\r\n")

    def say(self, data: bytes) -> None:
        frame = b"data: " + data + b"\n\n"
        self.transport.write(b"%x\r\n%s\r\n" % (len(frame), frame))


async def upstream(arguments: argparse.Namespace) -> None:
    """Be a provider until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", arguments.port)
    await server.serve_forever()


def bare(arguments: argparse.Namespace) -> None:
    """Be an application that reads the body and returns 1 kB, on the same server with nothing before it."""
    import uvicorn

    body = b"x" * 1024
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1024")]

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        more = True
        while more:
            more = (await receive())["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, host="127.0.0.1", port=arguments.port, loop="uvloop", http="httptools", lifespan="off",
                access_log=False, log_config=None, server_header=False, date_header=False)  # fmt: skip


def main() -> None:
    """Run one role."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["load", "upstream", "bare"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bodies")
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--skip", type=int, default=0, help="bodies to leave out at the front")
    parser.add_argument("--once", action="store_true", help="send no body twice")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between an answer and the next request")
    arguments = parser.parse_args()
    if arguments.role == "bare":
        bare(arguments)
    else:
        uvloop.run(load(arguments) if arguments.role == "load" else upstream(arguments))


if __name__ == "__main__":
    main()
