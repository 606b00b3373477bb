"""Asking a hub over HTTP: a question to a kept, a joined or a fresh answer, whole or in steps.

Whoever asks the same while an answer is computed follows that computation and gets the same steps: what was found at
once, then the reranked order when it is there. Texts are sent once. The second order names chunks; the first event
holds them all, and an answer put together from the events equals the plain one.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from recall_cli.hub.api.access import AccessControl, Entry
from recall_cli.hub.api.errors import (
    NDJSON,
    NO_STORE,
    PRIVATE,
    RECALL,
    as_refusal,
    read_json,
    refusal_json,
    respond,
    unavailable,
)
from recall_cli.hub.api.question import read_question
from recall_cli.hub.api.result_cache import ResultCache
from recall_cli.hub.api.routes import GONE, HubCall, HubCounts
from recall_cli.hub.api.views import about, answer_json, hub_json, match_json, outcome, scores_json
from recall_cli.hub.models import Answer, HubInfo, Question, Visibility

if TYPE_CHECKING:
    from starlette.responses import Response


class SharedQuestion:
    """A stream of answers, the last one final, computed once.

    It runs while anybody follows, and is cancelled when the last follower has gone: a reranker whose order nobody
    reads is not paid for. Belongs to one event loop.
    """

    def __init__(self, steps: AsyncIterator[Answer]) -> None:
        self._steps = steps
        self._seen: list[Answer] = []
        self._moved = asyncio.Event()
        self._followers = 0
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._ended)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is being cancelled."""
        return self.task.done() or self.task.cancelling() > 0

    async def follow(self) -> AsyncGenerator[Answer, None]:
        """Yield every step, also those that came before. Raises what the computation raised."""
        self._followers += 1
        at = 0
        try:
            while True:
                if at < len(self._seen):
                    yield self._seen[at]
                    at += 1
                elif self.task.done():
                    self.task.result()
                    return
                else:
                    await self._moved.wait()
        finally:
            self._followers -= 1
            if not self._followers:
                self.task.cancel()

    async def last(self) -> Answer:
        """Return the final answer."""
        async with aclosing(self.follow()) as steps:
            found = [answer async for answer in steps]
        return found[-1]

    async def _run(self) -> None:
        async for answer in self._steps:
            self._seen.append(answer)
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: when all followers have gone, nobody else does
        self._wake()


class Flights:
    """The computations under way, by what they compute."""

    def __init__(self) -> None:
        self._flights: dict[bytes, SharedQuestion] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def join(self, key: bytes) -> SharedQuestion | None:
        """Return the computation of this key that is under way, None when there is none. Follow it at once."""
        flight = self._flights.get(key)
        return None if flight is None or flight.is_over else flight

    def start(self, key: bytes, steps: AsyncIterator[Answer]) -> SharedQuestion:
        """Begin a computation that others can join until it is over. Follow it at once."""
        flight = self._flights[key] = SharedQuestion(steps)

        def forget(task: asyncio.Task[None]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]

        flight.task.add_done_callback(forget)
        return flight


Event = dict[str, Any]

SSE = "text/event-stream"


async def events(answers: AsyncIterator[Answer], request_id: str) -> AsyncIterator[Event]:
    """Yield the events of an answer: meta, union, reranked (where the order has changed hands), done."""
    first = latest = None
    async for latest in answers:
        if first is None:
            first = latest
            yield {"event": "meta", **about(first), "request_id": request_id}
            yield {"event": "union", "results": [match_json(match) for match in first.results]}
    assert latest is not None
    if latest is not first:
        yield {
            "event": "reranked",
            "order": [match.passage.chunk_id for match in latest.results],
            "scores": {str(m.passage.chunk_id): {"score": m.score, **scores_json(m)} for m in latest.results},
        }
    yield {"event": "done", **outcome(latest)}


def ndjson(event: Event) -> bytes:
    """Return an event as a line."""
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)


def sse(event: Event) -> bytes:
    """Return an event as a server-sent one: the same JSON, and its name where EventSource looks for it."""
    return b"event: %s\ndata: %s\n\n" % (event["event"].encode(), orjson.dumps(event))


WRITERS: dict[str, Callable[[Event], bytes]] = {NDJSON: ndjson, SSE: sse}


def wanted(accept: str, stream: bool) -> str | None:
    """Return the media type of the stream that a caller asks for, None for a plain answer.

    :param accept: its Accept header.
    :param stream: what its body says; with it, any stream will do, and NDJSON is the one.
    """
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in named:
        if kind in WRITERS:
            return kind
    return NDJSON if stream else None


BODY_BYTES = 64 << 10


class Asking:
    """The two operations that read: recall and status."""

    def __init__(
        self, gate: AccessControl, cache: ResultCache, counts: HubCounts, *, reranker: str, log_text: bool
    ) -> None:
        """Answer from the cache where it may.

        :param reranker: the model that answers pass through, "" for none.
        :param log_text: write questions into the access log.
        """
        self._gate = gate
        self._cache = cache
        self._counts = counts
        self._reranker = reranker
        self._log_text = log_text
        self._flights = Flights()

    async def recall(self, call: HubCall, entry: Entry) -> Response:
        """Answer a question."""
        body = read_json(call.request, call.body)
        question = read_question(body)
        # One spelling of each letter: else equal questions would be embedded and kept apart.
        question = replace(question, text=unicodedata.normalize("NFC", question.text))
        call.record |= {"k": question.k, "level": question.level.value}
        if self._log_text:
            call.record["text"] = question.text
        if entry.info.was_never_fed:
            raise unavailable("nothing has been ingested into this hub yet")
        stream = wanted(call.request.headers.get("accept", ""), body.get("stream", False))
        answers, age = self._answers(entry, question)
        if stream is not None:
            return await self._streamed(call, entry, answers, stream)
        async with aclosing(answers):
            found = [answer async for answer in answers]
        self._checked(entry, found[-1].hub)
        _note(call, found[-1])
        return respond(answer_json(found[-1]), headers=self._headers(found[-1], age))

    async def status(self, call: HubCall, entry: Entry) -> Response:
        """Say what the hub holds."""
        info = entry.info
        headers = {"etag": etag(info), "cache-control": "no-cache" if _is_public(info) else PRIVATE}
        return respond(hub_json(info), headers=headers)

    def _answers(self, entry: Entry, question: Question) -> tuple[AsyncGenerator[Answer, None], float]:
        """Return the steps to an answer, and the age of a kept one in seconds."""
        key = self._cache.key(entry.info, question, principal=entry.principal, reranker=self._reranker)
        if key is None:
            self._counts.results["computed"] += 1
            return SharedQuestion(self._computed(None, entry, question)).follow(), 0.0
        kept = self._cache.get(key)
        if kept is not None:
            self._counts.results["cache"] += 1
            answer, age = kept
            return _one(replace(answer, cached=True)), age
        flight = self._flights.join(key)
        self._counts.results["computed" if flight is None else "joined"] += 1
        if flight is None:
            flight = self._flights.start(key, self._computed(key, entry, question))
        return flight.follow(), 0.0

    async def _computed(self, key: bytes | None, entry: Entry, question: Question) -> AsyncIterator[Answer]:
        """Yield the steps to a fresh answer, and keep the last, if it is of the hub as it was asked."""
        answer = None
        async for answer in entry.hub.stream(question):
            yield answer
        assert answer is not None
        if answer.reranked or answer.rerank_error:
            self._counts.reranks[answer.rerank_error or "ok"] += 1
        if key is not None and answer.hub == entry.info:
            self._cache.put(key, answer)

    def _checked(self, entry: Entry, answered: HubInfo) -> None:
        """Raise Refusal when the hub has changed since the right was checked, and now forbids it."""
        if answered != entry.info:
            self._gate.admit(answered, entry.grant, RECALL)

    async def _streamed(
        self, call: HubCall, entry: Entry, answers: AsyncGenerator[Answer, None], kind: str
    ) -> Response:
        from starlette.responses import StreamingResponse

        # What goes wrong before the first step still has a status of its own.
        first = await anext(answers)
        self._checked(entry, first.hub)
        # How it ends is not known yet, and a reranker's failure must not be kept.
        headers = {"etag": etag(first.hub), "cache-control": PRIVATE, "x-accel-buffering": "no"}
        return StreamingResponse(self._events(call, first, answers, kind), headers=headers, media_type=kind)

    async def _events(
        self, call: HubCall, first: Answer, rest: AsyncGenerator[Answer, None], kind: str
    ) -> AsyncIterator[bytes]:
        write, latest = WRITERS[kind], first
        call.record["status"] = GONE

        async def answers() -> AsyncIterator[Answer]:
            nonlocal latest
            yield first
            async for latest in rest:
                yield latest

        async with aclosing(rest):
            try:
                async for event in events(answers(), call.id):
                    yield write(event)
                _note(call, latest)
            except Exception as error:
                refusal = as_refusal(error)
                call.record["reason"] = refusal.code
                yield write({"event": "error", **refusal_json(refusal, call.id)})
        call.record["status"] = 200

    def _headers(self, answer: Answer, age: float) -> dict[str, str]:
        headers = {"etag": etag(answer.hub), "vary": "Authorization, Accept", "cache-control": PRIVATE}
        if _is_public(answer.hub):
            lasts = self._cache.ttl_s and not answer.rerank_error
            headers["cache-control"] = f"public, max-age={self._cache.ttl_s:g}" if lasts else NO_STORE
        if answer.cached:
            headers["age"] = str(int(age))
        return headers


def etag(info: HubInfo) -> str:
    """Return what names the hub's state: equal questions have equal answers while it stays."""
    return f'W/"{info.uid}-{info.revision}"'


def _is_public(info: HubInfo) -> bool:
    return info.visibility is Visibility.PUBLIC


async def _one(answer: Answer) -> AsyncGenerator[Answer, None]:
    yield answer


def _note(call: HubCall, answer: Answer) -> None:
    """Log how an answer came about."""
    call.record |= {"results": len(answer.results), "cached": answer.cached, "reranked": answer.reranked}
