"""From two legs to one order: pure functions over the union of both legs' candidates.

Each leg's score is exact for every candidate, whichever leg found it, and spread over 0..1 by the candidates' own
minimum and maximum; the fused score is their weighted mean. Ranks alone (reciprocal rank fusion) throw away how far
apart the candidates are: on two of four sets they lose to plain BM25 by 0.02 nDCG@10 and more (see
benchmarks/hub_fusion.py, also for what follows).

The order is made twice. The best candidates of the first one are taken to be right, and the question's vector is
moved towards them (Rocchio's feedback): they name what the question meant in the words of the hub.

All chunks of one hub are about the same few things, so their vectors point the same way and raw cosines lie close
together. Centred and scaled by the hub's own spread (whitening), what sets a chunk apart counts: nDCG@10 of the
vectors alone goes from 0.30 to 0.33 on Cranfield and from 0.28 to 0.35 on CISI. It ranks only: a whitened cosine says
nothing about whether a question belongs to the hub at all, which the raw one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.hub.models import Match, Source
from recall_cli.types import Ids, Vector

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


FEEDBACK = 4
"""Best candidates of the first order that speak for the question; 3 to 5 differ by less than 0.01 nDCG@10."""
TRUST = 2.0
"""How much their mean counts against the question itself; with 1 it is within 0.01 nDCG@10."""


def union(vector_ids: Ids, lexical_ids: Ids) -> tuple[Ids, list[Source]]:
    """Return the candidates of both legs, each once, in the order of their ids, and which leg found each."""
    near, worded = set(vector_ids.tolist()), set(lexical_ids.tolist())
    # Of a few dozen ids, Python's sets are as quick as numpy's, which load numpy.ma first: 50 ms of a first question.
    ids = sorted(near | worded)
    found_by = [Source.LEXICAL if id not in near else Source.BOTH if id in worded else Source.VECTOR for id in ids]
    return np.array(ids, dtype=np.int64), found_by


def fused(question: Vector, vectors: Vector, bm25: Vector, *, alpha: float, whiten: Whitening) -> Vector:
    """Return the fused score of each candidate, 0..1, shape (n,).

    :param question: the question's vector, shape (dim,), zero when it has no known token.
    :param vectors: the candidates' vectors, shape (n, dim).
    :param bm25: their BM25 scores, shape (n,).
    :param alpha: the vector leg's weight, 0..1.
    """
    if not len(bm25):
        return np.zeros(0, np.float32)
    rows = whiten(vectors)
    asked = whiten(question[np.newaxis])[0]
    lexical = (1.0 - alpha) * stretched(bm25)
    first = lexical + alpha * stretched(rows @ asked)
    best = order(first)[:FEEDBACK]
    refined = unit(asked + TRUST * unit(rows[best].mean(axis=0)))
    scores: Vector = lexical + alpha * stretched(rows @ refined)
    return scores


def stretched(scores: Vector) -> Vector:
    """Return scores moved and scaled to 0..1; where they do not differ, 1 if they say something and 0 if not."""
    low, high = scores.min(), scores.max()
    if high <= low:
        return np.full_like(scores, high > 0)
    even: Vector = (scores - low) / (high - low)
    return even


def order(scores: Vector) -> NDArray[np.intp]:
    """Return positions from the highest score to the lowest; equal scores keep their places."""
    return np.argsort(-scores, kind="stable")


def best_of_documents(matches: Sequence[Match]) -> list[Match]:
    """Return each document's first match: its best chunk, when the matches come best first.

    The best one, not the sum: with chunks of 40 to 400 words the sum lost up to 0.05 nDCG@10 on Cranfield and CISI.
    """
    seen: dict[str, Match] = {}
    for match in matches:
        seen.setdefault(match.passage.doc_id, match)
    return list(seen.values())
