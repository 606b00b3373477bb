"""Asking a hub over HTTP: a question to a kept, a joined or a fresh answer, whole or in steps."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from recall_cli.hub.api.access import Entry, Gate
from recall_cli.hub.api.counts import HubCounts
from recall_cli.hub.api.errors import RECALL, unavailable
from recall_cli.hub.api.flight import Flight, Flights
from recall_cli.hub.api.http import NO_STORE, PRIVATE, as_refusal, read_json, refusal_json, respond
from recall_cli.hub.api.question import read_question
from recall_cli.hub.api.result_cache import ResultCache
from recall_cli.hub.api.routes import GONE, Call
from recall_cli.hub.api.stream import WRITERS, events, wanted
from recall_cli.hub.api.views import answer_json, hub_json
from recall_cli.hub.models import Answer, HubInfo, Question, Visibility

if TYPE_CHECKING:
    from starlette.responses import Response

BODY_BYTES = 64 << 10


class Asking:
    """The two operations that read: recall and status."""

    def __init__(self, gate: Gate, cache: ResultCache, counts: HubCounts, *, reranker: str, log_text: bool) -> None:
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

    async def recall(self, call: Call, entry: Entry) -> Response:
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

    async def status(self, call: Call, entry: Entry) -> Response:
        """Say what the hub holds."""
        info = entry.info
        headers = {"etag": etag(info), "cache-control": "no-cache" if _is_public(info) else PRIVATE}
        return respond(hub_json(info), headers=headers)

    def _answers(self, entry: Entry, question: Question) -> tuple[AsyncGenerator[Answer, None], float]:
        """Return the steps to an answer, and the age of a kept one in seconds."""
        key = self._cache.key(entry.info, question, principal=entry.principal, reranker=self._reranker)
        if key is None:
            self._counts.results["computed"] += 1
            return Flight(self._computed(None, entry, question)).follow(), 0.0
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

    async def _streamed(self, call: Call, entry: Entry, answers: AsyncGenerator[Answer, None], kind: str) -> Response:
        from starlette.responses import StreamingResponse

        # What goes wrong before the first step still has a status of its own.
        first = await anext(answers)
        self._checked(entry, first.hub)
        # How it ends is not known yet, and a reranker's failure must not be kept.
        headers = {"etag": etag(first.hub), "cache-control": PRIVATE, "x-accel-buffering": "no"}
        return StreamingResponse(self._events(call, first, answers, kind), headers=headers, media_type=kind)

    async def _events(
        self, call: Call, first: Answer, rest: AsyncGenerator[Answer, None], kind: str
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


def _note(call: Call, answer: Answer) -> None:
    """Log how an answer came about."""
    call.record |= {"results": len(answer.results), "cached": answer.cached, "reranked": answer.reranked}
