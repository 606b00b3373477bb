"""The ASGI application: two cached routes on the shortest way, ours beside them, and everything else passed on.

No framework stands before the cached routes: its routing alone costs as much as an exact hit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from recall_cli.cache.decision import SECOND_OPINION, as_miss
from recall_cli.proxy import forward
from recall_cli.proxy.access_log import AccessLog
from recall_cli.proxy.asgi import JSON, Gone, Headers, Receive, Refused, Scope, Send, read_body, respond
from recall_cli.proxy.audit import Auditor, Opinion
from recall_cli.proxy.http_limits import CYCLE, write_whole
from recall_cli.proxy.lookup import CacheRunner
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.passthrough import pass_through
from recall_cli.proxy.planner import PlannedRequest, Planner, by_name, objection, read_controls
from recall_cli.proxy.providers.dialect import BY_PATH, Dialect
from recall_cli.proxy.replay import hit_headers, replay
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.single_flight import CrossReplicaLock
from recall_cli.proxy.upstream import Upstream
from recall_cli.types import Bypass, Decision, Lookup, Outcome

INSIDE = frozenset({"/recall", "/healthz", "/readyz", "/metrics"})
"""Paths that are ours and never reach an upstream."""
UNDER = ("/recall/",)
"""All under these is ours too."""

PROVEN_S = 3_600.0
"""How long a credential that the upstream took counts as good where tenants share: then it is tried again."""
PROVEN = 4_096

LONGEST_NAME = 200
"""Characters of a model's name that are logged and shown: callers choose it, up to a whole body of it."""

NOT_STORED = "no stored answer fits this request"


class Proxy:
    """Answers from the cache, or from the upstream while learning."""

    def __init__(
        self,
        settings: Settings,
        keeper: CacheRunner,
        upstream: Upstream,
        verifier: Auditor,
        metrics: Metrics,
        log: AccessLog,
        planner: Planner,
        opinion: Opinion | None = None,
    ) -> None:
        self.settings = settings
        self.keeper = keeper
        self.upstream = upstream
        self.verifier = verifier
        self.metrics = metrics
        self.log = log
        self.planner = planner
        self.opinion = opinion
        self.relay = forward.Relays(settings, keeper, upstream, verifier, metrics)
        self.collapse: CrossReplicaLock | None = None
        """Where other replicas share the store: who of them asks the upstream."""
        self.inside: Callable[[Scope, Receive, Send], Awaitable[None]] | None = None
        """The application of our own routes."""
        self.under: tuple[str, ...] = UNDER
        """What its paths begin with, beside those that are whole; a served hub adds its own."""
        self.watch: Callable[[dict[str, Any]], None] = lambda record: None
        """Called with the log record of each request to a cached route."""
        self._proven: dict[str, float] = {}
        self._serial = 0
        self._prefix = "req_recall_" + os.urandom(6).hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        path = scope["path"]
        cycle = scope.pop(CYCLE, None)
        dialect = BY_PATH.get(path)
        if dialect is not None and scope["method"] == "POST":
            await self._cached(dialect, scope, cycle, receive, send)
        elif (path in INSIDE or path.startswith(self.under)) and self.inside is not None:
            await self.inside(scope, receive, send)
        else:
            await pass_through(self.settings, self.upstream, self.metrics, self.log, scope, receive, send)

    async def _cached(self, dialect: Dialect, scope: Scope, cycle: object, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        self._serial += 1
        record: dict[str, Any] = {
            "time": time.time(),
            "id": f"{self._prefix}{self._serial:08x}",
            "provider": dialect.name,
            "path": scope["path"],
        }
        try:
            await self._answer(dialect, scope, cycle, receive, send, record)
        except Gone:
            record["status"] = 499
        except Refused as refused:
            body = dialect.error_body(refused.status, refused.kind, str(refused))
            # What is left of the body must not be read as the next request.
            headers = [JSON, _length(body), (b"connection", b"close")]
            await respond(send, refused.status, headers, body)
            record |= {"status": refused.status, "reason": refused.kind}
        finally:
            took = time.perf_counter() - started
            record["ms"] = round(took * 1e3, 3)
            self.metrics.latency["total"].add(took)
            self.metrics.decided(dialect.name, record.get("outcome", "REFUSED"), record.get("reason", ""))
            self.log.write(record)
            self.watch(record)

    async def _answer(
        self, dialect: Dialect, scope: Scope, cycle: object, receive: Receive, send: Send, record: dict[str, Any]
    ) -> None:
        raw = await read_body(receive, most=self.settings.limits.body_bytes)
        headers: Headers = scope["headers"]
        route = scope["raw_path"] + b"?" + scope["query_string"]
        try:
            planned = self.planner.plan(dialect, raw, headers, route)
        except Exception as error:
            self.keeper.fault("plan", error)
            planned = Bypass("cache_fault")
        call = forward.ForwardedCall(dialect, scope, raw)
        if isinstance(planned, Bypass):
            record |= {"outcome": "BYPASS", "reason": planned.reason}
            call.decision = Decision(Outcome.BYPASS, reason=planned.reason)
            if read_controls(by_name(headers)).only_if_cached:
                record["outcome"] = "MISS"
                await self._refuse(dialect, send, record, 504, "only_if_cached", NOT_STORED)
                return
            await self.relay.run(call, None, receive, send, record)
            return
        ask = planned
        record["model"] = ask.request.model[:LONGEST_NAME]
        record["stream"] = ask.stream
        record["namespace"] = ask.request.namespace[-LONGEST_NAME:]
        record["tenant"] = ask.tenant[:8]
        if self.settings.log_text:
            record["text"] = ask.request.text
        landings = self.relay.landings
        found = await self._find(ask, headers)
        serves = found.completion is not None
        if found.completion is not None:
            reason = objection(found, ask.controls, time.time() - found.completion.created)
            if not reason and not self.settings.shadow and found.decision.outcome is Outcome.SEMANTIC:
                reason = await self._second_opinion(ask, found, call)
            if reason:
                found, serves = as_miss(found, reason), False
        decision = found.decision
        record["outcome"] = decision.outcome.value
        record["reason"] = decision.reason
        record["similarity"] = decision.similarity
        record["cutoff"] = decision.cutoff
        record["entry"] = decision.entry
        if serves and not self.settings.shadow:
            await self._serve(ask, found, call, cycle, send, record)
        elif ask.controls.only_if_cached:
            record["outcome"] = "MISS"
            await self._refuse(dialect, send, record, 504, "only_if_cached", NOT_STORED)
        else:
            if serves:
                record |= {"outcome": "SHADOW", "reason": f"would_be_{found.decision.outcome.lower()}"}
            call.ask, call.found, call.decision = ask, found, found.decision
            call.joins = not self.settings.shadow and not ask.controls.no_cache and self._is_proven(headers)
            if call.joins:
                call.credential = self._credential(headers)
                fetched = await self._fetched(ask, landings)
                if fetched is not None:
                    self.metrics.joined += 1
                    record |= {"outcome": "EXACT", "reason": "", "entry": fetched.decision.entry, "joined": True}
                    await self._serve(ask, fetched, call, cycle, send, record)
                    return
            await self.relay.run(call, self._prove(headers), receive, send, record)

    async def _fetched(self, ask: PlannedRequest, landings: int) -> Lookup | None:
        """Return the hit on an answer that another's call has brought since this request was looked up.

        :param landings: how many calls had been taken over by lookups before that.
        """
        relay, collapse, identity = self.relay, self.collapse, ask.request.identity
        found = None
        if collapse is not None and not relay.is_under_way(ask):
            found = await collapse.elsewhere(ask.request)
        if found is None and landings != relay.landings and not relay.is_under_way(ask):
            found = self.keeper.find_again(ask.request)
        if found is None or found.completion is None:
            return None
        if objection(found, ask.controls, time.time() - found.completion.created):
            return None
        if collapse is not None and not relay.is_under_way(ask):
            collapse.landed(identity)  # no call is made here
        return found

    async def _find(self, ask: PlannedRequest, headers: Headers) -> Lookup:
        if not self._is_proven(headers):
            return Lookup(Decision(Outcome.MISS, reason="unproven_credential"))
        return await self.keeper.find(ask.request)

    async def _second_opinion(self, ask: PlannedRequest, found: Lookup, call: forward.ForwardedCall) -> str:
        if self.opinion is None or found.decision.entry is None:
            return ""
        try:
            stored = self.keeper.cache.store.text(found.decision.entry)
            agreed = stored is not None and await self.opinion(ask, found, stored, self.relay.caller(call))
        except Exception as error:
            self.keeper.fault("second_opinion", error)
            agreed = False
        return "" if agreed else SECOND_OPINION

    async def _serve(
        self,
        ask: PlannedRequest,
        found: Lookup,
        call: forward.ForwardedCall,
        cycle: object,
        send: Send,
        record: dict[str, Any],
    ) -> None:
        """Replay a stored answer, as JSON or as a stream."""
        started = time.perf_counter()
        answer, decision, dialect = found.completion, found.decision, call.dialect
        assert answer is not None
        body = replay(dialect, answer, stream=ask.stream, usage=ask.wants_usage)
        headers = hit_headers(
            dialect, answer, decision, stream=ask.stream, size=len(body), now=record["time"], id=record["id"]
        )
        if not write_whole(cycle, headers, body):
            await respond(send, 200, headers, body)
        record["status"] = 200
        record["input_tokens"] = answer.usage.input
        record["output_tokens"] = answer.usage.output
        self.metrics.saved(dialect.name, decision.entry or 0, answer)
        if self.verifier.wants_audit(found):
            self.verifier.audit(ask, found, self.relay.caller(call))
        self.metrics.latency["hit"].add(time.perf_counter() - started)

    async def _refuse(
        self, dialect: Dialect, send: Send, record: dict[str, Any], status: int, reason: str, message: str
    ) -> None:
        body = dialect.error_body(status, reason, message)
        headers = [JSON, _length(body), (b"x-recall", f"MISS; reason={reason}".encode()), (b"x-should-retry", b"false")]
        await respond(send, status, headers, body)
        record |= {"status": status, "reason": reason}

    def _credential(self, headers: Headers) -> str:
        """Return who asks, "" where only callers of one tenant meet anyway."""
        return self.planner.walls.credential(dict(headers)) if self.settings.share_scope == "all" else ""

    def _is_proven(self, headers: Headers) -> bool:
        """Return whether this caller may read what others' calls have brought: its credential was taken upstream.

        Where tenants do not share, a caller can only meet answers to its own credential.
        """
        if self.settings.share_scope != "all":
            return True
        at = self._proven.get(self._credential(headers))
        return at is not None and time.monotonic() - at < PROVEN_S

    def _prove(self, headers: Headers) -> Callable[[], None] | None:
        """Return what to call when the upstream has taken the caller's credential."""
        if self.settings.share_scope != "all":
            return None

        def prove() -> None:
            if len(self._proven) >= PROVEN:
                self._proven.clear()
            self._proven[self._credential(headers)] = time.monotonic()

        return prove


def _length(body: bytes) -> tuple[bytes, bytes]:
    return (b"content-length", str(len(body)).encode())
