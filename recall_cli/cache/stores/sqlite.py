"""Entries in one SQLite file: durable across `kill -9`, readable by other processes.

Three tables, because reopening must not walk the answers: `entries` is narrow, `vectors` holds
nothing but vectors, `bodies` holds the large rest. Every row that matters to one answer is
written in one transaction, so an acknowledged `append` is whole or absent.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from recall_cli.cache.stores.memory import entry_size, other_embedder, other_width
from recall_cli.cache.stores.sqlite_file import (
    APPLICATION_ID,
    SCHEMA,
    SCHEMA_VERSION,
    check_schema,
    connect,
    open_or_create,
    read_embedder,
    unreadable,
    use_wal,
    write_embedder,
)
from recall_cli.types import Completion, Entry, Ids, Request, Usage, Vector, VectorSpace

GET = (
    "SELECT body, model, usage, bodies.created, identity FROM bodies JOIN entries ON entries.id = bodies.id"
    " WHERE bodies.id = ?"
)


class SqliteStore:
    """A cache's entries in one SQLite file (write-ahead log, one writer, any number of readers).

    Raises StoreError when the file is no store of ours or of another schema version, and
    StoreMismatch when its vectors come from another embedder.
    """

    def __init__(self, path: str | Path, *, embedder: VectorSpace, durability: str = "normal") -> None:
        """Open or make the store.

        :param durability: "normal" survives a killed process; "full" also a lost power supply,
            at a sync a write.
        """
        self.path = Path(path)
        self.dim = embedder.dim
        self.embedder = embedder
        self._lock = threading.RLock()
        self._looking = threading.Lock()
        self._closed = False
        self._db = connect(self.path)
        self._reader: sqlite3.Connection | None = None
        try:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
            open_or_create(
                self._db, SCHEMA, APPLICATION_ID, SCHEMA_VERSION, fill=lambda db: write_embedder(db, embedder)
            )
            check_schema(self._db, self.path)
            self._check_embedder(embedder)
            use_wal(self._db)
            # Answers are read over a connection of their own: a read never waits for a write's sync.
            self._reader = connect(self.path)
        except sqlite3.Error as error:
            self._db.close()
            raise unreadable(self.path, error) from error
        except BaseException:
            self._db.close()
            raise

    def append(
        self,
        request: Request,
        completion: Completion,
        vector: Vector | None,
        *,
        created: float,
        expires: float | None,
        group: int | None = None,
    ) -> Entry:
        """Keep one entry, replacing the one of the same identity; durable when this returns."""
        size = entry_size(request, completion, vector)
        usage = orjson.dumps(completion.usage).decode()
        with self._transaction():
            # Another process may have moved the store to another embedder since it was opened.
            self._check_embedder(self.embedder)
            for (old,) in self._db.execute("SELECT id FROM entries WHERE identity = ?", (request.identity,)).fetchall():
                self._delete_one(old)
            cursor = self._db.execute(
                "INSERT INTO entries (identity, partition, namespace, created, expires, used, size, has_vector,"
                " answer_group) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    request.identity,
                    request.partition,
                    request.namespace,
                    created,
                    expires,
                    created,
                    size,
                    vector is not None,
                    group,
                ),
            )
            id = cursor.lastrowid
            assert id is not None
            if vector is not None:
                self._db.execute("INSERT INTO vectors VALUES (?, ?)", (id, vector.astype(np.float32).tobytes()))
            self._db.execute(
                "INSERT INTO bodies VALUES (?, ?, ?, ?, ?, ?)",
                (
                    id,
                    request.text.encode("utf-8", "surrogatepass"),
                    completion.model,
                    usage,
                    completion.created,
                    completion.body,
                ),
            )
        return Entry(
            id,
            request.identity,
            request.partition,
            request.namespace,
            created,
            expires,
            created,
            size,
            vector is not None,
            group,
        )

    def batch(self) -> AbstractContextManager[None]:
        """Return what makes the writes inside it one transaction: pages they share are written once."""
        return self._transaction()

    def get(self, id: int, identity: bytes | None = None) -> Completion | None:
        """Return the completion of an entry, or None when it is gone, unreadable, or of another identity."""
        row = self._look(GET, (id,))
        # The identity is stored beside the answer, so that no fault of the file serves somebody else's.
        if row is None or (identity is not None and row[4] != identity):
            return None
        try:
            return Completion(body=row[0], model=row[1], usage=Usage(**orjson.loads(row[2])), created=row[3])
        except (TypeError, ValueError):
            return None  # a usage that this version cannot read

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""
        row = self._look("SELECT text FROM bodies WHERE id = ?", (id,))
        return None if row is None else row[0].decode("utf-8", "surrogatepass")

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""
        with self._transaction():
            for id in ids:
                self._delete_one(id)

    def touch(self, used: Mapping[int, float]) -> None:
        """Persist the time of last use, id by id."""
        with self._transaction():
            self._db.executemany("UPDATE entries SET used = ? WHERE id = ?", [(t, i) for i, t in used.items()])

    def learn(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Persist (group, labels, wrong), id by id; unknown ids are ignored."""
        with self._transaction():
            self._db.executemany(
                "UPDATE entries SET answer_group = ?, labels = ?, wrong = ? WHERE id = ?",
                [(*record, id) for id, record in records.items()],
            )

    def save(self, key: str, state: Mapping[str, Any]) -> None:
        """Keep a JSON-ready state under a key."""
        with self._transaction():
            row = (f"state:{key}", orjson.dumps(state).decode())
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the state kept under a key, None when there is none or it cannot be read."""
        row = self._look("SELECT value FROM meta WHERE key = ?", (f"state:{key}",))
        try:
            state = None if row is None else orjson.loads(row[0])
        except orjson.JSONDecodeError:
            return None
        return state if isinstance(state, dict) else None

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""
        with self._reading():
            rows = self._db.execute(
                "SELECT id, identity, partition, namespace, created, expires, used, size, has_vector,"
                " answer_group, labels, wrong FROM entries ORDER BY id"
            ).fetchall()
        for row in rows:
            yield Entry(*(*row[:8], bool(row[8]), *row[9:]))

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""
        with self._reading():
            rows = self._db.execute("SELECT id, vector FROM vectors ORDER BY id").fetchall()
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        flat = b"".join(row[1] for row in rows)
        if len(flat) != 4 * self.dim * len(rows):
            hint = "the file is damaged: restore a copy, or delete it and start empty"
            raise other_width(str(self.path), self.dim, hint)
        return ids, np.frombuffer(flat, dtype=np.float32).reshape(len(rows), self.dim)

    def version(self) -> int:
        """Return a number that changes whenever another process has written to the file."""
        with self._reading():
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def compact(self) -> None:
        """Give the space of deleted entries back to the disk; takes as long as copying the file."""
        with self._reading():
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        with self._lock, self._looking:
            if not self._closed:
                self._closed = True
                if self._reader is not None:
                    self._reader.close()
                self._db.close()

    def _look(self, query: str, values: tuple[Any, ...]) -> Any:
        """Return the first row of a query on the reading connection; what SQLite raises becomes a StoreError."""
        assert self._reader is not None
        with self._looking:
            try:
                return self._reader.execute(query, values).fetchone()
            except sqlite3.Error as error:
                raise unreadable(self.path, error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the connection; what SQLite raises becomes a StoreError."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise unreadable(self.path, error) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write whole or not at all. BEGIN is explicit: Python's own would come only at the first change."""
        with self._reading():
            if self._db.in_transaction:
                yield  # a batch is under way, and ends it
                return
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield

    def _delete_one(self, id: int) -> None:
        self._db.execute("DELETE FROM entries WHERE id = ?", (id,))
        self._db.execute("DELETE FROM vectors WHERE id = ?", (id,))
        self._db.execute("DELETE FROM bodies WHERE id = ?", (id,))

    def _check_embedder(self, embedder: VectorSpace) -> None:
        held = read_embedder(self._db)
        if held.get("fingerprint") == embedder.fingerprint:
            return
        raise other_embedder(
            str(self.path),
            (held.get("embedder", "none"), held.get("fingerprint", "")),
            embedder,
            hint=f"open it with --embedder {held.get('embedder')}, name another file, "
            f"or embed its prompts again: recall cache reembed {self.path} --embedder {embedder.name}",
        )
