"""Where entries live in one process: a dictionary, for measurements and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recall_cli.errors import StoreError, StoreMismatch
from recall_cli.types import Completion, Entry, Ids, Request, Vector, VectorSpace


@dataclass(slots=True)
class HeldSpace:
    """The embedder whose vectors a store holds, where none has to be made."""

    name: str
    dim: int
    fingerprint: str


class NotInMemory(Exception):
    """What a lookup needs is not in memory: `Cache.get` waits for it, an event loop must not.

    :param id: the entry that is needed; None when the whole partition is elsewhere.
    """

    def __init__(self, id: int | None = None) -> None:
        super().__init__(id)
        self.id = id


def entry_size(request: Request, completion: Completion, vector: Vector | None) -> int:
    """Return the bytes an entry counts for: body, prompt text and vector."""
    return (
        len(completion.body)
        + len(request.text.encode("utf-8", "surrogatepass"))
        + (0 if vector is None else vector.nbytes)
    )


def other_embedder(name: str, held: tuple[str, str], ours: VectorSpace, hint: str) -> StoreMismatch:
    """Return the error for a store whose vectors are another embedder's.

    :param name: the store's.
    :param held: name and fingerprint of the embedder it was filled with.
    """
    theirs, own = (f"{embedder} ({print_of[:12]})" for embedder, print_of in (held, (ours.name, ours.fingerprint)))
    return StoreMismatch(f"{name} holds vectors of the embedder {theirs}, not of {own}", hint=hint)


def other_width(name: str, dim: int, hint: str) -> StoreError:
    """Return the error for a store with a vector that is not as wide as the others."""
    return StoreError(f"{name} holds a vector of another width than {dim}", hint=hint)


class MemoryStore:
    """Entries in a dictionary; gone with the process."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._entries: dict[int, Entry] = {}
        self._completions: dict[int, Completion] = {}
        self._texts: dict[int, str] = {}
        self._vectors: dict[int, Vector] = {}
        self._by_identity: dict[bytes, int] = {}
        self._states: dict[str, dict[str, Any]] = {}
        self._next = 1

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
        """Keep one entry, replacing the one of the same identity; return it with its new id."""
        old = self._by_identity.get(request.identity)
        if old is not None:
            self.delete([old])
        entry = Entry(
            id=self._next,
            identity=request.identity,
            partition=request.partition,
            namespace=request.namespace,
            created=created,
            expires=expires,
            used=created,
            size=entry_size(request, completion, vector),
            has_vector=vector is not None,
            group=group,
        )
        self._next += 1
        self._entries[entry.id] = entry
        self._by_identity[entry.identity] = entry.id
        self._completions[entry.id] = completion
        self._texts[entry.id] = request.text
        if vector is not None:
            self._vectors[entry.id] = vector
        return entry

    def batch(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing: no write here can fail half way."""
        return nullcontext()

    def get(self, id: int, identity: bytes | None = None) -> Completion | None:
        """Return the completion of an entry, or None when it is gone or of another identity."""
        if identity is not None and self._by_identity.get(identity) != id:
            return None
        return self._completions.get(id)

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""
        return self._texts.get(id)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""
        for id in ids:
            entry = self._entries.pop(id, None)
            if entry is not None:
                del self._by_identity[entry.identity]
                for table in (self._completions, self._texts, self._vectors):
                    table.pop(id, None)

    def touch(self, used: Mapping[int, float]) -> None:
        """Remember the time of last use, id by id."""
        for id, when in used.items():
            if id in self._entries:
                self._entries[id] = replace(self._entries[id], used=when)

    def learn(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Remember (group, labels, wrong), id by id; unknown ids are ignored."""
        for id, (group, labels, wrong) in records.items():
            if id in self._entries:
                self._entries[id] = replace(self._entries[id], group=group, labels=labels, wrong=wrong)

    def save(self, key: str, state: Mapping[str, Any]) -> None:
        """Keep a JSON-ready state under a key."""
        self._states[key] = dict(state)

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the state kept under a key, None when there is none."""
        return self._states.get(key)

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""
        yield from list(self._entries.values())

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""
        ids = np.fromiter(self._vectors, dtype=np.int64, count=len(self._vectors))
        rows: Vector = np.empty((len(ids), self.dim), dtype=np.float32)
        for row, vector in enumerate(self._vectors.values()):
            rows[row] = vector
        return ids, rows

    def compact(self) -> None:
        """Do nothing: what is deleted is gone."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
