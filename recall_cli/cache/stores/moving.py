"""Carrying a store's entries into another store, whatever each is kept in: resumable, and checked entry by entry."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.stores.maintenance import TENANTS, admit_key
from recall_cli.errors import InputError
from recall_cli.types import Completion, Entry, Request, Store, Vector

BATCH = 500
"""Entries stored in one write: what a broken-off run loses."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of it."""

    entries: int
    """Of the source, all of which are in the target, with the same digest."""
    copied: int
    """By this run; the others were there."""
    digest: str
    """Of all entries of the source, the same when read from either store."""


@dataclass(slots=True)
class Item:
    """All of one entry."""

    entry: Entry
    text: str
    completion: Completion
    vector: Vector | None

    def digest(self) -> bytes:
        """Return the digest of everything that must not change; numbers of entries do."""
        entry, answer = self.entry, self.completion
        facts = [entry.namespace.replace("\x00", "\N{SYMBOL FOR NULL}"), entry.created, entry.expires, entry.used]
        said = orjson.dumps([*facts, entry.labels, entry.wrong, answer.model, answer.usage, answer.created])
        pieces = (entry.identity, entry.partition, self.text.encode("utf-8", "surrogatepass"), answer.body, said)
        hasher = blake3(b"" if self.vector is None else np.ascontiguousarray(self.vector, np.float32).tobytes())
        for piece in pieces:
            hasher.update(struct.pack("<q", len(piece)) + piece)
        return hasher.digest()


def move(source: Store, target: Store, progress: Callable[[int], None] = lambda done: None) -> Moved:
    """Copy what the target lacks, then read both and compare. The source stays as it is.

    Raises InputError when the target's entries are keyed otherwise, and when the two differ in the end.
    """
    admit_key(target, source.saved(TENANTS))
    learned = source.saved("policy")
    if learned is not None:
        target.save("policy", learned)
    there = {entry.identity: entry for entry in target.entries()}
    numbers: dict[int, int] = {}
    copied, batch = 0, []
    for item in items(source):
        held = there.get(item.entry.identity)
        if held is not None and held.created >= item.entry.created:
            numbers[item.entry.id] = held.id
            continue
        batch.append(item)
        if len(batch) == BATCH:
            copied += _store(target, batch, numbers)
            progress(copied)
            batch = []
    copied += _store(target, batch, numbers)
    count, digest = _digest(source, None)
    found, same = _digest(target, {item.identity for item in source.entries()})
    if (count, digest) != (found, same):
        raise InputError(
            f"of {count:,} entries {found:,} arrived, and they are not the same",
            hint="stop what writes to either store, and run it again: it goes on where it was",
        )
    return Moved(count, copied, digest)


def items(store: Store) -> Iterator[Item]:
    """Yield all of each entry, oldest first; those that go meanwhile are left out."""
    ids, vectors = store.vectors()
    row_of = {int(id): row for row, id in enumerate(ids)}
    for entry in store.entries():
        completion, text = store.get(entry.id), store.text(entry.id)
        if completion is not None and text is not None:
            row = row_of.get(entry.id)
            yield Item(entry, text, completion, None if row is None else vectors[row])


def _store(target: Store, batch: list[Item], numbers: dict[int, int]) -> int:
    """Store a batch whole; `numbers` maps an entry's number in the source to that in the target."""
    with target.batch():
        for item in batch:
            entry = item.entry
            request = Request(item.text, entry.identity, entry.partition, entry.namespace)
            group = None if entry.group is None else numbers.get(entry.group)
            made = target.append(
                request, item.completion, item.vector, created=entry.created, expires=entry.expires, group=group
            )
            numbers[entry.id] = made.id
            if entry.group is not None:
                # The first of a group may be gone: whoever comes first stands for it.
                numbers.setdefault(entry.group, made.id)
        target.touch({numbers[item.entry.id]: item.entry.used for item in batch})
        labelled = [item.entry for item in batch if item.entry.labels]
        target.learn(
            {numbers[e.id]: (numbers[e.id if e.group is None else e.group], e.labels, e.wrong) for e in labelled}
        )
    return len(batch)


def _digest(store: Store, among: set[bytes] | None) -> tuple[int, str]:
    """Return how many entries there are, and one digest of all, in whatever order they lie."""
    found = sorted(
        item.entry.identity + item.digest() for item in items(store) if among is None or item.entry.identity in among
    )
    return len(found), blake3(b"".join(found)).hexdigest(length=16)
