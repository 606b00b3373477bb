"""Langfuse: exported observations (snake case) and the events its SDKs send (camel case).

`usage_details.input` should leave out cached tokens, and many emitters put them in all the same. Where the details
have a total, it tells which was done; else the documented meaning holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, first, mapping, money, text, truth, whole
from recall_cli.logs.record import dialect
from recall_cli.logs.usage import exclusive, inclusive
from recall_cli.types import Json, Usage

EVENTS = ("generation-create", "generation-update")
READ = ("cache_read_input_tokens", "input_cached_tokens", "input_cache_read", "cache_read", "input_cached")
WRITE = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write", "cache_write", "cache_creation")
OWN = ("provided_model_name", "usage_details", "model_parameters", "trace_id", "usageDetails", "modelParameters",
       "traceId", "completionStartTime", "cost_details", "costDetails")  # fmt: skip


class Langfuse(Adapter):
    """Generations; spans, traces and scores are counted, and a trace lends its user and session."""

    name = "langfuse"

    def __init__(self) -> None:
        self._traces: dict[str, dict[str, Any]] = {}
        self._open: dict[str, tuple[str, dict[str, Any]]] = {}

    def score(self, row: Json) -> int:
        """Count the keys of an observation, or know an event by its type."""
        if str(row.get("type", "")).endswith(("-create", "-update")) and isinstance(row.get("body"), dict):
            return 5
        found = sum(name in row for name in OWN)
        return found if found > 1 else 0

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Return the call of an observation; a created generation without an answer waits for its update."""
        kind, body = text(row.get("type")), row.get("body")
        if not isinstance(body, dict):
            if kind and kind.upper() != "GENERATION":
                return ("not_a_generation",)
            return (self._pair(row, source),)
        if kind == "trace-create":
            self._traces.setdefault(text(body.get("id")), {}).update(_given(body))
        if kind not in EVENTS:
            return ("not_a_generation",)
        id = text(body.get("id"))
        begun = self._open.pop(id, (source, {}))
        whole_body = {**begun[1], **_given(body)}
        if id and not whole_body.get("output") and whole_body.get("level") != "ERROR":
            self._open[id] = (begun[0], whole_body)
            return ()
        return (self._pair(whole_body, begun[0]),)

    def end(self) -> Iterator[Found]:
        """Return the generations that were never updated."""
        for source, body in self._open.values():
            yield self._pair(body, source)
        self._open.clear()

    def _pair(self, row: Json, source: str) -> Pair:
        trace = self._traces.get(text(first(row, ("trace_id", "traceId"))), {})
        model = text(first(row, ("provided_model_name", "model", "model_id")))
        metadata = mapping(row.get("metadata"))
        parameters = mapping(first(row, ("model_parameters", "modelParameters")))
        request = _request(decoded(row.get("input")), {**parameters, "model": model})
        error = text(row.get("level")).upper() == "ERROR"
        user = first(row, ("user_id", "userId")) or trace.get("userId")
        return Pair(
            source,
            request,
            _response(decoded(row.get("output")), model),
            {
                "start_time": first(row, ("start_time", "startTime")),
                "end_time": first(row, ("end_time", "endTime")),
                "user_id": user,
            },
            provider=dialect(model),
            model=model,
            counted=_usage(row),
            status=500 if error else None,
            cost=_cost(row, metadata),
            session=text(first(row, ("session_id", "sessionId")) or trace.get("sessionId")),
            cached=truth(metadata.get("cache_hit")),
            flaw="" if request else NO_TEXT,
        )


def _given(body: Json) -> dict[str, Any]:
    """Return what an event says; a later one's nulls take nothing back."""
    return {k: v for k, v in body.items() if v is not None}


def _request(given: Any, parameters: Json) -> dict[str, Any]:
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        rest = {k: v for k, v in given.items() if k != "messages"}
        return from_messages(given["messages"], **{**parameters, **rest})
    return from_messages(given, **parameters)


def _response(given: Any, model: str) -> dict[str, Any] | None:
    if isinstance(given, dict):
        if "choices" in given or given.get("type") == "message":
            return given
        message = given["message"] if isinstance(given.get("message"), dict) else given
        content = message.get("content", message.get("text"))
        return completion(content, finish=given.get("finish_reason"), model=model, tools=message.get("tool_calls"))
    if isinstance(given, list) and given and isinstance(given[-1], dict):
        return _response(given[-1], model)
    return completion(given, model=model) if isinstance(given, str) else None


def _usage(row: Json) -> tuple[Usage, str] | None:
    details = mapping(first(row, ("usage_details", "usageDetails"))) or mapping(row.get("usage"))
    input = whole(first(details, ("input", "promptTokens", "prompt_tokens")))
    output = whole(first(details, ("output", "completionTokens", "completion_tokens"))) or 0
    if input is None:
        return None
    read = whole(first(details, READ)) or 0
    write = whole(first(details, WRITE)) or 0
    # Names of OpenAI's, and OpenAI's meaning; or a total in which the cached tokens are no part of their own.
    if "input" not in details or (read + write and whole(details.get("total")) == input + output):
        return inclusive(input, output, read, write)
    return exclusive(input, output, read, write)


def _cost(row: Json, metadata: Json) -> Any:
    for value in (
        first(row, ("total_cost", "totalCost", "calculated_total_cost", "calculatedTotalCost")),
        dig(mapping(first(row, ("cost_details", "costDetails"))), "total"),
        dig(mapping(row.get("usage")), "totalCost"),
        metadata.get("litellm_response_cost"),
    ):
        if (found := money(value)) is not None:
            return found
    return None
