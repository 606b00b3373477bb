"""Synthetic vectors for index measurements, random or clustered; and queries with known truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRUTH_BLOCK = 256
"""Queries compared with the whole corpus at a time: 256 x 50,000 float32 products are 51 MB."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """How dense clustered data is: rows a cluster, and the cosine of a row to its cluster's centre."""

    rows: int = 20
    cosine: float = 0.8

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.rows < 1 or not 0 <= self.cosine < 1:
            raise UsageError(
                f"clusters of {self.rows} rows at cosine {self.cosine:g} cannot be made",
                hint="--cluster-rows is at least 1, --cluster-cosine from 0 (no clusters) to below 1 (all alike)",
            )


@dataclass(frozen=True, slots=True)
class Truth:
    """Queries, shape (n, dim), and the cosine of each one's true nearest row, shape (n,)."""

    queries: Vector
    best: Vector


@dataclass(frozen=True, slots=True)
class Cell:
    """A corpus, shape (n, dim), with fresh queries and planted near-duplicates."""

    data: str
    corpus: Vector
    fresh: Truth
    planted: Truth


def random_units(n: int, dim: int, rng: np.random.Generator) -> Vector:
    """Return n directions drawn evenly from the sphere: every row nearly as far as any other."""
    return unit(rng.standard_normal((n, dim), dtype=np.float32))


def clustered(n: int, dim: int, clusters: Clusters, rng: np.random.Generator) -> Vector:
    """Return n rows around random centres; two rows of one cluster have a cosine of about cosine squared."""
    centres = random_units(max(1, n // clusters.rows), dim, rng)
    return at_cosine(centres[rng.integers(0, len(centres), n)], np.full(n, clusters.cosine), rng)


def at_cosine(rows: Vector, cosines: NDArray[np.floating[Any]], rng: np.random.Generator) -> Vector:
    """Return for each row a random unit vector at exactly that cosine to it, shape of `rows`."""
    noise = rng.standard_normal(rows.shape, dtype=np.float32)
    noise -= np.einsum("ij,ij->i", noise, rows)[:, np.newaxis] * rows
    c = np.asarray(cosines, dtype=np.float32)[:, np.newaxis]
    return unit(c * rows + np.sqrt(1 - c**2) * unit(noise))


def unit(rows: NDArray[np.floating[Any]]) -> Vector:
    """Return the rows scaled to length 1; a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    scaled: Vector = (rows / norms).astype(np.float32)
    return scaled


def make_cell(
    data: str, pool: Vector, corpus: int, queries: int, near: tuple[float, float], rng: np.random.Generator
) -> Cell:
    """Return a cell of `corpus` rows of the pool, as many fresh queries as asked, and as many planted ones.

    :param pool: shape (at least corpus + queries, dim): rows that are queried are not in the corpus.
    :param near: the planted queries' cosine to their row is spread evenly over this range.
    """
    picked = rng.permutation(len(pool))[: corpus + queries]
    rows, asked = pool[picked[:corpus]], pool[picked[corpus:]]
    planted = at_cosine(rows[rng.integers(0, corpus, queries)], rng.uniform(*near, queries), rng)
    return Cell(data, rows, Truth(asked, nearest(rows, asked)), Truth(planted, nearest(rows, planted)))


def nearest(corpus: Vector, queries: Vector) -> Vector:
    """Return the cosine of each query's nearest row, by comparing with all of them, shape (n,)."""
    best: Vector = np.empty(len(queries), dtype=np.float32)
    for start in range(0, len(queries), TRUTH_BLOCK):
        block = queries[start : start + TRUTH_BLOCK]
        best[start : start + len(block)] = (block @ corpus.T).max(axis=1)
    return best
