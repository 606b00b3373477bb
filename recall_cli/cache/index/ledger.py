"""Which row holds which ids: identical vectors are collapsed into one row before any engine sees them.

A cache meets the same vector again and again, and copies wreck an approximate index: in a graph they
link only to each other (half of the rows being copies of one vector cost hnswlib 43 % of its recall on
fresh queries), and in a compressed scan they fill every candidate slot. So a row is one distinct vector,
and a row may carry many ids.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from recall_cli.types import Ids, Vector

# What CPython allocates for one object, rounded up to its allocator's 16 bytes.
_KEY_BYTES = 64  # bytes object of 16
_INT_BYTES = 32
_FIXED_BYTES = 2_400  # the book, the index around it and their locks and arrays: what many small partitions add up to


class Ledger:
    """The book of ids and rows. Not thread-safe: the engine that owns it holds a lock.

    Rows are numbered from 0 in the order they are opened. `newest[row]` is the largest id of a row: ids
    only ever grow in a store, so it is the latest answer, and the one that a search for a single
    neighbour returns.
    """

    def __init__(self) -> None:
        self.newest: NDArray[np.int64] = np.empty(16, np.int64)
        self._row_of: dict[int, int] = {}
        # Digest of the vector's bytes -> row. 128 bits, so equal digests are taken for equal vectors.
        self._row_by_key: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        # Only rows that carry several ids, each list ascending.
        self._copies: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._row_of)

    @property
    def rows(self) -> int:
        """The number of rows opened and not given up by `fill_hole`."""
        return len(self._keys)

    def ids(self) -> Ids:
        """Return all ids, oldest entry first."""
        return np.fromiter(self._row_of, np.int64, len(self._row_of))

    def admit(self, ids: Ids, vectors: Vector) -> list[int]:
        """Register ids and return the positions in the batch that opened a new row, in row order.

        Raises ValueError, before anything is changed, when an id is already known or occurs twice.
        """
        self.refuse_known(ids)
        fresh = []
        keys, row_by_key = self._keys, self._row_by_key
        raw, step = vectors.reshape(-1).view(np.uint8).data, vectors.shape[1] * vectors.itemsize
        for at, name in enumerate(ids.tolist()):
            key = blake3(raw[at * step : (at + 1) * step]).digest(16)
            row = row_by_key.get(key)
            if row is None:
                row = len(keys)
                if row == len(self.newest):
                    self.newest = np.concatenate([self.newest, np.empty_like(self.newest)])
                row_by_key[key] = row
                keys.append(key)
                self.newest[row] = name
                fresh.append(at)
            else:
                self._add_copy(row, name)
            self._row_of[name] = row
        return fresh

    def refuse_known(self, ids: Ids) -> None:
        """Raise ValueError when an id is known already or occurs twice."""
        names = ids.tolist()
        for name in names:
            if name in self._row_of:
                raise ValueError(f"id {name} is already in the index")
        if len(names) > 1 and len(set(names)) < len(names):
            raise ValueError("an id occurs twice in one call to add")

    def _add_copy(self, row: int, id: int) -> None:
        copies = self._copies.get(row)
        if copies is None:
            copies = self._copies[row] = [int(self.newest[row])]
        insort(copies, id)
        self.newest[row] = copies[-1]

    def release(self, id: int) -> int | None:
        """Forget an id; return its row when no other id is left on it, else None (also for unknown ids)."""
        row = self._row_of.pop(id, None)
        if row is None:
            return None
        copies = self._copies.get(row)
        if copies is None:
            del self._row_by_key[self._keys[row]]
            self._keys[row] = b""
            return row
        del copies[bisect_left(copies, id)]
        self.newest[row] = copies[-1]
        if len(copies) == 1:
            del self._copies[row]
        return None

    def fill_hole(self, hole: int) -> int:
        """Give the number of a released row to the last row; return the last row's old number."""
        last = len(self._keys) - 1
        key = self._keys.pop()
        if last != hole:
            self._keys[hole] = key
            self._row_by_key[key] = hole
            self.newest[hole] = self.newest[last]
            copies = self._copies.pop(last, None)
            if copies is None:
                self._row_of[int(self.newest[last])] = hole
            else:
                self._copies[hole] = copies
                for id in copies:
                    self._row_of[id] = hole
        return last

    def answers(self, rows: NDArray[np.int64], similarities: Vector, k: int) -> tuple[Ids, Vector]:
        """Turn rows, best first, into at most k (ids, similarities): every id of a row, newest first."""
        if not self._copies:
            return self.newest[rows[:k]], similarities[:k].copy()
        ids: list[int] = []
        origin: list[int] = []
        for at, row in enumerate(rows.tolist()):
            copies = self._copies.get(row)
            found = [int(self.newest[row])] if copies is None else copies[: -(k - len(ids)) - 1 : -1]
            ids.extend(found)
            origin.extend([at] * len(found))
            if len(ids) >= k:
                break
        return np.array(ids[:k], np.int64), similarities[origin[:k]]

    def find(self, ids: Sequence[int]) -> tuple[Ids, NDArray[np.int64]]:
        """Return the ids that are known, and their rows."""
        known = [(id, self._row_of[id]) for id in ids if id in self._row_of]
        pairs = np.array(known, np.int64).reshape(-1, 2)
        return pairs[:, 0].copy(), pairs[:, 1].copy()

    def memory_bytes(self) -> int:
        """Return the bytes that this bookkeeping occupies: about 300 an id."""
        tables = sum(map(sys.getsizeof, (self._row_of, self._row_by_key, self._keys, self._copies)))
        copies = sum(map(sys.getsizeof, self._copies.values()))
        # The number of a row is one object, shared by both dictionaries.
        objects = len(self._row_by_key) * (_KEY_BYTES + _INT_BYTES) + len(self._row_of) * _INT_BYTES
        return _FIXED_BYTES + tables + copies + objects + self.rows * self.newest.itemsize
