"""uvicorn's HTTP/1.1 within limits it does not know: header bytes, time to send them, time to read an answer.

And an `upgrade` is passed over, as HTTP has it for servers that know none. Java's own client offers HTTP/2 with every
request, and the parser would take what follows such a head, the request's body, for the other protocol.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from recall_cli.proxy.asgi import Headers
from recall_cli.proxy.settings import Limits

CYCLE = "recall.cycle"
"""Where a scope holds uvicorn's own record of the exchange. Take it out: they hold each other otherwise."""

REFUSALS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


def write_whole(cycle: object, headers: Headers, body: bytes) -> bool:
    """Write a whole 200 answer in one piece, past ASGI's two messages; return False where it takes the long way.

    Half of an exact hit's time would else go into checking and joining headers that were made here, and a second
    write. The headers must be in lower case and hold the body's length.

    :param cycle: what the scope held under CYCLE; anything else is refused.
    """
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.response_started
        or cycle.disconnected
        or cycle.flow.write_paused
        or cycle.default_headers
    ):
        return False
    close = b"" if cycle.keep_alive else b"connection: close\r\n"
    head = b"".join([name + b": " + value + b"\r\n" for name, value in headers])
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"HTTP/1.1 200 OK\r\n" + head + close + b"\r\n" + body)
    cycle.message_event.set()
    if close:
        cycle.transport.close()
    cycle.on_response()
    return True


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """Return the protocol class that holds connections to the limits."""

    class Limited(HttpToolsProtocol):
        """One connection."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._in_headers = True
            self._header_bytes = 0
            self._refusal = 0
            self._in_body = False
            self._unread: asyncio.TimerHandle | None = None
            self._offers = False
            self._data: bytes | None = None
            super().connection_made(transport)
            self._slow: asyncio.TimerHandle | None = self.loop.call_later(limits.header_s, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._slow, self._unread):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_headers:
                # A body that begins in the same segment is counted along; `on_headers_complete` looks closer.
                self._header_bytes += len(data)
            self._parse(data)
            if self._in_body:
                if self._slow is None and not self.transport.is_closing():
                    self._slow = self.loop.call_later(limits.body_s, self._too_slow)
            elif self._in_headers and self._header_bytes and not self.transport.is_closing():
                if self._header_bytes > limits.header_bytes:
                    self._refuse(431)
                elif self._slow is None:
                    self._slow = self.loop.call_later(limits.header_s, self._too_slow)

        def _parse(self, data: bytes) -> None:
            self._data = data
            super().data_received(data)
            while self._offers and self._data is not None and not self.transport.is_closing():
                self._offers = False
                self._data = self._without_offer() + self._data
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
                super().data_received(self._data)
            self._data = None

        def _without_offer(self) -> bytes:
            """Return the head that was just parsed, without its offer of another protocol."""
            lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
            lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            return b"\r\n".join(lines) + b"\r\n\r\n"

        def _unsupported_upgrade_warning(self) -> None:
            """Keep what stands behind the head. Called where the parser stops, handling its exception."""
            stopped = sys.exception()
            if self._offers and self._data is not None and stopped is not None:
                self._data = self._data[stopped.args[0] :]

        def on_headers_complete(self) -> None:
            if self.parser.should_upgrade():
                if self.parser.get_method() == b"CONNECT":
                    raise ValueError("this is no tunnel")  # the parser stops here and answers 400
                self._offers = True
                return
            self._in_headers, self._in_body = False, True
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
            if self._header_bytes > limits.header_bytes:
                size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
                if size > limits.header_bytes:
                    self._refusal = 431
                    raise ValueError("the headers are too large")  # the parser stops here and calls back below
            super().on_headers_complete()
            self.scope[CYCLE] = self.cycle  # type: ignore[literal-required]

        def on_message_complete(self) -> None:
            if self._offers:
                return
            self._in_headers, self._in_body = True, False
            self._header_bytes = 0
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            if self._refusal:
                self._refuse(self._refusal)
            else:
                super().send_400_response(msg)

        def pause_writing(self) -> None:
            if self._unread is None:
                self._unread = self.loop.call_later(limits.write_s, self.transport.abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None
            super().resume_writing()

        def _too_slow(self) -> None:
            self._slow = None
            if self.transport.is_closing():
                return
            if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
                self.transport.abort()  # an answer is under way: nothing can be said any more
            else:
                self._refuse(408)

        def _refuse(self, status: int) -> None:
            head = b"HTTP/1.1 %d %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % (status, REFUSALS[status])
            self.transport.write(head)
            self.transport.close()

    return Limited
