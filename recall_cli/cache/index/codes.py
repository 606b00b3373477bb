"""Rows as 4-bit codes, ranked by faiss with byte shuffles that stay in registers.

An empty cache has no data to train a codebook on. None is needed: after a random rotation the coordinates of any
set of vectors look Gaussian, so one codebook for a normal variable serves all. What does matter is the
mean: vectors that share a direction (most transformer embeddings) waste the code on it. So the mean is taken out of
the rows, which changes no ranking: q.(x - mean) and q.x differ by the same amount for every x. Measured at
50,000 x 256, recall@1 with 48 candidates:

    real sentences (static embeddings)    1.000 before, 1.000 after; k-means on real rows: 1.000
    the same plus a shared direction      0.960 before, 0.998 after; k-means on real rows: 0.998
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from recall_cli.cache.index.rotation import Rotation

if TYPE_CHECKING:
    from recall_cli.types import Ids, Vector

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
