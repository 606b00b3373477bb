"""recall's own store: the prompts it has an answer to, each with what its answer cost when it was first given.

A store keeps one row a distinct request. What was served from it left no row, so this says what a cache holds, not
how often it was asked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.json_path import dig, mapping
from recall_cli.logs.usage import INCLUSIVE, count
from recall_cli.types import Json, Usage

TABLES = {"meta", "entries", "bodies"}
QUERY = (
    "SELECT entries.namespace, entries.partition, entries.created, bodies.text, bodies.model, bodies.usage, bodies.body"
    " FROM entries JOIN bodies ON bodies.id = entries.id ORDER BY entries.id"
)


def table_rows(db: sqlite3.Connection) -> Iterator[dict[str, Any] | str]:
    """Yield the entries of a store."""
    for row in db.execute(QUERY):
        yield {"recall_entry": dict(row)}


class Store(Adapter):
    """Entries of `cache.stores.sqlite`."""

    name = "recall-store"

    def score(self, row: Json) -> int:
        """Know what `table_rows` yields."""
        return 9 if "recall_entry" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the stored request and its answer. Its partition digest is used as the tenant."""
        entry = row.get("recall_entry")
        prompt = _text(dig(entry, "text"))
        if not prompt:
            return ("no_prompt",)
        provider, _, rest = str(dig(entry, "namespace") or "").partition("/")
        body = _text(dig(entry, "body"))
        usage = mapping(dig(entry, "usage"))
        counts = {name: count(usage.get(name)) or 0 for name in Usage.__dataclass_fields__}
        partition = dig(entry, "partition")
        return (
            Pair(
                source,
                {
                    "model": rest.rpartition("/")[0] or dig(entry, "model"),
                    "messages": [{"role": "user", "content": prompt}],
                },
                _response(body),
                {
                    "start_time": dig(entry, "created"),
                    "tenant": partition.hex() if isinstance(partition, bytes) else partition or "",
                },
                provider=provider if provider in ("openai", "anthropic") else "",
                model=_text(dig(entry, "model")),
                counted=(Usage(**counts), INCLUSIVE) if any(counts.values()) else None,
            ),
        )


def _response(body: str) -> Any:
    """Return the stored body; one that a library user stored as plain text, in a body around it."""
    found = mapping(body)
    return found or {"choices": [{"message": {"role": "assistant", "content": body}, "finish_reason": "stop"}]}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
