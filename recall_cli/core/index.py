"""Exact search, what every index checks, and the one place that knows the indexes by name.

Every engine keeps the same contract (`tests/contract/test_index.py`):

* similarities are cosines, computed in float32 from the full vectors, best first;
* rows and queries have unit length; a row of zeros is refused, a query of zeros has no neighbours;
* `add` is all or nothing: a ValueError leaves the index as it was;
* ids with identical vectors all stay findable; a search for one neighbour returns the largest of them;
* any method may be called from any thread.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.core.ledger import Ledger
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recall_cli.types import Ids, Index, Vector

KINDS = ("auto", "exact", "scan", "hnsw")

# Rows reserved at first: a cache has many partitions with few rows each.
FIRST_ROWS = 16

# How far the squared length of a row or a query may be from 1. Models that store float16 or int8 are
# normalised in float32 by their embedder, so this only has to absorb rounding; anything further off is
# a vector that nobody normalised, and its "cosine" would be wrong.
_UNIT_SLACK = 2e-3


def checked_rows(ids: Ids, vectors: Vector, dim: int) -> tuple[Ids, Vector]:
    """Return ids (n,) int64 and vectors (n, dim) float32, contiguous, or raise ValueError saying what is wrong."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise ValueError(f"ids must be one row of integers, not {ids.dtype} of shape {ids.shape}")
    vectors = np.ascontiguousarray(vectors, np.float32)
    if vectors.shape != (len(ids), dim):
        raise ValueError(f"{len(ids)} ids need vectors of shape ({len(ids)}, {dim}), not {vectors.shape}")
    squares = np.einsum("ij,ij->i", vectors, vectors)
    # Written so that NaN, for which every comparison is false, fails too.
    if not (np.abs(squares - 1.0) < _UNIT_SLACK).all():
        worst = int(np.argmin(np.abs(squares - 1.0) < _UNIT_SLACK))
        raise ValueError(f"vector {worst} {_fault(vectors[worst])}")
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
    if -_UNIT_SLACK < vector.dot(vector) - 1.0 < _UNIT_SLACK:
        return vector
    if not vector.any():
        return None
    raise ValueError(f"the query {_fault(vector)}")


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


class ExactIndex:
    """Compare with every row: always right, and the fastest there is for a few thousand rows.

    A removed row's place is taken by the last row, so the matrix has no holes and needs no compaction.
    """

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._lock = Lock()
        self._book = Ledger()
        self._matrix = np.empty((FIRST_ROWS, dim), np.float32)
        # Where products are written: a fresh array of 50,000 floats would cost its page faults each time.
        self._scratch = np.empty(FIRST_ROWS, np.float32)

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._book)

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        ids, vectors = checked_rows(ids, vectors, self._dim)
        with self._lock:
            start = self._book.rows
            fresh = self._book.admit(ids, vectors)
            self._matrix = grown(self._matrix, start, len(fresh))
            self._matrix[start : start + len(fresh)] = vectors if len(fresh) == len(ids) else vectors[fresh]
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
            similarities = np.dot(self._matrix[:rows], query, out=self._scratch[:rows])
            if k == 1:
                best = int(similarities.argmax())
                return self._book.newest[best : best + 1].copy(), similarities[best : best + 1].copy()
            top = best_rows(similarities, k)
            return self._book.answers(top, similarities[top], k)

    def ids(self) -> Ids:
        """Return a copy of all ids, oldest entry first."""
        with self._lock:
            return self._book.ids()

    def fetch(self, ids: Ids) -> tuple[Ids, Vector]:
        """Return those of the ids that are here, and copies of their vectors."""
        with self._lock:
            found, rows = self._book.find(ids.tolist())
            return found, self._matrix[rows]

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use; reserved rows that were never written take none."""
        with self._lock:
            return self._book.rows * (self._dim + 1) * 4 + self._book.memory_bytes()


def grown(matrix: Vector, used: int, extra: int) -> Vector:
    """Return a matrix with room for `extra` more rows, doubling so that single adds cost O(1) on average."""
    if used + extra <= len(matrix):
        return matrix
    rows, dim = max(2 * len(matrix), used + extra), matrix.shape[1]
    # Straight from the system: memory is taken only where rows are written, and goes back when the matrix is
    # replaced. The C library would keep the blocks of past sizes, half as much again.
    pages = mmap.mmap(-1, rows * dim * 4)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    larger = np.frombuffer(pages, np.float32).reshape(rows, dim)
    larger[:used] = matrix[:used]
    return larger


def make_index(kind: str, dim: int, **options: Any) -> Index:
    """Make an empty index by name: auto, exact, scan or hnsw. Raises UsageError for another name or option."""
    try:
        if kind == "exact":
            return ExactIndex(dim, **options)
        if kind == "scan":
            from recall_cli.core.scan import ScanIndex

            return ScanIndex(dim, **options)
        if kind == "hnsw":
            from recall_cli.core.hnsw import HnswIndex

            return HnswIndex(dim, **options)
        if kind == "auto":
            from recall_cli.core.auto import AutoIndex

            return AutoIndex(dim, **options)
    except TypeError as error:
        raise UsageError(f"index {kind} cannot be made: {error}", hint="Leave the option out.") from error
    except ImportError as error:
        raise UsageError(
            f"index {kind} needs a package that cannot be imported: {error}",
            hint="Install it, or choose the index called exact.",
        ) from error
    raise UsageError(f"there is no index called {kind!r}", hint=f"Choose one of {', '.join(KINDS)}.")
