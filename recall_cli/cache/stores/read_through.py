"""The answers in use, kept in memory before a store: a read from SQLite is a tenth of an exact hit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from recall_cli.cache.entries import ByteLRU
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.types import Completion, Entry, Ids, Request, Vector

HOT_BYTES = 32 << 20
"""Bytes of answers kept in memory."""


class ReadThroughStore:
    """A SQLite store whose answers in use are read once. Another process's deletions count from `refresh` on."""

    def __init__(self, store: SqliteStore, most: int = HOT_BYTES) -> None:
        self.store = store
        self._recent: ByteLRU[tuple[bytes, Completion]] = ByteLRU(most, lambda known: len(known[1].body))
        self._version = store.version()

    def refresh(self) -> None:
        """Forget what is in memory when another process has changed the file."""
        version = self.store.version()
        if version != self._version:
            self._version = version
            self._recent.clear()

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
        return self.store.append(request, completion, vector, created=created, expires=expires, group=group)

    def batch(self) -> AbstractContextManager[None]:
        """Return what makes the writes inside it one."""
        return self.store.batch()

    def get(self, id: int, identity: bytes | None = None) -> Completion | None:
        """Return the completion of an entry, or None when it is gone, unreadable, or of another identity."""
        known = self._recent.get(id)
        if known is not None and identity in (None, known[0]):
            return known[1]
        completion = self.store.get(id, identity)
        if completion is not None and known is None and identity is not None:
            self._recent.keep(id, (identity, completion))
        return completion

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""
        return self.store.text(id)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""
        for id in ids:
            self._recent.forget(id)
        self.store.delete(ids)

    def touch(self, used: Mapping[int, float]) -> None:
        """Persist the time of last use, id by id."""
        self.store.touch(used)

    def learn(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Persist (group, labels, wrong), id by id; unknown ids are ignored."""
        self.store.learn(records)

    def save(self, key: str, state: Mapping[str, Any]) -> None:
        """Keep a JSON-ready state under a key."""
        self.store.save(key, state)

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the state kept under a key, None when there is none or it cannot be read."""
        return self.store.saved(key)

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""
        return self.store.entries()

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""
        return self.store.vectors()

    def compact(self) -> None:
        """Give the space of deleted entries back to the disk."""
        self.store.compact()

    def close(self) -> None:
        """Release the file."""
        self.store.close()
