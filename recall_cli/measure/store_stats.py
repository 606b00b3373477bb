"""What a store holds, read without its embedder."""

from __future__ import annotations

from pathlib import Path

from recall_cli.cache.stores.upkeep import read_facts
from recall_cli.measure.result import new_result
from recall_cli.postgres.open import read_shared_facts
from recall_cli.postgres.urls import is_database_url
from recall_cli.types import Result


def run(path: str) -> Result:
    """Return one row a namespace and the totals. Raises StoreError when it is no store."""
    facts, namespaces = read_shared_facts(path) if is_database_url(path) else read_facts(Path(path))
    result = new_result("cache stats", {"store": path})
    result.summary = facts
    result.rows = [{"namespace": name, "entries": entries, "bytes": size} for name, entries, size in namespaces]
    return result
