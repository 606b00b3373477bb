"""LiteLLM's table LiteLLM_SpendLogs, dumped as JSON or CSV. Most of its columns are JSON in a string.

Prompts and answers are the string "{}" unless storing them was switched on: such a row still has tokens and dollars.
"""

from __future__ import annotations

from typing import Any

from recall_cli.logs.bodies import from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.formats.litellm import counts, is_generation, qualified
from recall_cli.logs.json_path import decoded, dig, mapping, money, text, truth
from recall_cli.logs.record import status_of
from recall_cli.types import Json

KEYS = ("spend", "call_type", "startTime", "proxy_server_request", "request_tags", "api_key", "completionStartTime")


class LiteLLMSpend(Adapter):
    """Rows of the spend table; cached tokens stand in its metadata alone, and are part of `prompt_tokens`."""

    name = "litellm-spend"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its own columns."""
        return sum(name in row for name in KEYS) if "spend" in row and "startTime" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a row."""
        if not is_generation(row):
            return ("not_a_generation",)
        metadata = mapping(row.get("metadata"))
        request = _request(row)
        response = decoded(row.get("response"))
        tenants = {name: row.get(name) for name in ("team_id", "organization_id", "user")}
        if not any(tenants.values()):
            tenants = {"tenant": row.get("api_key")}
        return (
            Pair(
                source,
                request,
                response or None,
                {"start_time": row.get("startTime"), "end_time": row.get("endTime"), **tenants},
                model=qualified(row),
                usage=counts(row, metadata),
                status=status_of(dig(metadata, "error_information", "error_code"), row.get("status")),
                cost=money(row.get("spend")),
                session=text(row.get("session_id")),
                cached=truth(row.get("cache_hit")),
                flaw="" if request else NO_TEXT,
            ),
        )


def _request(row: Json) -> dict[str, Any]:
    """Return the body that the proxy was sent, or one of the messages alone; {} when neither was kept."""
    sent = mapping(row.get("proxy_server_request"))
    sent = mapping(sent.get("body")) or sent
    if sent.get("messages") or sent.get("input"):
        return sent
    messages = decoded(row.get("messages"))
    return from_messages(messages, model=text(row.get("model"))) if messages else {}
