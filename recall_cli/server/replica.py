"""`recall serve` as one of several replicas on a shared store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from recall_cli.engine.opening import open_shared
from recall_cli.errors import UsageError
from recall_cli.server.app import Proxy
from recall_cli.server.collapse import Collapse

if TYPE_CHECKING:
    from recall_cli.engine.shared import SharedCache


def replica_cache(url: str, *, durability: str, held_bytes: int, **options: Any) -> SharedCache:
    """Return a cache over the shared store at a URL, with these options of `Cache`."""
    if durability != "normal":
        raise UsageError(
            "how durable a shared store is, its server decides",
            hint="leave --durability out, and see synchronous_commit in docs/scaling.md",
        )
    store = open_shared(url, options["embedder"])
    from recall_cli.engine.shared import SharedCache

    return SharedCache(store=store, held_bytes=held_bytes, **options)


def follow(proxy: Proxy, *, max_entries: int | None, max_bytes: int | None) -> None:
    """Follow the other replicas until the cache is closed. Raises StoreError when the database cannot be had."""
    from recall_cli.engine.follower import Follower
    from recall_cli.engine.pg_claims import Claims

    keeper, metrics = proxy.keeper, proxy.metrics
    cache = cast("SharedCache", keeper.cache)

    def healed() -> None:
        metrics.store_works = True

    Follower(
        cache,
        max_entries=max_entries,
        max_bytes=max_bytes,
        fault=lambda error: keeper.fault("follow", error),
        healed=healed,
    ).start()
    proxy.collapse = Collapse(Claims(cache.shared.database), cache.stored)
    proxy.relay.landed = proxy.collapse.landed
