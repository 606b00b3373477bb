"""Helicone's export, JSON Lines or CSV. Bodies are there with `--include-body` only, and the CSV has no answers."""

from __future__ import annotations

from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, first, mapping, money, text, truth, whole
from recall_cli.logs.record import status_of
from recall_cli.types import Json

KEYS = ("request_created_at", "response_created_at", "request_body", "request_user_id", "request_properties",
        "response_status", "response_id")  # fmt: skip
SESSION = ("Helicone-Session-Id", "helicone-session-id", "session_id")


class Helicone(Adapter):
    """The body's own usage counts first: it alone tells cached tokens from others."""

    name = "helicone"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its own columns."""
        return sum(name in row for name in KEYS) if "request_created_at" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a row."""
        request = decoded(row.get("request_body"))
        bare = not isinstance(request, dict) or not request
        counts = {
            "prompt_tokens": whole(row.get("prompt_tokens")),
            "completion_tokens": whole(row.get("completion_tokens")),
        }
        properties = mapping(row.get("request_properties"))
        return (
            Pair(
                source,
                {} if bare else request,
                decoded(row.get("response_body")),
                {
                    "start_time": row.get("request_created_at"),
                    "end_time": row.get("response_created_at"),
                    "user_id": row.get("request_user_id"),
                },
                uri=text(first(row, ("request_path", "target_url"))),
                model=text(row.get("model")),
                usage=counts,
                status=status_of(row.get("response_status")),
                cost=money(first(row, ("cost", "cost_usd"))),
                session=text(first(properties, SESSION)),
                cached=truth(row.get("cache_hit")),
                flaw=NO_TEXT if bare else "",
            ),
        )
