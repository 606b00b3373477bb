"""The few things that raw ASGI leaves to the application: reading a body within limits, answering, breaking off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")


class Gone(Exception):
    """The caller has gone before its request was whole."""


class Refused(Exception):
    """A request that is refused before it is looked at."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class BrokenOff(Exception):
    """Raised out of the application to close a connection in mid-answer: the caller must not take it for whole."""


async def read_body(receive: Receive, *, most: int) -> bytes:
    """Return the whole request body. Raises Refused when it is too large, Gone when the caller is.

    How long it may take is the protocol's business.
    """
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        pieces.append(message["body"])
        size += len(pieces[-1])
        more = message["more_body"]
        if size > most:
            raise Refused(413, "request_too_large", f"the request body exceeds {most:,} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
