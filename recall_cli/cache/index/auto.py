"""The indexes by name, and the default one: exact while that is fastest, a compressed scan beyond.

It makes a graph only on request. All indexes keep one contract, which `tests/contract/test_index.py` checks:

* similarities are cosines, computed in float32 from the full vectors, best first;
* rows and queries have unit length; a row of zeros is refused, a query of zeros has no neighbours;
* `add` is all or nothing: a ValueError leaves the index as it was;
* ids with identical vectors all stay findable; a search for one neighbour returns the largest of them;
* any method may be called from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from inspect import signature
from threading import Thread
from typing import TYPE_CHECKING, Any

from recall_cli.cache.index.exact import SCAN_FROM_DIM, ExactIndex
from recall_cli.cache.index.hot_swap import SwappableIndex
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from recall_cli.cache.index.hot_swap import Engine
    from recall_cli.types import Ids, Index, Vector

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


class AutoIndex(SwappableIndex):
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
        from recall_cli.cache.index.scan import prepare

        prepare(dim)


KINDS = ("auto", "exact", "scan", "hnsw")

_log = logging.getLogger(__name__)

PROBE_DIM = 4_096
"""Options are tried on an empty index of this dimension: wide enough for any number of codes."""


def index_maker(spec: str, dim: int = PROBE_DIM) -> Callable[[int], Index]:
    """Return what makes the index of a spec such as `auto` or `hnsw:M=32,ef_search=160`, given a dimension.

    Raises UsageError at once, not at the first entry. What depends on the dimension (scan's `m`) is judged by `dim`;
    without one, when the first index is made.
    """
    kind, _, rest = spec.partition(":")
    options: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in options:
            raise UsageError(f"the index {spec!r} has the option {name} twice", hint="leave out one of them")
        try:
            options[name] = int(value)
        except ValueError:
            raise UsageError(
                f"the index {spec!r} has the option {part!r}, which is no whole number",
                hint="write it as in hnsw:M=32,ef_search=160",
            ) from None
    make_index(kind, dim, **options)
    if kind == "hnsw":
        _say_which_graph()
    return partial(make_index, kind, **options)


def index_spec(kind: str, options: Mapping[str, int]) -> str:
    """Return the spec that `index_maker` reads."""
    return kind + (":" + ",".join(f"{name}={value}" for name, value in options.items()) if options else "")


def make_index(kind: str, dim: int, /, **options: Any) -> Index:
    """Make an empty index by name: auto, exact, scan or hnsw. Raises UsageError for another name or option."""
    try:
        make = _class(kind)
        known = [name for name in signature(make).parameters if name != "dim"]
        for name in options:
            if name not in known:
                hint = f"it takes {', '.join(known)}" if known else "it takes none"
                raise UsageError(f"the index {kind} has no option {name!r}", hint=hint)
        return make(dim, **options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the index {kind} cannot be made: {error}", hint="mend or leave out that option") from error
    except ImportError as error:
        raise UsageError(
            f"the index {kind} needs a package that cannot be imported: {error}",
            hint="install it, or choose the index called exact",
        ) from error


@cache
def _say_which_graph() -> None:
    """Say once that the graph is faiss's: its speed and recall are not the recorded ones of hnswlib."""
    from recall_cli.cache.index.hnsw_library import HNSWLIB, INSTALL_HNSWLIB, WITHOUT_HNSWLIB, graph_library

    if graph_library() != HNSWLIB:
        _log.warning("%s; %s", WITHOUT_HNSWLIB, INSTALL_HNSWLIB)


def _class(kind: str) -> Callable[..., Index]:
    if kind == "exact":
        return ExactIndex
    if kind == "scan":
        from recall_cli.cache.index.scan import ScanIndex

        return ScanIndex
    if kind == "hnsw":
        from recall_cli.cache.index.hnsw import HnswIndex

        return HnswIndex
    if kind == "auto":
        return AutoIndex
    raise UsageError(f"there is no index called {kind!r}", hint=f"choose one of {', '.join(KINDS)}")
