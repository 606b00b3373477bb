"""OpenRouter's activity export, CSV: tokens, dollars and times of every call, and no word of what was asked."""

from __future__ import annotations

from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import first, money, text, truth, whole
from recall_cli.logs.usage import inclusive
from recall_cli.types import Json

KEYS = ("generation_id", "model_permaslug", "tokens_prompt", "tokens_completion", "cost_total", "tokens_cached")


class OpenRouter(Adapter):
    """Rows of the export. `tokens_prompt` include the cached ones; `tokens_completion`, so it is taken, reasoning."""

    name = "openrouter"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its own columns."""
        return sum(name in row for name in KEYS) if "model_permaslug" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a row."""
        model = text(row.get("model_permaslug"))
        prompt = whole(row.get("tokens_prompt"))
        counted = None
        if prompt is not None:
            cached = whole(row.get("tokens_cached")) or 0
            counted = inclusive(prompt, whole(row.get("tokens_completion")) or 0, cached)
        took = whole(row.get("generation_time_ms"))
        return (
            Pair(
                source,
                row={"start_time": row.get("created_at"), "duration_ms": took, "user": row.get("user")},
                provider="openai",
                model=f"openrouter/{model}" if model else "",
                counted=counted,
                # A call broken off by its caller has no answer that anybody could reuse.
                status=499 if truth(row.get("cancelled")) else None,
                cost=money(row.get("cost_total")),
                finish=text(first(row, ("finish_reason_normalized", "finish_reason_raw"))),
                flaw=NO_TEXT,
            ),
        )
