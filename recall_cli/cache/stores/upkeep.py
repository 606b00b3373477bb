"""Looking after a store: what it holds, and moving it to another embedder."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from recall_cli.cache.stores.sqlite_file import (
    SCHEMA_VERSION,
    check_schema,
    connect,
    read_embedder,
    unreadable,
    write_embedder,
)
from recall_cli.errors import StoreError
from recall_cli.types import Embedder


def read_facts(path: Path) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Return a store's totals and its (namespace, entries, bytes), largest first; no embedder is needed."""
    with _opened(path) as db:
        held = read_embedder(db)
        entries, partitions, size = db.execute(
            "SELECT count(*), count(DISTINCT partition), coalesce(sum(size), 0) FROM entries"
        ).fetchone()
        facts = {
            "embedder": held.get("embedder", ""),
            "fingerprint": held.get("fingerprint", ""),
            "dim": int(held.get("dim", 0)),
            "schema": SCHEMA_VERSION,
            "entries": entries,
            "vectors": db.execute("SELECT count(*) FROM vectors").fetchone()[0],
            "partitions": partitions,
            "bytes": size,
            "file_bytes": path.stat().st_size,
        }
        namespaces = db.execute(
            "SELECT namespace, count(*), sum(size) FROM entries GROUP BY namespace ORDER BY count(*) DESC, namespace"
        ).fetchall()
    return facts, namespaces


def reembed(path: str | Path, embedder: Embedder, *, batch: int = 1024) -> int:
    """Embed every stored prompt again with another embedder; return how many vectors were made.

    One transaction: a crash half way leaves the store as it was. Entries whose prompt was never
    embedded (exact-only requests) stay without a vector.
    """
    made = 0
    with _opened(Path(path)) as db, db:
        db.execute("BEGIN IMMEDIATE")
        ids = [row[0] for row in db.execute("SELECT id FROM entries WHERE has_vector ORDER BY id")]
        db.execute("DELETE FROM vectors")
        for start in range(0, len(ids), batch):
            chunk = ids[start : start + batch]
            texts = [
                db.execute("SELECT text FROM bodies WHERE id = ?", (id,)).fetchone()[0].decode("utf-8", "surrogatepass")
                for id in chunk
            ]
            for id, vector in zip(chunk, embedder.embed_many(texts), strict=True):
                if vector.any():
                    db.execute("INSERT INTO vectors VALUES (?, ?)", (id, vector.tobytes()))
                    made += 1
        write_embedder(db, embedder)
    return made


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store that exists: looking must not make a file. What SQLite raises becomes a StoreError."""
    if not path.is_file():
        raise StoreError(f"there is no store at {path}", hint="name the SQLite file that --store was given")
    with closing(connect(path)) as db:
        try:
            check_schema(db, path)
            yield db
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
