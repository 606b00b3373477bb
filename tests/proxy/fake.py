"""An upstream of ours on a real socket, whose every answer and misbehaviour a test chooses; and a proxy before it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.proxy.providers import anthropic, openai
from recall_cli.proxy.providers.sse import events
from recall_cli.proxy.serve import ServePlan, Server, bind
from recall_cli.proxy.settings import Settings


@dataclass
class Seen:
    """One request as the upstream got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    raw_head: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass
class Reply:
    """What the upstream does: pieces go out one by one; a wait is an event to be set."""

    pieces: list[bytes | threading.Event]
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Content-Type", "application/json")])
    chunked: bool = False
    end: str = "clean"
    """clean, reset (the socket is torn down) or close (it is closed in mid-body)."""


EMBEDDER = make_embedder("static")
"""Loaded once: it takes longer than most tests."""

Handler = Callable[[Seen], Reply]


class FakeUpstream:
    """Serves on a port of its own, in a thread of its own, until `close`."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.seen: list[Seen] = []
        self.open = 0
        self.hung_up = threading.Event()
        """Set when a caller closes the connection before its answer is whole."""
        self._loop = asyncio.new_event_loop()
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        self.port = ready.result(20)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _run(self, ready: Future[int]) -> None:
        self._loop.run_until_complete(self._main(ready))
        self._loop.close()

    async def _main(self, ready: Future[int]) -> None:
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 26)
        ready.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            self.open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        said = {name.lower(): value for name, value in headers}
        body = b""
        if said.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        elif "content-length" in said:
            body = await reader.readexactly(int(said["content-length"]))
        seen = Seen(method, target, headers, body, head)
        self.seen.append(seen)
        reply = self.handler(seen)
        head_out = f"HTTP/1.1 {reply.status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in reply.headers)
        length = sum(len(piece) for piece in reply.pieces if isinstance(piece, bytes))
        if reply.chunked:
            head_out += "Transfer-Encoding: chunked\r\n"
        elif not any(k.lower() == "content-length" for k, _ in reply.headers) and reply.status not in (204, 304):
            head_out += f"Content-Length: {length}\r\n"
        head_out += "\r\n"
        begun = False
        for piece in reply.pieces:
            if isinstance(piece, threading.Event):
                if not await self._wait(piece, reader):
                    self.hung_up.set()
                    return False
                continue
            data = b"%x\r\n%s\r\n" % (len(piece), piece) if reply.chunked else piece
            writer.write(data if begun else head_out.encode("latin-1") + data)
            begun = True
            await writer.drain()
        if reply.end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.transport.abort()
            return False
        if reply.end == "close":
            return False
        if not begun:
            writer.write(head_out.encode("latin-1"))
        if reply.chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _wait(self, event: threading.Event, reader: asyncio.StreamReader) -> bool:
        """Return True when the event is set, False when the caller hangs up first."""
        while not event.is_set():
            if reader.at_eof():
                return False
            await asyncio.sleep(0.005)
        return True


class RunningProxy:
    """A proxy in a thread of its own, on a port of its own."""

    def __init__(self, plan: ServePlan) -> None:
        import uvloop

        self._listener = bind("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = Server(plan, embedder=EMBEDDER)
        self._loop = uvloop.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.server.serve(self._listener, ready=ready.set))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def settle(self) -> None:
        """Return when everything that was handed to the writer so far has been done."""
        pause = threading.Event()
        for _ in range(4_000):
            self.server.keeper.ask_writer(lambda: None).result(20)
            if self.server.keeper.is_settled:
                break
            pause.wait(0.002)
        self.server.keeper.ask_writer(lambda: None).result(20)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.server.close()


def make_plan(upstream: FakeUpstream, **options: Any) -> ServePlan:
    """Return a plan with both providers at one fake upstream; Settings' and Plan's options alike."""
    known = Settings.__dataclass_fields__
    own = {name: options.pop(name) for name in list(options) if name in known}
    settings = Settings(**{"openai": upstream.url, "anthropic": upstream.url, "verify_sample": 0.0, **own})
    return changed(ServePlan(settings, log=None), **options)


@dataclass
class Answer:
    """What a caller got."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def outcome(self) -> str:
        return (self.header("x-recall") or "").split(";")[0]

    @property
    def reason(self) -> str:
        return (self.header("x-recall") or "").partition("reason=")[2]

    @property
    def text(self) -> str:
        """The answer's text, streamed or not."""
        if (self.header("content-type") or "").startswith("text/event-stream"):
            join = anthropic.join if b"message_start" in self.body else openai.join
            body, whole = join(events(self.body))
            assert whole, self.body
        else:
            body = json.loads(self.body)
        assert body is not None
        if "choices" in body:
            return str(body["choices"][0]["message"]["content"])
        return "".join(block.get("text", "") for block in body["content"])


def ask(
    proxy: RunningProxy,
    prompt: Any = "How do I reset my password?",
    *,
    to: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
    key: str = "k-1",
    timeout: float = 20,
    **more: Any,
) -> Answer:
    """Ask the proxy once, over a connection of its own."""
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": prompt}], **more}
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=timeout)
    try:
        sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
        connection.request("POST", to, json.dumps(body), sent)
        response = connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())
    finally:
        connection.close()


def talk(port: int, data: bytes, *, timeout: float = 20) -> bytes:
    """Send raw bytes, and return all that comes until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
        sock.sendall(data)
        got = b""
        while piece := sock.recv(65536):
            got += piece
        return got
