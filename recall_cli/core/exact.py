"""Exact nearest neighbours in numpy: the baseline every other index is measured against."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.core.ledger import Ledger
from recall_cli.core.rows import FIRST_ROWS, best_rows, checked_query, checked_rows, grown, matrix_bytes, no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recall_cli.types import Ids, Vector


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
        """Return the bytes of memory in use."""
        with self._lock:
            rows = matrix_bytes(self._matrix, self._book.rows) + matrix_bytes(self._scratch, self._book.rows)
            return rows + self._book.memory_bytes()
