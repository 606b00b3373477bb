"""The cache as the server uses it: no fault of it reaches a request, and nothing slow runs on the event loop.

Lookups of ordinary prompts take less than handing them to a thread would, and run where they are asked for;
long prompts and indexes that compare everything go to a thread, with a deadline. Everything that writes goes
to one writer thread, in order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from recall_cli.cache.cache import Cache
from recall_cli.cache.stores.memory import NotInMemory
from recall_cli.errors import StoreError
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.settings import Limits
from recall_cli.types import Decision, Lookup, Outcome, Request

INLINE_CHARS = 1_500
"""A longer prompt is embedded and compared in a thread: its words alone may take a millisecond."""

INLINE_ROWS = {"exact": 10_000, "scan": 250_000, "hnsw": 10_000_000}
"""Rows up to which a search stays under a millisecond, by kind of index."""

WARN_EVERY_S = 10.0
"""The same fault is said at most this often: a broken disk fails at every request."""

BATCH = 64
"""Answers stored in one transaction at most: it holds up lookups of none, but other writes for some milliseconds."""

COLLECT_S = 0.003
"""How long an answer waits for others to be stored with: the caller's next request is on its way by then, and the
writer takes its turn while that waits for the upstream, not while it is looked up."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class CacheRunner:
    """Looks up, and writes behind."""

    def __init__(self, cache: Cache, limits: Limits, metrics: Metrics) -> None:
        self.cache = cache
        self._reads_all: Callable[[str], bool] | None = getattr(cache.embedder, "reads_all", None)
        self._limits = limits
        self._metrics = metrics
        self._writer = ThreadPoolExecutor(1, "recall-writer")
        self._lookers = ThreadPoolExecutor(2, "recall-lookup")
        self._waiting = 0
        self._items: list[Any] = []
        self._collecting = threading.Lock()
        self._drain: Callable[[], None] = lambda: None
        self._said: dict[str, float] = {}
        metrics.held = lambda: (len(self.cache), self.cache.size_bytes)

    async def find(self, request: Request) -> Lookup:
        """Return what the cache has. Never raises: a fault is a miss, counted and logged."""
        try:
            return await self._find(request)
        except TimeoutError:
            self._metrics.faults["lookup_deadline"] += 1
            return Lookup(Decision(Outcome.MISS, reason="lookup_deadline"))
        except Exception as error:
            self.fault("lookup", error)
            return Lookup(Decision(Outcome.MISS, reason="cache_fault"))

    def find_again(self, request: Request) -> Lookup | None:
        """Return the hit on a request's identity that has come since it was looked up. Never raises."""
        try:
            return self.cache.exact(request)
        except NotInMemory:
            return None
        except Exception as error:
            self.fault("lookup", error)
            return None

    async def _find(self, request: Request) -> Lookup:
        started = time.perf_counter()
        try:
            found = self.cache.exact(request)
            if found is not None:
                self._metrics.latency["exact"].add(time.perf_counter() - started)
                return found
            if request.exact_only or not self.cache.checks.by_meaning:
                return Lookup(Decision(Outcome.MISS, reason="exact_only"))
            if self._reads_all is not None and not self._reads_all(request.text):
                # Two such texts may differ in what the embedder never saw: they are matched by identity alone.
                request.exact_only = True
                return Lookup(Decision(Outcome.MISS, reason="too_long_to_compare"))
            if self._is_quick(request):
                return self._match(request)
            return await self._in_thread(self._match, request)
        except NotInMemory:
            # It is in a store that other replicas share, and may take as long as any lookup.
            found = await self._in_thread(self.cache.get, request)
            self._metrics.latency["store"].add(time.perf_counter() - started)
            return found

    async def _in_thread(self, look: Callable[[Request], Lookup], request: Request) -> Lookup:
        future = asyncio.get_running_loop().run_in_executor(self._lookers, look, request)
        return await asyncio.wait_for(future, self._limits.lookup_s)

    def _match(self, request: Request) -> Lookup:
        clock, latency = time.perf_counter, self._metrics.latency
        started = clock()
        vector = self.cache.embedder.embed(request.text)
        embedded = clock()
        found = self.cache.match(request, vector)
        latency["embed"].add(embedded - started)
        latency["search"].add(clock() - embedded)
        return found

    def now(self) -> float:
        """Return the time of day."""
        return time.time()

    def write(self, work: Callable[[], object]) -> bool:
        """Hand work to the writer thread; return False when too much of it waits already."""
        if self._waiting >= self._limits.writes:
            self._metrics.dropped["write"] += 1
            return False
        self._waiting += 1
        self._writer.submit(self._guarded, work)
        return True

    def collect(self, item: object, take: Callable[[list[Any]], None]) -> bool:
        """Leave an item to the writer thread, which takes all that wait at once; return False when too many do."""
        with self._collecting:
            waiting = len(self._items)
            if waiting >= self._limits.writes:
                self._metrics.dropped["write"] += 1
                return False
            self._items.append(item)
        if not waiting:
            self._waiting += 1
            self._drain = partial(self._take, take)
            asyncio.get_running_loop().call_later(COLLECT_S, self._submit_items)
        return True

    def _submit_items(self) -> None:
        self._writer.submit(self._guarded, self._drain)

    def _take(self, take: Callable[[list[Any]], None]) -> None:
        with self._collecting:
            items, self._items = self._items, []
        for at in range(0, len(items), BATCH):
            try:
                take(items[at : at + BATCH])
            except Exception as error:  # the others have nothing to do with it
                self.fault("write", error)

    @property
    def is_settled(self) -> bool:
        """Whether no answer waits to be handed to the writer thread."""
        return not self._items

    def ask_writer(self, work: Callable[[], T]) -> Future[T]:
        """Run work in the writer thread and return its future, whose fault is the caller's."""
        return self._writer.submit(work)

    def fault(self, kind: str, error: BaseException, times: int = 1) -> None:
        """Count a fault of the cache and say it, though not at every request."""
        self._metrics.faults[kind] += times
        if isinstance(error, StoreError):
            self._metrics.store_works = False
        now = time.monotonic()
        if now - self._said.get(kind, -WARN_EVERY_S) >= WARN_EVERY_S:
            self._said[kind] = now
            _log.error("the cache failed in %s, requests go on without it: %s: %s", kind, type(error).__name__, error)

    def close(self) -> None:
        """Finish what waits, then flush and release the store."""
        self._lookers.shutdown(cancel_futures=True)
        if self._items:
            self._submit_items()
        self._writer.submit(self._guarded, self.cache.close)
        self._writer.shutdown()

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self.fault("write", error)
        finally:
            self._waiting -= 1

    def _is_quick(self, request: Request) -> bool:
        if len(request.text) > INLINE_CHARS:
            return False
        index = self.cache.index_of(request.partition)
        if index is None:
            return True
        kind = getattr(index, "kind", None) or type(index).__name__.removesuffix("Index").lower()
        return len(index) <= INLINE_ROWS.get(kind, INLINE_ROWS["exact"])
