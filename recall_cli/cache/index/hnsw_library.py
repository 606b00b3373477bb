"""The library that keeps the graph of `HnswIndex`: hnswlib, or faiss where hnswlib is not installed.

hnswlib ships no wheel, so installing it takes a C++ compiler; faiss comes as a wheel and is a dependency anyway.
`FaissGraph` has the part of hnswlib's interface that `HnswIndex` calls, with the same units: labels are the rows in
the order of their adding, a distance is 1 - inner product.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HNSWLIB, FAISS = "hnswlib", "faiss"
WITHOUT_HNSWLIB = "hnswlib is not installed: the engine hnsw is faiss's graph"
INSTALL_HNSWLIB = "to measure hnswlib's, run pip install '.[hnsw]' in a clone; it takes a C++ compiler"


@cache
def graph_library() -> str:
    """Return the name of the library that graphs are made with here."""
    return HNSWLIB if find_spec(HNSWLIB) is not None else FAISS


def make_graph(dim: int, library: str = "") -> Any:
    """Return an empty graph of inner products, of a library by name or of the one at hand."""
    if (library or graph_library()) == HNSWLIB:
        import hnswlib

        return hnswlib.Index(space="ip", dim=dim)
    return FaissGraph(dim)


class FaissGraph:
    """faiss's HNSW behind hnswlib's calls. Not locked: its owner serialises calls."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._index: Any = None
        # One bit a row, set where the row is deleted.
        self._deleted: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._any_deleted = False
        self.ef = 10
        """Candidates kept in a search."""

    def init_index(self, capacity: int, *, M: int, ef_construction: int, random_seed: int) -> None:
        """Make the graph. faiss grows by itself and seeds by itself: `random_seed` has no use here."""
        import faiss

        self._index = faiss.IndexHNSWFlat(self._dim, M, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = ef_construction
        self.resize_index(capacity)

    def resize_index(self, capacity: int) -> None:
        """Make room for the marks of so many rows."""
        grown = np.zeros(-(-capacity // 8), np.uint8)
        grown[: len(self._deleted)] = self._deleted
        self._deleted = grown

    def set_ef(self, ef: int) -> None:
        """Keep so many candidates in a search."""
        self.ef = ef

    def add_items(self, vectors: NDArray[np.float32], labels: NDArray[np.int64], *, num_threads: int = 1) -> None:
        """Add rows. Raises ValueError when a label is not its row: faiss numbers rows by itself."""
        if not np.array_equal(labels, np.arange(self._index.ntotal, self._index.ntotal + len(labels))):
            raise ValueError("labels must continue the rows that are there")
        _on_threads(num_threads, lambda: self._index.add(np.ascontiguousarray(vectors, np.float32)))

    def mark_deleted(self, label: int) -> None:
        """Leave a row out of every answer; the graph still passes through it."""
        self._deleted[label >> 3] |= 1 << (label & 7)
        self._any_deleted = True

    def knn_query(
        self, query: NDArray[np.float32], k: int, *, num_threads: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return labels and distances, shape (1, k), nearest first. Raises RuntimeError if it reached fewer."""
        faiss: Any = import_module("faiss")  # its type information knows neither class of a search's parameters
        options: dict[str, Any] = {"efSearch": self.ef}
        if self._any_deleted:
            deleted = faiss.IDSelectorBitmap(self._deleted)
            options["sel"] = faiss.IDSelectorNot(deleted)
        parameters = faiss.SearchParametersHNSW(**options)
        found: tuple[Any, Any] = _on_threads(
            num_threads, lambda: self._index.search(query.reshape(1, -1), k, params=parameters)
        )
        products, labels = found
        if labels[0, -1] < 0:
            raise RuntimeError("the graph reached fewer rows than were asked for")
        return labels, np.subtract(1.0, products, dtype=np.float32)

    def get_items(self, labels: NDArray[np.int64], *, return_type: str = "numpy") -> NDArray[np.float32]:
        """Return copies of rows, shape (len(labels), dim)."""
        rows: NDArray[np.float32] = self._index.reconstruct_batch(np.asarray(labels, np.int64))
        return rows


def _on_threads(threads: int, work: Any) -> Any:
    """Run a call of faiss on so many threads; its own default is all cores."""
    import faiss

    before = faiss.omp_get_max_threads()
    if before == threads:
        return work()
    faiss.omp_set_num_threads(threads)
    try:
        return work()
    finally:
        faiss.omp_set_num_threads(before)
