"""Exact nearest neighbours in numpy: the baseline that every other index is measured against.

Here too is what all indexes share: checking rows, keeping them in a growing matrix, ranking them, and the table
that says which row holds which ids. Identical vectors are collapsed into one row before any engine sees them.
A cache meets the same vector again and again, and copies wreck an approximate index: in a graph they link only
to each other (with half of the rows copies of one vector, hnswlib lost 43 % of its recall on fresh queries), and
in a compressed scan they fill every candidate slot. So a row is one distinct vector, and may carry many ids.
"""

from __future__ import annotations

import math
import mmap
import sys
from bisect import bisect_left, insort
from contextlib import suppress
from mmap import mmap as Pages
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from recall_cli.types import Ids, Vector

# Rows reserved at first: a cache has many partitions with few rows each.
FIRST_ROWS = 16

# Codes tell rows apart only where there are dimensions enough: share of 50,000 random rows that a compressed scan
# found by their own vector: 2 dimensions .31, 4 .28, 6 .81, 8 .988, 12 to 24 1.0. Below this it is not used; comparing
# all of 50,000 x 15 takes less time than one embedding.
SCAN_FROM_DIM = 16

# How far the squared length of a row or a query may be from 1. Models that store float16 or int8 are
# normalised in float32 by their embedder, so this only has to absorb rounding; anything further off is
# a vector that nobody normalised, and its "cosine" would be wrong.
_UNIT_SLACK = 2e-3

# float32 sums of squares differ by their order; so far inside the slack, any order will do.
_SURE_SLACK = 1e-3


def checked_rows(ids: Ids, vectors: Vector, dim: int) -> tuple[Ids, Vector]:
    """Return ids (n,) int64 and vectors (n, dim) float32, contiguous, or raise ValueError saying what is wrong."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise ValueError(f"ids must be one row of integers, not {ids.dtype} of shape {ids.shape}")
    if ids.dtype == np.uint64 and ids.size and ids.max() >= 2**63:
        raise ValueError(f"ids must be below 2**63, which {ids.max()} is not")
    vectors = np.ascontiguousarray(vectors, np.float32)
    if vectors.shape != (len(ids), dim):
        raise ValueError(f"{len(ids)} ids need vectors of shape ({len(ids)}, {dim}), not {vectors.shape}")
    squares = np.einsum("ij,ij->i", vectors, vectors)
    # Written so that NaN, for which every comparison is false, is looked at too.
    sure = np.abs(squares - 1.0) < _SURE_SLACK
    if not sure.all():
        for at in np.flatnonzero(~sure).tolist():
            if not _is_unit(vectors[at]):
                raise ValueError(f"vector {at} {_fault(vectors[at])}")
    return ids.astype(np.int64, copy=False), vectors


def checked_query(vector: Vector, dim: int, k: int) -> Vector | None:
    """Return the query as (dim,) float32, contiguous; None for the zero vector, which has no neighbours.

    Raises ValueError on NaN, infinity, another shape, another length than 1, or k < 1.
    """
    vector = np.ascontiguousarray(vector, np.float32)
    if vector.shape != (dim,):
        raise ValueError(f"a query has shape ({dim},), not {vector.shape}")
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if -_SURE_SLACK < vector.dot(vector) - 1.0 < _SURE_SLACK or _is_unit(vector):
        return vector
    if not vector.any():
        return None
    raise ValueError(f"the query {_fault(vector)}")


def _is_unit(vector: Vector) -> bool:
    """Return whether the length is within the slack; the same answer for a row and a query, to the last bit."""
    squares: list[float] = np.square(vector, dtype=np.float64).tolist()
    return abs(math.fsum(squares) - 1.0) < _UNIT_SLACK


def _fault(vector: Vector) -> str:
    if not np.isfinite(vector).all():
        return "contains NaN or infinity"
    length = float(np.linalg.norm(vector))
    return f"has length {length:.4g}; it must have length 1" if length else "is all zeros and has no direction"


def no_answer() -> tuple[Ids, Vector]:
    """Return the answer of an index that has nothing to offer."""
    return np.empty(0, np.int64), np.empty(0, np.float32)


def best_rows(similarities: Vector, k: int) -> Ids:
    """Return the positions of the k largest similarities, best first, in O(n) for k far below n."""
    if k < len(similarities):
        top = np.argpartition(similarities, len(similarities) - k)[-k:]
        return top[np.argsort(-similarities[top], kind="stable")]
    return np.argsort(-similarities, kind="stable")


def matrix_bytes(matrix: Vector, used: int) -> int:
    """Return the bytes of memory of a growing matrix: reserved rows that were never written take none, by the page."""
    written: int = used * matrix[:1].nbytes
    return min(matrix.nbytes, -(-written // mmap.PAGESIZE) * mmap.PAGESIZE)


HUGE_FROM = 32 << 20
"""Bytes from which a matrix asks for huge pages: smaller ones would take more memory than they use."""


def paged(matrix: Vector, used: int, rows: int) -> mmap.mmap:
    """Return pages of their own that hold the used rows, with room for twice as many as now, `rows` at least."""
    dim = matrix.shape[1]
    pages = _pages(max(2 * len(matrix), rows) * dim * 4)
    rows_of(pages, dim)[:used] = matrix[:used]
    return pages


def moved(pages: mmap.mmap, used: int, rows: int, dim: int) -> mmap.mmap:
    """Return pages with room for `rows` rows: the same ones where the system can move them, else copies."""
    try:
        pages.resize(rows * dim * 4)
    except (SystemError, BufferError, OSError):  # no mremap, or somebody still looks at them
        larger = _pages(rows * dim * 4)
        rows_of(larger, dim)[:used] = rows_of(pages, dim)[:used]
        return larger
    return pages


def rows_of(pages: mmap.mmap, dim: int) -> Vector:
    """Return a matrix that lies in the pages."""
    whole = len(pages) // (4 * dim)
    return np.frombuffer(pages, np.float32, whole * dim).reshape(whole, dim)


def _pages(size: int) -> mmap.mmap:
    # Straight from the system: memory is taken only where rows are written, and goes back when the matrix is
    # replaced. The C library would keep the blocks of past sizes, half as much again. Private, as pages shared
    # between processes can be moved but do not grow.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    pages = mmap.mmap(-1, size, **private)
    if size >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


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


class MatrixIndex:
    """One row a distinct vector, numbered as in the ledger. The underscored methods are called with the lock held.

    A removed row's place is taken by the last row, so the matrix has no holes and needs no compaction.
    """

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._lock = Lock()
        self._book = Ledger()
        self._matrix = np.empty((FIRST_ROWS, dim), np.float32)
        self._pages: Pages | None = None

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._book)

    def ids(self) -> Ids:
        """Return a copy of all ids, oldest entry first."""
        with self._lock:
            return self._book.ids()

    def fetch(self, ids: Ids) -> tuple[Ids, Vector]:
        """Return those of the ids that are here, and copies of their vectors."""
        with self._lock:
            found, rows = self._book.find(ids.tolist())
            return found, self._matrix[rows]

    def _append(self, ids: Ids, vectors: Vector) -> Vector:
        """Register checked ids and keep their vectors; return those that opened a row, in row order."""
        start = self._book.rows
        fresh = self._book.admit(ids, vectors)
        self._grow(start, start + len(fresh))
        opened = vectors if len(fresh) == len(ids) else vectors[fresh]
        self._matrix[start : start + len(fresh)] = opened
        return opened

    def _grow(self, used: int, rows: int) -> None:
        """Make room for so many rows; `used` of them are there. No view of the matrix may be alive."""
        if rows > len(self._matrix):
            matrix = self._matrix
            # Without a view left, the pages can be moved; copying 100 MB would hold up every search for 0.1 s.
            self._matrix = np.empty((0, self._dim), np.float32)
            if self._pages is None:
                self._pages = paged(matrix, used, rows)
                self._matrix = rows_of(self._pages, self._dim)
            else:
                size = max(2 * len(matrix), rows)
                del matrix
                self._pages = moved(self._pages, used, size, self._dim)
                self._matrix = rows_of(self._pages, self._dim)

    def _compare_all(self, query: Vector, k: int, products: Vector | None = None) -> tuple[Ids, Vector]:
        """Return up to k (ids, cosines), best first, of all rows; there must be one.

        :param products: where to write the cosines, shape (rows,); a fresh array without it.
        """
        similarities: Vector = np.dot(self._matrix[: self._book.rows], query, out=products)
        if k == 1:
            best = int(similarities.argmax())
            return self._book.newest[best : best + 1].copy(), similarities[best : best + 1].copy()
        top = best_rows(similarities, k)
        return self._book.answers(top, similarities[top], k)


class ExactIndex(MatrixIndex):
    """Compare with every row: always right, and the fastest there is for a few thousand rows."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        # Where products are written: a fresh array of 50,000 floats would cost its page faults each time.
        self._scratch = np.empty(FIRST_ROWS, np.float32)

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        ids, vectors = checked_rows(ids, vectors, self._dim)
        with self._lock:
            self._append(ids, vectors)
            if len(self._scratch) < len(self._matrix):
                self._scratch = np.empty(len(self._matrix), np.float32)

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""
        with self._lock:
            for id in ids:
                hole = self._book.release(int(id))
                if hole is not None:
                    self._matrix[hole] = self._matrix[self._book.fill_hole(hole)]

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, cosines), best first."""
        query = checked_query(vector, self._dim, k)
        with self._lock:
            rows = self._book.rows
            if query is None or not rows:
                return no_answer()
            return self._compare_all(query, k, self._scratch[:rows])

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use."""
        with self._lock:
            rows = matrix_bytes(self._matrix, self._book.rows) + matrix_bytes(self._scratch, self._book.rows)
            return rows + self._book.memory_bytes()
