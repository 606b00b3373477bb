"""Our own routes: health, readiness, metrics, the live page, and the admin API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from recall_cli.proxy.access import Guard
from recall_cli.proxy.admin import admin_routes, json
from recall_cli.proxy.app import Proxy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

LAST = 100
"""Decisions that the live page can show."""

NOT_HERE = "{} for this machine, or for the bearer of the admin token (Authorization: Bearer ...)"


class Recent:
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

    recent = Recent()
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
