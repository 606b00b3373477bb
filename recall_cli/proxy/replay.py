"""Between a stored answer and one on the wire, sans-io: replayed in the caller's form, read in the upstream's.

The proxy and the transport inside a program both answer with these, so that no caller can tell them apart.
"""

from __future__ import annotations

import orjson

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.verdict import Same
from recall_cli.cache.cache import Cache
from recall_cli.logs.answer import read as read_answer
from recall_cli.proxy.asgi import JSON, SSE, Headers
from recall_cli.proxy.planner import is_finished
from recall_cli.proxy.providers.dialect import Dialect
from recall_cli.proxy.providers.sse import events
from recall_cli.types import Completion, Decision, Json, Lookup, Outcome


def replay(dialect: Dialect, answer: Completion, *, stream: bool, usage: bool) -> bytes:
    """Return a stored answer as the caller wants it."""
    if not stream:
        return answer.body
    return dialect.split(orjson.loads(answer.body), usage=usage)


def hit_headers(
    dialect: Dialect, answer: Completion, decision: Decision, *, stream: bool, size: int, now: float, id: str
) -> Headers:
    """Return the headers of a replayed answer.

    :param size: bytes of the body.
    :param now: seconds since the epoch, from which the answer's age follows.
    :param id: the request's, where the SDK looks for one.
    """
    headers = [
        SSE if stream else JSON,
        (b"content-length", str(size).encode()),
        (b"x-recall", decision.outcome.encode()),
        (b"x-recall-entry", str(decision.entry).encode()),
        (b"age", str(max(0, int(now - answer.created))).encode()),
        (dialect.id_header, id.encode()),
    ]
    if decision.outcome is Outcome.SEMANTIC:
        headers.append((b"x-recall-similarity", b"%.4f" % (decision.similarity or 0.0)))
    if decision.cutoff is not None:
        headers.append((b"x-recall-cutoff", b"%.4f" % decision.cutoff))
    return headers


def miss_headers(decision: Decision | None, outcome: str, reason: str) -> Headers:
    """Return the headers that tell what was decided for a request that went upstream."""
    headers = [(b"x-recall", f"{outcome}; reason={reason}".encode() if reason else outcome.encode())]
    if decision is not None and decision.similarity is not None:
        headers.append((b"x-recall-similarity", b"%.4f" % decision.similarity))
        if decision.cutoff is not None:
            headers.append((b"x-recall-cutoff", b"%.4f" % decision.cutoff))
        if decision.entry is not None:
            headers.append((b"x-recall-nearest", str(decision.entry).encode()))
    return headers


def read_body(dialect: Dialect, raw: bytes, *, is_sse: bool, choices: int | None = 1) -> tuple[Json | None, bool]:
    """Return (body, whole?) of an answer, streamed or not; None when there is none to be had.

    :param choices: how many were asked for, where the answer ended cleanly; None where nobody knows that it did.
    """
    if is_sse:
        joined, whole = dialect.join(events(raw), choices=choices)
        return joined, whole and joined is not None and is_finished(joined)
    try:
        body = orjson.loads(raw)
    except ValueError:
        return None, False
    return (body, is_finished(body)) if isinstance(body, dict) else (None, False)


def same_answer(cache: Cache, compare: Comparator, found: Lookup, body: Json) -> Same:
    """Return whether a fresh answer says what the nearest candidate's does."""
    entry, stored = found.decision.entry, found.completion
    if stored is None and entry is not None:
        stored = cache.store.get(entry)
    fresh = read_answer(body).text
    if stored is None or fresh is None:
        return Same.UNSURE
    old = read_answer(orjson.loads(stored.body)).text
    return Same.UNSURE if old is None else compare(fresh, old).verdict
