"""Rows in one growing matrix: what exact search and the compressed scan have in common."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.core.ledger import Ledger
from recall_cli.core.rows import FIRST_ROWS, best_rows, grown

if TYPE_CHECKING:
    from recall_cli.types import Ids, Vector


class MatrixIndex:
    """One row a distinct vector, numbered as in the ledger. The underscored methods are called with the lock held.

    A removed row's place is taken by the last row, so the matrix has no holes and needs no compaction.
    """

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._lock = Lock()
        self._book = Ledger()
        self._matrix = np.empty((FIRST_ROWS, dim), np.float32)

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
        self._matrix = grown(self._matrix, start, len(fresh))
        opened = vectors if len(fresh) == len(ids) else vectors[fresh]
        self._matrix[start : start + len(fresh)] = opened
        return opened

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
