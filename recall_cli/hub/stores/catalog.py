"""One hub's documents, chunks, vectors and settings in one SQLite file: what is in it is what the hub knows.

A large write is many small ones and a last one: its documents are staged, hidden from searches, and then published
together. Nothing is locked while they are embedded, and what a killed write has embedded is not embedded again.

The word index and the vector index are made of it. A chunk's id is never used again and its text never changes, so
both can be brought up to date by comparing ids.

A search reads one state of the file over a connection of its own: it waits for no write, and no write changes it.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson

from recall_cli.cache.stores.sqlite_file import DAMAGE, connect, open_or_create, other_schema, unreadable, use_wal
from recall_cli.errors import StoreError
from recall_cli.hub.models import (
    ALPHA,
    Chunk,
    Document,
    DocumentState,
    HubInfo,
    NoSuchHub,
    Passage,
    Settings,
    Visibility,
)
from recall_cli.hub.stores.batches import check_width
from recall_cli.types import Ids, Vector, VectorSpace

BLOCK_BYTES = 64 << 20
"""Vectors read at a time. Large blocks: the index codes its rows anew as their mean moves with each of them."""

COUNTS = "SELECT COUNT(*), SUM(chunks) FROM documents WHERE hidden IS NULL"
HIDDEN = "SELECT chunks.id FROM documents JOIN chunks ON document = row WHERE hidden IS NOT NULL"
WORDS = "SELECT chunks.id, title, text FROM chunks JOIN documents ON document = row WHERE chunks.id = ?"


def settings_of(meta: Mapping[str, str]) -> Settings:
    """Return the settings among a hub's facts as they are stored. Raises ValueError or LookupError for odd ones."""
    return {
        "visibility": Visibility(meta["visibility"]),
        "owner": meta["owner"],
        "alpha": float(meta["alpha"]),
        "min_score": float(meta["min_score"]) if "min_score" in meta else None,
    }


@contextmanager
def snapshot_of(path: Path) -> Iterator[Snapshot]:
    """Give the present state of a hub's file. Raises StoreError when it cannot be read, or makes no sense."""
    db = connect(path, mode="rw")
    try:
        db.execute("BEGIN")
        yield Snapshot(db)
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    except (ValueError, TypeError, LookupError) as error:
        # SQLite keeps no checksums: a damaged page may hand over what no write of ours has stored.
        raise damaged(path, error) from error
    finally:
        db.close()


def damaged(path: Path, error: Exception) -> StoreError:
    """Return the error for a hub's file that can be read and makes no sense."""
    return StoreError(
        f"{path} is damaged: {error}", hint="restore the file, or make the hub anew and ingest its documents"
    )


class Snapshot:
    """Reads that all see the same state."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._meta: dict[str, str] = dict(db.execute("SELECT key, value FROM meta"))

    @property
    def uid(self) -> str:
        """Which hub it is of."""
        return self._meta["uid"]

    @property
    def revision(self) -> int:
        """The number of this state."""
        return int(self._meta["revision"])

    @property
    def is_indexed(self) -> bool:
        """Whether the word index has been given all of this state."""
        return self._meta["indexed"] == self._meta["revision"]

    def info(self) -> HubInfo:
        """Return what the hub is."""
        meta = self._meta
        documents, chunks = self._db.execute(COUNTS).fetchone()
        return HubInfo(
            slug=meta["slug"],
            uid=meta["uid"],
            embedder=meta["embedder"],
            fingerprint=meta["fingerprint"],
            dim=int(meta["dim"]),
            revision=self.revision,
            documents=documents,
            chunks=chunks or 0,
            updated=float(meta["updated"]) if "updated" in meta else None,
            **settings_of(meta),
        )

    def chunk_ids(self) -> Ids:
        """Return the ids of all chunks, in order."""
        # Unordered, SQLite reads them off its narrowest index; by id, it would walk all texts.
        ids = np.sort(np.array(self._db.execute("SELECT id FROM chunks").fetchall(), np.int64).reshape(-1))
        hidden = np.array(self._db.execute(HIDDEN).fetchall(), np.int64).reshape(-1)
        return np.setdiff1d(ids, hidden, assume_unique=True) if len(hidden) else ids

    def vectors_after(self, id: int) -> Iterator[tuple[Ids, Vector]]:
        """Yield (ids, vectors (n, dim)) of the chunks with a larger id, in order, block by block; hidden ones too."""
        dim = int(self._meta["dim"])
        cursor = self._db.execute("SELECT id, vector FROM vectors WHERE id > ? ORDER BY id", (id,))
        while rows := cursor.fetchmany(max(1, BLOCK_BYTES // (4 * dim))):
            ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
            yield ids, np.frombuffer(b"".join(row[1] for row in rows), np.float32).reshape(len(rows), dim)

    def words(self, ids: Iterable[int]) -> Iterator[tuple[int, str, str]]:
        """Yield (id, title, text) of these chunks."""
        for id in ids:
            yield from self._db.execute(WORDS, (id,))


SCHEMA_VERSION = 1
APPLICATION_ID = 0x52434831
"""Marks a file as a hub of ours ("RCH1")."""

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (row INTEGER PRIMARY KEY, id TEXT NOT NULL, digest BLOB NOT NULL, title TEXT NOT NULL,
                        url TEXT NOT NULL, updated REAL, chunks INTEGER NOT NULL, hidden INTEGER);
CREATE UNIQUE INDEX documents_by_id ON documents (id) WHERE hidden IS NULL;
CREATE INDEX documents_hidden ON documents (hidden) WHERE hidden IS NOT NULL;
CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
                     digest BLOB NOT NULL, text TEXT NOT NULL);
CREATE INDEX chunks_of_document ON chunks (document, ordinal);
CREATE INDEX chunks_by_digest ON chunks (digest);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
"""

WAL_KEPT = 64 << 20
"""Bytes to which the write-ahead log is cut after a large ingest."""
DOCUMENT = "SELECT row, title, url, updated FROM documents WHERE id = ? AND hidden IS NULL"
TITLED = (
    "SELECT chunks.id, title, text FROM chunks JOIN documents ON document = row WHERE chunks.id > ?"
    " ORDER BY chunks.id LIMIT 1024"
)
SWEEP = (
    "DELETE FROM vectors WHERE id IN (SELECT chunks.id FROM documents JOIN chunks ON document = row"
    " WHERE hidden IS NOT NULL AND hidden IS NOT ?)",
    "DELETE FROM chunks WHERE document IN (SELECT row FROM documents WHERE hidden IS NOT NULL AND hidden IS NOT ?)",
    "DELETE FROM documents WHERE hidden IS NOT NULL AND hidden IS NOT ?",
)
STAGE = "INSERT INTO documents (id, digest, title, url, updated, chunks, hidden) VALUES (?, ?, ?, ?, ?, ?, ?)"
REPLACED = "SELECT id FROM documents WHERE hidden IS NULL AND id IN (SELECT id FROM documents WHERE hidden = ?)"
REPLACE = (
    "UPDATE chunks SET digest = (SELECT digest FROM moved WHERE moved.id = chunks.id)",
    "UPDATE vectors SET vector = (SELECT vector FROM moved WHERE moved.id = vectors.id)",
)
PASSAGES = (
    "SELECT chunks.id, documents.id, title, url, ordinal, text FROM json_each(?) AS asked"
    " CROSS JOIN chunks ON chunks.id = asked.value JOIN documents ON document = row ORDER BY asked.key"
)


def create(
    path: Path, slug: str, space: VectorSpace, *, visibility: Visibility = Visibility.PUBLIC, owner: str = ""
) -> None:
    """Make the file of an empty hub. Raises StoreError when it cannot be made."""
    facts = {
        "slug": slug,
        "uid": secrets.token_hex(16),
        "visibility": visibility.value,
        "owner": owner,
        "embedder": space.name,
        "fingerprint": space.fingerprint,
        "dim": str(space.dim),
        "revision": "0",
        "indexed": "0",
        "alpha": str(ALPHA),
    }
    db = connect(path)
    try:
        if not open_or_create(
            db,
            SCHEMA,
            APPLICATION_ID,
            SCHEMA_VERSION,
            fill=lambda db: db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items()),
        ):
            raise StoreError(f"{path} is there already", hint="name another folder for the hub")
        use_wal(db)
    except DAMAGE as error:
        raise unreadable(path, error) from error
    finally:
        db.close()


class Catalog:
    """The file of a hub, open. Reads see the last whole write; writes are made inside `writing`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise StoreError(f"there is no hub at {path.parent}", hint="make it with recall hub add")
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        # No file is made where somebody has just removed the hub.
        self._writer = connect(path, mode="rw")
        try:
            _check(self._writer, path)
            self.uid = self.written("uid")
            self._writer.execute("PRAGMA synchronous = NORMAL")
            self._writer.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
            # A connection for reading: no search waits for a write.
            self._reader = connect(path, mode="rw")
        except DAMAGE as error:
            self._writer.close()
            raise unreadable(path, error) from error
        except BaseException:
            self._writer.close()
            raise

    def version(self) -> int:
        """Return a number that changes with every write, by whichever process; a microsecond or two."""
        with self._read() as db:
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Give one state of the file, whatever is written meanwhile. Raises NoSuchHub when another hub is in its place.

        This one was removed then, and whoever may ask it need not be allowed to ask the other.
        """
        with snapshot_of(self.path) as state:
            if state.uid != self.uid:
                raise NoSuchHub(f"the hub at {self.path.parent} was removed", hint="open the one that is there now")
            yield state

    def check_place(self) -> None:
        """Raise NoSuchHub when the hub was removed, so that nothing is written into what is in its place."""
        with self.snapshot():
            pass

    def settings(self) -> Settings:
        """Return what can be set, as it is now."""
        with self._read() as db:
            facts = dict(db.execute("SELECT key, value FROM meta"))
        try:
            return settings_of(facts)
        except (ValueError, LookupError) as error:
            raise damaged(self.path, error) from error

    def states(self) -> Iterator[tuple[str, DocumentState]]:
        """Yield every document's id and state, in the order of the ids."""
        with self._read() as db:
            rows = db.execute("SELECT id, digest, chunks FROM documents WHERE hidden IS NULL ORDER BY id").fetchall()
        for id, digest, chunks in rows:
            yield id, DocumentState(digest, chunks)

    def document(self, id: str) -> Document | None:
        """Return a document as it was stored, None when it is not there."""
        with self._read() as db:
            row = db.execute(DOCUMENT, (id,)).fetchone()
            if row is None:
                return None
            texts = db.execute("SELECT text FROM chunks WHERE document = ? ORDER BY ordinal", (row[0],)).fetchall()
        return Document(id, "".join(text for (text,) in texts), row[1], row[2], row[3])

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Return those of these chunks that are there, in the order asked for."""
        with self._read() as db:
            # One statement: sixty of them take twice as long.
            return [Passage(*row) for row in db.execute(PASSAGES, (orjson.dumps(ids).decode(),))]

    def known(self, digests: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Return the vectors of those chunk digests that are stored, hidden ones too."""
        query = "SELECT vector FROM vectors WHERE id = (SELECT id FROM chunks WHERE digest = ? LIMIT 1)"
        found = {}
        with self._write() as db:
            for digest in digests:
                row = db.execute(query, (digest,)).fetchone()
                if row is not None:
                    found[digest] = np.frombuffer(row[0], np.float32)
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the writes inside it one, which another process sees whole or not at all."""
        with self._write() as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield

    def sweep(self, stage: int | None = None) -> None:
        """Delete what the writes before have replaced, and what writes that never ended have staged.

        :param stage: what this one has staged stays.
        """
        with self._write() as db:
            for table in SWEEP:
                db.execute(table, (stage,))

    def stage(
        self, stage: int, document: Document, state: DocumentState, chunks: Sequence[Chunk], vectors: Vector
    ) -> range:
        """Write a document that no search sees before `publish`; return its chunks' ids.

        Raises StoreMismatch for vectors of another width.

        :param stage: the number of the write it belongs to, not 0.
        :param vectors: shape (len(chunks), dim).
        """
        with self._write() as db:
            dim = int(self.written("dim"))
            if len(chunks):
                check_width(vectors, (len(chunks), dim))
            facts = (document.id, state.digest, document.title, document.url, document.updated, len(chunks), stage)
            row = db.execute(STAGE, facts).lastrowid
            last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
            first = last[0] + 1 if last else 1
            ids = range(first, first + len(chunks))
            db.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, ?)",
                [(id, row, chunk.ordinal, chunk.digest, chunk.text) for id, chunk in zip(ids, chunks, strict=True)],
            )
            rows = np.ascontiguousarray(vectors, np.float32)
            db.executemany(
                "INSERT INTO vectors VALUES (?, ?)",
                [(id, vector.tobytes()) for id, vector in zip(ids, rows, strict=True)],
            )
            return ids

    def publish(self, stage: int) -> list[int]:
        """Let searches see what was staged, in place of the documents of the same ids; return those' chunk ids."""
        with self._write() as db:
            replaced = [chunk for (id,) in db.execute(REPLACED, (stage,)).fetchall() for chunk in self.remove(id)]
            db.execute("UPDATE documents SET hidden = NULL WHERE hidden = ?", (stage,))
            return replaced

    def remove(self, id: str) -> list[int]:
        """Remove a document; return the ids its chunks had, none when it was not there.

        Its rows stay until the next write: a search of the revision before may be about to read them.
        """
        with self._write() as db:
            row = db.execute(DOCUMENT, (id,)).fetchone()
            if row is None:
                return []
            db.execute("UPDATE documents SET hidden = 0 WHERE row = ?", row[:1])
            return [chunk for (chunk,) in db.execute("SELECT id FROM chunks WHERE document = ?", row[:1])]

    def titled(self) -> Iterator[tuple[list[int], list[tuple[str, str]]]]:
        """Yield the ids, and (title, text), of all chunks, some at a time, while nobody writes documents."""
        last = 0
        while True:
            with self._write() as db:
                rows = db.execute(TITLED, (last,)).fetchall()
            if not rows:
                return
            yield [row[0] for row in rows], [(row[1], row[2]) for row in rows]
            last = rows[-1][0]

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Create a temporary table for the new vectors. It takes no lock on the file and is dropped at the end."""
        with self._write() as db:
            db.execute("CREATE TEMP TABLE moved (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, vector BLOB NOT NULL)")
        try:
            yield
        finally:
            with self._write() as db:
                db.execute("DROP TABLE moved")

    def put_aside(self, ids: Sequence[int], vectors: Sequence[tuple[bytes, Vector]], dim: int) -> None:
        """Note chunks' other digests and vectors. Raises StoreMismatch for vectors of another width than `dim`."""
        rows = []
        for id, (digest, vector) in zip(ids, vectors, strict=True):
            check_width(vector, (dim,))
            rows.append((id, digest, vector.astype(np.float32).tobytes()))
        with self._write() as db:
            db.executemany("INSERT INTO moved VALUES (?, ?, ?)", rows)

    def replace(self) -> None:
        """Give every chunk the digest and the vector that were put aside for it."""
        with self._write() as db:
            for replacement in REPLACE:
                db.execute(replacement)

    def set(self, **facts: str | None) -> None:
        """Set facts by name; None takes one away."""
        with self._write() as db:
            db.executemany("DELETE FROM meta WHERE key = ?", [(name,) for name in facts])
            kept = [(name, value) for name, value in facts.items() if value is not None]
            db.executemany("INSERT INTO meta VALUES (?, ?)", kept)

    def next_revision(self) -> int:
        """Count one revision more, made now; return it."""
        revision = int(self.written("revision")) + 1
        self.set(revision=str(revision), updated=repr(time.time()))
        return revision

    def written(self, key: str) -> str:
        """Return a fact as the write under way sees it."""
        with self._write() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise damaged(self.path, LookupError(key))
        return str(row[0])

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """Hold the reading connection; what SQLite raises becomes a StoreError."""
        with self._reading:
            try:
                yield self._reader
            except DAMAGE as error:
                raise unreadable(self.path, error) from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Hold the writing connection; what SQLite raises becomes a StoreError."""
        with self._writing:
            try:
                yield self._writer
            except DAMAGE as error:
                raise unreadable(self.path, error) from error


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is no hub, or of a schema this version does not know."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(f"{path} is no hub of recall", hint="name another folder for the hubs")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise other_schema(str(path), version, SCHEMA_VERSION, "use the recall that wrote it, or make the hub anew")
