"""The one error that a caller of a hub's API is answered with: status, code, sentence; and how HTTP carries it.

Codes are stable: programs read them. Every refusal of the API is made by one of the functions below or by
`ApiError` itself, so that this page lists what a caller can meet. Bodies are read within their limit, JSON in and JSON
out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from recall_cli.errors import EmbedderError, RecallError, StoreError, StoreMismatch, UpstreamError
from recall_cli.hub.models import NoSuchHub, OtherModel

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive

RETRY_S = 5
"""Seconds after which a hub that could not answer is worth another try."""

RECALL = "hub:recall"
INGEST = "hub:ingest"
"""The two scopes there are: ask, and change documents."""


class ApiError(RecallError):
    """A request to a hub that is not answered, as HTTP words it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str = "",
        scope: str = "",
        retry_s: float | None = None,
        allow: str = "",
    ) -> None:
        """Say what is wrong.

        :param code: a stable name in snake case.
        :param field: the member of the body that is wrong.
        :param scope: what a token must allow (401 and 403).
        :param retry_s: seconds after which to try again (429 and 503).
        :param allow: the methods that exist (405).
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field
        self.scope = scope
        self.retry_s = retry_s
        self.allow = allow


def unknown() -> ApiError:
    """Return the refusal of a hub that does not exist, or must not seem to."""
    return ApiError(404, "no_such_hub", "there is no hub of this name")


def not_allowed(methods: Iterable[str]) -> ApiError:
    """Return the refusal of a method that a path does not take (405).

    :param methods: those that it takes.
    """
    allow = ", ".join(methods)
    return ApiError(405, "method_not_allowed", f"this path takes {allow}", allow=allow)


def malformed(message: str, field: str = "") -> ApiError:
    """Return the refusal of a body that breaks the contract: wrong JSON, type, range or name (400)."""
    return ApiError(400, "bad_request", message, field=field)


def impossible(message: str, field: str = "") -> ApiError:
    """Return the refusal of a well-formed body that cannot be answered: an empty question (422)."""
    return ApiError(422, "unprocessable", message, field=field)


def unavailable(message: str) -> ApiError:
    """Return the refusal of a hub that cannot answer now: first indexing, a failing store (503)."""
    return ApiError(503, "unavailable", message, retry_s=RETRY_S)


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
    """Return the whole body. Raises ApiError (413) as soon as it is too large, whatever it said; Gone."""
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
    """Return a decoded body. Raises ApiError: 415 for another type or an encoding, 400 for what is no JSON."""
    check_type(request, JSON)
    return decoded(body, "the body")


def check_type(request: Request, wanted: str) -> None:
    """Raise Refusal (415) when a body is not said to be of this type, or is encoded."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != wanted or charset not in ("", "charset=utf-8"):
        raise ApiError(415, "unsupported_media_type", f"this takes Content-Type: {wanted}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "send the body as it is, without a Content-Encoding")


def decoded(data: bytes, what: str) -> Any:
    """Return decoded JSON. Raises ApiError (400)."""
    try:
        return orjson.loads(data)
    except ValueError as error:
        raise malformed(f"{what} is no JSON: {error}") from None


def respond(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    from starlette.responses import Response

    return Response(orjson.dumps(value), status, headers, JSON)


def refusal_json(refusal: ApiError, request_id: str) -> dict[str, Any]:
    """Return a refusal as every answer and every stream words it."""
    field = {"field": refusal.field} if refusal.field else {}
    return {"error": {"code": refusal.code, "message": str(refusal), **field, "request_id": request_id}}


def as_refusal(error: Exception) -> ApiError:
    """Return how a failure is told to a caller: no path and no name of ours is in it."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, NoSuchHub):
        return unknown()
    if isinstance(error, OtherModel):
        return ApiError(422, "embedder_mismatch", "the hub was embedded with another model than this server has")
    if isinstance(error, StoreMismatch):
        return unavailable("the hub has just moved to another embedder")
    if isinstance(error, EmbedderError | UpstreamError):
        return unavailable("the hub's embedder cannot be asked")
    if isinstance(error, StoreError):
        return unavailable("the hub cannot be read or written now")
    return ApiError(500, "internal", "the hub failed in a way it did not expect", retry_s=RETRY_S)


def refusal_headers(refusal: ApiError) -> dict[str, str]:
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


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"the body exceeds {most:,} bytes")


async def _hung_up(receive: Receive) -> None:
    waiting: Awaitable[Any] = receive()
    while (await waiting)["type"] != "http.disconnect":
        waiting = receive()
