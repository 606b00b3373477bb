"""A navigable small-world graph (hnswlib, or faiss without it), kept honest under growth, eviction and copies.

What the library leaves to its caller, and what is done about it here:

* its default `ef` of 10 loses 1-2 % of the hits a cache could serve on real data (46 % on random), and
  `ef` is forgotten on load: ours is set whenever a graph is made or grown;
* a full graph raises: ours grows by doubling;
* deleted nodes stay and slow every search, and reusing their places costs 13 adds each: nodes are only
  marked, and at half the graph a new one is built beside it;
* search while inserting can crash the process: one lock;
* copies of a vector cut the graph to pieces: the ledger collapses them.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.index.exact import ExactIndex, Ledger, best_rows, checked_query, checked_rows, no_answer
from recall_cli.cache.index.hnsw_library import make_graph
from recall_cli.cache.index.hot_swap import SwappableIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recall_cli.cache.index.hot_swap import Engine
    from recall_cli.types import Ids, Vector

# Measured with the bundled embedder on 50,000 real sentences and 11,500 fresh queries, one thread, M = 32. ef: recall@1
# of all queries / of the 5,483 with a neighbour at cosine >= .8, p5 and p50 of a search:
#   64: .9824 / .9971, 113, 198 us     96: .9894 / .9984, 182, 341 us
#   128: .9921 / .9987, 193, 351 us    160: .9942 / .9993, 225, 393 us  <- first below 0.1 % of servable hits lost
# Planted near-duplicates (cosine .80-.99) are easier: .9992 at ef 64. With another embedder (wordllama) M = 16 needed
# ef 96 for what M = 32 reached at 64, in the same time.
LINKS = 32
EF_SEARCH = 160
EF_CONSTRUCTION = 200

# Rebuild when so large a share of the graph is deleted: then a removal costs one add. Earlier costs more
# (a third: two adds), later slows searches (half deleted 1.8 x, nine tenths 6 x).
REBUILD_AT = 0.5

# Fewer rows are compared in full, which is exact and fast (16 us at 1,000 x 256). A graph of a single row takes 3 MB,
# so thousands of small partitions would take gigabytes. A rebuild with less than half of them gives the graph up.
GRAPH_FROM = 1_000

MOST_LINKS = 10_000
"""hnswlib takes no more, and says so only on the console."""

# Graphs of so few live nodes are rebuilt at once, in 25 ms: less trouble than a thread.
_INLINE_NODES = 256

# What hnswlib fixes when a graph is made: 65,536 mutexes for its labels.
_FIXED_BYTES = 65_536 * 40 + 8_000

_MOST = 2**31 - 1
_MOST_THREADS = 1_024

# Rows added under one hold of the lock: searches wait for at most about 10 ms of a bulk add.
_CHUNK = 16


class HnswIndex(SwappableIndex):
    """Approximate search through a graph: time grows with the logarithm of the rows, recall is below 1.

    `M` is the number of links a node, `ef_construction` and `ef_search` how many candidates are kept while
    linking and searching; a search for k neighbours keeps at least 2 k. `threads` is for bulk adds; with
    more than 1 the graph is no longer the same in every run. Up to GRAPH_FROM ids there is no graph yet.
    """

    library = ""
    """The library of the graph, by name; "" is hnswlib where it is installed, else faiss."""

    def __init__(
        self,
        dim: int,
        *,
        M: int = LINKS,
        ef_construction: int = EF_CONSTRUCTION,
        ef_search: int = EF_SEARCH,
        seed: int = 0,
        threads: int = 1,
        background: bool = True,
    ) -> None:
        if min(M, ef_construction, ef_search) < 2:
            raise ValueError("M, ef_construction and ef_search must be at least 2")
        if M > MOST_LINKS:
            raise ValueError(f"M must be at most {MOST_LINKS}, not {M}")
        if max(ef_construction, ef_search) > _MOST:
            raise ValueError(f"ef_construction and ef_search must be at most {_MOST}")
        if not 0 <= seed <= _MOST:
            raise ValueError(f"seed must be between 0 and {_MOST}, not {seed}")
        if not 1 <= threads <= _MOST_THREADS:
            raise ValueError(f"threads must be between 1 and {_MOST_THREADS}, not {threads}")
        self._dim = dim
        self._options = (dim, M, ef_construction, ef_search, seed, threads, self.library)
        self._background = background
        super().__init__(ExactIndex(dim))

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        if not len(self) and len(ids) >= GRAPH_FROM:
            self.expect(len(ids))  # a store being opened
        super().add(ids, vectors)

    def expect(self, rows: int) -> None:
        """Prepare for so many rows: an empty index makes its graph now instead of building it beside the rows later."""
        if rows >= GRAPH_FROM and not len(self) and isinstance(self._engine, ExactIndex):
            self._hand_over(lambda: _Graph(*self._options), background=False)

    @property
    def ef_search(self) -> int:
        """How many candidates a search keeps; may be set at any time, and holds for rebuilt graphs too."""
        return self._options[3]

    @ef_search.setter
    def ef_search(self, value: int) -> None:
        if not 2 <= value <= _MOST:
            raise ValueError(f"ef_search must be between 2 and {_MOST}")
        dim, links, construction, _, seed, threads, library = self._options
        self._options = (dim, links, construction, value, seed, threads, library)
        graph = self._engine
        if isinstance(graph, _Graph):
            graph.set_ef(value)

    def compact(self) -> None:
        """Rebuild the graph without its deleted nodes, and return when that is done."""
        self.wait()
        self._hand_over(self._successor, background=False)

    def _successor(self) -> Engine:
        return _Graph(*self._options) if 2 * len(self) >= GRAPH_FROM else ExactIndex(self._dim)

    def _after_write(self) -> None:
        graph = self._engine
        if not isinstance(graph, _Graph):
            if len(graph) >= GRAPH_FROM:
                self._hand_over(self._successor, background=self._background)
        elif graph.deleted >= REBUILD_AT * graph.nodes > 0:
            inline = not self._background or len(graph) <= _INLINE_NODES
            self._hand_over(self._successor, background=not inline)


class _Graph:
    """One graph; a row of the ledger is a label of the library, and labels are never used twice."""

    def __init__(
        self, dim: int, links: int, ef_construction: int, ef_search: int, seed: int, threads: int, library: str
    ) -> None:
        self._dim, self._links, self._ef, self._threads = dim, links, ef_search, threads
        self._lock = Lock()
        self._book = Ledger()
        self._capacity = 256
        self.deleted = 0
        self._graph: Any = make_graph(dim, library)
        self._graph.init_index(self._capacity, M=links, ef_construction=ef_construction, random_seed=seed)
        self._graph.set_ef(ef_search)

    def __len__(self) -> int:
        return len(self._book)

    @property
    def nodes(self) -> int:
        """All nodes of the graph, the deleted ones too."""
        return self._book.rows

    def set_ef(self, ef: int) -> None:
        with self._lock:
            self._ef = ef
            self._graph.set_ef(ef)

    def add(self, ids: Ids, vectors: Vector) -> None:
        ids, vectors = checked_rows(ids, vectors, self._dim)
        with self._lock:
            self._book.refuse_known(ids)
            self._reserve(self._book.rows + len(ids))
        # A chunk on its own cannot be refused any more, except by a caller that adds one id from two threads.
        for at in range(0, len(ids), _CHUNK):
            with self._lock:
                self._add_chunk(ids[at : at + _CHUNK], vectors[at : at + _CHUNK])

    def _add_chunk(self, ids: Ids, vectors: Vector) -> None:
        start = self._book.rows
        fresh = self._book.admit(ids, vectors)
        if not fresh:
            return
        end = start + len(fresh)
        self._reserve(end)
        self._graph.add_items(vectors[fresh], np.arange(start, end), num_threads=self._threads)

    def _reserve(self, rows: int) -> None:
        if rows > self._capacity:
            self._capacity = max(2 * self._capacity, rows)
            self._graph.resize_index(self._capacity)
            self._graph.set_ef(self._ef)

    def remove(self, ids: Iterable[int]) -> None:
        with self._lock:
            for id in ids:
                row = self._book.release(int(id))
                if row is not None:
                    self._graph.mark_deleted(row)
                    self.deleted += 1

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        query = checked_query(vector, self._dim, k)
        with self._lock:
            live = self._book.rows - self.deleted
            if query is None or not live:
                return no_answer()
            labels, distances = self._nearest(query, min(k, live))
            # hnswlib's "distance" is 1 - inner product.
            return self._book.answers(labels, np.subtract(1.0, distances, dtype=np.float32), k)

    def _nearest(self, query: Vector, k: int) -> tuple[Ids, Vector]:
        ef = self._ef
        if ef < 2 * k:
            ef = 2 * k
            self._graph.set_ef(ef)
        try:
            while True:
                try:
                    labels, distances = self._graph.knn_query(query, k, num_threads=1)
                    return labels[0].astype(np.int64), distances[0]
                except RuntimeError:
                    # It raises when it reached fewer than k live nodes: ef too small among many deleted ones,
                    # or a part of the graph that nothing links to.
                    if ef > self._book.rows:
                        return self._compare_all(query, k)
                    ef *= 4
                    self._graph.set_ef(ef)
        finally:
            if ef != self._ef:
                self._graph.set_ef(self._ef)

    def _compare_all(self, query: Vector, k: int) -> tuple[Ids, Vector]:
        rows = np.unique(self._book.find(self._book.ids().tolist())[1])
        distances = 1.0 - self._vectors(rows).dot(query)
        top = best_rows(-distances, k)
        return rows[top], distances[top]

    def _vectors(self, rows: Ids) -> Vector:
        if not len(rows):
            return np.empty((0, self._dim), np.float32)
        return np.asarray(self._graph.get_items(rows, return_type="numpy"), np.float32)

    def ids(self) -> Ids:
        with self._lock:
            return self._book.ids()

    def fetch(self, ids: Ids) -> tuple[Ids, Vector]:
        with self._lock:
            found, rows = self._book.find(ids.tolist())
            return found, self._vectors(rows)

    def memory_bytes(self) -> int:
        # Per node: vector, links of the lowest layer (with their count) and label; a pointer, a level and a
        # hash-table entry; one node in M has a higher layer. Per reserved node: a mutex and a visited mark.
        node = 4 * self._dim + (8 * self._links + 4) + 8 + 8 + 4 + 48 + (4 * self._links + 20) / (self._links - 1)
        with self._lock:
            nodes = int(self._book.rows * node + self._capacity * 42)
            return _FIXED_BYTES + nodes + self._book.memory_bytes()
