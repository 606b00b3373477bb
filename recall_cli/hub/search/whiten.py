"""Cosines that a hub's own common direction and topics do not drown.

All chunks of one hub are about the same few things, so their vectors point the same way and raw cosines lie close
together. Centred and scaled by the hub's own spread (whitening), what sets a chunk apart counts: nDCG@10 of the
vectors alone goes from 0.30 to 0.33 on Cranfield and from 0.28 to 0.35 on CISI. It ranks only: a whitened cosine says
nothing about whether a question belongs to the hub at all, which the raw one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SAMPLE = 10_000
"""Chunks that the spread is estimated on: 40 for each of 256 dimensions."""
EVEN = 0.75
"""Share of the spread that is held to be even in all directions.

Few chunks know little of their spread, and its least directions are mostly noise. 0.5 to 0.75 differ by
less than 0.01 nDCG@10.
"""


class Whitening:
    """A hub's mean and spread, and how vectors look without them.

    :param sample: vectors of the hub's chunks, shape (n, dim), unit norm or zero. Few rows count as few: the estimate
        leans on as many imagined rows as there are dimensions, spread evenly, so that without any row nothing changes.
    """

    def __init__(self, sample: Vector) -> None:
        rows: Floats = sample[np.any(sample, axis=1)].astype(np.float64)
        n, dim = rows.shape
        known = n / (n + dim)
        mean: Floats = known * rows.sum(axis=0) / max(n, 1)
        self._mean: Vector = np.asarray(mean, dtype=np.float32)
        rows -= mean
        spread: Floats = rows.T @ rows / max(n, 1)
        even = EVEN * known * np.trace(spread) / dim + (1 - known) / dim
        spread *= (1 - EVEN) * known
        spread[np.diag_indices(dim)] += even
        # The inverse of the Cholesky factor: with L L^T = spread, the rows x L^-T have the spread of the unit matrix.
        factor: Floats = np.linalg.inv(np.linalg.cholesky(spread))
        self._scale: Vector = np.asarray(factor.T, dtype=np.float32)

    def __call__(self, vectors: Vector) -> Vector:
        """Return the vectors, shape (n, dim), whitened and of unit length; a row of zeros stays one."""
        there = np.any(vectors, axis=1)
        white: Vector = np.matmul(vectors - self._mean, self._scale)
        white[~there] = 0.0
        return unit(white)


def unit(vectors: Vector) -> Vector:
    """Return rows of unit length; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., np.newaxis]
    lengths[lengths == 0.0] = 1.0
    scaled: Vector = np.divide(vectors, lengths, dtype=np.float32)
    return scaled
