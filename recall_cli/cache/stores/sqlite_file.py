"""The file under a SQLite store: its schema, its marks, and what is refused.

Its upkeep is here too: what a store holds, and moving it to another embedder.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from recall_cli.errors import StoreError
from recall_cli.types import Embedder, VectorSpace

SCHEMA_VERSION = 1
APPLICATION_ID = 0x52434C31
"""Marks a file as ours ("RCL1"), so that another program's database is refused, not written to."""

BUSY_TIMEOUT_MS = 5_000
"""How long a writer waits for another process's write before it reports a locked store."""
SWITCH_RETRY_S = 0.005
"""Between two tries to switch to a write-ahead log: the other side's own switch takes about as long."""

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
    has_vector INTEGER NOT NULL,
    answer_group INTEGER,
    labels INTEGER NOT NULL DEFAULT 0,
    wrong INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, text BLOB NOT NULL, model TEXT NOT NULL, usage TEXT NOT NULL,
                     created REAL NOT NULL, body BLOB NOT NULL);
"""


DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What the sqlite3 module raises for a file that it cannot use: it may quote damaged bytes, and fail at that."""


def is_database(path: Path) -> bool:
    """Return whether a file is a SQLite database, by its first bytes."""
    try:
        if not path.is_file():
            # A pipe gives its first bytes only once.
            return False
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def connect(path: Path, *, mode: str = "rwc") -> sqlite3.Connection:
    """Return a connection with recall's settings. Raises StoreError when the file cannot be opened.

    :param mode: as SQLite's URIs name it; "rw" makes no file where there is none.
    """
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        # Reads the header, so that a file of another kind is refused here and left as it is.
        db.execute("PRAGMA schema_version")
    except DAMAGE as error:
        raise unreadable(path, error) from error
    return db


def open_or_create(
    db: sqlite3.Connection,
    schema: str,
    id: int,
    version: int,
    *,
    fill: Callable[[sqlite3.Connection], object] | None = None,
) -> bool:
    """Make the tables of a database that holds nothing yet, and mark it as ours; return whether this call made them.

    Any number of processes may do this to one new file at once: one makes the tables, the others find them whole. A
    database that holds anything is left as it is, whosoever it is; the caller checks its marks then.

    :param id: the application id, by which a file is known as ours.
    :param fill: writes the first rows, in the same transaction.
    """
    # A look first: a file that is there need not be writable now, and no open of it waits for somebody's long write.
    db.execute("BEGIN")
    try:
        empty = _is_empty(db)
    finally:
        _roll_back(db)
    if not empty:
        return False
    db.execute("BEGIN IMMEDIATE")
    try:
        # The look that counts: another process may have made the tables since the first one.
        if empty := _is_empty(db):
            # Statement by statement: `executescript` would commit what is under way.
            for statement in schema.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {id}")
            db.execute(f"PRAGMA user_version = {version}")
            if fill is not None:
                fill(db)
        db.execute("COMMIT")
    except BaseException:
        _roll_back(db)
        raise
    return empty


def _roll_back(db: sqlite3.Connection) -> None:
    """End a transaction, unless what failed in it has ended it already, as a full disk does."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _is_empty(db: sqlite3.Connection) -> bool:
    """Return whether nobody has made anything in a database. Ask inside a transaction: these are several reads."""
    looks = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    return not any(db.execute(look).fetchone()[0] for look in looks)


def use_wal(db: sqlite3.Connection) -> None:
    """Keep a write-ahead log beside the file from now on, where its file system can; readers then wait for no writer.

    The switch needs the file alone, and SQLite gives up at once where waiting might be in vain. All processes that open
    one new file want the same switch, so this one tries again until one of them has made it.
    """
    ends = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            # Asked before: the question takes no lock that a writer holds.
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > ends:
                raise
            time.sleep(SWITCH_RETRY_S)


def is_busy(error: Exception) -> bool:
    """Return whether another process's lock was in the way; the same may work in a moment."""
    return "locked" in str(error) or "busy" in str(error)


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours, or of a schema this version does not know."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise not_a_store(path)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise other_schema(str(path), version, SCHEMA_VERSION, "use the recall that wrote it, or name another file")


def other_schema(name: str, held: int, ours: int, hint: str) -> StoreError:
    """Return the error for tables that another version of recall has made."""
    return StoreError(f"{name} has schema {held}; this recall knows schema {ours}", hint=hint)


def not_a_store(path: Path) -> StoreError:
    """Return the error for a database of another program."""
    return StoreError(f"{path} is a SQLite database, but not a recall store", hint="name another file for the store")


def unreadable(path: Path, error: Exception) -> StoreError:
    """Return the error for a file that SQLite cannot use."""
    if is_busy(error):
        return StoreError(f"{path} is locked by another process", hint="wait for it to finish, or name another file")
    return StoreError(
        f"{path} cannot be used as a store: {error}",
        hint="check that the folder exists and is writable, and that the file is a recall store",
    )


def read_embedder(db: sqlite3.Connection) -> dict[str, str]:
    """Return whose vectors the store holds: embedder, fingerprint and dim, as far as the file says.

    By name, not the whole table: it also holds a policy's state, and this is read at every write.
    """
    return dict(db.execute("SELECT key, value FROM meta WHERE key IN ('embedder', 'fingerprint', 'dim')"))


def write_embedder(db: sqlite3.Connection, embedder: VectorSpace) -> None:
    """Say whose vectors the store holds from now on."""
    facts = {"embedder": embedder.name, "fingerprint": embedder.fingerprint, "dim": str(embedder.dim)}
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())


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
