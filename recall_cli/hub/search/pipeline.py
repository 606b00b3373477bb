"""The query path: question -> both legs -> exact scores of their union -> one order -> answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from threading import Lock
from time import perf_counter_ns

from recall_cli.cache.policy.static import cosine
from recall_cli.errors import StoreMismatch
from recall_cli.hub.models import (
    LEGS,
    Answer,
    HubEngine,
    HubInfo,
    Level,
    Match,
    Passage,
    Question,
    Reranker,
    RerankError,
    Source,
)
from recall_cli.hub.search.fusion import SAMPLE, Whitening, best_of_documents, fused, order, union
from recall_cli.types import Embedder, Ids, Vector

RERANKED = 30
"""Candidates that a reranker sees: more text than that no small model reads within a second."""
DEPTHS = (LEGS, 4 * LEGS, 16 * LEGS)
"""Candidates of a leg, tried in turn until k documents are among them: all 30 may be chunks of one long document."""
GROWTH = 0.1
"""Share by which a hub's chunks may grow or shrink before its spread is estimated again."""
THREADS = 4
"""Questions of one hub that are worked on at a time; more wait. An endpoint that embeds them may take 20 seconds for
each, and the questions to other hubs must not wait for it too."""
BESIDE = ThreadPoolExecutor(thread_name_prefix="recall-lexical")
"""Where the lexical leg runs while the question is embedded: it needs no vector. Shared by all hubs of a process."""


@dataclass(slots=True)
class Gathered:
    """What both legs found for one question: n candidates, each scored exactly by both."""

    vector: Vector
    """The question's, shape (dim,)."""
    near: Ids
    """The vector leg's candidates, best first."""
    worded: Ids
    """The lexical leg's candidates, best first."""
    ids: Ids
    """Their union, shape (n,)."""
    sources: list[Source]
    vectors: Vector
    """Shape (n, dim)."""
    bm25: Vector
    cosines: Vector
    passages: Mapping[int, Passage]
    """By chunk; without those that are gone meanwhile."""
    timings_us: dict[str, float] = field(default_factory=dict)

    def documents(self) -> int:
        """Return how many different documents the candidates are of."""
        return len({passage.doc_id for passage in self.passages.values()})


class Hub:
    """One hub that answers. Any method may be called from any thread.

    :param engine: where its documents are; closed with the hub.
    :param reranker: judges the best candidates of a question that asks for it; None: the fused order is final.
    """

    def __init__(self, engine: HubEngine, embedder: Embedder, *, reranker: Reranker | None = None) -> None:
        _hold_blas()
        self.engine = engine
        self.embedder = embedder
        self._reranker = reranker
        self._spread: tuple[int, Whitening] | None = None
        self._estimating = Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="recall-hub")

    def recall(self, question: Question) -> Answer:
        """Answer in the fused order, without a reranker. Raises StoreError, and what the embedder raises."""
        found = self._candidates(question)
        return _final(found, found.results)

    async def answer(self, question: Question) -> Answer:
        """Answer, reranked where the question asks for it; a reranker that fails leaves the fused order."""
        answers = [answer async for answer in self.stream(question)]
        return answers[-1]

    async def stream(self, question: Question) -> AsyncIterator[Answer]:
        """Yield the candidates as soon as they are known, then the answer; without a reranker the answer alone.

        The first answer holds every candidate that may be in the last one, so more than k of them.
        """
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._candidates, question)
        if not question.rerank or self._reranker is None or not found.results:
            yield _final(found, found.results)
            return
        candidates = found.results[:RERANKED]
        yield replace(found, results=candidates, timings_us=dict(found.timings_us))
        yield await self._reranked(self._reranker, found, candidates)

    def gather(self, text: str, documents: int = 0) -> Gathered:
        """Return what both legs found for a question, with the exact scores of their union.

        :param documents: how many different ones are wanted; the legs are asked deeper until they are there.
        Raises StoreError, and what the embedder raises.
        """
        start = perf_counter_ns()
        lexical = BESIDE.submit(self._lexical, text)
        vector = self.embedder.embed(text)
        embedded = perf_counter_ns()
        near, _ = self.engine.vector(vector, LEGS)
        searched = perf_counter_ns()
        worded, lexical_us = lexical.result()
        joined = perf_counter_ns()
        found = self._scored(text, vector, near, worded)
        for reached, depth in pairwise(DEPTHS):
            if found.documents() >= documents or max(len(near), len(worded)) < reached:
                break
            near, worded = self.engine.vector(vector, depth)[0], self.engine.lexical(text, depth)[0]
            found = self._scored(text, vector, near, worded)
        found.timings_us = {
            "embed": (embedded - start) / 1e3,
            "vector": (searched - embedded) / 1e3,
            "lexical": lexical_us,
            "fuse": _us_since(joined),
        }
        return found

    def whitening(self, info: HubInfo) -> Whitening:
        """Return the hub's whitening, estimated again when the hub has changed much since."""
        kept = self._spread
        if kept is not None and abs(info.chunks - kept[0]) <= GROWTH * kept[0]:
            return kept[1]
        # One thread estimates; meanwhile the others go on with what there is, if there is something.
        if self._estimating.acquire(blocking=kept is None):
            try:
                if self._spread is kept:
                    self._spread = (info.chunks, Whitening(self.engine.sample(SAMPLE)))
            finally:
                self._estimating.release()
        now = self._spread
        assert now is not None
        return now[1]

    def close(self) -> None:
        """Release the engine."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.engine.close()

    async def _reranked(self, reranker: Reranker, found: Answer, candidates: list[Match]) -> Answer:
        start = perf_counter_ns()
        try:
            scores = await reranker(found.question.text, candidates)
            if len(scores) != len(candidates):
                raise RerankError("bad_answer")
            # Copies: the candidates may be on their way to a reader already.
            judged = [replace(match, rerank=score) for match, score in zip(candidates, scores, strict=True)]
            judged.sort(key=lambda match: -match.score)
            final = replace(found, reranked=True)
        except RerankError as error:
            judged, final = candidates, replace(found, rerank_error=str(error))
        final.timings_us = _and(found.timings_us, rerank=_us_since(start))
        return _final(final, judged)

    def _candidates(self, question: Question) -> Answer:
        """Return every candidate at the question's level, best first."""
        start = perf_counter_ns()
        self._info()
        try:
            found = self.gather(question.text, question.k if question.level is Level.DOC else 0)
            gathered = perf_counter_ns()
            # As it is now, not as it was before: whoever holds the answer against who may see it, or keeps it for a
            # revision, must learn of a change that came in between.
            info = self._info()
            matches = self._fused(info, question, found)
        except ValueError:
            # Vectors of another width: it has moved to another embedder in the middle.
            self._info()
            raise
        if question.level is Level.DOC:
            # Only now: each leg may have found another chunk of the same document.
            matches = best_of_documents(matches)
        fuse_us = found.timings_us["fuse"] + _us_since(gathered)
        timings = found.timings_us | {"fuse": fuse_us, "rerank": 0.0, "total": _us_since(start)}
        return Answer(info, question, matches, timings_us=timings)

    def _info(self) -> HubInfo:
        """Return the hub's facts. Raises StoreMismatch when it has moved to another embedder."""
        info = self.engine.info()
        if info.fingerprint != self.embedder.fingerprint:
            raise StoreMismatch(
                f"the hub {info.slug} now holds vectors of {info.embedder}, not of {self.embedder.name}",
                hint="open it anew, with its own embedder",
            )
        return info

    def _lexical(self, text: str) -> tuple[Ids, float]:
        start = perf_counter_ns()
        ids, _ = self.engine.lexical(text, LEGS)
        return ids, _us_since(start)

    def _scored(self, text: str, vector: Vector, near: Ids, worded: Ids) -> Gathered:
        ids, sources = union(near, worded)
        vectors, bm25 = self.engine.score(text, ids)
        passages = {passage.chunk_id: passage for passage in self.engine.passages(ids)}
        return Gathered(vector, near, worded, ids, sources, vectors, bm25, vectors @ vector, passages)

    def _fused(self, info: HubInfo, question: Question, found: Gathered) -> list[Match]:
        scores = fused(found.vector, found.vectors, found.bm25, alpha=info.alpha, whiten=self.whitening(info))
        floor = question.min_score if question.min_score is not None else info.min_score
        matches = []
        for at in order(scores).tolist():
            similarity = float(found.cosines[at])
            # A chunk that another process removed in the meantime has no passage any more.
            passage = found.passages.get(int(found.ids[at]))
            if passage is not None and (floor is None or cosine(similarity) >= floor):
                matches.append(Match(passage, found.sources[at], similarity, float(found.bm25[at]), float(scores[at])))
        return matches


@cache
def _hold_blas() -> None:
    """Hold BLAS to one thread in this process, for good: its threads spin while they wait.

    A product of 60 vectors takes 0.1 ms on one thread; on two it took 14 ms as soon as something else ran.
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def _final(found: Answer, matches: list[Match]) -> Answer:
    return replace(found, results=matches[: found.question.k])


def _and(timings_us: dict[str, float], *, rerank: float) -> dict[str, float]:
    return {**timings_us, "rerank": rerank, "total": timings_us["total"] + rerank}


def _us_since(start_ns: int) -> float:
    return (perf_counter_ns() - start_ns) / 1e3
