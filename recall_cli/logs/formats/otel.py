"""OpenTelemetry's GenAI spans, in today's names (`gen_ai.input.messages`) and those of the years before.

Text is opt-in and usually absent. Spans of agents repeat the totals of the calls inside them and are dropped.
"""

from __future__ import annotations

from typing import Any

from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats import otlp
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, first, money, text, whole
from recall_cli.logs.record import dialect
from recall_cli.logs.usage import inclusive
from recall_cli.types import Json, Usage

GENERATIONS = ("chat", "text_completion", "generate_content", "completion")
MODEL = ("gen_ai.response.model", "gen_ai.request.model")
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens",
)
WRITE = ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens",
         "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_write_tokens")  # fmt: skip
PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty",
              "stop_sequences", "choice.count")  # fmt: skip
STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
ENDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
ERROR_CODES = (2, "STATUS_CODE_ERROR", "ERROR", "Error")
USER = ("user.id", "enduser.id", "gen_ai.user.id")
SESSION = ("gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id")


class OTel(Adapter):
    """`input_tokens` must include the cached ones since 2025; some emitters still leave them out."""

    name = "otel"

    def score(self, row: Json) -> int:
        """Count the attributes of GenAI."""
        found = span_attributes(row)
        return min(6, sum(name.startswith("gen_ai.") for name in found)) if found else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a span."""
        found = span_attributes(row)
        operation = first(found, ("gen_ai.operation.name", "llm.request.type"))
        if (operation is not None and operation not in GENERATIONS) or first(found, MODEL) is None:
            return ("not_a_generation",)
        events = dict(otlp.events(row))
        # Where text is kept off the span, this event has it, under the span's own names.
        found = {**events.get("gen_ai.client.inference.operation.details", {}), **found}
        model = text(first(found, MODEL))
        request = _request(found, events, row)
        return (
            Pair(
                source,
                request,
                _response(found, events, row),
                {"start_time": first(row, STARTS), "end_time": first(row, ENDS), "user_id": first(found, USER)},
                provider=dialect(model),
                model=model,
                counted=span_usage(found, INPUT, OUTPUT, READ, WRITE),
                status=500 if failed(row, found) else None,
                cost=money(first(found, ("gen_ai.usage.cost", "gen_ai.usage.total_cost"))),
                session=text(first(found, SESSION)),
                finish=_finish(found),
                tier=text(first(found, ("gen_ai.openai.response.service_tier", "openai.response.service_tier"))),
                flaw="" if request else NO_TEXT,
            ),
        )


def span_attributes(row: Json) -> dict[str, Any]:
    """Return a span's attributes; {} for what is no span."""
    if "attributes" not in row and not any(name.startswith("attributes.") for name in row):
        return {}
    return otlp.attributes(row)


def span_usage(
    found: Json, input: tuple[str, ...], output: tuple[str, ...], read: tuple[str, ...], write: tuple[str, ...]
) -> tuple[Usage, str] | None:
    """Return the token counts under the first of several names each, the input taken to include the cached."""
    tokens = whole(first(found, input))
    if tokens is None:
        return None
    return inclusive(
        tokens, whole(first(found, output)) or 0, whole(first(found, read)) or 0, whole(first(found, write)) or 0
    )


def failed(row: Json, found: Json) -> bool:
    """Return whether a span says that its call failed."""
    code = dig(row, "status", "code")
    return (row.get("status_code") if code is None else code) in ERROR_CODES or found.get("error.type") is not None


def turn(message: Any) -> Any:
    """Return a message of parts, as the semantic conventions write it, with plain content."""
    parts = dig(message, "parts")
    if not isinstance(parts, list):
        return message
    texts = [part.get("content") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if len(texts) == len(parts) and all(isinstance(part, str) for part in texts):
        return {"role": message.get("role", "user"), "content": "\n".join(map(str, texts))}
    # A tool's call or result, an image: it stays what it is, and is no text.
    return {"role": message.get("role", "user"), "content": parts}


def _request(found: Json, events: Json, row: Json) -> dict[str, Any]:
    parameters = {name: found.get(f"gen_ai.request.{name}") for name in PARAMETERS}
    parameters["n"] = parameters.pop("choice.count")
    parameters["model"] = found.get("gen_ai.request.model")
    tools = decoded(first(found, ("gen_ai.tool.definitions", "gen_ai.request.tools")))
    return from_messages(
        _messages(found, events, row),
        system=system_text(decoded(found.get("gen_ai.system_instructions"))),
        tools=tools or None,
        response_format=first(found, ("gen_ai.output.type", "gen_ai.request.response_format")),
        **parameters,
    )


def system_text(given: Any) -> Any:
    """Return system instructions out of their parts."""
    if isinstance(given, list):
        return "\n".join(str(part.get("content", part.get("text", ""))) for part in given if isinstance(part, dict))
    return given


def _messages(found: Json, events: Json, row: Json) -> Any:
    given = decoded(first(found, ("gen_ai.input.messages", "gen_ai.prompt")))
    if given is None:
        given = decoded(first(events.get("gen_ai.content.prompt", {}), ("gen_ai.prompt",)))
    if given is None:
        given = otlp.indexed(found, "gen_ai.input.messages") or otlp.indexed(found, "gen_ai.prompt")
    if not given:
        # One event a message, as was the way in between.
        given = [
            {"role": name.split(".")[1], "content": held.get("content")}
            for name, held in otlp.events(row)
            if name.startswith("gen_ai.") and name.endswith(".message")
        ]
    return [turn(message) for message in given] if isinstance(given, list) else given


def _response(found: Json, events: Json, row: Json) -> dict[str, Any] | None:
    given = decoded(first(found, ("gen_ai.output.messages", "gen_ai.completion")))
    if given is None:
        given = decoded(first(events.get("gen_ai.content.completion", {}), ("gen_ai.completion",)))
    if given is None and "gen_ai.choice" in events:
        choice = events["gen_ai.choice"]
        given = decoded(choice.get("message")) or choice
    if given is None:
        given = otlp.indexed(found, "gen_ai.output.messages") or otlp.indexed(found, "gen_ai.completion") or None
    if isinstance(given, list) and given:
        given = turn(given[0])
    finish = _finish(found)
    if isinstance(given, dict):
        content = given.get("content")
        if isinstance(content, list):
            content = "".join(
                str(p.get("content", "")) for p in content if isinstance(p, dict) and p.get("type") == "text"
            )
        tools = given.get("tool_calls") or ("tool_calls" if "tool_calls.0.name" in given else None)
        return completion(content, finish=given.get("finish_reason") or finish, tools=tools)
    return completion(given, finish=finish) if isinstance(given, str) else None


def _finish(found: Json) -> str:
    reasons = decoded(first(found, ("gen_ai.response.finish_reasons", "gen_ai.completion.0.finish_reason")))
    if isinstance(reasons, list):
        reasons = reasons[0] if reasons else None
    # The conventions call a tool's call "tool_call".
    return {"tool_call": "tool_calls"}.get(text(reasons), text(reasons))
