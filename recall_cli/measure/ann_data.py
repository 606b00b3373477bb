"""Vectors for index measurements: random, clustered, or the user's own; and queries with known truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.core.request import parse_body
from recall_cli.errors import InputError, UsageError
from recall_cli.logs.pairs import REQUEST, Tally, read_log
from recall_cli.measure.prompts import from_prompts, read_file, standard_input
from recall_cli.types import Embedder, Request, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

PEEK = 1 << 16
"""Bytes at the start of a JSONL file that show whether it is a request log."""

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


def load(path: str, embedder: Embedder) -> Vector:
    """Return the user's vectors: rows of an .npy file, or the lines of a text or JSONL file, embedded.

    Equal rows are kept once: a copy of a stored row is not a fresh query. Raises InputError.
    """
    if path.endswith(".npy"):
        return _distinct(_array(Path(path)))
    rows = embedder.embed_many(list(dict.fromkeys(_texts(path))))
    return _distinct(rows[rows.any(axis=1)])


def _distinct(rows: Vector) -> Vector:
    """Return each direction once, in the order of first appearance."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def _texts(path: str) -> list[str]:
    """Return the prompts of a file: the last user turns of a request log, or the lines of a prompts file."""
    raw = read_file(Path(path))
    if raw.lstrip().startswith(b"{") and any(f'"{name}"'.encode() in raw[:PEEK] for name in REQUEST):
        return [
            request.text
            for record in read_log(path, Tally())
            if isinstance(request := parse_body(record.provider, record.request), Request) and request.text.strip()
        ]
    return [query.text for query in from_prompts(path, standard_input()).queries]


def _array(path: Path) -> Vector:
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as an array: {error}", hint="save it with numpy.save") from error
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.size:
        raise InputError(
            f"{path} holds {rows.dtype} of shape {rows.shape}, not rows of numbers",
            hint="save one vector a row: shape (n, dim)",
        )
    # In double precision, so that a row and its multiple come out as the same direction.
    rows = rows.astype(np.float64)
    if not np.isfinite(rows).all():
        raise InputError(f"{path} holds NaN or infinity", hint="drop those rows")
    if not rows.any(axis=1).all():
        raise InputError(f"{path} holds a row of zeros, which has no direction", hint="drop those rows")
    return unit(rows)
