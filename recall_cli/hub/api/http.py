"""What the hub's API leaves to HTTP: a body within its limit, JSON in, JSON out, a refusal as an answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from recall_cli.errors import EmbedderError, StoreError, StoreMismatch, UpstreamError
from recall_cli.hub.api.errors import RETRY_S, Refusal, malformed, unavailable, unknown
from recall_cli.hub.models import NoSuchHub, OtherModel

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive

JSON = "application/json"
NDJSON = "application/x-ndjson"

NO_STORE = "no-store"
PRIVATE = "private, no-store"

T = TypeVar("T")


class Gone(Exception):
    """The caller has hung up: nobody reads an answer."""


def check_size(request: Request, most: int) -> None:
    """Raise Refusal (413) when a body says that it is too large."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > most:
        raise _too_large(most)


async def read_body(request: Request, most: int) -> bytes:
    """Return the whole body. Raises Refusal (413) as soon as it is too large, whatever it said; Gone."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise _too_large(most)
    except ClientDisconnect:
        raise Gone from None
    return bytes(body)


def read_json(request: Request, body: bytes) -> Any:
    """Return a decoded body. Raises Refusal: 415 for another type or an encoding, 400 for what is no JSON."""
    check_type(request, JSON)
    return decoded(body, "the body")


def check_type(request: Request, wanted: str) -> None:
    """Raise Refusal (415) when a body is not said to be of this type, or is encoded."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != wanted or charset not in ("", "charset=utf-8"):
        raise Refusal(415, "unsupported_media_type", f"this takes Content-Type: {wanted}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "unsupported_media_type", "send the body as it is, without a Content-Encoding")


def decoded(data: bytes, what: str) -> Any:
    """Return decoded JSON. Raises Refusal (400)."""
    try:
        return orjson.loads(data)
    except ValueError as error:
        raise malformed(f"{what} is no JSON: {error}") from None


def respond(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    from starlette.responses import Response

    return Response(orjson.dumps(value), status, headers, JSON)


def refusal_json(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return a refusal as every answer and every stream words it."""
    field = {"field": refusal.field} if refusal.field else {}
    return {"error": {"code": refusal.code, "message": str(refusal), **field, "request_id": request_id}}


def as_refusal(error: Exception) -> Refusal:
    """Return how a failure is told to a caller: no path and no name of ours is in it."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, NoSuchHub):
        return unknown()
    if isinstance(error, OtherModel):
        return Refusal(422, "embedder_mismatch", "the hub was embedded with another model than this server has")
    if isinstance(error, StoreMismatch):
        return unavailable("the hub has just moved to another embedder")
    if isinstance(error, EmbedderError | UpstreamError):
        return unavailable("the hub's embedder cannot be asked")
    if isinstance(error, StoreError):
        return unavailable("the hub cannot be read or written now")
    return Refusal(500, "internal", "the hub failed in a way it did not expect", retry_s=RETRY_S)


def refusal_headers(refusal: Refusal) -> dict[str, str]:
    """Return the headers that a refusal comes with, but for the challenge."""
    headers = {"cache-control": NO_STORE}
    if refusal.allow:
        headers["allow"] = refusal.allow
    if refusal.retry_s is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_s))
    return headers


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns, or cancel it and raise Gone when the caller hangs up first.

    Call it when the body has been read: what comes then is the end of the connection.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"the body exceeds {most:,} bytes")


async def _hung_up(receive: Receive) -> None:
    waiting: Awaitable[Any] = receive()
    while (await waiting)["type"] != "http.disconnect":
        waiting = receive()
