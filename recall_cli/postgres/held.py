"""What a replica has in memory of a shared store: whole partitions within a size."""

from __future__ import annotations

from collections import OrderedDict

ENTRY_BYTES = 1_150
"""Memory of one entry beside its vector: its record, the maps that find it and the index's book (results/postgres.json:
2,100 to 2,200 bytes with a vector of 1,024)."""


class Held:
    """The partitions in memory, least recently used first. Not locked: its owner serialises calls."""

    def __init__(self, most: int, row_bytes: int) -> None:
        self.most_rows = max(1, most // row_bytes)
        self.rows = 0
        self._whole: OrderedDict[bytes, set[int]] = OrderedDict()
        self._coming: dict[bytes, set[int]] = {}
        """Partitions of which a part is here: they are kept up to date, but nothing is concluded from them."""

    def __len__(self) -> int:
        return len(self._whole)

    def use(self, partition: bytes) -> bool:
        """Return whether all of a partition is here; then it is the one used last."""
        if partition not in self._whole:
            return False
        self._whole.move_to_end(partition)
        return True

    def admits(self, partition: bytes) -> bool:
        """Return whether entries of this partition are to be kept."""
        return partition in self._whole or partition in self._coming

    def begin(self, partition: bytes) -> None:
        """Say that a partition is coming, part by part."""
        self._coming.setdefault(partition, set())

    def complete(self, partition: bytes) -> None:
        """Say that all of it is here."""
        self._whole[partition] = self._coming.pop(partition)

    def add(self, partition: bytes, id: int) -> None:
        """Count an entry."""
        ids = self._ids(partition)
        self.rows += id not in ids
        ids.add(id)

    def discard(self, partition: bytes, id: int) -> None:
        """Count an entry no more."""
        ids = self._ids(partition)
        self.rows -= id in ids
        ids.discard(id)

    def surplus(self) -> bytes | None:
        """Return the partition to give up next, None while all have room. The one used last stays."""
        return next(iter(self._whole)) if self.rows > self.most_rows and len(self._whole) > 1 else None

    def give_up(self, partition: bytes) -> list[int]:
        """Hold a partition no more; return its entries, which the caller is to forget."""
        ids = self._whole.pop(partition, None)
        if ids is None:
            ids = self._coming.pop(partition, set())
        self.rows -= len(ids)
        return list(ids)

    def all(self) -> list[bytes]:
        """Return every partition of which something is here."""
        return [*self._whole, *self._coming]

    def _ids(self, partition: bytes) -> set[int]:
        ids = self._whole.get(partition)
        return self._coming.get(partition, set()) if ids is None else ids
