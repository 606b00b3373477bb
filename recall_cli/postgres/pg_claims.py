"""Claims on a call to the upstream: of the replicas that miss the same request at one time, one has the claim.

A claim is an advisory lock of one session, so it ends with the replica that holds it, whatever ends that. It is an
economy and no promise: who cannot ask for one goes upstream.
"""

from __future__ import annotations

from contextlib import suppress
from typing import LiteralString

from recall_cli.errors import StoreError
from recall_cli.postgres.connection import Database

CLAIM_S = 0.5
"""Seconds that asking for a claim may take: a miss waits for it."""


class Claims:
    """The claims of one replica. Used by one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db = database.connect(CLAIM_S)

    def take(self, identity: bytes) -> bool:
        """Return whether the claim is this replica's now. Raises StoreError when the database cannot be asked."""
        row = self._ask("SELECT pg_try_advisory_lock(%s)", identity)
        return bool(row and row[0])

    def give_back(self, identity: bytes) -> None:
        """Let others have the claim; one that went with its connection is nobody's already."""
        with suppress(StoreError):
            self._ask("SELECT pg_advisory_unlock(%s)", identity)

    def close(self) -> None:
        """Give all claims back."""
        self._db.close()

    def _ask(self, question: LiteralString, identity: bytes) -> tuple[object, ...] | None:
        if self._db.closed or self._db.is_gone:
            self._db.close()
            self._db = self._database.connect(CLAIM_S)
        try:
            return self._database.within(self._db, CLAIM_S, question, (_key(identity),))
        except StoreError:
            self._db.close()
            raise


def _key(identity: bytes) -> int:
    """Return the lock's number: two requests that share one wait for each other in vain, once in 2^64."""
    return int.from_bytes(identity[:8], "big", signed=True)
