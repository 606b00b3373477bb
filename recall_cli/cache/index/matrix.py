"""Rows in one growing matrix: what exact search and the compressed scan have in common."""

from __future__ import annotations

from mmap import mmap
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.index.ledger import Ledger
from recall_cli.cache.index.rows import FIRST_ROWS, best_rows, moved, paged, rows_of

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
        self._pages: mmap | None = None

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
