"""`recall serve` as one of several replicas on a shared store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from recall_cli.errors import StoreUnavailable, UsageError
from recall_cli.postgres.open import open_shared
from recall_cli.proxy.app import Proxy
from recall_cli.proxy.planner import Planner, TenantKeys, tenant_key
from recall_cli.proxy.single_flight import CrossReplicaLock

if TYPE_CHECKING:
    from recall_cli.postgres.replica_cache import SharedCache

_log = logging.getLogger(__name__)


def replica_cache(url: str, *, durability: str, held_bytes: int, **options: Any) -> SharedCache:
    """Return a cache over the shared store at a URL, with these options of `Cache`."""
    if durability != "normal":
        raise UsageError(
            "how durable a shared store is, its server decides",
            hint="leave --durability out, and see synchronous_commit in docs/scaling.md",
        )
    store = open_shared(url, options["embedder"])
    from recall_cli.postgres.replica_cache import SharedCache

    return SharedCache(store=store, held_bytes=held_bytes, **options)


class Replica:
    """A proxy that answers from a shared store, once its database has answered; until then it passes everything on."""

    def __init__(
        self, proxy: Proxy, make_cache: Callable[[], SharedCache], *, max_entries: int | None, max_bytes: int | None
    ) -> None:
        self.is_away = True
        """Whether the store has not been reached yet."""
        self._proxy = proxy
        self._make_cache = make_cache
        self._caps = {"max_entries": max_entries, "max_bytes": max_bytes}

    def join_first(self) -> None:
        """Join the other replicas, or say that it is done later. Raises StoreError when the database refuses."""
        try:
            self._join()
        except StoreUnavailable as error:
            self._proxy.metrics.store_works = False
            _log.error("%s; every request is passed on until it answers. %s", error, error.hint)

    def join_again(self) -> None:
        """Join the other replicas, if the database answers by now. Never raises."""
        try:
            self._join()
        except StoreUnavailable:
            return
        except Exception as error:
            self._proxy.keeper.fault("join", error)
        else:
            _log.warning("the database answers: so does the cache from now on")

    def _join(self) -> None:
        """Answer from the shared cache, and follow the other replicas until it is closed.

        Raises StoreError when the database cannot be had; then the proxy is as it was.
        """
        from recall_cli.postgres.replica_sync import Follower
        from recall_cli.postgres.replication import Claims

        proxy, keeper = self._proxy, self._proxy.keeper
        cache = self._make_cache()
        try:
            planner = Planner(TenantKeys(tenant_key(cache.store), proxy.settings), proxy.settings)
            fault = partial(keeper.fault, "follow")
            Follower(cache, **self._caps, fault=fault, healed=self._works).start()
            collapse = CrossReplicaLock(Claims(cache.shared.database), cache.stored)
        except BaseException:
            cache.close()
            raise
        # The planner comes last: until it is there, no request asks for the rest.
        keeper.cache = cache
        proxy.collapse, proxy.relay.landed = collapse, collapse.landed
        proxy.planner = planner
        self.is_away = False
        self._works()

    def _works(self) -> None:
        self._proxy.metrics.store_works = True
