"""Changing a hub's documents over HTTP, one at a time, on the way that every ingest goes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from recall_cli.hub.api import Call
from recall_cli.hub.http import NO_STORE, read_json, respond
from recall_cli.hub.ingest import ingest
from recall_cli.hub.nouns import Document
from recall_cli.hub.refusal import Refusal, impossible, malformed
from recall_cli.hub.shown import report_json

if TYPE_CHECKING:
    from starlette.responses import Response

DOCUMENT_BYTES = 4 << 20
"""A larger document is no passage's neighbour any more: it belongs in several, or through the command line."""
LONGEST_ID = 1_000
FIELDS = {"text": str, "title": str, "url": str}

UNCHANGED = {"cache-control": NO_STORE}


class Writing:
    """The two operations that write."""

    async def put(self, call: Call) -> Response:
        """Store a document under the path's id: 201 for a new one, 200 for one that was there."""
        from starlette.concurrency import run_in_threadpool

        document = read_document(call.request.path_params["id"], read_json(call.request, call.body))
        hub = call.entry.hub
        report = await run_in_threadpool(ingest, hub.engine, hub.embedder, [document])
        if report.skipped:
            raise impossible(f"the document was not taken: {', '.join(report.skipped)}", field="text")
        return respond({"id": document.id, **report_json(report)}, 201 if report.added else 200, UNCHANGED)

    async def delete(self, call: Call) -> Response:
        """Remove a document."""
        from starlette.concurrency import run_in_threadpool

        engine, id = call.entry.hub.engine, read_id(call.request.path_params["id"])
        if await run_in_threadpool(engine.document, id) is None:
            raise Refusal(404, "no_such_document", "there is no document of this id")
        revision = await run_in_threadpool(engine.apply, (), [id])
        return respond({"id": id, "removed": 1, "revision": revision}, headers=UNCHANGED)


def read_document(id: str, body: object) -> Document:
    """Return the document of a decoded body. Raises Refusal: 400 for a wrong shape, 422 for one without text."""
    if not isinstance(body, dict):
        raise malformed("the body must be a JSON object")
    for name, value in body.items():
        if name not in (*FIELDS, "updated"):
            raise malformed(f"there is no field {name!r}; the fields are {', '.join(FIELDS)}, updated", field=name)
        if name in FIELDS and not isinstance(value, str):
            raise malformed(f"{name} must be a string", field=name)
    if "text" not in body:
        raise malformed("the text is missing", field="text")
    if not body["text"].strip():
        raise impossible("the text is empty", field="text")
    texts = {name: body[name] for name in FIELDS if name in body}
    return Document(read_id(id), **texts, updated=_time(body.get("updated")))


def read_id(id: str) -> str:
    """Return a document's id. Raises Refusal (400) for one that no document has."""
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise malformed(f"an id has 1 to {LONGEST_ID:,} printable characters")
    return id


def _time(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise malformed("updated must be a number: seconds since 1970", field="updated")
    return float(value)
