"""LiteLLM's StandardLoggingPayload: what its callbacks write to files and buckets, one object a call."""

from __future__ import annotations

from typing import Any

from recall_cli.logs.bodies import from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, mapping, money, text, truth, whole
from recall_cli.logs.record import status_of
from recall_cli.types import Json

KEYS = ("call_type", "model_parameters", "custom_llm_provider", "hidden_params", "response_cost", "startTime")
GENERATIONS = ("completion", "responses", "messages", "generate_content", "pass_through")
"""Parts of the call types that are questions to a language model; the others embed, rank, moderate, draw."""


class LiteLLM(Adapter):
    """`prompt_tokens` include the cached ones: LiteLLM translates every provider's counts to OpenAI's."""

    name = "litellm"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its own keys."""
        if "model_parameters" not in row and "hidden_params" not in row:
            return 0
        found = sum(name in row for name in KEYS)
        return found if found > 2 else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a payload."""
        if not is_generation(row):
            return ("not_a_generation",)
        metadata = mapping(row.get("metadata"))
        parameters = mapping(row.get("model_parameters"))
        request = from_messages(decoded(row.get("messages")), **{**parameters, "model": text(row.get("model"))})
        error = dig(row, "error_information", "error_code")
        return (
            Pair(
                source,
                request,
                decoded(row.get("response")),
                {"start_time": row.get("startTime"), "end_time": row.get("endTime"), **tenants(metadata)},
                model=qualified(row),
                usage=counts(row, metadata),
                status=status_of(error, row.get("status")),
                cost=money(row.get("response_cost")),
                session=text(row.get("session_id")),
                cached=truth(row.get("cache_hit")),
                flaw="" if request else NO_TEXT,
            ),
        )


def is_generation(row: Json) -> bool:
    """Return whether a payload is of a call to a language model; without a type it is taken for one."""
    kind = text(row.get("call_type"))
    return not kind or any(part in kind for part in GENERATIONS)


def qualified(row: Json) -> str:
    """Return the model with the vendor that served it, where its name alone would not say."""
    model, vendor = text(row.get("model")), text(row.get("custom_llm_provider"))
    if not vendor or vendor in ("openai", "anthropic") or model.startswith(vendor + "/"):
        return model
    return f"{vendor}/{model}"


def counts(row: Json, metadata: Json) -> dict[str, Any]:
    """Return the token counts beside the response, in OpenAI's words."""
    found = mapping(metadata.get("usage_object"))
    if "prompt_tokens" in found:
        return found
    return {"prompt_tokens": whole(row.get("prompt_tokens")), "completion_tokens": whole(row.get("completion_tokens"))}


def tenants(metadata: Json) -> dict[str, Any]:
    """Return who called, under the usual names. A key stands for its holder where nobody else is named."""
    named = {
        "team_id": metadata.get("user_api_key_team_id"),
        "organization_id": metadata.get("user_api_key_org_id"),
        "user": metadata.get("user_api_key_user_id"),
    }
    return named if any(named.values()) else {"tenant": metadata.get("user_api_key_hash")}
