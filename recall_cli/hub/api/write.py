"""Changing a hub's documents over HTTP, on the way that every ingest goes: what is sent together is one write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from recall_cli.hub.api.access import Entry
from recall_cli.hub.api.errors import (
    NDJSON,
    NO_STORE,
    ApiError,
    check_type,
    decoded,
    impossible,
    malformed,
    read_json,
    respond,
)
from recall_cli.hub.api.routes import HubCall
from recall_cli.hub.api.views import report_json
from recall_cli.hub.ingest.documents import MAX_ID_CHARS, MAX_TITLE_CHARS, MAX_URL_CHARS
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from starlette.responses import Response

    from recall_cli.hub.search.pipeline import Hub

DOCUMENT_BYTES = 4 << 20
"""A larger document belongs in several, or through the command line."""
BATCH_BYTES = 16 << 20
"""Of documents sent together."""
WRITERS = 4
"""Writes of one hub under way: those that wait for its lock, or for its endpoint, take no other hub's threads."""

FIELDS = {"text": DOCUMENT_BYTES, "title": MAX_TITLE_CHARS, "url": MAX_URL_CHARS}
"""The strings of a document, and how many characters each may have."""

MAX_TIME = 1e10
"""Seconds; from there on a number counts milliseconds, as whoever reads an export takes it."""

UNKEPT = {"cache-control": NO_STORE}

T = TypeVar("T")


class Writing:
    """The operations that write."""

    def __init__(self) -> None:
        self._limiters: WeakKeyDictionary[Hub, CapacityLimiter] = WeakKeyDictionary()

    async def put(self, call: HubCall, entry: Entry) -> Response:
        """Store a document under the path's id: 201 for a new one, 200 for one that was there."""
        document = read_document(call.request.path_params["id"], read_json(call.request, call.body))
        report = await self._ingested(entry, [document])
        return respond({"id": document.id, **report}, 201 if report["added"] else 200, UNKEPT)

    async def add(self, call: HubCall, entry: Entry) -> Response:
        """Store the documents of a body's lines, all or none."""
        check_type(call.request, NDJSON)
        documents = await self._beside(entry, lambda: read_documents(call.body))
        return respond(await self._ingested(entry, documents), headers=UNKEPT)

    async def delete(self, call: HubCall, entry: Entry) -> Response:
        """Remove a document."""
        # Not held to what may be put: a file may have given it a name that is not printable.
        engine, id = entry.hub.engine, call.request.path_params["id"]
        if await self._beside(entry, lambda: engine.document(id)) is None:
            raise ApiError(404, "no_such_document", "there is no document of this id")
        revision = await self._beside(entry, lambda: engine.apply((), [id]))
        return respond({"id": id, "removed": 1, "revision": revision}, headers=UNKEPT)

    async def _ingested(self, entry: Entry, documents: list[Document]) -> dict[str, Any]:
        hub = entry.hub
        return report_json(await self._beside(entry, lambda: ingest(hub.engine, hub.embedder, documents)))

    async def _beside(self, entry: Entry, work: Callable[[], T]) -> T:
        from anyio import CapacityLimiter
        from anyio.to_thread import run_sync

        limiter = self._limiters.get(entry.hub)
        if limiter is None:
            limiter = self._limiters[entry.hub] = CapacityLimiter(WRITERS)
        return await run_sync(work, limiter=limiter)


def read_documents(body: bytes) -> list[Document]:
    """Return the documents of JSON lines, each with its `id`. Raises ApiError as `read_document` does."""
    documents = []
    for number, line in enumerate(body.splitlines(), start=1):
        if not line.strip():
            continue
        row = decoded(line, f"line {number}")
        id = row.pop("id", None) if isinstance(row, dict) else None
        if not isinstance(id, str):
            raise malformed(f"line {number} must be a JSON object with an id, which is a string", field="id")
        try:
            documents.append(read_document(id, row))
        except ApiError as refusal:
            raise ApiError(refusal.status, refusal.code, f"line {number}: {refusal}", field=refusal.field) from None
    if len({document.id for document in documents}) < len(documents):
        raise malformed("an id comes twice", field="id")
    return documents


def read_document(id: str, body: object) -> Document:
    """Return the document of a decoded body. Raises ApiError: 400 for a wrong shape, 422 for one without text."""
    if not isinstance(body, dict):
        raise malformed("the body must be a JSON object")
    for name, value in body.items():
        if name not in (*FIELDS, "updated"):
            raise malformed(f"there is no field {name!r}; the fields are {', '.join(FIELDS)}, updated", field=name)
        if name in FIELDS and not isinstance(value, str):
            raise malformed(f"{name} must be a string", field=name)
        if name in FIELDS and len(value) > FIELDS[name]:
            raise malformed(f"{name} has {len(value):,} characters; {FIELDS[name]:,} are allowed", field=name)
    if "text" not in body:
        raise malformed("the text is missing", field="text")
    if not body["text"].strip():
        raise impossible("the text is empty", field="text")
    texts = {name: body[name] for name in FIELDS if name in body}
    return Document(read_id(id), **texts, updated=_time(body.get("updated")))


def read_id(id: str) -> str:
    """Return a document's id. Raises ApiError (400) for one that no document has."""
    if not 0 < len(id) <= MAX_ID_CHARS or not id.isprintable() or not id.strip():
        raise malformed(f"an id has 1 to {MAX_ID_CHARS:,} printable characters, not all of them blank")
    return id


def _time(value: Any) -> float | None:
    if value is None:
        return None
    # NaN is in no range.
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < MAX_TIME:
        raise malformed("updated must be a number: seconds since 1970, and no smaller unit", field="updated")
    return float(value)
