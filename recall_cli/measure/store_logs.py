"""Stores as logs: the entries of a shared store in a file for as long as it takes, and what a store holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from recall_cli.cache.stores.sqlite_file import read_facts
from recall_cli.measure.result import new_result
from recall_cli.postgres.open import open_shared, read_shared_facts
from recall_cli.postgres.urls import is_database_url
from recall_cli.types import Result, Store


def run(path: str) -> Result:
    """Return one row a namespace and the totals. Raises StoreError when it is no store."""
    facts, namespaces = read_shared_facts(path) if is_database_url(path) else read_facts(Path(path))
    result = new_result("cache stats", {"store": path})
    result.summary = facts
    result.rows = [{"namespace": name, "entries": entries, "bytes": size} for name, entries, size in namespaces]
    return result


@contextmanager
def spooled(logs: Sequence[str]) -> Iterator[list[str]]:
    """Yield the logs with a file in the place of each database's URL. It holds what the store does, and goes again."""
    with TemporaryDirectory(prefix="recall-") as folder:
        named = []
        for number, log in enumerate(logs):
            if is_database_url(log):
                file = Path(folder) / f"store-{number}.jsonl"
                _write(log, file)
                log = str(file)
            named.append(log)
        yield named


def _write(url: str, file: Path) -> None:
    store = open_shared(url, None)
    try:
        with file.open("wb") as rows:
            for row in _rows(store):
                rows.write(orjson.dumps({"recall_entry": row}, option=orjson.OPT_APPEND_NEWLINE))
    finally:
        store.close()


def _rows(store: Store) -> Iterator[dict[str, object]]:
    """Yield entries as `logs.formats.store` knows them."""
    for entry in store.entries():
        completion, text = store.get(entry.id), store.text(entry.id)
        if completion is not None and text is not None:
            yield {
                "namespace": entry.namespace,
                "partition": entry.partition.hex(),
                "created": entry.created,
                "text": text.encode("utf-8", "replace").decode(),
                "model": completion.model,
                "usage": completion.usage,
                "body": completion.body.decode("utf-8", "replace"),
            }
