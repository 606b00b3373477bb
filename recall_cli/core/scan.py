"""A compressed scan: every row as 4-bit codes, the most promising few compared again in full.

faiss keeps the codes and ranks them with byte shuffles that stay in registers, so a scan reads half a
byte (or one) per two dimensions instead of eight. The best `refine` rows by code are then scored from the
float32 vectors, so the similarities returned are exact; only the choice of candidates is approximate.

An empty cache has no data to train a codebook on. None is needed: after a random rotation the coordinates of any
set of vectors look Gaussian, so one codebook for a normal variable serves all. What does matter is the
mean: vectors that share a direction (most transformer embeddings) waste the code on it. Once there are
rows, their mean is taken out and the rows are coded again, which changes no ranking: q.(x - mean) and
q.x differ by the same amount for every x. Measured at 50,000 x 256, recall@1 with 48 candidates:

    real sentences (static embeddings)    1.000 before, 1.000 after; k-means on real rows: 1.000
    the same plus a shared direction      0.960 before, 0.998 after; k-means on real rows: 0.998
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from recall_cli.core.ledger import Ledger
from recall_cli.core.rotation import Rotation
from recall_cli.core.rows import FIRST_ROWS, best_rows, checked_query, checked_rows, grown, no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recall_cli.types import Ids, Vector

# Below this dimension a code per two dimensions is too coarse: recall@1 on real sentences (50,000 rows,
# 48 candidates) with m = dim/2 against m = dim: 32 dims .956/.9998, 64 .994/1.0, 96 .998/1.0,
# 128 .9996/1.0, 256 1.0/1.0. A code per dimension costs 95 us more at 50,000 x 256.
FULL_CODE_BELOW = 192

# faiss turns a query's products with the centroids into bytes and adds up one a code, in 16 bits and without a guard:
# with more than 65,535 / 255 = 257 codes the sums of the very best rows may wrap round, and exact copies of
# a query go missing (faiss 1.15: 2 % at 1,536 dimensions with m = dim/2, 90 % at 2,048). See `_guard`.
UNGUARDED_CODES = 256

# Candidates compared in full. Misses of 5,000 queries, bundled embedder, at 10,000 / 50,000 rows: 32 misses 2 / 6 (2 of
# them servable), 48 1 / 1 (none), 64 none; each 16 take 3 us. 48 is also a margin for
# less even data (+0.004 over 32 with a shared direction) at 3 us.
REFINE = 48

# For k neighbours, this many candidates each (but at least REFINE). k = 10 at 50,000 real rows: 8 gives recall@10 .997
# in 177 us, 12 .999 in 189 us, 16 .9994 in 210 us.
CANDIDATES_PER_NEIGHBOUR = 12

# Distinct rows at which mean and scale are taken anew; the last of these pauses for 35 ms. Later
# ones would change nothing: the mean of 16,384 unit rows is known to better than 1 %.
FIT_AT = (256, 2_048, 16_384)

_CHUNK = 512  # rows coded at a time: the temporary copies stay in the processor's caches


@cache
def _codebook(width: int) -> Vector:
    """Return 16 centroids (16, width) of a standard normal variable, the same in every process.

    Lloyd's algorithm, in numpy: faiss's own takes seconds here when its threads compete for busy cores.
    """
    random = np.random.default_rng(0)
    sample = random.standard_normal((4_096, width))
    centroids = sample[:16].copy()
    for _ in range(150):
        nearest = (sample @ centroids.T - (centroids**2).sum(axis=1) / 2).argmax(axis=1)
        for at in range(16):
            members = sample[nearest == at]
            centroids[at] = members.mean(axis=0) if len(members) else random.standard_normal(width)
    return centroids.astype(np.float32)


def _guard(centroids: Vector, codes: int) -> float:
    """Return what a query needs in its spare coordinate for the sum of its bytes to stay below 65,536.

    faiss scales the products of all codes by one factor, such that the widest range becomes 255. The spare
    coordinate is 0 in every row, so it ranks nothing; in the query it makes for a range of at least `span`. The ranges
    of the other codes are at most diameter x |part of the query|, and these parts, of a vector of length 1,
    sum to at most sqrt(codes). Each byte is rounded, hence codes / 2.
    """
    diameter = np.linalg.norm(centroids[:, None] - centroids, axis=2).max()
    span = 255 * diameter * codes**0.5 / (65_535 - 255 - codes / 2)
    return float(span / np.ptp(centroids[:, 0]))


def _empty_codes(dim: int, m: int) -> Any:
    # Any: what types faiss has are incomplete.
    return faiss.IndexPQFastScan(dim, m, 4, faiss.METRIC_INNER_PRODUCT)


class ScanIndex:
    """4-bit codes for all rows, float32 for the best of them.

    `m` is the number of codes a vector (None: one per two dimensions, or per dimension when there are few); fewer is
    faster, `m = dim` finds the nearest of random vectors too. `refine` is how many candidates are
    compared in full. Dimensions that `m` does not divide are padded with zeros inside.
    """

    def __init__(self, dim: int, *, m: int | None = None, refine: int = REFINE) -> None:
        if m is None:
            m = dim if dim < FULL_CODE_BELOW else (dim + 1) // 2
        if not 1 <= m <= dim:
            raise ValueError(f"m must be between 1 and the {dim} dimensions, not {m}")
        if refine < 1:
            raise ValueError(f"refine must be at least 1, not {refine}")
        width = -(-dim // m)
        self._guarded = m > UNGUARDED_CODES
        self._dim, self._m, self._refine, self._width = dim, m + self._guarded, refine, width
        self._lock = Lock()
        self._book = Ledger()
        self._matrix = np.empty((FIRST_ROWS, dim), np.float32)
        self._rotation = Rotation(dim, m * width, spare=width * self._guarded)
        self._mean = np.zeros(self._m * width, np.float32)
        self._fitted_at = 0
        self._codes = _empty_codes(self._m * width, self._m)
        self._packer: Any = self._codes.get_CodePacker()
        self._set_codebook(variance=1.0)
        # What one search writes to, with the pointers faiss wants: making them each time costs 2 us.
        self._rough = np.empty(refine, np.float32)
        self._rows = np.empty(refine, np.int64)
        self._near = np.empty((refine, dim), np.float32)
        self._pointers = tuple(faiss.swig_ptr(array) for array in (self._rotation.output, self._rough, self._rows))
        self._code = np.empty(self._packer.code_size, np.uint8)
        self._blank = np.zeros(self._packer.code_size, np.uint8)

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._book)

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        ids, vectors = checked_rows(ids, vectors, self._dim)
        with self._lock:
            start = self._book.rows
            fresh = self._book.admit(ids, vectors)
            end = start + len(fresh)
            self._matrix = grown(self._matrix, start, len(fresh))
            self._matrix[start:end] = vectors if len(fresh) == len(ids) else vectors[fresh]
            due = max((at for at in FIT_AT if at <= end), default=0)
            if due > self._fitted_at:
                self._fitted_at = due
                self._fit(end)
                start = 0
            self._encode(start, end)

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""
        with self._lock:
            for id in ids:
                hole = self._book.release(int(id))
                if hole is not None:
                    last = self._book.fill_hole(hole)
                    self._matrix[hole] = self._matrix[last]
                    self._move_code(last, hole)

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, cosines), best first; the cosines are exact."""
        query = checked_query(vector, self._dim, k)
        with self._lock:
            rows = self._book.rows
            if query is None or not rows:
                return no_answer()
            if rows <= self._refine:
                candidates = np.arange(rows)
                similarities = self._matrix[:rows].dot(query)
            elif k == 1:
                self._rotation.one(query)
                rotated, rough, found = self._pointers
                self._codes.search_c(1, rotated, self._refine, rough, found)
                candidates = self._rows
                # With mode="clip", take writes straight into `out`.
                similarities = self._matrix.take(candidates, 0, self._near, "clip").dot(query)
            else:
                count = min(rows, max(self._refine, CANDIDATES_PER_NEIGHBOUR * k))
                _, found = self._codes.search(self._rotation.one(query)[None], count)
                candidates = found[0]
                similarities = self._matrix[candidates].dot(query)
            if k == 1:
                best = int(similarities.argmax())
                row = candidates[best]
                return self._book.newest[row : row + 1].copy(), similarities[best : best + 1]
            top = best_rows(similarities, k)
            return self._book.answers(candidates[top], similarities[top], k)

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
            codes = int(self._codes.codes.size())
            return self._book.rows * self._dim * 4 + codes + self._book.memory_bytes()

    def _set_codebook(self, variance: float) -> None:
        """Scale the codebook to rows whose squared distance from their mean is `variance`."""
        centroids = _codebook(self._width) * np.float32((variance / (self._m * self._width)) ** 0.5)
        faiss.copy_array_to_vector(np.tile(centroids.ravel(), self._m), self._codes.pq.centroids)
        self._codes.is_trained = True
        if self._guarded:
            self._rotation.output[-self._width] = _guard(centroids, self._m)

    def _fit(self, rows: int) -> None:
        """Take mean and scale from the rows; drops every code."""
        self._codes.reset()
        mean = self._matrix[:rows].mean(axis=0, dtype=np.float64).astype(np.float32)
        self._mean = self._rotation.many(mean[None])[0]
        # Rows have length 1, so what the mean does not explain is this.
        self._set_codebook(variance=max(1.0 - float(mean.dot(mean)), 1e-6))

    def _encode(self, start: int, end: int) -> None:
        # One thread: coding is fast enough, and OpenMP's threads spin, which on busy cores makes it slower.
        # The number belongs to the calling thread, so other users of faiss are not disturbed.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            for at in range(start, end, _CHUNK):
                rotated = self._rotation.many(self._matrix[at : min(at + _CHUNK, end)])
                rotated -= self._mean
                self._codes.add_c(len(rotated), faiss.swig_ptr(rotated))
        finally:
            faiss.omp_set_num_threads(threads)

    def _move_code(self, last: int, hole: int) -> None:
        """Let the last code take the place of another, and shorten the codes by one.

        faiss itself shifts all later codes (`remove_ids`: 31 ms at 50,000); this takes microseconds. The place
        given up is blanked, because faiss adds a code to a block by OR-ing its bits in.
        """
        codes, packer = self._codes, self._packer
        memory = faiss.rev_swig_ptr(codes.codes.get(), codes.codes.size())
        per_block, block = packer.nvec, packer.block_size
        end = faiss.swig_ptr(memory[last // per_block * block :])
        code = faiss.swig_ptr(self._code)
        packer.unpack_1_c(end, last % per_block, code)
        packer.pack_1_c(code, hole % per_block, faiss.swig_ptr(memory[hole // per_block * block :]))
        packer.pack_1_c(faiss.swig_ptr(self._blank), last % per_block, end)
        codes.ntotal = last
        codes.ntotal2 = -(-last // per_block) * per_block
