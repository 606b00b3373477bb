"""The access log of recall's server: what was decided for each request. Prompts are in it with `--log-text` only.

Even then it holds the last turn alone: the system prompt and earlier turns, which are walls, are not in it.
"""

from __future__ import annotations

from recall_cli.logs.formats.base import HIDDEN, NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import text
from recall_cli.logs.record import status_of
from recall_cli.types import Json, Outcome

KEYS = ("outcome", "ms", "provider", "namespace", "similarity", "cutoff", "entry", "upstream_ms")
HITS = (Outcome.EXACT, Outcome.SEMANTIC)


class Serve(Adapter):
    """Lines of the access log; a hit was served by a cache already, and cost nothing."""

    name = "recall-serve"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its own keys."""
        return sum(name in row for name in KEYS) if "outcome" in row and "ms" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a line."""
        model, prompt = text(row.get("model")), text(row.get("text"))
        tokens = {"prompt_tokens": row.get("input_tokens"), "completion_tokens": row.get("output_tokens")}
        return (
            Pair(
                source,
                {"model": model, "messages": [{"role": "user", "content": prompt}]} if prompt else {},
                row={"time": row.get("time"), "duration_ms": row.get("ms"), "tenant": row.get("tenant")},
                provider="anthropic" if row.get("provider") == "anthropic" else "openai",
                model=model,
                usage=tokens,
                status=status_of(row.get("status")),
                cached=row.get("outcome") in HITS,
                flaw=HIDDEN if prompt else NO_TEXT,
            ),
        )
