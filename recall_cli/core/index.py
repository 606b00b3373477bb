"""Exact nearest neighbours in numpy: the baseline every other index is measured against."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recall_cli.types import Ids, Vector

FIRST_CAPACITY = 16
"""Rows allocated at first: a cache has many small partitions, so start small and double."""


class ExactIndex:
    """A float32 matrix and one matrix-vector product a search: finds what there is to find.

    Grows by doubling; removal moves the last row into the gap, so the rows stay dense.
    Not locked: the owner (`Cache`) serialises calls.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._rows: Vector = np.empty((FIRST_CAPACITY, dim), dtype=np.float32)
        self._ids: Ids = np.empty(FIRST_CAPACITY, dtype=np.int64)
        self._row_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows, shape (n,) and (n, dim). Raises ValueError on NaN, wrong shape or a known id."""
        if vectors.ndim != 2 or vectors.shape != (len(ids), self.dim):
            raise ValueError(f"expected shape ({len(ids)}, {self.dim}), got {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise ValueError("a vector holds NaN or infinity")
        new = [int(i) for i in ids]
        if len(set(new)) != len(new) or any(i in self._row_of for i in new):
            raise ValueError("an id is already in the index")
        start = len(self._row_of)
        end = start + len(new)
        if end > len(self._rows):
            self._grow(end)
        self._rows[start:end] = vectors
        self._ids[start:end] = ids
        self._row_of.update(zip(new, range(start, end), strict=True))

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""
        for id in ids:
            row = self._row_of.pop(id, None)
            if row is None:
                continue
            last = len(self._row_of)
            if row != last:
                moved = int(self._ids[last])
                self._rows[row] = self._rows[last]
                self._ids[row] = moved
                self._row_of[moved] = row

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, similarities), best first; fewer when the index holds fewer."""
        n = len(self._row_of)
        similarities = self._rows[:n] @ vector
        if k == 1 and n:
            # argmax over a full sort: for one neighbour it is the whole job.
            best = int(similarities.argmax())
            return self._ids[best : best + 1].copy(), similarities[best : best + 1]
        top = np.argpartition(similarities, n - k)[n - k :] if k < n else np.arange(n)
        top = top[np.argsort(-similarities[top], kind="stable")]
        return self._ids[top], similarities[top]

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * len(self._rows))
        rows: Vector = np.empty((capacity, self.dim), dtype=np.float32)
        ids: Ids = np.empty(capacity, dtype=np.int64)
        n = len(self._row_of)
        rows[:n] = self._rows[:n]
        ids[:n] = self._ids[:n]
        self._rows, self._ids = rows, ids
