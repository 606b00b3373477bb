"""Spans of Vercel's AI SDK: attributes `ai.*`. The span around a call repeats its totals; the inner one is the call."""

from __future__ import annotations

from typing import Any

from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.formats.otel import ENDS, STARTS, failed, span_attributes, span_usage
from recall_cli.logs.json_path import decoded, first, mapping, text
from recall_cli.logs.record import dialect
from recall_cli.types import Json

INNER = (".doGenerate", ".doStream")
INPUT = ("gen_ai.usage.input_tokens", "ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "ai.usage.outputTokens", "ai.usage.completionTokens",
          "gen_ai.usage.completion_tokens")  # fmt: skip
READ = ("gen_ai.usage.cache_read.input_tokens", "ai.usage.cachedInputTokens")
WRITE = ("gen_ai.usage.cache_creation.input_tokens",)
PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "frequency_penalty", "presence_penalty", "stop_sequences")
SETTINGS = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "seed": "seed",
    "maxOutputTokens": "max_tokens",
}
FINISHES = {"tool-calls": "tool_calls", "content-filter": "content_filter"}


class Vercel(Adapter):
    """Inner spans. Their input counts include the cached tokens."""

    name = "vercel-ai"

    def score(self, row: Json) -> int:
        """Count the attributes of its own; they come with GenAI's beside them."""
        own = sum(name.startswith("ai.") for name in span_attributes(row))
        return 7 + min(own, 3) if own > 1 else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of an inner span."""
        found = span_attributes(row)
        operation = text(first(found, ("ai.operationId", "operation.name"))).partition(" ")[0] or text(row.get("name"))
        if not operation.endswith(INNER) or "embed" in operation:
            return ("not_a_generation",)
        model = text(first(found, ("gen_ai.response.model", "ai.response.model", "ai.model.id")))
        request = _request(found)
        finish = text(first(found, ("ai.response.finishReason", "gen_ai.response.finish_reasons")))
        answer = first(found, ("ai.response.text", "ai.response.object"))
        tools = decoded(found.get("ai.response.toolCalls"))
        return (
            Pair(
                source,
                request,
                completion(answer, finish=FINISHES.get(finish, finish), tools=tools),
                {
                    "start_time": first(row, STARTS),
                    "end_time": first(row, ENDS),
                    "user_id": first(found, ("ai.telemetry.metadata.userId", "user.id")),
                },
                provider=dialect(model),
                model=model,
                counted=span_usage(found, INPUT, OUTPUT, READ, WRITE),
                status=500 if failed(row, found) else None,
                session=text(first(found, ("ai.telemetry.metadata.sessionId", "session.id"))),
                flaw="" if request else NO_TEXT,
            ),
        )


def _request(found: Json) -> dict[str, Any]:
    parameters = {name: found.get(f"gen_ai.request.{name}") for name in PARAMETERS}
    for theirs, ours in SETTINGS.items():
        if parameters.get(ours) is None:
            parameters[ours] = found.get(f"ai.settings.{theirs}")
    given = decoded(first(found, ("ai.prompt.messages", "ai.prompt")))
    system = None
    if isinstance(given, dict):
        system, given = given.get("system"), given.get("messages", given.get("prompt"))
    tools = found.get("ai.prompt.tools")
    tools = [mapping(tool) or tool for tool in tools] if isinstance(tools, list) else decoded(tools)
    model = text(first(found, ("gen_ai.request.model", "ai.model.id")))
    return from_messages(given, system=system, tools=tools or None, model=model, **parameters)
