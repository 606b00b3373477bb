"""Exact nearest neighbours in numpy: the baseline every other index is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.index.matrix import MatrixIndex
from recall_cli.cache.index.rows import FIRST_ROWS, checked_query, checked_rows, matrix_bytes, no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recall_cli.types import Ids, Vector


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
