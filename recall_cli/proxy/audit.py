"""Labels from traffic: whether what was, or would have been, served is what the upstream says now.

Three sources. A miss near a stored answer brings a fresh one to compare with. In shadow mode every would-be
hit does. Of the hits that are served a share is asked again in the background (an audit). A second opinion
before a hit is served is here too: it asks, it does not label.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.second_opinion import SecondOpinion, load_opinion
from recall_cli.cache.answers.verdict import Same
from recall_cli.errors import RecallError
from recall_cli.logs.answer import read as read_answer
from recall_cli.proxy.lookup import CacheRunner
from recall_cli.proxy.metrics import Metrics
from recall_cli.proxy.planner import PlannedRequest, completion, is_finished, storable
from recall_cli.proxy.replay import same_answer
from recall_cli.types import Completion, Json, Lookup, Outcome, Put

AUDITS_AT_ONCE = 4
"""Background calls under way at a time: an audit must not compete with the callers for the provider's limits."""
AUDITS_WAITING = 64
"""Audits that may wait; more are dropped and counted."""
OPINION_S = 5.0
"""Seconds a second opinion may take; without one the hit is not served."""

Call = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""Sends a body to the route of the request, with its caller's credentials; returns (status, body)."""

QUESTION = (
    "Two questions to the same assistant. Would one and the same answer be fully right for both? "
    "Another number, name, date, place, or a negation makes them different. Reply with yes or no alone.\n\n"
    "First: {first}\n\nSecond: {second}"
)


@dataclass(slots=True)
class UpstreamAnswer:
    """An answer that came from the upstream, read."""

    ask: PlannedRequest
    found: Lookup
    status: int
    headers: dict[bytes, bytes]
    raw: bytes
    body: Json | None
    whole: bool
    created: float
    most: int
    """Bytes of the largest answer that is stored."""


class Opinion(Protocol):
    """A second opinion on a semantic hit, before it is served."""

    async def __call__(self, ask: PlannedRequest, found: Lookup, stored_text: str, call: Call) -> bool:
        """Return whether the stored prompt's answer may answer the request. Any doubt is a no."""


class LlmOpinion:
    """Asks a model of the same upstream, with the caller's credentials."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def __call__(self, ask: PlannedRequest, found: Lookup, stored_text: str, call: Call) -> bool:
        """Return whether the model says yes within `OPINION_S`."""
        question = QUESTION.format(first=stored_text, second=ask.request.text)
        body = {"model": self._model, "messages": [{"role": "user", "content": question}], "max_tokens": 5}
        try:
            status, raw = await asyncio.wait_for(call(orjson.dumps({**body, "temperature": 0})), OPINION_S)
            answer = read_answer(orjson.loads(raw), status=status)
        except (TimeoutError, RecallError, ValueError):
            return False
        return not answer.flaw and (answer.text or "").strip().lower().startswith("yes")


class LocalOpinion:
    """Asks the transformer on this machine: milliseconds, and no word leaves it."""

    def __init__(self, opinion: SecondOpinion) -> None:
        self._opinion = opinion

    async def __call__(self, ask: PlannedRequest, found: Lookup, stored_text: str, call: Call) -> bool:
        """Return whether it agrees. In a thread: the runtime lets go of the lock, so other requests go on meanwhile."""
        return await asyncio.to_thread(self._opinion.agrees, ask.request.text, stored_text)


class Auditor:
    """Makes labels and feeds them to the policy."""

    def __init__(self, keeper: CacheRunner, metrics: Metrics, share: float, seed: int | None = None) -> None:
        self._keeper = keeper
        self._metrics = metrics
        self._share = share
        self._compare = Comparator(keeper.cache.embedder)
        self._learns = keeper.cache.policy.learns
        self._chance = random.Random(seed).random
        self._slots = asyncio.Semaphore(AUDITS_AT_ONCE)
        self._audits: set[asyncio.Task[None]] = set()
        self.stored: Callable[[int, PlannedRequest, Completion], None] = lambda entry, ask, answer: None
        """Called, in the writer thread, for each answer once it is durable."""

    def wants_audit(self, found: Lookup) -> bool:
        """Return whether a semantic hit that is being served should be asked again."""
        if found.decision.outcome is not Outcome.SEMANTIC or self._share <= 0:
            return False
        # A policy that learns draws by itself, so that it knows with what chance it was drawn.
        return found.audit if self._learns else self._chance() < self._share

    def learn(self, answers: Sequence[UpstreamAnswer]) -> None:
        """Take in fresh answers to requests that went upstream, in one write. Runs in the writer thread."""
        kept: list[tuple[UpstreamAnswer, Put]] = []
        for fresh in answers:
            try:
                put = self._judged(fresh)
            except Exception as error:  # one odd answer must not cost the others
                self._keeper.fault("write", error)
                continue
            if put is not None:
                kept.append((fresh, put))
        if not kept:
            return
        try:
            entries = self._keeper.cache.put_many([put for _, put in kept])
        except Exception as error:
            self._keeper.fault("write", error, len(kept))
            return
        self._metrics.store_works = True
        for (fresh, put), entry in zip(kept, entries, strict=True):
            if entry is not None:
                self._metrics.stored += 1
                self.stored(entry, fresh.ask, put.completion)

    def _judged(self, fresh: UpstreamAnswer) -> Put | None:
        """Return what to store of an answer, after the label it gives; None for nothing."""
        found, body = fresh.found, fresh.body
        flaw = storable(fresh.status, fresh.headers, body, fresh.whole, len(fresh.raw), fresh.most)
        if flaw or body is None:
            self._metrics.not_stored[flaw] += 1
            return None
        shadow = found.decision.outcome is not Outcome.MISS
        same = None
        if shadow or (self._learns and found.evidence is not None):
            same = self._label(found, body, "shadow" if shadow else "miss")
        request = fresh.ask.request
        if not self._keeper.cache.observe(request, found, same=same):
            return None
        answer = completion(fresh.raw, body, fresh.created)
        return Put(request, answer, found.vector, like=found.decision.entry if same else None)

    def audit(self, ask: PlannedRequest, found: Lookup, call: Call) -> None:
        """Ask again in the background for a hit that was served."""
        if len(self._audits) >= AUDITS_WAITING:
            self._metrics.dropped["audit"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._audit(ask, found, call))
        self._audits.add(task)
        task.add_done_callback(self._audits.discard)

    async def drain(self, seconds: float) -> None:
        """Wait for audits under way; give up those that last longer."""
        if self._audits:
            _, late = await asyncio.wait(self._audits, timeout=seconds)
            for task in late:
                self._metrics.dropped["audit"] += 1
                task.cancel()

    async def _audit(self, ask: PlannedRequest, found: Lookup, call: Call) -> None:
        async with self._slots:
            try:
                body, raw = await self._fresh(ask, call)
                if body is None:
                    self._metrics.dropped["audit"] += 1
                    return
                verdict = await self._verdict(found, body)
                if verdict is Same.DIFFERENT:
                    # Models do not always repeat themselves: only what differs twice is a wrong hit.
                    again, _ = await self._fresh(ask, call)
                    if again is None or await self._verdict(found, again) is not Same.DIFFERENT:
                        verdict = Same.UNSURE
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._keeper.fault("audit", error)
                return
        self._metrics.labels["audit", str(verdict)] += 1
        fresh = completion(raw, body, self._keeper.now())
        self._keeper.write(lambda: self._keeper.cache.learn(ask.request, found, fresh, same=verdict.label))

    async def _fresh(self, ask: PlannedRequest, call: Call) -> tuple[Json | None, bytes]:
        """Return a fresh answer that could be stored, at temperature 0; None when there is none to be had."""
        asked = {name: value for name, value in ask.body.items() if name not in ("stream", "stream_options")}
        status, raw = await call(orjson.dumps({**asked, "temperature": 0}))
        if status == 400 and "temperature" not in asked:
            status, raw = await call(orjson.dumps(asked))  # a model that takes none
        try:
            body = orjson.loads(raw)
        except ValueError:
            return None, raw
        if not isinstance(body, dict) or storable(status, {}, body, is_finished(body), len(raw), len(raw)):
            return None, raw
        return body, raw

    async def _verdict(self, found: Lookup, body: Json) -> Same:
        """Compare in the writer thread: long answers take milliseconds."""
        return await asyncio.wrap_future(self._keeper.ask_writer(lambda: self._said(found, body)))

    def _label(self, found: Lookup, body: Json, source: str) -> bool | None:
        verdict = self._said(found, body)
        if source == "miss" or found.decision.outcome is Outcome.SEMANTIC:
            self._metrics.labels[source, str(verdict)] += 1
        return verdict.label

    def _said(self, found: Lookup, body: Json) -> Same:
        return same_answer(self._keeper.cache, self._compare, found, body)


def make_opinion(name: str) -> Opinion | None:
    """Return the second opinion of that name; None for those that the cache itself gives (auto, none, evidence).

    Raises EmbedderError when the local one is not installed.
    """
    if name == "model":
        return LocalOpinion(load_opinion())
    return LlmOpinion(name.removeprefix("llm:")) if name.startswith("llm:") else None
