"""The query path over a real hub: words, vectors, both, and what a reranker may do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import StoreMismatch
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import (
    MOST,
    Answer,
    Document,
    Level,
    Match,
    Passage,
    Question,
    Reranker,
    RerankError,
    Source,
    Visibility,
)
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.types import Ids

static = cache(partial(make_embedder, "static"))
TOPICS = {
    "kettle": "The kettle boils water for tea. Descale the kettle with vinegar once a month.",
    "router": "The router hands out addresses to the network. Restart the router when the network is slow.",
    "passport": "A passport is renewed at the town hall. Bring two photographs and the old passport.",
    "garden": "Tomatoes want sun and water in the garden. Prune the tomatoes in early summer.",
    "invoice": "An invoice is paid within thirty days. A late invoice costs a reminder fee of five euro.",
    "bicycle": "Oil the chain of the bicycle in winter. Check the brakes of the bicycle before a long ride.",
}
LONG = "\n\n".join(
    f"# Part {n}\n\n" + f"The lighthouse keeper writes entry {n} of the lighthouse log. " * 40 for n in range(40)
)


def hub_of(folder: Path, documents: Sequence[Document], reranker: Reranker | None = None) -> Hub:
    embedder = static()
    make_hub(folder, "home", embedder)
    engine = open_hub(folder, "home")
    ingest(engine, embedder, documents)
    return Hub(engine, embedder, reranker=reranker)


def documents() -> list[Document]:
    return [Document(name, text, title=name.title(), url=f"https://x.example/{name}") for name, text in TOPICS.items()]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = hub_of(tmp_path_factory.mktemp("hubs"), documents())
    yield made
    made.close()


@pytest.fixture(scope="module")
def long_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = hub_of(tmp_path_factory.mktemp("long"), [*documents(), Document("log", LONG)])
    yield made
    made.close()


def ids(answer: Answer) -> list[str]:
    return [match.passage.doc_id for match in answer.results]


@pytest.mark.parametrize("name", TOPICS)
def test_a_document_answers_the_question_about_it(hub: Hub, name: str) -> None:
    answer = hub.recall(Question(f"what about the {name}?", k=3))
    assert ids(answer)[0] == name
    best = answer.results[0]
    assert best.source is Source.BOTH
    assert best.passage.title == name.title()
    assert best.passage.text in TOPICS[name]
    assert best.bm25 > 0
    assert best.score == best.fused


def test_results_are_in_order_unique_and_as_many_as_asked_for(long_hub: Hub) -> None:
    for level in Level:
        for k in (1, 5, MOST):
            answer = long_hub.recall(Question("lighthouse keeper", k=k, level=level))
            scores = [match.fused for match in answer.results]
            assert scores == sorted(scores, reverse=True)
            units = ids(answer) if level is Level.DOC else [match.passage.chunk_id for match in answer.results]
            assert len(set(units)) == len(units)
            assert len(units) == (min(k, 7) if level is Level.DOC else k)


def test_a_long_document_does_not_crowd_the_others_out(long_hub: Hub) -> None:
    """All 30 candidates of either leg are chunks of one document; the others are asked for again."""
    asked = long_hub.recall(Question("lighthouse keeper entry of the log", k=7))
    assert ids(asked)[0] == "log"
    assert set(ids(asked)) == {"log", *TOPICS}


def test_a_documents_result_is_its_best_chunk(long_hub: Hub) -> None:
    question = Question("lighthouse entry 7", k=MOST, level=Level.CHUNK)
    chunk = next(m for m in long_hub.recall(question).results if m.passage.doc_id == "log")
    document = next(m for m in long_hub.recall(replace(question, k=1, level=Level.DOC)).results)
    assert document.passage == chunk.passage


def test_cosines_are_raw_and_exact_whichever_leg_found_the_chunk(hub: Hub) -> None:
    embedder = static()
    question = "restart when slow"
    for match in hub.recall(Question(question)).results:
        text = f"{match.passage.title}\n{match.passage.text}"
        assert match.cosine == pytest.approx(float(embedder.embed(question) @ embedder.embed(text)), abs=1e-5)


def test_min_score_is_held_against_the_cosine_alone(hub: Hub) -> None:
    everything = hub.recall(Question("passport photographs")).results
    for limit in (match.cosine for match in everything):
        kept = hub.recall(Question("passport photographs", min_score=limit - 1e-6)).results
        assert [m.passage for m in kept] == [m.passage for m in everything if m.cosine >= limit - 1e-6]
    assert hub.recall(Question("passport photographs", min_score=1.0)).results == []


def test_a_chunk_that_only_its_words_found_is_dropped_below_min_score_too(hub: Hub) -> None:
    top = hub.recall(Question("zzyzx kettle")).results[0]
    assert top.bm25 > 0
    assert "kettle" not in ids(hub.recall(Question("zzyzx kettle", min_score=top.cosine + 0.01)))


def test_the_hubs_own_limit_holds_where_the_question_names_none(tmp_path: Path) -> None:
    own = hub_of(tmp_path, documents())
    own.engine.configure(min_score=0.99)
    assert own.recall(Question("passport")).results == []
    assert own.recall(Question("passport", min_score=-1.0)).results
    own.close()


@pytest.mark.parametrize("text", ["the", "!!", "\0", "ὕδωρ", "🫖", "\ud800", '"title:kettle" AND (', "a" * 2_000])
def test_no_question_fails(hub: Hub, text: str) -> None:
    for match in hub.recall(Question(text)).results:
        assert np.isfinite([match.cosine, match.bm25, match.fused]).all()


def test_an_empty_hub_answers_nothing(tmp_path: Path) -> None:
    empty = hub_of(tmp_path, [])
    assert empty.recall(Question("kettle")).results == []
    empty.close()


def test_the_only_document_has_the_whole_score(tmp_path: Path) -> None:
    alone = hub_of(tmp_path, documents()[:1])
    assert [match.score for match in alone.recall(Question("kettle")).results] == [1.0]
    alone.close()


def test_what_was_ingested_after_the_first_question_is_found(tmp_path: Path) -> None:
    growing = hub_of(tmp_path, documents()[:2])
    assert "bicycle" not in ids(growing.recall(Question("bicycle chain")))
    ingest(growing.engine, static(), documents())
    assert ids(growing.recall(Question("bicycle chain")))[0] == "bicycle"
    growing.close()


def test_an_answer_says_what_the_hub_is_when_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever checks rights against the answer must see that the hub was closed while it was searched."""
    hub = hub_of(tmp_path, documents())
    passages = hub.engine.passages

    def closing(ids: Ids) -> list[Passage]:
        hub.engine.configure(visibility=Visibility.PRIVATE)
        return passages(ids)

    monkeypatch.setattr(hub.engine, "passages", closing)
    assert hub.recall(Question("kettle")).hub.visibility is Visibility.PRIVATE
    hub.close()


def test_vectors_of_another_embedder_are_not_compared(tmp_path: Path) -> None:
    hub = hub_of(tmp_path, documents())
    with pytest.raises(StoreMismatch):
        Hub(hub.engine, make_embedder("hash-v1")).recall(Question("kettle"))
    hub.close()


def test_the_spread_is_estimated_once_until_the_hub_has_grown(tmp_path: Path) -> None:
    hub = hub_of(tmp_path, documents())
    first = hub.whitening(hub.engine.info())
    hub.engine.configure(alpha=0.3)
    assert hub.whitening(hub.engine.info()) is first
    ingest(hub.engine, static(), [Document("new", "Something else.")])
    assert hub.whitening(hub.engine.info()) is not first
    hub.close()


def test_timings_add_up(hub: Hub) -> None:
    times = hub.recall(Question("kettle")).timings_us
    assert set(times) == {"embed", "vector", "lexical", "fuse", "rerank", "total"}
    assert times["rerank"] == 0.0
    assert times["total"] >= times["embed"] + times["vector"] + times["fuse"]


async def _all(hub: Hub, question: Question) -> list[Answer]:
    return [answer async for answer in hub.stream(question)]


class Backwards:
    """Likes last what was first."""

    async def __call__(self, question: str, matches: Sequence[Match]) -> Sequence[float]:
        return [float(rank) for rank in range(len(matches))]


class Broken:
    async def __call__(self, question: str, matches: Sequence[Match]) -> Sequence[float]:
        raise RerankError("timeout")


class Short:
    async def __call__(self, question: str, matches: Sequence[Match]) -> Sequence[float]:
        return [1.0]


def reranked_hub(tmp_path: Path, reranker: Reranker) -> Hub:
    return hub_of(tmp_path, documents(), reranker)


def test_the_rerankers_order_is_the_answers(tmp_path: Path) -> None:
    hub = reranked_hub(tmp_path, Backwards())
    union, last = asyncio.run(_all(hub, Question("restart the kettle", k=3)))
    assert (union.reranked, last.reranked, last.rerank_error) == (False, True, "")
    assert ids(last) == ids(union)[::-1][:3]
    assert [match.score for match in last.results] == [match.rerank for match in last.results]
    assert all(match.rerank is None for match in union.results)
    assert last.timings_us["total"] >= last.timings_us["rerank"] > 0
    assert ids(asyncio.run(hub.answer(Question("restart the kettle", k=3)))) == ids(last)
    hub.close()


@pytest.mark.parametrize(("reranker", "why"), [(Broken(), "timeout"), (Short(), "bad_answer")])
def test_a_reranker_that_fails_leaves_the_fused_order(tmp_path: Path, reranker: Reranker, why: str) -> None:
    hub = reranked_hub(tmp_path, reranker)
    question = Question("restart the kettle", k=4)
    answer = asyncio.run(hub.answer(question))
    assert (answer.reranked, answer.rerank_error) == (False, why)
    assert ids(answer) == ids(hub.recall(question))
    hub.close()


@pytest.mark.parametrize("rerank", [True, False])
def test_without_a_reranker_or_a_wish_for_one_there_is_one_answer(tmp_path: Path, rerank: bool) -> None:
    hub = hub_of(tmp_path, documents(), None if rerank else Broken())
    (answer,) = asyncio.run(_all(hub, Question("kettle", k=2, rerank=rerank)))
    assert (answer.reranked, answer.rerank_error) == (False, "")
    assert ids(answer) == ids(hub.recall(Question("kettle", k=2)))
    hub.close()
