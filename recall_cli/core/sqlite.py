"""Entries in one SQLite file: durable across `kill -9`, readable by other processes.

Three tables, because reopening must not walk the answers: `entries` is narrow, `vectors` holds
nothing but vectors, `bodies` holds the large rest. Every row that matters to one answer is
written in one transaction, so an acknowledged `append` is whole or absent.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from recall_cli.core.store import entry_size
from recall_cli.errors import StoreError, StoreMismatch
from recall_cli.types import Completion, Embedder, Entry, Ids, Request, Usage, Vector

SCHEMA_VERSION = 1
APPLICATION_ID = 0x52434C31
"""Marks a file as ours ("RCL1"), so that another program's database is refused, not written to."""

BUSY_TIMEOUT_MS = 5_000
"""How long a writer waits for another process's write before it reports a locked store."""

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity BLOB NOT NULL UNIQUE,
    partition BLOB NOT NULL,
    namespace TEXT NOT NULL,
    created REAL NOT NULL,
    expires REAL,
    used REAL NOT NULL,
    size INTEGER NOT NULL,
    has_vector INTEGER NOT NULL
);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, text BLOB NOT NULL, model TEXT NOT NULL, usage TEXT NOT NULL,
                     created REAL NOT NULL, body BLOB NOT NULL);
"""


class SqliteStore:
    """A cache's entries in one SQLite file (write-ahead log, one writer, any number of readers).

    Raises StoreError when the file is no store of ours or of another schema version, and
    StoreMismatch when its vectors come from another embedder.
    """

    def __init__(self, path: str | Path, *, embedder: Embedder, durability: str = "normal") -> None:
        """Open or make the store.

        :param durability: "normal" survives a killed process; "full" also a lost power supply,
            at a sync a write.
        """
        self.path = Path(path)
        self.dim = embedder.dim
        self._lock = threading.RLock()
        self._closed = False
        self._db = connect(self.path)
        try:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._create(embedder)
            check_schema(self._db, self.path)
            self._check_embedder(embedder)
            self._db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            self._db.close()
            raise unreadable(self.path, error) from error
        except BaseException:
            self._db.close()
            raise

    def append(
        self, request: Request, completion: Completion, vector: Vector | None, *, created: float, expires: float | None
    ) -> Entry:
        """Keep one entry, replacing the one of the same identity; durable when this returns."""
        size = entry_size(request, completion, vector)
        usage = orjson.dumps(completion.usage).decode()
        with self._lock, self._db:
            # Explicit, so that the old row's side tables go in the same transaction as the new row.
            self._db.execute("BEGIN IMMEDIATE")
            for (old,) in self._db.execute("SELECT id FROM entries WHERE identity = ?", (request.identity,)).fetchall():
                self._delete_one(old)
            cursor = self._db.execute(
                "INSERT INTO entries (identity, partition, namespace, created, expires, used, size, has_vector)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    request.identity,
                    request.partition,
                    request.namespace,
                    created,
                    expires,
                    created,
                    size,
                    vector is not None,
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
        )

    def get(self, id: int) -> Completion | None:
        """Return the completion of an entry, or None when it is gone."""
        with self._lock:
            row = self._db.execute("SELECT body, model, usage, created FROM bodies WHERE id = ?", (id,)).fetchone()
        if row is None:
            return None
        return Completion(body=row[0], model=row[1], usage=Usage(**orjson.loads(row[2])), created=row[3])

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""
        with self._lock:
            row = self._db.execute("SELECT text FROM bodies WHERE id = ?", (id,)).fetchone()
        return None if row is None else row[0].decode("utf-8", "surrogatepass")

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for id in ids:
                self._delete_one(id)

    def touch(self, used: Mapping[int, float]) -> None:
        """Persist the time of last use, id by id."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("UPDATE entries SET used = ? WHERE id = ?", [(t, i) for i, t in used.items()])

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, identity, partition, namespace, created, expires, used, size, has_vector"
                " FROM entries ORDER BY id"
            ).fetchall()
        for row in rows:
            yield Entry(*(*row[:8], bool(row[8])))

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""
        with self._lock:
            rows = self._db.execute("SELECT id, vector FROM vectors ORDER BY id").fetchall()
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        flat = b"".join(row[1] for row in rows)
        if len(flat) != 4 * self.dim * len(rows):
            raise StoreError(
                f"{self.path} holds a vector of another width than {self.dim}",
                hint="the file is damaged: restore a copy, or delete it and start empty",
            )
        return ids, np.frombuffer(flat, dtype=np.float32).reshape(len(rows), self.dim)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()

    def _delete_one(self, id: int) -> None:
        self._db.execute("DELETE FROM entries WHERE id = ?", (id,))
        self._db.execute("DELETE FROM vectors WHERE id = ?", (id,))
        self._db.execute("DELETE FROM bodies WHERE id = ?", (id,))

    def _create(self, embedder: Embedder) -> None:
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise not_a_store(self.path)
        with self._db:
            # IMMEDIATE and the re-check: two processes may open a new file at the same moment.
            self._db.execute("BEGIN IMMEDIATE")
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                _write_embedder(self._db, embedder)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check_embedder(self, embedder: Embedder) -> None:
        meta = dict(self._db.execute("SELECT key, value FROM meta"))
        if meta.get("fingerprint") == embedder.fingerprint:
            return
        raise StoreMismatch(
            f"{self.path} holds vectors of the embedder {meta.get('embedder')} ({meta.get('fingerprint', '')[:12]}), "
            f"not of {embedder.name} ({embedder.fingerprint[:12]})",
            hint=f"open it with --embedder {meta.get('embedder')}, name another file, "
            f"or embed its prompts again: recall cache reembed {self.path} --embedder {embedder.name}",
        )


def read_facts(path: Path) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Return a store's totals and its (namespace, entries, bytes), largest first; no embedder is needed."""
    with closing(_existing(path)) as db:
        meta = dict(db.execute("SELECT key, value FROM meta"))
        entries, partitions, size = db.execute(
            "SELECT count(*), count(DISTINCT partition), coalesce(sum(size), 0) FROM entries"
        ).fetchone()
        facts = {
            "embedder": meta.get("embedder", ""),
            "fingerprint": meta.get("fingerprint", ""),
            "dim": int(meta.get("dim", 0)),
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
    with closing(_existing(Path(path))) as db, db:
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
        _write_embedder(db, embedder)
    return made


def _existing(path: Path) -> sqlite3.Connection:
    """Return a connection to a store that exists; looking must not make a file."""
    if not path.is_file():
        raise StoreError(f"there is no store at {path}", hint="name the SQLite file that --store was given")
    db = connect(path)
    try:
        check_schema(db, path)
    except sqlite3.Error as error:
        db.close()
        raise unreadable(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def _write_embedder(db: sqlite3.Connection, embedder: Embedder) -> None:
    facts = {"embedder": embedder.name, "fingerprint": embedder.fingerprint, "dim": str(embedder.dim)}
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection with recall's settings. Raises StoreError when the file cannot be opened."""
    try:
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False)
        # Reads the header, so that a file of another kind is refused here and left as it is.
        db.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    return db


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours, or of a schema this version does not know."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise not_a_store(path)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has store schema {version}; this recall reads schema {SCHEMA_VERSION}",
            hint="use the recall that wrote it, or name another file",
        )


def not_a_store(path: Path) -> StoreError:
    """Return the error for a database of another program."""
    return StoreError(f"{path} is a SQLite database, but not a recall store", hint="name another file for the store")


def unreadable(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error for a file that SQLite cannot use."""
    if "locked" in str(error):
        return StoreError(f"{path} is locked by another process", hint="wait for it to finish, or name another file")
    return StoreError(
        f"{path} cannot be used as a store: {error}",
        hint="check that the folder exists and is writable, and that the file is a recall store",
    )
