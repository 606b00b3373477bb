"""The cache as a transport of httpx (or httpx2), which is what the official OpenAI and Anthropic clients take.

    client = openai.OpenAI(http_client=openai.DefaultHttpxClient(transport=CachedTransport(cache)))

Other calls of the client (models, files, embeddings) pass through it untouched.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recall_cli.adapters.exchange import OURS, Errand, Exchange, Reply
from recall_cli.proxy.providers import openai
from recall_cli.proxy.providers.sse import Frames, read_frame, read_rest

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

    def __init__(self, exchange: Exchange, errand: Errand, response: Any) -> None:
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


def _open(exchange: Exchange, request: Any, raw: bytes) -> Reply | Errand | None:
    url = request.url
    origin = f"{url.scheme}://{url.netloc.decode()}".encode()
    headers = _lower(request.headers.raw)
    return exchange.open(method=request.method, origin=origin, path=url.path, query=url.query, headers=headers, raw=raw)


def _sent(library: Any, request: Any, errand: Errand) -> Any:
    """Return the request as it goes out: without what was meant for us, and asking for text that can be kept."""
    drop = (b"content-length", b"accept-encoding") if errand.ask is not None else ()
    headers = [(name, value) for name, value in request.headers.raw if not _is_ours(name) and name.lower() not in drop]
    if errand.ask is not None:
        headers += [(b"accept-encoding", b"identity"), (b"content-length", str(len(errand.body)).encode())]
    return library.Request(
        request.method, request.url, headers=headers, content=errand.body, extensions=request.extensions
    )


def _told(library: Any, response: Any, errand: Errand, stream: Any) -> Any:
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
