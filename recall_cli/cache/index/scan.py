"""A compressed scan: every row as 4-bit codes, the most promising few compared again in full.

faiss ranks the codes (see `codes`), so a scan reads half a byte (or one) per two dimensions instead of eight. The
best `refine` rows by code are then scored from the float32 vectors, so the similarities returned are exact; only the
choice of candidates is approximate. Small sets and few dimensions are compared in full, without codes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.index.codes import LEAST_SPREAD, Codes, default_codes
from recall_cli.cache.index.matrix import MatrixIndex
from recall_cli.cache.index.rows import SCAN_FROM_DIM, best_rows, checked_query, checked_rows, matrix_bytes, no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from recall_cli.types import Ids, Vector

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
