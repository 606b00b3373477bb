"""The proxy's own routes: health, readiness, metrics, the live page, and the admin API.

The admin API looks into the cache, takes entries out and carries them elsewhere. Every call of it takes the admin
token.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from recall_cli.cache.stores.maintenance import TENANTS, Import, chosen, exported, keyed_otherwise, listed, shown
from recall_cli.errors import InputError, RecallError
from recall_cli.proxy.access import Guard
from recall_cli.proxy.app import Proxy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route

BATCH = 200
"""Entries deleted or stored in one go of the writer thread: what waits behind them waits for milliseconds."""

LARGEST = 2**63 - 1
"""The store's largest number."""

T = TypeVar("T")


def json(value: Any, status: int = 200) -> Response:
    """Return an answer of our own routes."""
    from starlette.responses import Response

    return Response(orjson.dumps(value, default=str), status, media_type="application/json")


def admin_routes(proxy: Proxy, guard: Guard) -> list[Route]:
    """Return the routes under /recall/entries."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    keeper = proxy.keeper

    def guarded(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not guard.is_armed:
                return json({"error": "there is no admin API here: start recall with RECALL_ADMIN_TOKEN set"}, 404)
            if not guard.knows(request):
                return json({"error": "this takes the admin token: Authorization: Bearer ..."}, 401)
            try:
                return await handle(request)
            except InputError as error:
                return json({"error": str(error), "hint": error.hint}, 400)
            except RecallError as error:
                return json({"error": str(error), "hint": error.hint}, 500)

        return answer

    async def written(work: Callable[[], T]) -> T:
        import asyncio

        return await asyncio.wrap_future(keeper.ask_writer(work))

    async def list_entries(request: Request) -> Response:
        asked = request.query_params
        limit = _whole(asked.get("limit", "100"))
        rows = await run_in_threadpool(
            listed, keeper.cache.store, namespace=asked.get("namespace"), contains=asked.get("contains"), limit=limit
        )
        return json({"entries": rows, "n": len(keeper.cache)})

    async def show_entry(request: Request) -> Response:
        row = await run_in_threadpool(shown, keeper.cache.store, _whole(request.path_params["id"]))
        return json(row) if row is not None else json({"error": "there is no such entry"}, 404)

    async def delete_entry(request: Request) -> Response:
        gone = await written(lambda: keeper.cache.delete([_whole(request.path_params["id"])]))
        return json({"removed": gone}, 200 if gone else 404)

    async def purge(request: Request) -> Response:
        asked = _filters(await request.body())
        before = time.time() - asked["older_s"] if "older_s" in asked else None
        ids = await run_in_threadpool(
            chosen, keeper.cache.store, namespace=asked.get("namespace"), before=before, contains=asked.get("contains")
        )
        gone = 0
        for at in range(0, len(ids), BATCH):
            batch = ids[at : at + BATCH]
            gone += await written(lambda batch=batch: keeper.cache.delete(batch))  # type: ignore[misc]
        return json({"removed": gone})

    async def export(request: Request) -> Response:
        return StreamingResponse(exported(keeper.cache.store, keeper.cache.embedder), media_type="application/jsonl")

    async def take_in(request: Request) -> Response:
        reader = Import((await request.body()).splitlines(), keeper.cache.embedder)
        if reader.tenants != keeper.cache.store.saved(TENANTS):
            raise keyed_otherwise("stop the server, and import into its store's file while that is empty")
        taken = 0
        for asked, completion, vector, _, expires in reader.entries():
            ttl = None if expires is None else expires - time.time()
            if ttl is None or ttl > 0:
                await written(lambda r=asked, c=completion, v=vector, t=ttl: keeper.cache.put(r, c, v, ttl=t))  # type: ignore[misc]
                taken += 1
        return json({"stored": taken})

    return [
        Route("/recall/entries", guarded(list_entries), methods=["GET"]),
        Route("/recall/entries/{id}", guarded(show_entry), methods=["GET"]),
        Route("/recall/entries/{id}", guarded(delete_entry), methods=["DELETE"]),
        Route("/recall/purge", guarded(purge), methods=["POST"]),
        Route("/recall/export", guarded(export), methods=["GET"]),
        Route("/recall/import", guarded(take_in), methods=["POST"]),
    ]


def _filters(raw: bytes) -> dict[str, Any]:
    """Return what a purge asks. Raises InputError for what says nothing: it must not be read as everything."""
    try:
        asked = orjson.loads(raw or b"{}")
    except ValueError:
        asked = None
    if isinstance(asked, dict) and asked.keys() == {"all"} and asked["all"] is True:
        return {}
    if not isinstance(asked, dict) or not asked or not all(_is_filter(name, asked[name]) for name in asked):
        raise InputError(
            "a purge must say what: all (true, and alone), or namespace, contains (text) and older_s (seconds)",
            hint='as in {"all": true} or {"older_s": 86400}',
        )
    return asked


def _is_filter(name: str, value: Any) -> bool:
    if name == "older_s":
        return type(value) in (int, float) and value >= 0
    return name in ("namespace", "contains") and isinstance(value, str)


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= LARGEST:
        raise InputError(f"{text!r} is no number that is counted to here", hint="entries are named by their number")
    return number


LAST = 100
"""Decisions that the live page can show."""

NOT_HERE = "{} for this machine, or for the bearer of the admin token (Authorization: Bearer ...)"


class RecentRequests:
    """The last decisions, for the live page."""

    def __init__(self) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=LAST)

    def add(self, record: dict[str, Any]) -> None:
        """Remember one."""
        self._records.append(record)

    def latest(self) -> list[dict[str, Any]]:
        """Return them, latest first."""
        return list(reversed(self._records))


def make_inside(
    proxy: Proxy,
    guard: Guard,
    is_draining: Callable[[], bool],
    is_away: Callable[[], bool],
    beside: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the application of our own routes.

    :param is_away: whether a store that replicas share has not been reached since the start.
    :param beside: routes of others that are ours too: a served hub's.
    """
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route

    recent = RecentRequests()
    proxy.watch = recent.add

    html = (files("recall_cli") / "proxy" / "page.html").read_text(encoding="utf-8")

    async def healthz(request: Request) -> Response:
        return json({"status": "ok"})

    async def readyz(request: Request) -> Response:
        draining = is_draining()
        if is_away():
            store = "not reached yet: every request is passed on"
        else:
            store = "ok" if proxy.metrics.store_ok else "failing: requests go on without it"
        return json({"status": "draining" if draining else "ready", "store": store}, 503 if draining else 200)

    async def metrics(request: Request) -> Response:
        if not guard.may_see(request):
            return json({"error": NOT_HERE.format("the numbers are")}, 403)
        return Response(proxy.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(request: Request) -> Response:
        if not guard.may_see(request):
            return json({"error": NOT_HERE.format("the page is")}, 403)
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
        return HTMLResponse(html, headers={"content-security-policy": policy, "x-frame-options": "DENY"})

    async def live(request: Request) -> Response:
        if not guard.may_see(request):
            return json({"error": NOT_HERE.format("the page is")}, 403)
        shown = {"shadow": proxy.settings.shadow, "policy": proxy.keeper.cache.policy.name}
        return json({**proxy.metrics.summary(), **shown, "last": recent.latest()})

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/recall", page),
        Route("/recall/live", live),
        *admin_routes(proxy, guard),
        *beside,
    ]
    return Starlette(routes=routes)
