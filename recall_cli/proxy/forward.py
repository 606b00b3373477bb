"""Going upstream for one request: alone or with others that ask the same, relaying, and learning from the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from recall_cli.errors import UpstreamError
from recall_cli.proxy.asgi import JSON, SSE, BrokenOff, Headers, Receive, Scope, Send, respond
from recall_cli.proxy.audit import Auditor, UpstreamAnswer
from recall_cli.proxy.audit import Call as Caller
from recall_cli.proxy.lookup import CacheRunner
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.planner import PlannedRequest, by_name, is_too_old, storable
from recall_cli.proxy.providers import openai
from recall_cli.proxy.providers.dialect import OPENAI, Dialect
from recall_cli.proxy.replay import miss_headers, read_body
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.single_flight import LINGER_S, Seat, Sent, UpstreamCall, own_key, shared
from recall_cli.proxy.stream_options import REFUSAL_BYTES, Options
from recall_cli.proxy.upstream import Upstream, chunks, request_headers
from recall_cli.types import Decision, Json, Lookup, Outcome

ACCEPT_PLAIN = ("Accept-Encoding", "identity")
"""Asked of the upstream where the answer may be stored: it is kept as text."""

FAILED = "the upstream failed in mid-answer"
"""What followers are told of an error in a stream: its words are the leader's."""


@dataclass(slots=True)
class ForwardedCall:
    """A request on its way upstream."""

    dialect: Dialect
    scope: Scope
    raw: bytes
    ask: PlannedRequest | None = None
    """What may be learned from the answer; None: nothing."""
    found: Lookup | None = None
    decision: Decision | None = None
    joins: bool = False
    """Whether a call under way may answer this one too."""
    credential: str = ""
    """Who asks, where callers with several credentials may join one call."""
    again: bool = False
    """A call that this one joined brought no answer: it asks as itself."""


class Relays:
    """The calls under way."""

    def __init__(
        self, settings: Settings, keeper: CacheRunner, upstream: Upstream, verifier: Auditor, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._upstream = upstream
        self._verifier = verifier
        self._metrics = metrics
        self._options = Options()
        self._flights: dict[bytes, UpstreamCall] = {}
        self._all: set[UpstreamCall] = set()
        self.landed: Callable[[bytes], None] = lambda identity: None
        """Called with the identity of a call once its answer can be hit, or never will be."""
        self.landings = 0
        """Calls that lookups have taken the place of: who looked before one of these may have missed its answer."""
        self._loop: asyncio.AbstractEventLoop | None = None
        metrics.in_flight = lambda: len(self._all)

    async def run(
        self,
        call: ForwardedCall,
        prove: Callable[[], None] | None,
        receive: Receive,
        send: Send,
        record: dict[str, Any],
    ) -> None:
        """Answer from the upstream. Raises BrokenOff where the caller must not take what it got for whole."""
        if not await self._run(call, prove, receive, send, record):
            call.again = True
            await self._run(call, prove, receive, send, record)

    async def _run(
        self,
        call: ForwardedCall,
        prove: Callable[[], None] | None,
        receive: Receive,
        send: Send,
        record: dict[str, Any],
    ) -> bool:
        """Answer from a call under way or a new one; return False where the one under way does not answer this one."""
        flight, joined = self._flight(call)
        if joined:
            self._metrics.joined += 1
            record["joined"] = True
        streams = call.ask is not None and call.ask.stream
        seat = Seat(flight, plain=streams and not (call.ask is None or call.ask.wants_usage), joined=joined)
        if not joined:
            flight.start()
        watcher = asyncio.get_running_loop().create_task(_watch(receive, seat))
        started = asyncio.get_running_loop().time()
        try:
            await seat.head()
            if joined and not call.again:
                await (seat.first() if flight.is_sse and streams else seat.end())
                if flight.refuses and not seat.left:
                    del record["joined"]
                    return False
            if flight.first_byte_at and not joined:
                self._metrics.latency["upstream"].add(flight.first_byte_at - started)
                record["upstream_ms"] = round((flight.first_byte_at - started) * 1e3, 3)
            if prove is not None and not joined and 200 <= flight.status < 300:
                prove()
            record["status"] = 499 if seat.left else flight.status or flight.fault_status
            await self._relay(call, flight, seat, send, record)
            if seat.left:
                record["status"] = 499
            return True
        finally:
            watcher.cancel()
            flight.leave(seat)

    def caller(self, call: ForwardedCall) -> Caller:
        """Return what sends other bodies to the same route, with the same caller's credentials."""
        scope = call.scope
        headers = request_headers(scope["headers"], drop=(b"accept-encoding", b"content-length", b"cache-control"))
        headers.append(ACCEPT_PLAIN)
        url = self._upstream.url(call.dialect.name, scope["raw_path"], scope["query_string"])
        most = self._settings.limits.cached_body_bytes

        async def send(body: bytes) -> tuple[int, bytes]:
            response = await self._upstream.send("POST", url, headers, body)
            pieces: list[bytes] = []
            try:
                async for data in chunks(response):
                    pieces.append(data)
                    if sum(map(len, pieces)) > most:
                        raise UpstreamError("the answer is larger than what is stored")
            finally:
                response.close()
            return response.status, b"".join(pieces)

        return send

    def _flight(self, call: ForwardedCall) -> tuple[UpstreamCall, bool]:
        """Return the call under way that answers this one, or a new one."""
        ask, key = call.ask, b""
        if ask is not None and call.joins:
            identity = ask.request.identity
            key = own_key(identity, call.credential, call.raw) if call.again else identity
            flight = self._flights.get(key)
            if flight is not None and self._answers(flight, ask):
                return flight, True
        flight = self._new(call)
        self._all.add(flight)
        if key:
            flight.key = key
            self._flights[key] = flight
        flight.on_end = partial(self._landed, call)
        return flight, False

    def is_under_way(self, ask: PlannedRequest) -> bool:
        """Return whether there is a call that a request may join."""
        flight = self._flights.get(ask.request.identity)
        return flight is not None and self._answers(flight, ask)

    def _answers(self, flight: UpstreamCall, ask: PlannedRequest) -> bool:
        """Return whether a call answers a request: also one whose answer has come and cannot be hit yet."""
        if not flight.answers(ask) or not flight.done:
            return flight.answers(ask)
        if flight.keeps is None:
            # What is read here holds up everybody: of a long answer it is not worth it.
            flight.keeps = flight.size <= self._settings.limits.cached_body_bytes and not self._flaw(flight)
        age, most = self._keeper.now() - flight.ended, ask.controls.max_age
        if most is not None and is_too_old(age, most):
            return False
        ttl = self._keeper.cache.ttl
        return flight.keeps and not is_too_old(age, LINGER_S if ttl is None else min(ttl, LINGER_S))

    def _flaw(self, flight: UpstreamCall) -> str:
        """Return why the answer of a call that has ended is not stored, "" when it is."""
        if flight.fault or flight.opaque or flight.too_long:
            return "stream_cut_off" if flight.fault else "answer_encoded" if flight.opaque else "answer_too_large"
        raw = flight.body()
        body, whole = _read(flight, raw)
        most = self._settings.limits.cached_body_bytes
        return storable(flight.status, by_name(flight.headers), body, whole, len(raw), most)

    def _new(self, call: ForwardedCall) -> UpstreamCall:
        scope, ask = call.scope, call.ask
        url = self._upstream.url(call.dialect.name, scope["raw_path"], scope["query_string"])
        if ask is None:
            headers = request_headers(scope["headers"])
        else:
            headers = request_headers(scope["headers"], drop=(b"accept-encoding", b"content-length"))
            headers.append(ACCEPT_PLAIN)
        return UpstreamCall(
            call.dialect,
            partial(self._send, call, url, headers),
            raw=call.raw,
            counts=self._counts(call, url),
            stream=ask is not None and ask.stream,
            choices=None if ask is None else _choices(ask),
            held_bytes=self._settings.limits.held_bytes,
        )

    def _counts(self, call: ForwardedCall, url: str) -> bool:
        """Return whether the upstream is to be asked for the usage of a stream."""
        ask = call.ask
        if ask is None or not ask.stream or call.dialect is not OPENAI:
            return False
        return ask.wants_usage or (self._settings.learn_usage and self._options.may_add(url, ask.request.model))

    async def _send(self, call: ForwardedCall, url: str, headers: list[tuple[str, str]]) -> Sent:
        """Send a request, with the question for its usage where it may be added; once more without where that fails."""
        ask, raw, post = call.ask, call.raw, partial(self._upstream.send, "POST", url, headers)
        counts = self._counts(call, url)
        if ask is None or not counts or ask.wants_usage:
            return Sent(await post(raw), [], counts)
        body, model, options = ask.body, ask.request.model, self._options
        asking = openai.ask_usage(raw, body)
        response = await post(asking or raw)
        if asking is None or "stream_options" in body or not options.may_refuse(response.status):
            if asking is not None:
                options.learn(url, model, response.status, added=True)
            return Sent(response, [], asking is not None)
        begun: list[bytes] = []
        try:
            async for data in chunks(response):
                begun.append(data)
                if sum(map(len, begun)) >= REFUSAL_BYTES:
                    break
        except BaseException:
            response.close()
            raise
        if not options.refuses(url, model, response.status, b"".join(begun)):
            return Sent(response, begun, True)
        response.close()
        response = await post(raw)
        options.learn(url, model, response.status, added=False)
        return Sent(response, [], False)

    def _landed(self, call: ForwardedCall, flight: UpstreamCall) -> None:
        """Learn from an answer that has ended. Called once a flight, in the event loop."""
        self._all.discard(flight)
        flight.ended = self._keeper.now()
        ask, found = call.ask, call.found
        if flight.fault:
            self._metrics.faults["abandoned" if flight.fault == "abandoned" else "upstream"] += 1
        if ask is None or found is None:
            self._leave(flight)
            return
        if flight.fault or flight.opaque or flight.too_long:
            self._metrics.not_stored[self._flaw(flight)] += 1
        else:
            self._loop = asyncio.get_running_loop()
            if self._keeper.collect((ask, found, flight, flight.ended), self._learn):
                return  # others may join until lookups find the answer
        self._taken([(ask, flight)])

    def _learn(self, landed: list[tuple[PlannedRequest, Lookup, UpstreamCall, float]]) -> None:
        """Read answers and store them. Runs in the writer thread."""
        most = self._settings.limits.cached_body_bytes
        answers = []
        try:
            for ask, found, flight, created in landed:
                raw = flight.body()
                body, whole = _read(flight, raw)
                if flight.is_sse and body is not None:
                    raw = orjson.dumps(body)
                headers = by_name(flight.headers)
                answers.append(UpstreamAnswer(ask, found, flight.status, headers, raw, body, whole, created, most))
            self._verifier.learn(answers)
        finally:
            # Whatever became of it, lookups tell from now on: nobody may join what they can find, or what failed.
            if self._loop is not None:
                with suppress(RuntimeError):  # the loop has ended, and with it all calls
                    self._loop.call_soon_threadsafe(self._taken, [(ask, flight) for ask, _, flight, _ in landed])

    def _taken(self, landed: list[tuple[PlannedRequest, UpstreamCall]]) -> None:
        """Let go of calls whose answers can be hit, or never will be. Runs in the event loop."""
        self.landings += len(landed)
        for ask, flight in landed:
            self._leave(flight)
            self.landed(ask.request.identity)

    def _leave(self, flight: UpstreamCall) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    async def _relay(
        self, call: ForwardedCall, flight: UpstreamCall, seat: Seat, send: Send, record: dict[str, Any]
    ) -> None:
        if seat.left:
            return
        headers = flight.headers
        if seat.joined:
            headers = [*shared(headers), (call.dialect.id_header, record["id"].encode())]
        if not flight.status:
            await self._fail(call, flight, send, record)
        elif call.ask is None:
            await self._relay_pieces(call, flight, seat, headers, send, record)
        elif flight.is_sse and call.ask.stream:
            await self._relay_stream(call, flight, seat, headers, send, record)
        else:
            await seat.end()
            if seat.left:
                return
            if flight.fault:
                await self._fail(call, flight, send, record)
            elif flight.too_long and call.ask.stream != flight.asked_stream:
                await self._fail(call, flight, send, record, "the answer is too large to be given in another form")
            elif flight.too_long:
                await self._relay_pieces(call, flight, seat, headers, send, record)
            else:
                await self._relay_whole(call, flight, headers, send, record)

    async def _relay_whole(
        self, call: ForwardedCall, flight: UpstreamCall, headers: Headers, send: Send, record: dict[str, Any]
    ) -> None:
        """Send an answer that is all there; in the form the caller wants, where a call in the other form was joined."""
        body, ask = flight.body(), call.ask
        if ask is not None and 200 <= flight.status < 300 and flight.asked_stream != ask.stream:
            decoded, _ = _read(flight, body)
            if decoded is None:
                await self._fail(call, flight, send, record, "the upstream's answer cannot be read")
                return
            body = call.dialect.split(decoded, usage=ask.wants_usage) if ask.stream else orjson.dumps(decoded)
            headers = [(name, value) for name, value in headers if name != b"content-type"]
            headers.append(SSE if ask.stream else JSON)
        headers = [(name, value) for name, value in headers if name != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await respond(send, flight.status, [*headers, *_told(call.decision, record)], body)

    async def _relay_stream(
        self,
        call: ForwardedCall,
        flight: UpstreamCall,
        seat: Seat,
        headers: Headers,
        send: Send,
        record: dict[str, Any],
    ) -> None:
        if flight.keeps_plain:
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        headers = [*headers, *_told(call.decision, record)]
        await send({"type": "http.response.start", "status": flight.status, "headers": headers})
        async for data in seat.pieces():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        if seat.left:
            return
        last = b""
        if seat.joined and flight.fit is not None and flight.fit.failed:
            last = call.dialect.stream_error("upstream_error", FAILED)
        elif flight.fault:
            record["fault"] = flight.fault
            if flight.opaque or any(name == b"content-length" for name, _ in headers):
                raise BrokenOff(flight.fault)
            # A blank line first: the stream may have stopped in the middle of an event.
            last = b"\n\n" + call.dialect.stream_error("upstream_error", flight.fault)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _relay_pieces(
        self,
        call: ForwardedCall,
        flight: UpstreamCall,
        seat: Seat,
        headers: Headers,
        send: Send,
        record: dict[str, Any],
    ) -> None:
        """Send an answer as it comes and to the byte: one that bypasses, or that is too large to be kept."""
        headers = [*headers, *_told(call.decision, record)]
        await send({"type": "http.response.start", "status": flight.status, "headers": headers})
        async for data in seat.pieces():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        if flight.fault and not seat.left:
            record["fault"] = flight.fault
            raise BrokenOff(flight.fault)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _fail(
        self, call: ForwardedCall, flight: UpstreamCall, send: Send, record: dict[str, Any], why: str = ""
    ) -> None:
        """Say in the API's own words that the upstream failed, or why its answer is of no use to this caller alone."""
        why = why or flight.fault
        body = call.dialect.error_body(flight.fault_status, "upstream_error", why)
        record |= {"status": flight.fault_status, "fault": why}
        headers = [JSON, (b"content-length", str(len(body)).encode()), *_told(call.decision, record)]
        await respond(send, flight.fault_status, headers, body)


def _told(decision: Decision | None, record: dict[str, Any]) -> Headers:
    return miss_headers(decision, record.get("outcome", Outcome.BYPASS), record.get("reason", ""))


def _read(flight: UpstreamCall, raw: bytes) -> tuple[Json | None, bool]:
    return read_body(flight.dialect, raw, is_sse=flight.is_sse)


def _choices(ask: PlannedRequest) -> int:
    """Return how many answers a request asks for."""
    n = ask.body.get("n")
    return n if isinstance(n, int) and n > 1 else 1


async def _watch(receive: Receive, seat: Seat) -> None:
    """Notice that the caller has gone, also before the first byte of the answer."""
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
        seat.hang_up()
