"""A compressed scan: rank every row by its 4-bit code, then compare the most promising few in full.

faiss ranks the codes in registers, so a scan reads half a byte (or one) per two dimensions instead of eight. The
best `refine` rows by code are then scored from the float32 vectors, so the similarities returned are exact; only the
choice of candidates is approximate. Small sets and few dimensions are compared in full, without codes.

An empty cache has no data to train a codebook on. None is needed: after a random rotation the coordinates of any
set of vectors look Gaussian, so one codebook for a normal variable serves all. The mean does matter: vectors that
share a direction (most transformer embeddings) waste the code on it. So the mean is taken out of the rows, which
changes no ranking: q.(x - mean) and q.x differ by the same amount for every x. Measured at 50,000 x 256, recall@1
with 48 candidates:

    real sentences (static embeddings)    1.000 before, 1.000 after; k-means on real rows: 1.000
    the same plus a shared direction      0.960 before, 0.998 after; k-means on real rows: 0.998
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from recall_cli.cache.index.exact import (
    SCAN_FROM_DIM,
    MatrixIndex,
    best_rows,
    checked_query,
    checked_rows,
    matrix_bytes,
    no_answer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from recall_cli.types import Ids, Vector

# Up to here one dense matrix is used (3.5 us at 256). Beyond it the matrix outgrows the processor's caches
# (9 MB at 1,536 dimensions), and a Kronecker product of two small rotations does: vector as an a x b
# matrix V, result A V B. It mixes very sparse vectors a little less well (recall@1 .95 against .98 on
# hashed bags of words), and dense ones equally.
DENSE_UP_TO = 256


class Rotation:
    """Maps `dim` dimensions into `padded` >= dim, keeping every inner product. `one` is not thread-safe.

    `spare` more coordinates follow: 0 in the result of `many`, and in `output` whatever the owner puts there.
    """

    def __init__(self, dim: int, padded: int, *, spare: int = 0) -> None:
        self._dim = dim
        self._left, self._right = _factors(padded)
        shape = (len(self._left), len(self._right))
        self._input = np.zeros(shape, np.float32)
        self._between = np.empty(shape, np.float32)
        self._flat_input = self._input.reshape(-1)[:dim]
        self.output: Vector = np.zeros(padded + spare, np.float32)
        self._result = self.output[:padded].reshape(shape)

    def one(self, vector: Vector) -> Vector:
        """Rotate one vector (dim,) into `output` (padded + spare,), which the next call overwrites."""
        self._flat_input[:] = vector
        self._left.dot(self._input, self._between)
        self._between.dot(self._right, self._result)
        return self.output

    def many(self, vectors: Vector) -> Vector:
        """Return the rotated rows, (n, padded + spare), of rows (n, dim)."""
        rows, columns = self._input.shape
        padded = np.zeros((len(vectors), rows * columns), np.float32)
        padded[:, : self._dim] = vectors
        turned = (padded.reshape(-1, columns) @ self._right).reshape(-1, rows, columns)
        result = np.zeros((len(vectors), len(self.output)), np.float32)
        result[:, : rows * columns] = np.matmul(self._left, turned).reshape(len(vectors), -1)
        return result


@cache
def _factors(size: int) -> tuple[Vector, Vector]:
    """Return the two rotations (a, a) and (b, b) with a * b = size, a as near b as its divisors allow."""
    left = 1
    if size > DENSE_UP_TO:
        left = max(a for a in range(1, int(size**0.5) + 1) if size % a == 0)
    random = np.random.default_rng(0)
    return _haar(left, random), _haar(size // left, random)


def _haar(size: int, random: np.random.Generator) -> Vector:
    """Return a rotation drawn evenly from all rotations of this size."""
    q, r = np.linalg.qr(random.standard_normal((size, size)))
    return np.ascontiguousarray(q * np.sign(np.diag(r)), np.float32)


# Below this dimension a code per two dimensions is too coarse: recall@1 on real sentences (50,000 rows,
# 48 candidates) with m = dim/2 against m = dim: 32 dims .956/.9998, 64 .994/1.0, 96 .998/1.0,
# 128 .9996/1.0, 256 1.0/1.0. A code per dimension costs 95 us more at 50,000 x 256.
FULL_CODE_BELOW = 192

# faiss turns a query's products with the centroids into bytes and adds up one a code, in 16 bits and without a guard:
# with more than 65,535 / 255 = 257 codes the sums of the very best rows may wrap round, and exact copies of
# a query go missing (faiss 1.15: 2 % at 1,536 dimensions with m = dim/2, 90 % at 2,048). See `_guard`.
UNGUARDED_CODES = 256

LEAST_SPREAD = 1e-6
"""The least variance a codebook is made for: rows that are all but equal still get distinct codes."""

_CHUNK = 512  # rows coded at a time: the temporary copies stay in the processor's caches


def default_codes(dim: int) -> int:
    """Return the number of codes a vector: one per two dimensions, or per dimension when there are few."""
    return dim if dim < FULL_CODE_BELOW else (dim + 1) // 2


@cache
def codebook(width: int) -> Vector:
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


def prepare(dim: int) -> None:
    """Make what the first codes of this dimension in a process would have to wait for."""
    Codes(dim, default_codes(dim), np.zeros(dim, np.float32), nearest=1)


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


class Codes:
    """`m` codes a row, of rows (dim,) around `mean`. Not thread-safe. Dimensions that m does not divide are padded."""

    def __init__(self, dim: int, m: int, mean: Vector, *, nearest: int) -> None:
        width = -(-dim // m)
        guarded = m > UNGUARDED_CODES
        codes = m + guarded
        self.mean = mean
        # Rows have length 1, so what the mean does not explain is this.
        self.spread = max(1.0 - float(mean.dot(mean)), LEAST_SPREAD)
        self._rotation = Rotation(dim, m * width, spare=width * guarded)
        self._centre = self._rotation.many(mean[None])[0]
        # Any: what types faiss has are incomplete.
        index: Any = faiss.IndexPQFastScan(codes * width, codes, 4, faiss.METRIC_INNER_PRODUCT)
        self._index = index
        self._packer: Any = self._index.get_CodePacker()
        centroids = codebook(width) * np.float32((self.spread / (codes * width)) ** 0.5)
        faiss.copy_array_to_vector(np.tile(centroids.ravel(), codes), self._index.pq.centroids)
        self._index.is_trained = True
        if guarded:
            self._rotation.output[-width] = _guard(centroids, codes)
        # What one search writes to, with the pointers faiss wants: making them each time costs 2 us.
        self._count = nearest
        self._rough = np.empty(nearest, np.float32)
        self._rows = np.empty(nearest, np.int64)
        self._pointers = tuple(faiss.swig_ptr(array) for array in (self._rotation.output, self._rough, self._rows))
        self._code = np.empty(self._packer.code_size, np.uint8)
        self._blank = np.zeros(self._packer.code_size, np.uint8)

    def __len__(self) -> int:
        """Return the number of rows coded."""
        return int(self._index.ntotal)

    def nearest(self, query: Vector) -> Ids:
        """Return the `nearest` most promising rows, to be read before the next call; -1 where faiss found none."""
        self._rotation.one(query)
        rotated, rough, found = self._pointers
        self._index.search_c(1, rotated, self._count, rough, found)
        return self._rows

    def top(self, query: Vector, count: int) -> Ids:
        """Return up to `count` promising rows."""
        found: Ids = self._index.search(self._rotation.one(query)[None], count)[1][0]
        return found[found >= 0]

    def append(self, rows: Vector) -> None:
        """Code rows (n, dim) and put them at the end."""
        # One thread: coding is fast enough, and OpenMP's threads spin, which on busy cores makes it slower.
        # The number belongs to the calling thread, so other users of faiss are not disturbed.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            for at in range(0, len(rows), _CHUNK):
                rotated = self._rotation.many(rows[at : at + _CHUNK])
                rotated -= self._centre
                self._index.add_c(len(rotated), faiss.swig_ptr(rotated))
        finally:
            faiss.omp_set_num_threads(threads)

    def move_last(self, hole: int) -> None:
        """Let the last code take the place of another, and shorten the codes by one.

        faiss itself shifts all later codes (`remove_ids`: 31 ms at 50,000); this takes microseconds. The place
        given up is blanked, because faiss adds a code to a block by OR-ing its bits in.
        """
        codes, packer = self._index, self._packer
        last = codes.ntotal - 1
        memory = faiss.rev_swig_ptr(codes.codes.get(), codes.codes.size())
        per_block, block = packer.nvec, packer.block_size
        end = faiss.swig_ptr(memory[last // per_block * block :])
        code = faiss.swig_ptr(self._code)
        packer.unpack_1_c(end, last % per_block, code)
        packer.pack_1_c(code, hole % per_block, faiss.swig_ptr(memory[hole // per_block * block :]))
        packer.pack_1_c(faiss.swig_ptr(self._blank), last % per_block, end)
        codes.ntotal = last
        codes.ntotal2 = -(-last // per_block) * per_block

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use: codes, centroids and what a search writes to."""
        fixed = 4 * (self._index.pq.centroids.size() + 5 * len(self._centre)) + 12 * self._count
        return int(self._index.codes.size() + fixed) + _OBJECTS_BYTES


_OBJECTS_BYTES = 8_000
"""faiss's own small objects and those of Python around them."""


# Candidates compared in full. Misses of 5,000 queries, bundled embedder, at 10,000 / 50,000 rows: 32 misses 2 / 6 (2 of
# them servable), 48 1 / 1 (none), 64 none; each 16 take 3 us. 48 is also a margin for
# less even data (+0.004 over 32 with a shared direction) at 3 us.
REFINE = 48

# For k neighbours, this many candidates each (but at least REFINE). k = 10 at 50,000 real rows: 8 gives recall@10 .997
# in 177 us, 12 .999 in 189 us, 16 .9994 in 210 us.
CANDIDATES_PER_NEIGHBOUR = 12

# Up to so many numbers (1,000 rows of 256) all rows are compared: as fast as the codes, exact, and a cache of
# thousands of small partitions has no codebook in each. It also means that the mean is never taken from a handful.
COMPARE_ALL = 256_000

# The rows are coded anew, around their present mean, when it has moved by so large a part of their variance, or the
# variance by a factor of 2. 10,000 rows of one shared direction replaced by as many of another, without that: recall
# of planted near-duplicates 1.0 -> .954 at cosine .95 with the direction, .186 at .98.
DRIFT = 0.05

# The mean is looked at once in (rows / 8) adds, so that coding costs at most eight times more.
LOOKS = 8

# Rows coded anew with each add, at least, and for each row added: a quarter of a millisecond, where 50,000 rows at once
# would stop everybody for a tenth of a second. Done before the next look.
RENEWED = 128
RENEWED_PER_ROW = 8


class ScanIndex(MatrixIndex):
    """4-bit codes for all rows, float32 for the best of them.

    `m` is the number of codes a vector (None: one per two dimensions, or per dimension when there are few); fewer is
    faster, `m = dim` finds the nearest of random vectors too. `refine` is how many candidates are
    compared in full. Below SCAN_FROM_DIM dimensions all rows are compared, whatever the options.
    """

    def __init__(self, dim: int, *, m: int | None = None, refine: int = REFINE) -> None:
        if m is None:
            m = default_codes(dim)
        if not 1 <= m <= dim:
            raise ValueError(f"m must be between 1 and the {dim} dimensions, not {m}")
        if refine < 1:
            raise ValueError(f"refine must be at least 1, not {refine}")
        super().__init__(dim)
        self._m, self._refine = m, refine
        self._compare_up_to = sys.maxsize if dim < SCAN_FROM_DIM else max(refine, COMPARE_ALL // dim)
        self._codes: Codes | None = None  # of all rows, once there are more than are compared
        self._next: Codes | None = None  # of the first rows, around a newer mean
        self._near = np.empty((0, dim), np.float32)
        self._sum = np.zeros(0)
        self._unseen = 0  # rows added since the mean was looked at

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        ids, vectors = checked_rows(ids, vectors, self._dim)
        with self._lock:
            added = self._append(ids, vectors)
            end = self._book.rows
            if self._codes is not None:
                self._codes.append(added)
                self._sum += added.sum(axis=0, dtype=np.float64)
                self._renew(len(added))
            elif end > self._compare_up_to:
                self._near = np.empty((self._refine, self._dim), np.float32)
                self._sum = self._matrix[:end].sum(axis=0, dtype=np.float64)
                self._unseen = 0
                codes = self._new_codes(self._sum / end)
                codes.append(self._matrix[:end])
                self._codes = codes

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""
        with self._lock:
            for id in ids:
                hole = self._book.release(int(id))
                if hole is not None:
                    last = self._book.fill_hole(hole)
                    if self._codes is not None:
                        self._sum -= self._matrix[hole]
                    self._matrix[hole] = self._matrix[last]
                    self._move_code(last, hole)

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, cosines), best first; the cosines are exact."""
        query = checked_query(vector, self._dim, k)
        with self._lock:
            rows = self._book.rows
            if query is None or not rows:
                return no_answer()
            codes = self._codes
            if codes is not None and rows > self._compare_up_to:
                if k == 1:
                    candidates = codes.nearest(query)
                    # With mode="clip", take writes straight into `out`.
                    similarities = self._matrix.take(candidates, 0, self._near, "clip").dot(query)
                    best = int(similarities.argmax())
                    row = candidates[best]
                    if row >= 0:
                        return self._book.newest[row : row + 1].copy(), similarities[best : best + 1]
                else:
                    candidates = codes.top(query, min(rows, max(self._refine, CANDIDATES_PER_NEIGHBOUR * k)))
                    if len(candidates) >= min(k, rows):
                        similarities = self._matrix[candidates].dot(query)
                        top = best_rows(similarities, k)
                        return self._book.answers(candidates[top], similarities[top], k)
                # faiss found nothing, or less than asked for: it keeps no row whose bytes sum to 0.
            return self._compare_all(query, k)

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use."""
        with self._lock:
            codes = sum(codes.memory_bytes() for codes in (self._codes, self._next) if codes is not None)
            rows = matrix_bytes(self._matrix, self._book.rows)
            return rows + codes + self._near.nbytes + self._sum.nbytes + self._book.memory_bytes()

    def _new_codes(self, mean: NDArray[np.float64]) -> Codes:
        return Codes(self._dim, self._m, mean.astype(np.float32), nearest=self._refine)

    def _renew(self, added: int) -> None:
        """Follow the mean of the rows: begin to code them anew when it has moved, or code some more of them."""
        rows, codes = self._book.rows, self._codes
        if self._next is None and codes is not None:
            self._unseen += added
            if LOOKS * self._unseen < rows:
                return
            self._unseen = 0
            mean = self._sum / rows
            spread = max(1.0 - float(mean.dot(mean)), LEAST_SPREAD)
            shift = mean - codes.mean
            if shift.dot(shift) <= DRIFT * spread and codes.spread / 2 <= spread <= codes.spread * 2:
                return
            self._next = self._new_codes(mean)
        if self._next is not None:
            done = len(self._next)
            self._next.append(self._matrix[done : min(rows, done + max(RENEWED, RENEWED_PER_ROW * added))])
            self._swap_if_done()

    def _swap_if_done(self) -> None:
        if self._next is not None and len(self._next) == self._book.rows:
            self._codes, self._next = self._next, None

    def _move_code(self, last: int, hole: int) -> None:
        """Follow a removal: the row that was `last` is at `hole` now."""
        if self._codes is not None:
            self._codes.move_last(hole)
        if self._next is not None:
            # Fewer than all rows are coded there, so `last` is not; a hole among them takes its code.
            if hole < len(self._next):
                self._next.append(self._matrix[hole : hole + 1])
                self._next.move_last(hole)
            self._swap_if_done()
        if 2 * last <= self._compare_up_to:
            self._codes = self._next = None
