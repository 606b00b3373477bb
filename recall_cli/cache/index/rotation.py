"""A fixed random rotation, cheap enough for every query: it spreads any vector evenly over its coordinates."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from recall_cli.types import Vector

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
