"""The thread that keeps a replica up to date: it sends labels, follows the feed, brings partitions, and tidies."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from recall_cli.cache.policy.risk_model import FEATURES
from recall_cli.errors import StoreError
from recall_cli.postgres import lookup, replication
from recall_cli.postgres.replica_cache import SharedCache
from recall_cli.postgres.replication import Feed, tidy
from recall_cli.postgres.store import PAGE

POLL_S = 0.2
"""Seconds between two looks at the feed: what one replica stores, the others know in a third of a second."""
TIDY_S = 30.0
"""Seconds between two looks for what has expired or is too much."""
WANTED = 1_000
"""Partitions that may wait to be brought; of more the oldest are left to the next request for them."""
REFUSED = 10_000
"""Partitions remembered that cannot be held: larger than memory, or with a vector that no index takes."""

_log = logging.getLogger(__name__)


class Follower:
    """Follows the other replicas for one cache, until `stop`.

    :param max_entries: entries that the store may hold for this tenant, all replicas together; None for no limit.
    :param max_bytes: the same by their sizes.
    :param fault: called with what went wrong; the next turn tries again.
    :param healed: called when the database answers again.
    """

    def __init__(
        self,
        cache: SharedCache,
        *,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        fault: Callable[[BaseException], None] = lambda error: None,
        healed: Callable[[], None] = lambda: None,
    ) -> None:
        self._cache = cache
        self._store = cache.shared
        self._version = f"{getattr(cache.policy, 'version', '')}/{FEATURES}"
        self._feed = Feed(cache.shared.database, self._version)
        self._caps = max_entries, max_bytes
        self._fault = fault
        self._healed = healed
        self._works = True
        self._since_tidy = TIDY_S
        self._wanted: OrderedDict[bytes, int] = OrderedDict()
        """Partitions to bring, and the id up to which they are here."""
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="recall-follower", daemon=True)
        cache.want, cache.leave = self.want, self.stop

    def start(self) -> None:
        """Take in what is there, then follow in a thread. Raises StoreError when the database cannot be had."""
        self.turn()
        self._thread.start()

    def stop(self) -> None:
        """Send what waits, then end."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._send_labels()
        except StoreError as error:
            self._fault(error)

    def want(self, partition: bytes) -> None:
        """Ask for a partition to be held."""
        if partition in self._refused or partition in self._wanted:
            return
        if len(self._wanted) < WANTED:
            self._wanted[partition] = 0
            self._wake.set()

    def turn(self) -> None:
        """Do once what the thread does several times a second."""
        self._send_labels()
        while True:
            changes = self._feed.read()
            if changes.broken:
                self._wanted.clear()
            self._cache.take_in(changes)
            if changes.is_all:
                break
        self._bring_page()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            is_idle = True
            try:
                self.turn()
                if not self._works:
                    # Connections that the database has closed on its way would each cost a request its lookup.
                    self._store.database.renew()
                    self._works = True
                    self._healed()
                self._tidy()
                is_idle = not self._wanted
            except Exception as error:  # whatever it is, the next turn may do better, and nothing stale is served
                self._works = False
                self._fault(error)
            if is_idle:
                self._wake.wait(POLL_S)
            self._since_tidy += POLL_S

    def _send_labels(self) -> None:
        waiting = self._cache.labels
        while batch := [waiting.popleft() for _ in range(min(len(waiting), 500))]:
            try:
                replication.pool(self._store, self._version, batch)
            except StoreError as error:
                if self._store.database.is_down:
                    waiting.extendleft(reversed(batch))
                    raise
                self._fault(error)  # labels that cannot be written must not keep everything else waiting

    def _bring_page(self) -> None:
        """Bring a page of the partition that was asked for first."""
        cache = self._cache
        try:
            partition, after = next(iter(self._wanted.items()))
        except (StopIteration, RuntimeError):  # none, or one was asked for just now: the next turn
            return
        try:
            if not after:
                cache.held.begin(partition)
            page = lookup.read_page(self._store, partition, after)
            if not after and len(page) == PAGE and lookup.count(self._store, partition) > cache.held.most_rows:
                self._refuse(partition)
                _log.warning("a partition is larger than the memory for partitions: it is searched in the database")
                return
            cache.hold(page)
        except (StoreError, ValueError) as error:
            if self._store.database.is_down:
                raise
            self._refuse(partition)  # one that cannot be held must not keep the others waiting
            self._fault(error)
            return
        if len(page) == PAGE:
            self._wanted[partition] = page[-1][0].id
            return
        cache.complete(partition)
        del self._wanted[partition]

    def _refuse(self, partition: bytes) -> None:
        self._cache.abandon(partition)
        del self._wanted[partition]
        self._refused[partition] = None
        if len(self._refused) > REFUSED:
            self._refused.popitem(last=False)

    def _tidy(self) -> None:
        if self._since_tidy >= TIDY_S:
            self._since_tidy = 0.0
            tidy(self._store, *self._caps)
