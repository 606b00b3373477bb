"""The entries a cache keeps: by identity, by recency, by expiry, within caps; and what is known of each.

Two entries whose answers were found to say the same belong to one *group*: a near candidate of the same
group raises no doubt about the answer, one of another group does (the margin). An entry's *record* is how
often its answer was checked and how often it was not right.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import TextFeatures, facts
from recall_cli.errors import UsageError
from recall_cli.types import Entry, Evidence

FACTS_KEPT = 10_000
"""Entries whose text is kept read: the ones in use. About 1.5 kB each; reading one again takes some 20 us."""


@dataclass(slots=True)
class Record:
    """What labels have said of one entry."""

    group: int
    labels: int = 0
    wrong: int = 0


class EntryHistory:
    """What is known of each stored entry: its answer group, its labels, its text. Makes the evidence of a lookup.

    Not locked: its owner (`Cache`) serialises calls.

    :param text: returns the stored prompt of an entry, None when it is gone.
    """

    def __init__(self, text: Callable[[int], str | None]) -> None:
        self._text = text
        self._facts: OrderedDict[int, TextFeatures] = OrderedDict()
        self._records: dict[int, Record] = {}
        self.judged: set[int] = set()
        """Entries whose records have changed since they were last persisted."""

    def evidence(self, text: str, ids: Sequence[int], similarities: Sequence[float]) -> Evidence:
        """Return the evidence of the first id, the nearest; the others narrow its margin."""
        nearest = ids[0]
        record = self._records.get(nearest)
        # Lazy: as a rule the second nearest already has another answer, and the rest need not be looked up.
        others = zip(similarities[1:], map(self.group, ids[1:]), strict=True)
        query, candidate = facts(text), self._read(nearest)
        if record is None:
            return evidence(query, candidate, similarities[0], others, group=nearest)
        return evidence(
            query,
            candidate,
            similarities[0],
            others,
            group=record.group,
            labels=record.labels,
            wrong=record.wrong,
        )

    def text(self, id: int) -> str:
        """Return the stored prompt of an entry, "" when it is gone."""
        return self._text(id) or ""

    def group(self, id: int) -> int:
        """Return the answer group of an entry; one that joined no other is a group of its own."""
        record = self._records.get(id)
        return id if record is None else record.group

    def judge(self, id: int, *, same: bool) -> None:
        """Count a label of an entry: whether its answer was found to say what a fresh one says."""
        record = self._records.setdefault(id, Record(id))
        record.labels += 1
        record.wrong += not same
        self.judged.add(id)

    def records(self, ids: Iterable[int]) -> dict[int, tuple[int, int, int]]:
        """Return (group, labels, wrong) of these entries, as far as there is a record."""
        found = {id: self._records.get(id) for id in ids}
        return {id: (known.group, known.labels, known.wrong) for id, known in found.items() if known is not None}

    def join(self, id: int, group: int, labels: int = 0, wrong: int = 0) -> None:
        """Put an entry into an answer group. An entry that is alone in its group needs no record."""
        if group != id or labels:
            self._records[id] = Record(group, labels, wrong)

    def forget(self, id: int) -> None:
        """Drop what is known of an entry."""
        self._facts.pop(id, None)
        self._records.pop(id, None)

    def _read(self, id: int) -> TextFeatures:
        known = self._facts.get(id)
        if known is not None:
            self._facts.move_to_end(id)
            return known
        made = self._facts[id] = facts(self._text(id) or "")
        if len(self._facts) > FACTS_KEPT:
            self._facts.popitem(last=False)
        return made


T = TypeVar("T")


class ByteLRU(Generic[T]):
    """Least-recently-used cache of values by entry id, limited in bytes. Not locked: its owner serialises calls.

    :param most: bytes of all values.
    :param size: returns the bytes of one.
    """

    def __init__(self, most: int, size: Callable[[T], int]) -> None:
        self._most = most
        self._size_of = size
        self._size = 0
        self._kept: OrderedDict[int, T] = OrderedDict()

    def __contains__(self, id: object) -> bool:
        return id in self._kept

    def get(self, id: int) -> T | None:
        """Return a value and mark it most recently used; None if absent."""
        kept = self._kept.get(id)
        if kept is not None:
            self._kept.move_to_end(id)
        return kept

    def keep(self, id: int, value: T) -> None:
        """Store a value. Evict the least recently used ones beyond the byte limit, but never the new one."""
        self.forget(id)
        self._kept[id] = value
        self._size += self._size_of(value)
        while self._size > self._most and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))

    def forget(self, id: int) -> None:
        """Drop a value."""
        kept = self._kept.pop(id, None)
        if kept is not None:
            self._size -= self._size_of(kept)

    def clear(self) -> None:
        """Drop all values."""
        self._kept.clear()
        self._size = 0


EXPIRIES_SLACK = 64
"""Heap entries of gone cache entries that are not worth a clean-up."""


class EntryTable:
    """The retained entries, without their answers and vectors. Not locked: its owner serialises calls.

    :param max_entries: cap on their number; None for none.
    :param max_bytes: cap on their sizes together; None for none.
    """

    def __init__(self, max_entries: int | None, max_bytes: int | None) -> None:
        for name, value in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0, not {value}", hint=f"leave {name} out for no limit")
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.by_identity: dict[bytes, int] = {}
        # Ordered by use, oldest first: the next to be evicted.
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._expiries: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def get(self, id: int) -> Entry | None:
        """Return an entry, None when it is not kept."""
        return self._entries.get(id)

    def use(self, id: int) -> None:
        """Mark an entry most recently used."""
        self._entries.move_to_end(id)

    def keep(self, entry: Entry) -> None:
        """Add an entry, marked most recently used."""
        self._entries[entry.id] = entry
        self.by_identity[entry.identity] = entry.id
        self.size_bytes += entry.size
        if entry.expires is not None:
            heapq.heappush(self._expiries, (entry.expires, entry.id))

    def forget(self, id: int) -> Entry:
        """Remove an entry and return it."""
        entry = self._entries.pop(id)
        if self.by_identity.get(entry.identity) == id:
            del self.by_identity[entry.identity]
        self.size_bytes -= entry.size
        if len(self._expiries) > 2 * len(self._entries) + EXPIRIES_SLACK:
            # What was replaced or evicted would otherwise stay in the heap until its time.
            self._expiries = [(e.expires, e.id) for e in self._entries.values() if e.expires is not None]
            heapq.heapify(self._expiries)
        return entry

    def surplus(self, now: float) -> int | None:
        """Return the entry to drop next: an expired one, else the least recently used over a cap; None for none."""
        while self._expiries and self._expiries[0][0] <= now:
            id = self._expiries[0][1]
            if id in self._entries:
                return id
            heapq.heappop(self._expiries)
        if (self.max_entries is not None and len(self._entries) > self.max_entries) or (
            self.max_bytes is not None and self.size_bytes > self.max_bytes
        ):
            return next(iter(self._entries))
        return None
