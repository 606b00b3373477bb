"""Everything that is not cached, passed on byte for byte: methods, paths, queries, headers, bodies as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from recall_cli.errors import UpstreamError
from recall_cli.proxy.access_log import AccessLog
from recall_cli.proxy.asgi import JSON, BrokenOff, Gone, Receive, Refused, Scope, Send, respond
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.providers.dialect import ANTHROPIC, OPENAI, Dialect
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.upstream import Timeout, Upstream, chunks, request_headers, response_headers

ANTHROPIC_PATHS = ("/v1/messages", "/v1/complete", "/v1/organizations", "/v1/skills")


def dialect_of(scope: Scope) -> Dialect:
    """Return whose request this is: by its path, else by the headers that only Anthropic's clients send."""
    path = scope["path"]
    if path.startswith(ANTHROPIC_PATHS):
        return ANTHROPIC
    names = {name for name, _ in scope["headers"]}
    return ANTHROPIC if names & {b"anthropic-version", b"x-api-key"} else OPENAI


async def pass_through(
    settings: Settings, upstream: Upstream, metrics: Metrics, log: AccessLog, scope: Scope, receive: Receive, send: Send
) -> None:
    """Relay one request and its answer. Raises BrokenOff when the upstream fails in mid-answer."""
    started = time.perf_counter()
    dialect = dialect_of(scope)
    metrics.passed += 1
    record: dict[str, Any] = {
        "time": time.time(),
        "provider": dialect.name,
        "method": scope["method"],
        "path": scope["path"],
        "outcome": "PASS",
    }
    try:
        await _relay(settings, upstream, dialect, scope, receive, send, record)
    except Refused as refused:
        await _refuse(dialect, send, record, refused, close=True)
    finally:
        record["ms"] = round((time.perf_counter() - started) * 1e3, 3)
        log.write(record)


async def _relay(
    settings: Settings,
    upstream: Upstream,
    dialect: Dialect,
    scope: Scope,
    receive: Receive,
    send: Send,
    record: dict[str, Any],
) -> None:
    upload = Upload(receive, settings)
    has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
    url = upstream.url(dialect.name, scope["raw_path"], scope["query_string"])
    headers = request_headers(scope["headers"])
    begun = False
    this = asyncio.current_task()
    assert this is not None
    # The caller's leaving ends the work here, wherever it stands.
    watcher = asyncio.get_running_loop().create_task(upload.watch(this, has_body))
    try:
        body = upload.pieces() if has_body else None
        response = await upstream.send(scope["method"], url, headers, body)
        try:
            record["status"] = response.status
            start = {"status": response.status, "headers": response_headers(response)}
            await send({"type": "http.response.start", **start})
            begun = True
            async for data in chunks(response):
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            response.close()
    except asyncio.CancelledError:
        if not upload.gone:
            raise
        this.uncancel()
        record["status"] = 499
    except UpstreamError as error:
        record["fault"] = str(error)
        if upload.gone:
            record["status"] = 499
        elif begun:
            raise BrokenOff(str(error)) from error
        else:
            failed = upload.refused or Refused(504 if isinstance(error, Timeout) else 502, "upstream_error", str(error))
            await _refuse(dialect, send, record, failed, close=has_body)
    finally:
        watcher.cancel()


async def _refuse(dialect: Dialect, send: Send, record: dict[str, Any], why: Refused, *, close: bool) -> None:
    """Answer with an error of ours, in the API's own words."""
    said = dialect.error_body(why.status, why.kind, str(why))
    record["status"] = why.status
    ending = [(b"connection", b"close")] if close else []
    await respond(send, why.status, [JSON, (b"content-length", str(len(said)).encode()), *ending], said)


class Upload:
    """A request body as it comes in, and the watch over a caller that may leave."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self.gone = False
        self.refused: Refused | None = None
        self._receive = receive
        self._limits = settings.limits
        self._ended = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises UpstreamError to end the request to the upstream; `gone` or `refused` says why."""
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                raise UpstreamError("the caller has gone") from Gone()
            more = message.get("more_body", False)
            data = message.get("body", b"")
            size += len(data)
            if size > self._limits.body_bytes:
                most = self._limits.body_bytes
                self.refused = Refused(413, "request_too_large", f"the request body exceeds {most:,} bytes")
                raise UpstreamError(str(self.refused))
            if data:
                yield data
        self._ended.set()

    async def watch(self, work: asyncio.Task[Any], has_body: bool) -> None:
        """Cancel the work when the caller leaves after its body is through."""
        if has_body:
            await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        work.cancel()
