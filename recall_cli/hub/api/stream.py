"""An answer in steps: what was found at once, the reranked order when it is there.

Texts are sent once. The order that comes second names chunks; what was sent before holds them all, and an answer
that is put together from the events equals the plain one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from recall_cli.hub.api.http import NDJSON
from recall_cli.hub.api.views import about, match_json, outcome, scores_json
from recall_cli.hub.models import Answer

Event = dict[str, Any]

SSE = "text/event-stream"


async def events(answers: AsyncIterator[Answer], request_id: str) -> AsyncIterator[Event]:
    """Yield the events of an answer: meta, union, reranked (where the order has changed hands), done."""
    first = latest = None
    async for latest in answers:
        if first is None:
            first = latest
            yield {"event": "meta", **about(first), "request_id": request_id}
            yield {"event": "union", "results": [match_json(match) for match in first.results]}
    assert latest is not None
    if latest is not first:
        yield {
            "event": "reranked",
            "order": [match.passage.chunk_id for match in latest.results],
            "scores": {str(m.passage.chunk_id): {"score": m.score, **scores_json(m)} for m in latest.results},
        }
    yield {"event": "done", **outcome(latest)}


def ndjson(event: Event) -> bytes:
    """Return an event as a line."""
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)


def sse(event: Event) -> bytes:
    """Return an event as a server-sent one: the same JSON, and its name where EventSource looks for it."""
    return b"event: %s\ndata: %s\n\n" % (event["event"].encode(), orjson.dumps(event))


WRITERS: dict[str, Callable[[Event], bytes]] = {NDJSON: ndjson, SSE: sse}


def wanted(accept: str, stream: bool) -> str | None:
    """Return the media type of the stream that a caller asks for, None for a plain answer.

    :param accept: its Accept header.
    :param stream: what its body says; with it, any stream will do, and NDJSON is the one.
    """
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in named:
        if kind in WRITERS:
            return kind
    return NDJSON if stream else None
