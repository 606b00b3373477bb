"""Which entries a cache keeps: by identity, by recency, by expiry, within caps."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from recall_cli.errors import UsageError
from recall_cli.types import Entry

EXPIRIES_SLACK = 64
"""Heap entries of gone cache entries that are not worth a clean-up."""


class Shelf:
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
        """Say that an entry was used just now."""
        self._entries.move_to_end(id)

    def keep(self, entry: Entry) -> None:
        """Take an entry in, as the one used last."""
        self._entries[entry.id] = entry
        self.by_identity[entry.identity] = entry.id
        self.size_bytes += entry.size
        if entry.expires is not None:
            heapq.heappush(self._expiries, (entry.expires, entry.id))

    def forget(self, id: int) -> Entry:
        """Give an entry up and return it."""
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
