"""One call to the upstream for all who wait for its answer: identical requests at one time make one call.

The call runs in a task of its own. A waiting request (a *seat*) reads what has come from the start, at its own pace,
and may leave; the call goes on while anybody is left, and is given up with the last. Where several replicas miss the
same request at one time, one of them asks the upstream and the others wait for what it stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson
from blake3 import blake3

from recall_cli.cache.request import DIGEST_BYTES
from recall_cli.errors import StoreError, UpstreamError
from recall_cli.proxy.providers.dialect import OPENAI, Dialect, Ending
from recall_cli.proxy.providers.openai import WithoutUsage
from recall_cli.proxy.providers.sse import Frames, read_frame, read_rest
from recall_cli.proxy.upstream import OURS, Timeout, chunks, response_headers
from recall_cli.types import Lookup, Request

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from recall_cli.proxy.asgi import Headers
    from recall_cli.proxy.planner import PlannedRequest

ASK_S = 0.25
"""Seconds that a miss waits to be told whether another replica is at it already."""
WAIT_S = 30.0
"""Seconds that it waits for that replica's answer; then it asks the upstream itself."""
AGAIN_S = 0.1
"""Seconds between two looks whether the other replica is done."""


class Claims(Protocol):
    """Who may ask the upstream; see `postgres.replication`."""

    def take(self, identity: bytes) -> bool:
        """Return whether the claim is this replica's now."""

    def give_back(self, identity: bytes) -> None:
        """Let others have the claim."""

    def close(self) -> None:
        """Give all claims back."""


class CrossReplicaLock:
    """Decides, for each miss, whether to ask the upstream or to wait. Best effort: any doubt asks.

    :param stored: returns the hit on a request's identity as the store has it now.
    """

    def __init__(self, claims: Claims, stored: Callable[[Request], Lookup | None]) -> None:
        self._claims = claims
        self._stored = stored
        self._thread = ThreadPoolExecutor(1, "recall-claims")
        self._mine: set[bytes] = set()
        self._contests: dict[bytes, asyncio.Task[Lookup | None]] = {}

    async def elsewhere(self, request: Request) -> Lookup | None:
        """Return the hit on what another replica fetched meanwhile, None when the upstream is to be asked from here."""
        identity = request.identity
        if identity in self._mine:
            return None  # a call is under way here, which this request joins
        contest = self._contests.get(identity)
        if contest is None:
            contest = self._contests[identity] = asyncio.get_running_loop().create_task(self._contend(request))
            contest.add_done_callback(lambda _: self._contests.pop(identity, None))
        return await asyncio.shield(contest)

    def landed(self, identity: bytes) -> None:
        """Say that a call has ended, and that its answer is stored if it ever will be."""
        if identity in self._mine:
            self._mine.discard(identity)
            self._thread.submit(self._claims.give_back, identity)

    def close(self) -> None:
        """Give all claims back."""
        self._thread.submit(self._claims.close)
        self._thread.shutdown()

    async def _contend(self, request: Request) -> Lookup | None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + WAIT_S
        while loop.time() < ends:
            asked = self._thread.submit(self._claims.take, request.identity)
            try:
                is_mine = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asked)), ASK_S)
            except TimeoutError:
                asked.add_done_callback(partial(self._too_late, request.identity))
                return None
            except StoreError:
                return None
            if is_mine:
                self._mine.add(request.identity)
                # Whoever had the claim gave it back after storing its answer, or without one to store. That may have
                # been after this request was looked up, and memory here is behind the database by a moment.
                found = await self._look(request)
                if found is not None:
                    self.landed(request.identity)
                return found
            await asyncio.sleep(AGAIN_S)
        return None

    async def _look(self, request: Request) -> Lookup | None:
        looked = asyncio.wrap_future(self._thread.submit(self._stored, request))
        try:
            return await asyncio.wait_for(looked, ASK_S)
        except (TimeoutError, StoreError):
            return None

    def _too_late(self, identity: bytes, asked: Future[bool]) -> None:
        """Give back a claim that came after the request had gone on without it."""
        if asked.exception() is None and asked.result():
            self._thread.submit(self._claims.give_back, identity)


SHARED = frozenset({b"content-type", b"content-encoding", b"content-language"})
"""The headers that describe the body. All others are the leader's own: cookies, its organisation, its limits, its
request's id, what its connection was told. A list of what to leave out would miss the next provider's."""

LINGER_S = 10.0
"""Seconds that a call whose answer has come can be joined while it waits to be stored: as long as a slow disk may take.
When it takes longer the upstream is asked again."""


def shared(headers: Headers) -> Headers:
    """Return what a follower gets of the upstream's headers."""
    return [(name, value) for name, value in headers if name in SHARED]


def own_key(identity: bytes, credential: str, raw: bytes) -> bytes:
    """Return the name of a call that only the same caller may join, with the same bytes."""
    return blake3(b"%b%b/%b" % (identity, credential.encode(), raw)).digest(length=2 * DIGEST_BYTES)


def is_error_body(raw: bytes) -> bool:
    """Return whether a body says that it is an error: some gateways send one with status 200."""
    if b'"error"' not in raw:
        return False
    try:
        body = orjson.loads(raw)
    except ValueError:
        return False
    return isinstance(body, dict) and (body.get("error") is not None or body.get("type") == "error")


class Fit:
    """How much of a stream a follower may have: whole events, and none from the first error on.

    What an upstream says in an error may name the leader's organisation and limits.
    """

    __slots__ = ("begun", "failed", "plain", "size")

    def __init__(self) -> None:
        self.begun = False
        """The first event that carries data has come."""
        self.failed = False
        """An event was an error."""
        self.size = 0
        """Bytes of the stream as it came."""
        self.plain = 0
        """Bytes of the stream without the usage."""

    def take(self, event: bytes, data: bytes | None, size: int, plain: int) -> None:
        """Take the next event, and how long it is in both forms."""
        if data is not None:
            self.begun = True
            self.failed = self.failed or event == b"error" or is_error_body(data)
        if not self.failed:
            self.size += size
            self.plain += plain


class Sent(NamedTuple):
    """An upstream's answer whose head is there."""

    response: ClientResponse
    begun: list[bytes]
    """Pieces of its body that were read already."""
    counts: bool
    """The upstream was asked for the usage of a stream, by the caller or on recall's account."""


Send = Callable[[], Awaitable[Sent]]


class UpstreamCall:
    """One call to the upstream.

    :param raw: the body of the request, as its caller wrote it.
    :param counts: whether the upstream is asked for the usage of a stream; whether it took that is known later.
    :param choices: how many answers were asked for; None: the answer passes, whatever it is.
    :param held_bytes: what is kept for those who wait; a longer answer goes at the pace of the slowest, takes
        nobody else on, and is not learned from.
    """

    def __init__(
        self,
        dialect: Dialect,
        send: Send,
        *,
        raw: bytes,
        stream: bool,
        counts: bool,
        choices: int | None,
        held_bytes: int,
    ) -> None:
        self.dialect = dialect
        self.asked_stream = stream
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_sse = False
        self.opaque = False
        """The body is compressed: what it says cannot be seen."""
        self.done = False
        self.fault = ""
        """Why the answer is not whole, "" when it is."""
        self.fault_status = 502
        self.first_byte_at = 0.0
        self.too_long = False
        self.abandoned = False
        """Everybody has left: whoever comes now needs a call of their own."""
        self.seats: set[Seat] = set()
        self.chunks: list[bytes] = []
        self.plain: list[bytes] = []
        """A stream as it looks to a seat that asked for no usage."""
        self.gone = 0
        """Chunks given up at the front of both lists."""
        self.size = 0
        self.fit: Fit | None = Fit()
        """What of a stream its followers may have; None: all."""
        self.key = b""
        """The name under which others join."""
        self.ended = 0.0
        """When all had come, as time of day."""
        self.keeps: bool | None = None
        """Whether the whole answer is one to be stored, once somebody had to know."""
        self.on_end: Callable[[UpstreamCall], None] | None = None
        self._send = send
        self._choices = choices
        self.raw = raw
        self.counts = counts
        """The upstream is asked for the usage of a stream, so that the stream is kept with and without it."""
        self._held_bytes = held_bytes
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Make the call."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def body(self) -> bytes:
        """Return what has come, when all of it was kept."""
        return b"".join(self.chunks)

    def answers(self, ask: PlannedRequest) -> bool:
        """Return whether another request for the same may wait here."""
        if self.too_long or self.abandoned or (self.status and not 200 <= self.status < 300):
            return False
        # A body always tells its usage, and a stream where it was asked to: no caller gets less for having joined.
        needs = ask.wants_usage or not ask.stream
        return self.counts or not needs or not self.asked_stream or self.dialect is not OPENAI

    @property
    def is_followed(self) -> bool:
        """Whether the answer is a stream whose end is looked for: of one that failed or passes nothing is expected."""
        return self.is_sse and not self.opaque and self._choices is not None and 200 <= self.status < 300

    @property
    def keeps_plain(self) -> bool:
        """Whether the answer is a stream that is kept without its usage too."""
        return self.counts and self.is_followed

    @property
    def refuses(self) -> bool:
        """Whether what has come is no answer to anybody but the caller who began."""
        if self.fault:
            return self.fault_status != 504
        if self.fit is not None and self.fit.failed:
            return True
        if not 200 <= self.status < 300:
            return True
        return self.done and not (self.is_sse or self.opaque or self.too_long) and is_error_body(self.body())

    def leave(self, seat: Seat) -> None:
        """Give up a seat; the call with the last of them."""
        self.seats.discard(seat)
        self._wake_room()
        if not self.seats and not self.done and self._task is not None:
            self.abandoned = True
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        response: ClientResponse | None = None
        try:
            sent = await self._send()
            response, self.counts = sent.response, sent.counts
            self.first_byte_at = loop.time()
            # Another recall may stand behind this one: what is said here is of this one.
            self.headers = [(name, value) for name, value in response_headers(response) if not name.startswith(OURS)]
            said = dict(self.headers)
            self.opaque = said.get(b"content-encoding", b"identity").lower() not in (b"", b"identity")
            self.is_sse = said.get(b"content-type", b"").lower().startswith(b"text/event-stream")
            self.status = response.status
            self._wake()
            await self._read(response, sent.begun)
        except asyncio.CancelledError:
            self.fault = "abandoned"
        except Timeout as error:
            self.fault, self.fault_status = str(error), 504
        except UpstreamError as error:
            self.fault = str(error)
        except Exception as error:  # a fault of ours must end the wait of everybody too
            self.fault, self.fault_status = f"the proxy failed: {type(error).__name__}: {error}", 500
        finally:
            if response is not None:
                # An answer that was read to its end has given its connection back; any other must not be reused.
                response.close()
            self.done = True
            if self.on_end is not None:
                self.on_end(self)
            self._wake()

    async def _read(self, response: ClientResponse, begun: list[bytes]) -> None:
        frames = Frames() if self.is_followed else None
        ending = self.dialect.ending(self._choices or 1)
        without = WithoutUsage() if self.keeps_plain else None
        fit = Fit()
        self.fit = None if frames is None else fit
        for data in begun:
            await self._take(data, data)
        async for data in chunks(response):
            plain = data
            if frames is not None:
                held = frames.rest
                try:
                    plain = _follow(frames.feed(data), ending, without, fit)
                except OverflowError:
                    if without is not None:
                        plain = without.give_up(held + data)
                    self.too_long, frames, without, self.fit = True, None, None, None
            await self._take(data, plain)
        if frames is None:
            return
        if frames.rest:
            last = read_rest(frames.rest)
            if last is not None:
                ending.take(*last)
                fit.take(*last, 0, 0)
        if without is not None:
            self.chunks.append(b"")
            self.plain.append(without.end(frames.rest))
        if not fit.failed:
            self.fit = None
        if not ending.is_whole:
            self.fault = "the upstream ended the stream in mid-answer"

    async def _take(self, data: bytes, plain: bytes) -> None:
        """Keep a piece for those who wait.

        :param plain: the same without the usage, where a stream is kept in both forms.
        """
        self.size += len(data)
        self.chunks.append(data)
        if self.keeps_plain:
            self.plain.append(plain)
        self._wake()
        if self.size > self._held_bytes:
            self.too_long = True
            await self._make_room()

    async def _make_room(self) -> None:
        """Wait until every seat has had what came, and give it up."""
        while self.seats and any(seat.at < self.gone + len(self.chunks) for seat in self.seats):
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self.gone += len(self.chunks)
        self.chunks.clear()
        self.plain.clear()

    def _wake(self) -> None:
        for seat in self.seats:
            seat.wake()

    def _wake_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


def _follow(frames: list[bytes], ending: Ending, without: WithoutUsage | None, fit: Fit) -> bytes:
    """Look for the end in the frames that came; return them as they look without the usage."""
    plain = []
    for frame in frames:
        event, said = read_frame(frame)
        if said is not None:
            ending.take(event, said)
        if without is not None:
            plain.append(without.take(frame, said))
        fit.take(event, said, len(frame), len(plain[-1]) if plain else 0)
    return b"".join(plain)


class Seat:
    """One caller's place in a flight.

    :param joined: the call is another's, so that this one gets no error which that one is told.
    """

    __slots__ = ("_flight", "_held", "_plain", "_sent", "_waiter", "at", "joined", "left")

    def __init__(self, flight: UpstreamCall, *, plain: bool, joined: bool = False) -> None:
        self._flight = flight
        self._plain = plain
        self.joined = joined
        self._held = b""
        """What has come and waits for the end of its event."""
        self._sent = 0
        self._waiter: asyncio.Future[None] | None = None
        self.at = 0
        self.left = False
        """The caller has gone."""
        flight.seats.add(self)

    def wake(self) -> None:
        """Say that there is something new."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def hang_up(self) -> None:
        """Say that the caller has gone."""
        self.left = True
        self.wake()

    async def head(self) -> None:
        """Return when the head of the answer is there, or the call has failed, or the caller has gone."""
        while not (self._flight.status or self._flight.done or self.left):
            await self._wait()

    async def first(self) -> None:
        """Return when the first event of a stream has come, or the call has failed, or the caller has gone."""
        flight = self._flight
        while not (flight.done or self.left or flight.fit is None or flight.fit.begun):
            await self._wait()

    async def end(self) -> None:
        """Return when all has come (or too much of it to be kept), or the caller has gone."""
        flight = self._flight
        while not (flight.done or flight.too_long or self.left):
            await self._wait()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the answer from its start as it comes."""
        flight = self._flight
        source = flight.plain if self._plain and flight.keeps_plain else flight.chunks
        while not self.left:
            if self.at - flight.gone < len(source):
                data = self._fitting(b"".join(source[self.at - flight.gone :]))
                self.at = flight.gone + len(source)
                flight._wake_room()
                if data:
                    yield data
            elif flight.done:
                if self._held and flight.fit is None and not flight.fault:
                    yield self._held
                return
            else:
                await self._wait()

    def _fitting(self, data: bytes) -> bytes:
        """Return what may go out now of what has come."""
        fit = self._flight.fit
        if not self.joined:
            return data
        data, self._held = self._held + data, b""
        if fit is not None:
            room = (fit.plain if self._plain and self._flight.keeps_plain else fit.size) - self._sent
            data, self._held = data[:room], data[room:]
            self._sent += len(data)
        return data

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
