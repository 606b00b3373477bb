"""Request/response pairs as people log them: the two bodies in one row, OpenAI's or Anthropic's, in any spelling."""

from __future__ import annotations

from typing import Any

from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, first, money, text, truth
from recall_cli.logs.record import status_of
from recall_cli.types import Json

REQUEST = ("request", "request_body", "requestBody")
RESPONSE = ("response", "response_body", "responseBody")
STATUS = ("status", "status_code", "response_status", "http_status")
CACHED = ("cache_hit", "cacheHit", "cache_status", "cached")
URI = ("uri", "url", "endpoint", "path")
COST = ("cost_usd", "response_cost", "total_cost", "cost")
SESSION = ("session_id", "sessionId", "conversation_id", "conversationId", "thread_id")
BODY_KEYS = frozenset(("messages", "choices", "content"))


class Pairs(Adapter):
    """`{"request": {...}, "response": {...}, "timestamp": ...}`, one a row."""

    name = "pairs"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count the two bodies; an answer alone is no pair."""
        if not any(name in row for name in REQUEST):
            return 0
        return 2 if any(name in row for name in RESPONSE) else 1

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the pair in a row."""
        request, _ = _body(row, REQUEST)
        response, wrapper = _body(row, RESPONSE)
        pair = Pair(source, request, response, row)
        # One look at the keys a row has, where a call a name would be a dozen.
        names = row.keys() & OTHERS
        if names:
            _fill(pair, row, names)
        if pair.status is None and wrapper:
            pair.status = status_of(*(wrapper.get(name) for name in STATUS))
        return (pair,)


OTHERS = frozenset((*STATUS, *CACHED, *URI, *COST, *SESSION, "usage"))


def _fill(pair: Pair, row: Json, names: set[str]) -> None:
    pair.usage = row.get("usage")
    if not names.isdisjoint(STATUS):
        pair.status = status_of(*(row.get(name) for name in STATUS))
    if not names.isdisjoint(CACHED):
        pair.cached = any(truth(row.get(name)) for name in CACHED)
    if not names.isdisjoint(URI):
        pair.uri = next((row[name] for name in URI if isinstance(row.get(name), str)), "")
    if not names.isdisjoint(COST):
        pair.cost = money(first(row, COST))
    if not names.isdisjoint(SESSION):
        pair.session = text(first(row, SESSION))


def _body(row: Json, names: tuple[str, ...]) -> tuple[Any, Json]:
    """Return a body (decoded when it was logged as a string) and the HTTP envelope around it, if any."""
    value = None
    for name in names:
        value = row.get(name)
        if value is not None:
            break
    value = decoded(value)
    if isinstance(value, dict) and "body" in value and BODY_KEYS.isdisjoint(value):
        return decoded(value["body"]), value
    return value, {}
