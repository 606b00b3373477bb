"""The admin API: look into the cache, take entries out, carry them elsewhere. Every call takes the admin token."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from recall_cli.cache.stores.maintenance import TENANTS, Import, chosen, exported, keyed_otherwise, listed, shown
from recall_cli.errors import InputError, RecallError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from recall_cli.proxy.access import Guard
    from recall_cli.proxy.app import Proxy

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
