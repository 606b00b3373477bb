"""The signing keys and the revoked tokens of hubs. Those of a folder are one SQLite file that only its owner can read.

A database, not a text file: several processes (a server, the command line) may rotate and revoke at the same
time, what was revoked survives a power cut, and the next look of any of them sees it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recall_cli.cache.stores.sqlite_file import DAMAGE, connect, open_or_create, unreadable, use_wal
from recall_cli.errors import InputError, StoreError

FILE = "keys.db"
"""The file's name in a folder of hubs."""

APPLICATION_ID = 0x52434B31
"""Marks a file as ours ("RCK1")."""
SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE keys (id INTEGER PRIMARY KEY AUTOINCREMENT, kid TEXT NOT NULL UNIQUE, secret BLOB NOT NULL,
                   created REAL NOT NULL);
CREATE TABLE revoked (jti TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
"""

KEY_BYTES = 32
"""As long as the digest of HS256: RFC 7518 wants no less, and more adds nothing."""

LIVE = 2
"""Keys that verify. The newest signs; the one before it lets tokens under way live on."""

OTHERS = 0o077
"""Permission bits of everybody but the owner."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is listed: its secret never leaves this module but to sign and to verify."""

    kid: str
    created: float
    """Seconds since the epoch."""
    signs: bool


class KeyStore(Protocol):
    """Keys and revocations of the tokens of some hubs. Any method may be called from any thread.

    What one process does the next look of any other sees. Raises StoreError where the store fails.
    """

    def signing(self) -> tuple[str, bytes]:
        """Return the name and the secret of the key that signs."""
        ...

    def secret(self, kid: str) -> bytes | None:
        """Return the secret of a live key, None when there is no such key."""
        ...

    def live(self) -> list[Key]:
        """Return the live keys, newest first."""
        ...

    def rotate(self) -> str:
        """Make the key that signs from now on; only the one before it goes on verifying. Return its name."""
        ...

    def revoke(self, jti: str, until: float) -> None:
        """Refuse a token from now on.

        :param until: when it expires by itself, seconds since the epoch; two rotations later it is forgotten.
        """
        ...

    def is_revoked(self, jti: str) -> bool:
        """Return whether a token was revoked."""
        ...

    def close(self) -> None:
        """Release what was opened for it."""
        ...


def new_key() -> tuple[str, bytes, float]:
    """Return the name, the secret and the time of a new key.

    Its name is not guessable from the secret, and no counter: a key made anew must never be taken for an old one.
    """
    return secrets.token_hex(8), secrets.token_bytes(KEY_BYTES), time.time()


class KeyRing:
    """The keys and revocations of a folder, see `KeyStore`."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it with a first key.

        Raises InputError when others can read it: whoever has a key can make tokens.
        """
        self.path = path
        try:
            # Made before SQLite can: it would make it readable by everybody.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            mode = path.stat().st_mode
        except OSError as error:
            raise InputError(
                f"the keys {path} cannot be opened: {error.strerror}",
                hint="check the folder of the hubs; recall hub add makes one",
            ) from error
        if mode & OTHERS:
            raise InputError(
                f"others can read the keys {path}",
                hint=f"they may be known: chmod 600 {path}, then twice `recall hub token rotate`",
            )
        self._db = connect(path)
        with self._failures():
            self._prepare()

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def signing(self) -> tuple[str, bytes]:
        """Return the name and the secret of the key that signs."""
        with self._failures():
            kid, secret = self._db.execute("SELECT kid, secret FROM keys ORDER BY id DESC LIMIT 1").fetchone()
        return kid, secret

    def secret(self, kid: str) -> bytes | None:
        """Return the secret of a live key, None when there is no such key."""
        with self._failures():
            row = self._db.execute("SELECT secret FROM keys WHERE kid = ?", (kid,)).fetchone()
        return None if row is None else row[0]

    def live(self) -> list[Key]:
        """Return the live keys, newest first."""
        with self._failures():
            rows = self._db.execute("SELECT kid, created FROM keys ORDER BY id DESC").fetchall()
        return [Key(kid, created, signs=at == 0) for at, (kid, created) in enumerate(rows)]

    def rotate(self) -> str:
        """Make the key that signs from now on; only the one before it goes on verifying. Return its name."""
        with self._failures(), self._write():
            kid = self._add()
            self._db.execute("DELETE FROM keys WHERE id NOT IN (SELECT id FROM keys ORDER BY id DESC LIMIT ?)", (LIVE,))
            # The time of day is not asked: a clock that was wrong for a moment would bring revoked tokens back. What
            # had expired before the oldest live key was made was signed by none of them.
            self._db.execute("DELETE FROM revoked WHERE until < (SELECT MIN(created) FROM keys)")
        return kid

    def revoke(self, jti: str, until: float) -> None:
        """Refuse a token from now on.

        :param until: when it expires by itself, seconds since the epoch; two rotations later it is forgotten.
        """
        with self._failures(), self._write():
            self._db.execute("INSERT OR REPLACE INTO revoked VALUES (?, ?)", (jti, until))

    def is_revoked(self, jti: str) -> bool:
        """Return whether a token was revoked."""
        with self._failures():
            return self._db.execute("SELECT 1 FROM revoked WHERE jti = ?", (jti,)).fetchone() is not None

    def _prepare(self) -> None:
        # A revocation that a power cut undoes is none.
        self._db.execute("PRAGMA synchronous = FULL")
        open_or_create(self._db, SCHEMA, APPLICATION_ID, SCHEMA_VERSION, fill=lambda _: self._add())
        ours = self._db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if not ours or self._db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
            self._db.close()
            raise StoreError(f"{self.path} holds no keys that this recall reads", hint="move it away, or name another")
        use_wal(self._db)

    def _add(self) -> str:
        key = new_key()
        self._db.execute("INSERT INTO keys (kid, secret, created) VALUES (?, ?, ?)", key)
        return key[0]

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Make what is inside one write, alone among all processes."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise unreadable(self.path, error) from error
