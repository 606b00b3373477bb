"""The file under a SQLite store: its schema, its marks, and what is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from recall_cli.errors import StoreError
from recall_cli.types import VectorSpace

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


def write_schema(db: sqlite3.Connection, schema: str, *, application_id: int, version: int) -> None:
    """Make the tables of an empty database and mark it as ours, inside the caller's transaction.

    Statement by statement: `executescript` would commit what is under way.
    """
    for statement in schema.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {application_id}")
    db.execute(f"PRAGMA user_version = {version}")


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
    if "locked" in str(error) or "busy" in str(error):
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
