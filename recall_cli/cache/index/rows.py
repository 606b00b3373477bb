"""What every index does with rows: check them, keep them in a growing matrix, rank them."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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
