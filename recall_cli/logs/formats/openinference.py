"""OpenInference spans (Phoenix, Arize): attributes `llm.*`, as OTLP, as JSON Lines or as a table of columns."""

from __future__ import annotations

from typing import Any

from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats import otlp
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.formats.otel import ENDS, STARTS, failed, span_attributes, span_usage
from recall_cli.logs.json_path import decoded, dig, first, mapping, money, text
from recall_cli.logs.record import dialect
from recall_cli.types import Json

KIND = "openinference.span.kind"
OUTER = ("CHAIN", "AGENT", "TOOL", "RETRIEVER", "EMBEDDING", "RERANKER", "GUARDRAIL", "EVALUATOR")
INPUT = ("llm.token_count.prompt",)
OUTPUT = ("llm.token_count.completion",)
READ = ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_input")
WRITE = ("llm.token_count.prompt_details.cache_write",)


class OpenInference(Adapter):
    """Spans of kind LLM. Their prompt count includes the cached tokens."""

    name = "openinference"

    def score(self, row: Json) -> int:
        """Count the attributes of its own."""
        found = span_attributes(row)
        if not found:
            return 0
        own = sum(name.startswith(("llm.input_messages", "llm.output_messages", "llm.token_count")) for name in found)
        # One more than GenAI's own attributes may count: some exporters write both.
        return min(7, own + 4 * (KIND in found) + ("llm.model_name" in found))

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a span."""
        found = span_attributes(row)
        kind = text(first({**found, "span_kind": row.get("span_kind")}, (KIND, "span_kind"))).upper()
        if kind in OUTER or "llm.model_name" not in found:
            return ("not_a_generation",)
        model = text(found["llm.model_name"])
        parameters = mapping(found.get("llm.invocation_parameters"))
        messages: Any = _turns(found, "llm.input_messages") or decoded(found.get("input.value"))
        if isinstance(messages, dict) and "messages" in messages:
            messages = messages["messages"]
        tools = otlp.indexed(found, "llm.tools")
        request = from_messages(messages, **{**parameters, "model": model, "tools": tools or parameters.get("tools")})
        return (
            Pair(
                source,
                request,
                _response(found),
                {"start_time": first(row, STARTS), "end_time": first(row, ENDS), "user_id": found.get("user.id")},
                provider=dialect(model),
                model=model,
                counted=span_usage(found, INPUT, OUTPUT, READ, WRITE),
                status=500 if failed(row, found) else None,
                cost=money(found.get("llm.cost.total")),
                session=text(found.get("session.id")),
                flaw="" if request else NO_TEXT,
            ),
        )


def _turns(found: Json, prefix: str) -> list[dict[str, Any]]:
    return [
        {name.removeprefix("message."): value for name, value in message.items()}
        for message in otlp.indexed(found, prefix)
    ]


def _response(found: Json) -> Any:
    answers = _turns(found, "llm.output_messages")
    if answers:
        answer = answers[0]
        tools = [name for name in answer if name.startswith("tool_calls.")]
        return completion(answer.get("content"), finish=answer.get("finish_reason"), tools=tools)
    given = decoded(found.get("output.value"))
    if isinstance(given, dict):
        return given if "choices" in given or given.get("type") == "message" else completion(dig(given, "content"))
    return completion(given) if isinstance(given, str) else None
