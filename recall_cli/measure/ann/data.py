"""Vectors for index measurements: synthetic ones, random or clustered, with queries of known truth; or your own.

Your own are an array, prompts, or a request log; from a file or standard input, packed or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from recall_cli.errors import InputError, UsageError
from recall_cli.logs.report import clean
from recall_cli.measure.inputs import as_file, head, read_source, shown
from recall_cli.types import Embedder, Vector, Warn

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


NPY_MAGIC = b"\x93NUMPY"
NPY_HINT = "save it with numpy.save"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The distinct vectors of a file, what was left out of it, and what tells it from another."""

    rows: Vector
    digest: str
    """Hex digest (blake3) of the file's bytes."""
    warnings: list[Warn]


def load(source: str, embedder: Embedder) -> Loaded:
    """Return the user's vectors: rows of an .npy file, or the texts of a prompts file or a log, embedded.

    Equal rows are kept once: a copy of a stored row is not a fresh query. Raises InputError.

    :param source: a path, or "-" for standard input.
    """
    with as_file(source) as path:
        digest = _digest(path)
        if source.lower().endswith(".npy") or head(path).startswith(NPY_MAGIC):
            return Loaded(_distinct(_array(path, shown(source))), digest, [])
        read = read_source(path, shown(source))
    texts = [found.request.text for found in read.found if found.request.text.strip()]
    read.left_out["no_text"] += len(read.found) - len(texts)
    if not texts:
        raise InputError(
            f"{shown(source)} holds no text to embed ({read.reasons()})", hint="give prompts, a log or an .npy file"
        )
    warnings = read.warnings(shown(source))
    rows = embedder.embed_many(list(dict.fromkeys(texts)))
    known = rows.any(axis=1)
    if not known.all():
        warnings.append(
            Warn("TEXTS_WITHOUT_VECTOR", f"{(~known).sum():,} texts of {shown(source)} have no token that is known")
        )
    return Loaded(_distinct(rows[known]), digest, warnings)


def _digest(path: Path) -> str:
    digest = blake3()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{clean(str(path))} cannot be read: {reason}", hint="name a readable file; - is standard input"
        ) from None
    return digest.hexdigest()


def _distinct(rows: Vector) -> Vector:
    """Return each direction once, in the order of first appearance."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def _array(path: Path, shown: str) -> Vector:
    if not head(path).startswith(NPY_MAGIC):
        raise InputError(f"{shown} is not an .npy file", hint=NPY_HINT)
    try:
        rows: Any = np.load(path, allow_pickle=False)
    except MemoryError:
        raise InputError(f"{shown} is larger than the memory", hint="give fewer rows") from None
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or 'it is cut short'}", hint=NPY_HINT) from None
    except (ValueError, EOFError, SyntaxError) as error:
        # numpy's own words are for programmers, and some of them advise to unpickle.
        what = "holds Python objects, not numbers" if "Object arrays" in str(error) else "is damaged or cut short"
        raise InputError(f"{shown} cannot be read as an array: it {what}", hint=NPY_HINT) from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.size:
        raise InputError(
            f"{shown} holds {rows.dtype} of shape {rows.shape}, not rows of numbers",
            hint="save one vector a row: shape (n, dim)",
        )
    # In double precision, so that a row and its multiple come out as the same direction.
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float64)
    if not np.isfinite(rows).all():
        raise InputError(f"{shown} holds NaN or infinity", hint="drop those rows")
    if not rows.any(axis=1).all():
        raise InputError(f"{shown} holds a row of zeros, which has no direction", hint="drop those rows")
    # The square of 1e300 is infinite: by a power of two, which loses no digit, each row is brought near 1.
    return unit(np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]))
