"""The default index: exact while that is fastest, a compressed scan beyond, a graph only on request."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from recall_cli.cache.index.exact import ExactIndex
from recall_cli.cache.index.hot_swap import Relay
from recall_cli.cache.index.rows import SCAN_FROM_DIM

if TYPE_CHECKING:
    from recall_cli.cache.index.hot_swap import Engine
    from recall_cli.types import Ids, Vector

# Rows at which the scan overtakes exact search, one thread, 256 dimensions, p50 in us exact / scan:
# 500: 10 / 18, 1,000: 16 / 20, 2,000: 31 / 24, 10,000: 160-200 / 51, 50,000: 4,700 / 144. They cross at about 1,300.
SCAN_AT = 1_500

# At this share of `scan_at` the scan is made ready beside the service: importing faiss and making the codebook take
# 170 ms, once in a process, and would otherwise be added to the one write that moves.
PREPARE_AT = 0.5

# Rows at which a graph overtakes the scan: never, at equal recall, up to 200,000 real sentences of 256 dimensions.
# (p50, recall@1; "near": given a neighbour at cosine >= .8)
#   50,000, bundled embedder: scan 147 us, .9998, near 1.0000; graph 393 us, .994, near .9993
#   200,000, bundled embedder: scan 480 us, .9988, near .9997
#   200,000, wordllama: graph 276 us, .981, near .9987; 448 us, .993, near .9996; 862 us, .997, near 1.0000
# Who has more rows, or accepts losing 0.1 % of the servable hits for half the time at 200,000, sets it; the
# graph then takes a millisecond of processor time a row to build, so it is built in the background.
HNSW_AT: int | None = None


class AutoIndex(Relay):
    """Starts as exact search and moves to the next kind as it grows; every search is answered throughout.

    `scan_at` and `hnsw_at` are the numbers of ids at which it moves (None: never). With fewer than SCAN_FROM_DIM
    dimensions it moves to no scan, which would not find every row there. It does not move back when it
    shrinks: the larger kinds answer small sets well, and a cache at its limit would move to and fro.
    """

    def __init__(
        self, dim: int, *, scan_at: int | None = SCAN_AT, hnsw_at: int | None = HNSW_AT, background: bool = True
    ) -> None:
        self._dim = dim
        self._scan_at, self._hnsw_at = scan_at if dim >= SCAN_FROM_DIM else None, hnsw_at
        if min(at for at in (scan_at, hnsw_at, 1) if at is not None) < 1:
            raise ValueError("scan_at and hnsw_at must be at least 1")
        self._background = background
        self._prepared = False
        super().__init__(ExactIndex(dim))

    @property
    def kind(self) -> str:
        """The kind now in service: exact, scan or hnsw."""
        return type(self._engine).__name__.removesuffix("Index").lower()

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        if self._scan_at is not None and not len(self) and len(ids) >= self._scan_at:
            # A store being opened: skip a stage that would only be copied.
            self._hand_over(self._scan, background=False)
        super().add(ids, vectors)

    def _after_write(self) -> None:
        size = len(self._engine)
        if self._hnsw_at is not None and size >= self._hnsw_at:
            if self.kind != "hnsw":
                self._hand_over(self._hnsw, background=self._background)
        elif self._scan_at is not None and size >= self._scan_at and self.kind == "exact":
            # A few microseconds a row, which searches in service need not wait for.
            self._hand_over(self._scan, background=self._background)
        elif (
            self._background
            and not self._prepared
            and self._scan_at is not None
            and size >= PREPARE_AT * self._scan_at
            and self.kind == "exact"
        ):
            self._prepared = True
            with suppress(RuntimeError):  # no more threads, or the process is ending: then the move takes longer
                Thread(target=_prepare, args=(self._dim,), name="recall-scan").start()

    def _scan(self) -> Engine:
        from recall_cli.cache.index.scan import ScanIndex

        return ScanIndex(self._dim)

    def _hnsw(self) -> Engine:
        from recall_cli.cache.index.hnsw import HnswIndex

        index = HnswIndex(self._dim, background=self._background)
        index.expect(len(self))
        return index


def _prepare(dim: int) -> None:
    with suppress(ImportError):  # will be said when it is needed
        from recall_cli.cache.index.codes import prepare

        prepare(dim)
