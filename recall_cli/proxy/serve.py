"""`recall serve`, put together: the cache, the application, the socket, and an orderly end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import secrets
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index.auto import index_maker
from recall_cli.cache.policy.registry import labels_version, make_policy, vetoes_of
from recall_cli.cache.policy.static import DEFAULT_TAU
from recall_cli.cache.stores.memory import MemoryStore
from recall_cli.cache.stores.read_through import ReadThroughStore
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import INTERRUPTED, StoreError, StoreMismatch, UpstreamError
from recall_cli.postgres.urls import is_database_url
from recall_cli.proxy.access import Guard
from recall_cli.proxy.access_log import AccessLog
from recall_cli.proxy.app import UNDER, Proxy
from recall_cli.proxy.asgi import BrokenOff
from recall_cli.proxy.audit import Auditor, make_opinion
from recall_cli.proxy.lookup import CacheRunner
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.planner import BypassAllPlanner, Planner, TenantKeys, tenant_key
from recall_cli.proxy.routes import make_inside
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.upstream import Upstream
from recall_cli.types import Completion, Embedder, Store

if TYPE_CHECKING:
    import uvicorn

    from recall_cli.hub.api.app import HubFace, HubPlan
    from recall_cli.proxy.replica import Replica

FLUSH_S = 10.0
"""Seconds between two times that what lookups and labels changed is persisted."""

SWITCH_S = 0.0002
"""Longest turn of a background thread while the event loop waits for the interpreter: Python's default is 5 ms."""

GC_EVERY = 10_000
"""New objects between two looks of the collector at the youngest."""

M_ARENA_MAX = -8
"""glibc's name for its number of arenas."""

Cost = Callable[[str, Completion], float | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What to serve, with which cache."""

    settings: Settings
    embedder: str = "static"
    index: str = "auto"
    policy: str = "static"
    tau: float = DEFAULT_TAU
    target_false_hit: float = 0.01
    store: str | None = None
    """A SQLite file, or the URL of a PostgreSQL database; None keeps everything in memory."""
    store_is_default: bool = False
    """Nobody named the file: one that cannot be had costs the durability, not the service."""
    durability: str = "normal"
    ttl: float | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    held_bytes: int = 1 << 30
    """Memory for the partitions of a store that replicas share."""
    log: str | None = "-"
    hub: HubPlan | None = None
    """The hubs to serve beside it; None leaves their paths to the upstream."""

    @property
    def is_shared(self) -> bool:
        """Whether other replicas use the store too."""
        return self.store is not None and is_database_url(self.store)


class Server:
    """A proxy and the things it is made of, ready to be served."""

    def __init__(self, plan: ServePlan, *, embedder: Embedder | None = None, cost: Cost | None = None) -> None:
        """Open the store and put everything together.

        :param embedder: one that is loaded already, instead of the plan's.
        :param cost: returns the dollars of a call, by provider and answer; without it hits save tokens alone.
        """
        settings = plan.settings
        self.plan = plan
        self.metrics = Metrics()
        if cost is not None:
            self.metrics.cost = cost
        embedder = embedder or make_embedder(plan.embedder)
        self.policy = make_policy(
            plan.policy,
            tau=plan.tau,
            target_false_hit=plan.target_false_hit,
            verify_sample=settings.verify_sample,
            version=labels_version(embedder),
            seed=secrets.randbits(32),
        )
        self.log = AccessLog(plan.log)
        self._options: dict[str, Any] = {
            "embedder": embedder,
            "policy": self.policy,
            "make_index": index_maker(plan.index, embedder.dim),
            "ttl": plan.ttl,
            "vetoes": vetoes_of(settings.verify_on_hit, self.policy),
            "later": lambda change: self.keeper.write(change),
        }
        self.replica: Replica | None = None
        # A replica has nothing of its own: until it has joined the others, an empty cache stands in that nobody asks.
        store, self.degraded = (MemoryStore(embedder.dim), False) if plan.is_shared else _store(plan, embedder)
        self.metrics.is_stand_in = self.degraded
        cache = Cache(store=store, max_entries=plan.max_entries, max_bytes=plan.max_bytes, **self._options)
        self.keeper: CacheRunner = CacheRunner(cache, settings.limits, self.metrics)
        self.upstream = Upstream(settings)
        self.verifier = Auditor(self.keeper, self.metrics, settings.verify_sample)
        self.proxy = Proxy(
            settings,
            self.keeper,
            self.upstream,
            self.verifier,
            self.metrics,
            self.log,
            (BypassAllPlanner if plan.is_shared else Planner)(TenantKeys(tenant_key(store), settings), settings),
            make_opinion(settings.verify_on_hit),
        )
        self.verifier.stored = lambda entry, ask, answer: self.log.write(
            {"time": answer.created, "event": "stored", "entry": entry, "identity": ask.request.identity.hex()}
        )
        self._uvicorn: uvicorn.Server | None = None
        self.hub = self._hub(plan.hub) if plan.hub is not None else None
        routes = self.hub.routes() if self.hub is not None else ()
        self.proxy.inside = make_inside(
            self.proxy, Guard(settings), lambda: self.is_stopping, lambda: self.is_away, routes
        )
        if plan.is_shared:
            self.replica = self._replica()
            try:
                self.replica.join_first()
            except BaseException:
                self.close()
                raise

    @property
    def is_away(self) -> bool:
        """Whether a store that replicas share has not been reached since the start."""
        return self.replica is not None and self.replica.is_away

    @property
    def is_stopping(self) -> bool:
        """Whether no new connection is taken any more."""
        return self._uvicorn is not None and self._uvicorn.should_exit

    def stop(self) -> None:
        """Take no new connection, finish what is under way, then end."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    async def serve(self, listener: socket.socket, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`. Call it inside the event loop."""
        import uvicorn

        from recall_cli.proxy.http_limits import limited

        limits = self.plan.settings.limits
        config = uvicorn.Config(
            self.proxy,
            http=limited(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # The upstream's own headers are what the caller sees.
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=int(limits.idle_s),
            timeout_graceful_shutdown=int(limits.drain_s),
        )
        self._uvicorn = _uvicorn(config)
        await self.upstream.open()
        chores = asyncio.get_running_loop().create_task(self._chores())
        try:
            asyncio.get_running_loop().call_soon(ready)
            await self._uvicorn.serve(sockets=[listener])
        finally:
            chores.cancel()
            await self.verifier.drain(1.0)
            await self.upstream.close()
            if self.hub is not None:
                await self.hub.stop()

    def _replica(self) -> Replica:
        """Return what lets the proxy answer from the plan's shared store."""
        from recall_cli.proxy.replica import Replica, replica_cache

        plan, url = self.plan, self.plan.store or ""
        caps = {"max_entries": plan.max_entries, "max_bytes": plan.max_bytes}
        options = {"durability": plan.durability, "held_bytes": plan.held_bytes, **self._options}
        return Replica(self.proxy, lambda: replica_cache(url, **options), **caps)

    def close(self) -> None:
        """Store what waits, then release everything."""
        self.keeper.close()
        if self.proxy.collapse is not None:
            self.proxy.collapse.close()
        self.log.close()
        if self.hub is not None:
            self.hub.close()

    def _hub(self, plan: HubPlan) -> HubFace:
        """Return the hubs' face, its paths taken from the upstream and its numbers beside ours."""
        from recall_cli.hub.api.app import HubFace
        from recall_cli.hub.api.routes import PREFIXES

        face = HubFace(plan, self.log.write)
        self.proxy.under = UNDER + PREFIXES
        self.metrics.beside.append(face.counts)
        return face

    async def _chores(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(1.0)
            with suppress(Exception):  # a price table that does not load must not end the flushing
                await loop.run_in_executor(None, self.metrics.price)
            if self.replica is not None and self.replica.is_away:
                await loop.run_in_executor(None, self.replica.join_again)
            store = self.keeper.cache.store
            if isinstance(store, ReadThroughStore):
                self.keeper.write(store.refresh)
            if loop.time() - last >= FLUSH_S:
                last = loop.time()
                self.keeper.write(self.keeper.cache.flush)
                await loop.run_in_executor(None, _trim)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UpstreamError when the port cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise UpstreamError(
            f"{host}:{port} cannot be listened on: {error}", hint="stop what listens there, or choose another --port"
        ) from error
    listener.listen(2_048)
    return listener


def run(plan: ServePlan, *, ready: Callable[[Server, int], None], cost: Cost | None = None) -> int:
    """Serve until SIGTERM (0) or SIGINT (130), and return the exit code.

    :param ready: called with the server and its port once connections are taken.
    :param cost: see `Server`.
    """
    import uvloop

    sys.setswitchinterval(SWITCH_S)
    _one_arena()
    _quiet()
    listener = bind(plan.settings.host, plan.settings.port)
    try:
        server = Server(_with_address(plan, listener), cost=cost)
    except BaseException:
        listener.close()
        raise
    settle_memory()
    code = 0

    def stop(interrupted: bool) -> None:
        nonlocal code
        code = INTERRUPTED if interrupted else 0
        if server.is_stopping and server._uvicorn is not None:
            server._uvicorn.force_exit = True  # asked twice: now
        server.stop()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop, False)
        loop.add_signal_handler(signal.SIGINT, stop, True)
        await server.serve(listener, ready=lambda: ready(server, listener.getsockname()[1]))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    finally:
        server.close()
    return code


def _with_address(plan: ServePlan, listener: socket.socket) -> ServePlan:
    """Return the plan with the bound address as the hubs' URL, where nobody named one."""
    if plan.hub is None or plan.hub.url:
        return plan
    return replace(plan, hub=replace(plan.hub, url=plan.settings.url(listener.getsockname()[1])))


def settle_memory() -> None:
    """Give back what loading took for a moment, and spare the collector what stays: 100,000 entries, for instance."""
    gc.collect()
    gc.freeze()
    # Hits create no reference cycles, so the default threshold of 700 objects only costs time.
    gc.set_threshold(GC_EVERY, 20, 20)
    _trim()


def _trim() -> None:
    """Give back what the C library holds and nobody uses."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _one_arena() -> None:
    """Let all threads allocate from one arena: the interpreter's lock keeps them apart, and each would hold its own."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _store(plan: ServePlan, embedder: Embedder) -> tuple[Store, bool]:
    """Return the store, and whether it is a stand-in for the file that could not be had.

    A damaged cache must not keep the service down; a file of another program or embedder is a mistake to be told.
    """
    if plan.store is None:
        return MemoryStore(embedder.dim), False
    path = Path(plan.store)
    try:
        if plan.store_is_default:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_new = not path.exists()
        store = SqliteStore(path, embedder=embedder, durability=plan.durability)
    except (StoreError, OSError) as error:
        damaged = isinstance(error.__cause__, sqlite3.DatabaseError) and path.is_file() and "locked" not in str(error)
        if not (damaged or (plan.store_is_default and not isinstance(error, StoreMismatch))):
            raise
        hint = error.hint if isinstance(error, StoreError) else ""
        _log.error("%s; serving without it: answers are kept in memory only. %s", error, hint)
        return MemoryStore(embedder.dim), True
    if is_new:
        with suppress(OSError):
            os.chmod(path, 0o600)  # prompts and answers are nobody else's
    return ReadThroughStore(store), False


def _quiet() -> None:
    """Let uvicorn say what went wrong, and nothing about answers that were broken off on purpose."""

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, BrokenOff)

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn.error").addFilter(keep)


def _uvicorn(config: uvicorn.Config) -> uvicorn.Server:
    """Return uvicorn without its signal handlers: ours tell a drain from an interrupt."""
    import uvicorn

    class Unsignalled(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Unsignalled(config)
