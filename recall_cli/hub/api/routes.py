"""`/api/hub/...`: the routes, what every request to them goes through, and what is counted of them.

Method and size, then the hub, then the token and its right, then the rate, then the body, then the answer: a caller
who may not ask learns nothing from what it asks. No hub's name is in the counts: more people may read them than the
hubs.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from recall_cli.hub.api.access import AccessControl, Entry
from recall_cli.hub.api.errors import (
    ApiError,
    Gone,
    as_refusal,
    check_size,
    not_allowed,
    read_body,
    refusal_headers,
    refusal_json,
    respond,
    while_there,
)
from recall_cli.hub.api.tokens import WELL_KNOWN, Tokens, challenge
from recall_cli.util.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send


class HubCounts:
    """The numbers of all hubs of one server; worded for Prometheus by whoever shows its own."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By operation and status."""
        self.latency: dict[str, Histogram] = {}
        """By operation."""
        self.results: Counter[str] = Counter()
        """Where answers came from: cache, joined (another's computation) or computed."""
        self.reranks: Counter[str] = Counter()
        """How reranking ended: ok, or why not."""

    def finished(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[operation, status] += 1
        histogram = self.latency.get(operation)
        if histogram is None:
            histogram = self.latency[operation] = Histogram()
        histogram.add(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, as prometheus-client wants them."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("recall_hub_requests", "Requests to hubs.", labels=["operation", "status"])
        for (operation, status), n in self.requests.items():
            requests.add_metric([operation, str(status)], n)
        yield requests
        waits = HistogramMetricFamily("recall_hub_latency_seconds", "Time by operation.", labels=["operation"])
        for operation, histogram in self.latency.items():
            waits.add_metric([operation], histogram.buckets(), histogram.sum)
        yield waits
        for name, help, counts in (
            ("results", "Answers by where they came from.", self.results),
            ("reranks", "Reranker calls by how they ended.", self.reranks),
        ):
            family = CounterMetricFamily(f"recall_hub_{name}", help, labels=["kind"])
            for kind, n in counts.items():
                family.add_metric([kind], n)
            yield family


PREFIXES = ("/api/hub/", f"{WELL_KNOWN}/api")
"""Paths under which everything is the hub's."""

READING = ("GET", "HEAD")

LONGEST_NAME = 64
"""Characters of a hub's name that are logged: callers choose it, up to a whole head of it."""

GONE = 499
"""How a caller that hung up is logged: nothing was sent, so it is nobody's status."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HubCall:
    """One request on its way."""

    request: Request
    id: str
    body: bytes = b""
    record: dict[str, Any] = field(default_factory=dict)
    """What the access log will say of it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done with a hub."""

    name: str
    scope: str
    most: int
    """Bytes of a request's body."""
    answer: Callable[[HubCall, Entry], Coroutine[Any, Any, Response]]


class Endpoint:
    """One path of the API: an ASGI application."""

    def __init__(self, api: Api, operations: Mapping[str, Operation]) -> None:
        """Answer these operations, by method."""
        self._api = api
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        from starlette.requests import Request

        started = time.perf_counter()
        api, operation = self._api, self._operations.get(scope["method"])
        call = HubCall(Request(scope, receive), api.next_id())
        call.record = {
            "time": time.time(),
            "id": call.id,
            "hub": scope["path_params"].get("slug", "")[:LONGEST_NAME],
            "operation": operation.name if operation is not None else "none",
            "status": GONE,
        }
        try:
            response = await self._respond(operation, call, receive)
            response.headers["x-request-id"] = call.id
            call.record["status"] = response.status_code
            await response(scope, receive, send)
        except Gone:
            pass
        finally:
            took = time.perf_counter() - started
            call.record["ms"] = round(took * 1e3, 3)
            api.counts.finished(call.record["operation"], call.record["status"], took)
            api.log(call.record)

    async def _respond(self, operation: Operation | None, call: HubCall, receive: Receive) -> Response:
        request, api = call.request, self._api
        slug = request.path_params.get("slug", "")
        try:
            if operation is None:
                raise not_allowed(self._operations)
            check_size(request, operation.most)
            authorization = request.headers.getlist("authorization")
            client = request.client.host if request.client is not None else ""
            entry = await api.gate.enter(slug, operation.scope, authorization=authorization, client=client)
            call.record["subject"] = entry.grant.subject if entry.grant is not None else ""
            # Read the body only after authorisation, so that strangers cannot make the server buffer it.
            call.body = await read_body(request, operation.most)
            return await while_there(receive, operation.answer(call, entry))
        except Gone:
            raise
        except Exception as error:
            return self._refused(error, operation, call, slug)

    def _refused(self, error: Exception, operation: Operation | None, call: HubCall, slug: str) -> Response:
        refusal = as_refusal(error)
        call.record["reason"] = refusal.code
        if refusal.status >= 500:
            _log.error("%s: %s: %s", call.id, type(error).__name__, error, exc_info=refusal.code == "internal")
        headers = refusal_headers(refusal)
        if refusal.status in (401, 403) and operation is not None:
            refusal.scope = refusal.scope or operation.scope
            headers["www-authenticate"] = challenge(refusal, self._api.tokens.metadata_url(slug))
        return respond(refusal_json(refusal, call.id), refusal.status, headers)


class Plain:
    """A path that answers from its request alone, by whatever method: routes of functions choose methods themselves."""

    def __init__(self, answer: Callable[[Request], Coroutine[Any, Any, Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        from starlette.requests import Request

        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)


class Api:
    """What all paths of the API share."""

    def __init__(
        self, gate: AccessControl, tokens: Tokens, counts: HubCounts, log: Callable[[dict[str, Any]], None]
    ) -> None:
        """Stand between HTTP and the hubs.

        :param log: takes one record a request; neither a credential nor a query string is in it.
        """
        self.gate = gate
        self.tokens = tokens
        self.counts = counts
        self.log = log
        self._prefix = "req_hub_" + os.urandom(6).hex()
        self._serial = count(1)

    def next_id(self) -> str:
        """Return a name for a request."""
        return f"{self._prefix}{next(self._serial):08x}"

    def routes(self, paths: Mapping[str, Mapping[str, Operation]]) -> list[BaseRoute]:
        """Return the routes for the operations, by path and method. Any other path or method answers 404."""
        from starlette.routing import Route

        return [
            *[Route(path, Endpoint(self, operations)) for path, operations in paths.items()],
            Route(f"{WELL_KNOWN}/{{path:path}}", Plain(self._metadata)),
            Route("/api/hub/{path:path}", Plain(self._nowhere)),
        ]

    async def _metadata(self, request: Request) -> Response:
        if request.method not in READING:
            return self._refuse(not_allowed(READING))
        path = request.path_params["path"].rstrip("/")
        if path == "api" or (path.startswith("api/hub/") and path.count("/") == 2):
            return respond(self.tokens.metadata(path))
        return await self._nowhere(request)

    async def _nowhere(self, request: Request) -> Response:
        return self._refuse(ApiError(404, "no_such_path", "there is nothing at this path"))

    def _refuse(self, refusal: ApiError) -> Response:
        return respond(refusal_json(refusal, self.next_id()), refusal.status, refusal_headers(refusal))
