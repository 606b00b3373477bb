"""The cache as a transport of httpx (or httpx2), which is what the official OpenAI and Anthropic clients take.

    client = openai.OpenAI(http_client=openai.DefaultHttpxClient(transport=CachedTransport(cache)))

Other calls of the client (models, files, embeddings) pass through it untouched.

`Exchange` is one request of a client and its answer, without I/O: what the proxy does for it, without the proxy.
Partitions, keys, what bypasses, what is never stored and how a stream is replayed are the proxy's own. Two things
differ. The host is part of the partition, since one client may ask several. And a hit that a learning policy wants
checked is not served and asked again behind the caller's back: the caller gets the fresh answer, and the policy
its label.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import orjson

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.cache import Cache
from recall_cli.cache.decision import as_miss
from recall_cli.cache.embed.registry import reads_all
from recall_cli.proxy.asgi import JSON, Headers
from recall_cli.proxy.planner import (
    PlannedRequest,
    Planner,
    TenantKeys,
    by_name,
    completion,
    objection,
    read_controls,
    storable,
    tenant_key,
)
from recall_cli.proxy.providers import openai
from recall_cli.proxy.providers.dialect import BY_PATH, OPENAI, Dialect
from recall_cli.proxy.providers.sse import Frames, read_frame, read_rest
from recall_cli.proxy.replay import hit_headers, miss_headers, read_body, replay, same_answer
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.stream_options import Options
from recall_cli.types import Bypass, Decision, Lookup, Outcome

NOT_STORED = "no stored answer fits this request"
OURS = b"x-recall"

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: nothing has to be asked."""

    status: int
    headers: Headers
    body: bytes


@dataclass(slots=True)
class PendingCall:
    """A request that goes upstream, and what is to be learned from its answer."""

    dialect: Dialect
    decision: Decision
    body: bytes
    """What to send: the caller's, or one that asks for the usage too."""
    again: bytes | None = None
    """What to send where an upstream refuses that question: the caller's own."""
    url: str = ""
    """Whom it goes to, as what is known of upstreams is kept."""
    ask: PlannedRequest | None = None
    """None: the answer passes unseen."""
    found: Lookup | None = None

    strips: bool = False
    """Whether the usage of a stream was asked for on recall's account, and is kept from the caller."""

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        n = None if self.ask is None else self.ask.body.get("n")
        return n if isinstance(n, int) and n > 1 else 1

    def headers(self) -> Headers:
        """Return what the caller is told beside the answer."""
        return miss_headers(self.decision, self.decision.outcome, self.decision.reason)


class Exchange:
    """Answers requests from a cache, and learns from the answers of those that went upstream. No fault of it raises.

    :param allow_sampled: answer also calls whose temperature is unset or above 0.
    :param share_scope: "credential" (the default), "user" or "all", as for `recall serve`.
    :param learn_usage: ask for the usage in OpenAI streams too, and keep it from callers that did not: a stored stream
        then has its counts. A server that refuses `stream_options` is asked once more without.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        allow_sampled: bool = False,
        share_scope: str = "credential",
        learn_usage: bool = True,
    ) -> None:
        self.cache = cache
        self.outcomes: Counter[str] = Counter()
        """Requests by outcome."""
        self.faults: Counter[str] = Counter()
        """Faults of the cache, which no caller met, by where they happened."""
        self._settings = Settings(allow_sampled=allow_sampled, share_scope=share_scope, learn_usage=learn_usage)
        self._options = Options()
        self._planner = Planner(TenantKeys(tenant_key(cache.store), self._settings), self._settings)
        self._compare = Comparator(cache.embedder)
        self._serial = itertools.count(1)
        self._prefix = "req_recall_" + os.urandom(6).hex()

    def open(
        self, *, method: str, origin: bytes, path: str, query: bytes, headers: Headers, raw: bytes
    ) -> Reply | PendingCall | None:
        """Return a stored answer, an errand, or None for a request that is none of ours.

        :param origin: scheme, host and port, which part the entries of several hosts.
        :param headers: names in lower case.
        """
        dialect = next((one for suffix, one in BY_PATH.items() if path.endswith(suffix)), None)
        if dialect is None or method != "POST":
            return None
        route = origin + path.encode() + b"?" + query
        planned = self._guarded("plan", lambda: self._planner.plan(dialect, raw, headers, route), Bypass("cache_fault"))
        if isinstance(planned, Bypass):
            if read_controls(by_name(headers)).only_if_cached:
                return _not_stored(dialect)
            return self._counted(PendingCall(dialect, Decision(Outcome.BYPASS, reason=planned.reason), raw))
        missed = Lookup(Decision(Outcome.MISS, reason="cache_fault"))
        found = self._guarded("lookup", lambda: self._find(planned), missed)
        if found.completion is not None:
            made = self._guarded("replay", lambda: self._reply(dialect, planned, found), None)
            if made is not None:
                self.outcomes[found.decision.outcome] += 1
                return made
            found = as_miss(found, "cache_fault")
        if planned.controls.only_if_cached:
            return _not_stored(dialect)
        decision = as_miss(found, "audited").decision if found.audit else found.decision
        errand = PendingCall(dialect, decision, raw, ask=planned, found=found)
        errand.url = (origin + path.encode()).decode("utf-8", "replace")
        model = planned.request.model
        if (
            self._settings.learn_usage
            and planned.stream
            and dialect is OPENAI
            and not planned.wants_usage
            and self._options.may_add(errand.url, model)
        ):
            body = planned.body
            asking = openai.ask_usage(raw, body)
            if asking is not None:
                errand.body, errand.strips = asking, True
                errand.again = None if "stream_options" in body else raw
        return self._counted(errand)

    def doubts(self, errand: PendingCall, status: int) -> bool:
        """Take the status of an answer; return whether its body has to be read at once, for `refused`."""
        if errand.again is None or errand.ask is None:
            return False
        self._options.learn(errand.url, errand.ask.request.model, status, added=errand.strips)
        return errand.strips and self._options.may_refuse(status)

    def refused(self, errand: PendingCall, status: int, body: bytes) -> bool:
        """Return whether the errand is to be run once more, with what it holds then; see `Options`."""
        if errand.again is None or errand.ask is None or not errand.strips:
            return False
        if not self._options.refuses(errand.url, errand.ask.request.model, status, body):
            return False
        errand.body, errand.strips = errand.again, False
        return True

    def close(
        self, errand: PendingCall, status: int, headers: Headers, raw: bytes, *, is_sse: bool, is_clean: bool = True
    ) -> None:
        """Learn from the answer to an errand. Of one that broke off nothing is learned.

        :param is_clean: the answer was read to its end; else only what the stream says itself tells that it is whole.
        """
        if errand.ask is not None and errand.found is not None:
            choices = errand.choices if is_clean else None
            self._guarded("learn", lambda: self._learn(errand, status, headers, raw, is_sse, choices), None)

    def _find(self, ask: PlannedRequest) -> Lookup:
        request = ask.request
        request.exact_only = request.exact_only or not reads_all(self.cache.embedder, request.text)
        found = self.cache.get(request)
        if found.completion is None:
            return found
        reason = objection(found, ask.controls, time.time() - found.completion.created)
        if reason:
            return as_miss(found, reason)
        # Drawn to be checked: the stored answer stays beside, for the fresh one to be compared with.
        return Lookup(found.decision, None, found.vector, found.evidence, audit=True) if found.audit else found

    def _reply(self, dialect: Dialect, ask: PlannedRequest, found: Lookup) -> Reply:
        answer = found.completion
        assert answer is not None
        body = replay(dialect, answer, stream=ask.stream, usage=ask.wants_usage)
        id = f"{self._prefix}{next(self._serial):08x}"
        told = hit_headers(dialect, answer, found.decision, stream=ask.stream, size=len(body), now=time.time(), id=id)
        return Reply(200, told, body)

    def _learn(
        self, errand: PendingCall, status: int, headers: Headers, raw: bytes, is_sse: bool, choices: int | None
    ) -> None:
        ask, found = errand.ask, errand.found
        assert ask is not None
        assert found is not None
        body, whole = read_body(errand.dialect, raw, is_sse=is_sse, choices=choices)
        if is_sse and body is not None:
            raw = orjson.dumps(body)
        most = self._settings.limits.cached_body_bytes
        if body is None or storable(status, by_name(headers), body, whole, len(raw), most):
            return
        same = None
        if self.cache.policy.learns and found.evidence is not None:
            same = same_answer(self.cache, self._compare, found, body).label
        self.cache.learn(ask.request, found, completion(raw, body, time.time()), same=same)

    def _counted(self, errand: PendingCall) -> PendingCall:
        self.outcomes[errand.decision.outcome] += 1
        return errand

    def _guarded(self, kind: str, work: Callable[[], T], otherwise: U) -> T | U:
        try:
            return work()
        except Exception:
            if not self.faults[kind]:
                _log.exception("the cache failed (%s); requests go on without it, and this is said once", kind)
            self.faults[kind] += 1
            return otherwise


def _not_stored(dialect: Dialect) -> Reply:
    """Return what a caller gets that wants a stored answer or none."""
    body = dialect.error_body(504, "only_if_cached", NOT_STORED)
    told = miss_headers(None, Outcome.MISS, "only_if_cached")
    return Reply(504, [JSON, *told, (b"x-should-retry", b"false")], body)


if TYPE_CHECKING:
    import httpx
    import httpx2

    from recall_cli.cache.cache import Cache
    from recall_cli.proxy.asgi import Headers

    # What type checkers see: each library's clients take it. Where one is not installed, its base is of any type.
    class _Transport(httpx.BaseTransport, httpx2.BaseTransport):
        def handle_request(self, request: Any) -> Any: ...

    class _AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any: ...

else:
    _Transport = _AsyncTransport = object  # either library may be absent, and a client asks for methods alone

CUT = "the upstream ended the stream in mid-answer"


class CachedTransport(_Transport):
    """A transport that answers from the cache and asks through another one.

    :param inner: what asks; by default the client library's own HTTPTransport. Name one for proxies or TLS of
        your own: a client that is given a transport leaves those to it.
    :param options: `allow_sampled`, `share_scope` and `learn_usage`, as `Exchange` takes them.
    """

    def __init__(self, cache: Cache, inner: Any = None, **options: Any) -> None:
        self.exchange = Exchange(cache, **options)
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        """Return the response to a request. What the inner transport raises is raised."""
        library = _library(request)
        if self._inner is None:
            self._inner = library.HTTPTransport()
        opened = _open(self.exchange, request, request.read())
        if isinstance(opened, Reply):
            return library.Response(opened.status, headers=opened.headers, content=opened.body)
        if opened is None:
            return self._inner.handle_request(request)
        response = self._inner.handle_request(_sent(library, request, opened))
        stream = response.stream
        if self.exchange.doubts(opened, response.status_code):
            raw = b"".join(response.iter_raw())
            stream = library.ByteStream(raw)
            if self.exchange.refused(opened, response.status_code, raw):
                response.close()
                response = self._inner.handle_request(_sent(library, request, opened))
                stream = response.stream
                self.exchange.doubts(opened, response.status_code)
        stream = _kept(library)[0](stream, Tap(self.exchange, opened, response))
        return _told(library, response, opened, stream)

    def close(self) -> None:
        """Close the inner transport; the cache is its owner's to close."""
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()


class AsyncCachedTransport(_AsyncTransport):
    """The same for asynchronous clients. Lookups take less than a thread would; what is learned is written in one."""

    def __init__(self, cache: Cache, inner: Any = None, **options: Any) -> None:
        self.exchange = Exchange(cache, **options)
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response to a request. What the inner transport raises is raised."""
        library = _library(request)
        if self._inner is None:
            self._inner = library.AsyncHTTPTransport()
        opened = _open(self.exchange, request, await request.aread())
        if isinstance(opened, Reply):
            return library.Response(opened.status, headers=opened.headers, content=opened.body)
        if opened is None:
            return await self._inner.handle_async_request(request)
        response = await self._inner.handle_async_request(_sent(library, request, opened))
        stream = response.stream
        if self.exchange.doubts(opened, response.status_code):
            raw = b"".join([piece async for piece in response.aiter_raw()])
            stream = library.ByteStream(raw)
            if self.exchange.refused(opened, response.status_code, raw):
                await response.aclose()
                response = await self._inner.handle_async_request(_sent(library, request, opened))
                stream = response.stream
                self.exchange.doubts(opened, response.status_code)
        stream = _kept(library)[1](stream, Tap(self.exchange, opened, response))
        return _told(library, response, opened, stream)

    async def aclose(self) -> None:
        """Close the inner transport; the cache is its owner's to close."""
        if self._inner is not None:
            await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


class Tap:
    """Keeps what passes of an answer, and gives the caller what it asked for."""

    def __init__(self, exchange: Exchange, errand: PendingCall, response: Any) -> None:
        self._exchange = exchange
        self._errand = errand
        self._status = response.status_code
        self._headers = _lower(response.headers.raw)
        said = dict(self._headers)
        self._is_sse = said.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        opaque = said.get(b"content-encoding", b"identity").lower() not in (b"", b"identity")
        # A compressed answer passes unread, as one does that nothing is to be learned from.
        self._pieces: list[bytes] | None = None if opaque or errand.ask is None else []
        is_followed = self._is_sse and self._pieces is not None and 200 <= self._status < 300
        self._frames = Frames() if is_followed else None
        self._ending = errand.dialect.ending(errand.choices if is_followed else 1)
        self._without = openai.WithoutUsage() if is_followed and errand.strips else None

    def take(self, data: bytes) -> bytes:
        """Keep a piece of the answer; return it as the caller sees it."""
        if self._pieces is not None:
            self._pieces.append(data)
        frames, without = self._frames, self._without
        if frames is None:
            return data
        held = frames.rest
        seen = []
        try:
            for frame in frames.feed(data):
                event, said = read_frame(frame)
                if said is not None:
                    self._ending.take(event, said)
                if without is not None:
                    seen.append(without.take(frame, said))
        except OverflowError:
            self._frames = self._pieces = self._without = None
            return data if without is None else without.give_up(held + data)
        return data if without is None else b"".join(seen)

    def end(self) -> bytes:
        """Return what the caller still gets where the answer has ended cleanly."""
        if self._frames is None:
            return b""
        rest = self._frames.rest
        last = read_rest(rest)
        if last is not None:
            self._ending.take(*last)
        return b"" if self._without is None else self._without.end(rest)

    @property
    def is_cut(self) -> bool:
        """Whether the answer is a stream that has not come to its end."""
        return self._frames is not None and not self._ending.is_whole

    def give_up(self) -> None:
        """Say that the answer has broken off: nothing is learned from it."""
        self._pieces = None

    def learn(self, *, is_clean: bool = False) -> None:
        """Learn from what was kept, once.

        :param is_clean: the answer was read to its end; one that was left early has to say itself that it is whole.
        """
        pieces, self._pieces = self._pieces, None
        if pieces:
            raw, is_sse = b"".join(pieces), self._is_sse
            self._exchange.close(self._errand, self._status, self._headers, raw, is_sse=is_sse, is_clean=is_clean)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to learn any more."""
        return not self._pieces


@lru_cache(maxsize=2)
def _kept(library: Any) -> tuple[Any, Any]:
    """Return the two stream classes of a library: its clients take no others."""

    class Kept(library.SyncByteStream):  # type: ignore[misc]
        """An answer on its way to the caller."""

        def __init__(self, stream: Any, tap: Tap) -> None:
            self._stream, self._tap = stream, tap

        def __iter__(self) -> Iterator[bytes]:
            try:
                for data in self._stream:
                    yield self._tap.take(data)
            except Exception:
                self._tap.give_up()
                raise
            if rest := self._tap.end():
                yield rest
            if self._tap.is_cut:
                self._tap.give_up()
                raise library.RemoteProtocolError(CUT)
            self._tap.learn(is_clean=True)

        def close(self) -> None:
            self._stream.close()
            self._tap.learn()

    class AsyncKept(library.AsyncByteStream):  # type: ignore[misc]
        """An answer on its way to the caller."""

        def __init__(self, stream: Any, tap: Tap) -> None:
            self._stream, self._tap = stream, tap

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for data in self._stream:
                    yield self._tap.take(data)
            except Exception:
                self._tap.give_up()
                raise
            if rest := self._tap.end():
                yield rest
            if self._tap.is_cut:
                self._tap.give_up()
                raise library.RemoteProtocolError(CUT)
            await self._learn(is_clean=True)

        async def aclose(self) -> None:
            await self._stream.aclose()
            await self._learn()

        async def _learn(self, *, is_clean: bool = False) -> None:
            if not self._tap.is_done:
                from anyio import to_thread  # the library's own way to run under asyncio and trio alike

                await to_thread.run_sync(lambda: self._tap.learn(is_clean=is_clean))

    return Kept, AsyncKept


def _library(request: Any) -> Any:
    """Return the library that a request is of: SDKs of before 2026 are made with httpx, later ones with httpx2."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def _open(exchange: Exchange, request: Any, raw: bytes) -> Reply | PendingCall | None:
    url = request.url
    origin = f"{url.scheme}://{url.netloc.decode()}".encode()
    headers = _lower(request.headers.raw)
    return exchange.open(method=request.method, origin=origin, path=url.path, query=url.query, headers=headers, raw=raw)


def _sent(library: Any, request: Any, errand: PendingCall) -> Any:
    """Return the request as it goes out: without what was meant for us, and asking for text that can be kept."""
    drop = (b"content-length", b"accept-encoding") if errand.ask is not None else ()
    headers = [(name, value) for name, value in request.headers.raw if not _is_ours(name) and name.lower() not in drop]
    if errand.ask is not None:
        headers += [(b"accept-encoding", b"identity"), (b"content-length", str(len(errand.body)).encode())]
    return library.Request(
        request.method, request.url, headers=headers, content=errand.body, extensions=request.extensions
    )


def _told(library: Any, response: Any, errand: PendingCall, stream: Any) -> Any:
    headers = [(name, value) for name, value in response.headers.raw if not _is_ours(name)]
    if errand.strips:
        # What is kept from the caller does not count.
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return library.Response(
        response.status_code, headers=[*headers, *errand.headers()], stream=stream, extensions=response.extensions
    )


def _is_ours(name: bytes) -> bool:
    return name.lower().startswith(OURS)


def _lower(headers: Any) -> Headers:
    return [(name.lower(), value) for name, value in headers]
