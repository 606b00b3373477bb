"""One contract, every engine of a hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import StoreMismatch
from recall_cli.hub.ingest.chunk import document_digest
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Chunk, Document, DocumentState, HubEngine, Visibility
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.hub.stores.pg_hubs import PostgresHubs

EMBEDDER = make_embedder("static")
LINES = [
    "The boundary layer of a wing separates at high angles of attack.",
    "Libraries catalogue books by subject, author and title.",
    "Heat flows through the slabs of a composite wall.",
    "The librarian answers questions of readers about catalogues.",
    "A shock wave stands before the blunt nose of a body in supersonic flow.",
    "Naïve café owners in Zürich resumed their résumés.",
    "日本語の文書も検索できます。",
    "to be or not to be",
]
HOSTILE = [
    "", " ", "\x00", "a\x00b", '"', "'", "wing AND", "OR", "NOT NOT", "title:wing", "*", "wing*", "(wing", "wing)", "^",
    "[a TO b]", "text:[* TO *]", "-wing", "+", "\\", "wing~2", "🦅✈️👩‍💻", "the of and to", "\ud800",
    "日本語", "ไทย हिन्दी",
    "wing " * 13_000, "x" * 65_536, "".join(map(chr, range(0xD000))), "id:1", "/.*/", "IN [a b]", "NEAR(a b)", "a\r\nb",
]  # fmt: skip


def documents(lines: Sequence[str] = LINES) -> list[Document]:
    return [Document(f"doc/{i}", line, f"Title {i}", f"https://host/{i}", float(i)) for i, line in enumerate(lines)]


@pytest.fixture(params=["embedded", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HubEngine]:
    if request.param == "postgres":
        hubs = PostgresHubs(request.getfixturevalue("database"))
        hubs.make("hub", EMBEDDER, owner="somebody")
        yield hubs.open("hub")
        hubs.close()
        return
    make_hub(tmp_path, "hub", EMBEDDER, owner="somebody")
    made: HubEngine = open_hub(tmp_path, "hub")
    yield made
    made.close()


@pytest.fixture
def filled(engine: HubEngine) -> HubEngine:
    ingest(engine, EMBEDDER, documents())
    return engine


def cut(id: str, *texts: str, title: str = "") -> tuple[Document, DocumentState, list[Chunk], np.ndarray]:
    chunks = [Chunk(i, text, text.encode().ljust(16)[:16]) for i, text in enumerate(texts)]
    document = Document(id, "".join(texts), title)
    state = DocumentState(document_digest(title, "", document.text), len(chunks))
    return document, state, chunks, EMBEDDER.embed_many(texts)


def test_a_new_hub_is_empty(engine: HubEngine) -> None:
    info = engine.info()
    assert (info.slug, info.owner, info.visibility) == ("hub", "somebody", Visibility.PUBLIC)
    assert (info.revision, info.documents, info.chunks, info.updated) == (0, 0, 0, None)
    assert (info.fingerprint, info.dim, info.embedder) == (EMBEDDER.fingerprint, EMBEDDER.dim, "static")
    assert list(engine.documents()) == []
    for ids, scores in (engine.vector(EMBEDDER.embed("wing"), 30), engine.lexical("wing", 30)):
        assert len(ids) == len(scores) == 0
    assert engine.passages(np.array([1, 2])) == []
    vectors, bm25 = engine.score("wing", np.array([1, 2]))
    assert vectors.shape == (2, EMBEDDER.dim)
    assert not vectors.any()
    assert bm25.tolist() == [0.0, 0.0]
    assert engine.sample(5).shape == (0, EMBEDDER.dim)


def test_what_is_applied_is_found_by_both_legs(filled: HubEngine) -> None:
    info = filled.info()
    assert (info.revision, info.documents, info.chunks) == (1, len(LINES), len(LINES))
    assert info.updated is not None
    for leg in (filled.vector(EMBEDDER.embed(LINES[0]), 3), filled.lexical("wings attacking", 3)):
        [best, *_] = filled.passages(leg[0])
        assert (best.doc_id, best.title, best.url, best.ordinal, best.text) == (
            "doc/0", "Title 0", "https://host/0", 0, LINES[0],
        )  # fmt: skip
        assert (np.diff(leg[1]) <= 0).all()
    assert filled.document("doc/5") == documents()[5]
    assert filled.document("doc/x") is None


def test_states_are_in_the_order_of_the_ids(filled: HubEngine) -> None:
    states = list(filled.documents())
    assert [id for id, _ in states] == sorted(document.id for document in documents())
    first = documents()[0]
    assert states[0] == (first.id, DocumentState(document_digest(first.title, first.url, first.text), 1))


def test_known_vectors_come_back_to_the_bit(engine: HubEngine) -> None:
    upsert = cut("one", "a wing", "a wall")
    engine.apply([upsert])
    digests = [chunk.digest for chunk in upsert[2]]
    found = engine.known([*digests, bytes(16)])
    assert set(found) == set(digests)
    np.testing.assert_array_equal(np.stack([found[digest] for digest in digests]), upsert[3])


def test_an_upsert_replaces_the_document_of_the_same_id(engine: HubEngine) -> None:
    assert engine.apply([cut("one", "an old wing"), cut("two", "a wall")]) == 1
    assert engine.apply([cut("one", "a new library")]) == 2
    assert engine.lexical("wing", 5)[0].tolist() == []
    assert [p.doc_id for p in engine.passages(engine.lexical("library", 5)[0])] == ["one"]
    assert len(engine.vector(EMBEDDER.embed("wing"), 5)[0]) == 2
    assert engine.info().documents == 2


def test_removals_are_read_after_the_upserts(engine: HubEngine) -> None:
    engine.apply([cut("one", "a wing"), cut("two", "a wall")])
    trace: list[str] = []

    def upserts() -> Iterator[tuple[Document, DocumentState, list[Chunk], np.ndarray]]:
        yield cut("three", "a book")
        trace.append("upserts read")

    def removed() -> Iterator[str]:
        trace.append("removals read")
        yield "two"
        yield "never there"

    assert engine.apply(upserts(), removed()) == 2
    assert trace == ["upserts read", "removals read"]
    assert [id for id, _ in engine.documents()] == ["one", "three"]
    assert engine.apply([], ["one"]) == 3
    assert engine.info().chunks == 1


def test_nothing_given_is_no_new_revision(filled: HubEngine) -> None:
    assert filled.apply([], []) == filled.info().revision == 1


@pytest.mark.parametrize("fault", [ValueError("a broken source"), KeyboardInterrupt()])
def test_a_write_that_fails_changes_nothing(filled: HubEngine, fault: BaseException) -> None:
    before = (filled.info(), list(filled.documents()), filled.lexical("wing", 9)[0].tolist())

    def broken() -> Iterator[tuple[Document, DocumentState, list[Chunk], np.ndarray]]:
        yield cut("doc/0", "another wing")
        yield cut("doc/x", "a third wing")
        raise fault

    with pytest.raises(type(fault)):
        filled.apply(broken())
    assert (filled.info(), list(filled.documents()), filled.lexical("wing", 9)[0].tolist()) == before
    assert filled.apply([cut("doc/x", "a third wing")]) == 2
    assert len(filled.lexical("wing", 9)[0]) == 2


def test_vectors_of_another_width_are_refused(filled: HubEngine) -> None:
    document, state, chunks, vectors = cut("doc/x", "a wing")
    with pytest.raises(StoreMismatch, match=rf"have {EMBEDDER.dim} dimensions: shape .* was to come, and \(1, 8\) did"):
        filled.apply([(document, state, chunks, vectors[:, :8])])
    assert filled.info().documents == len(LINES)


def test_a_question_of_another_width_is_refused(filled: HubEngine) -> None:
    with pytest.raises(StoreMismatch, match=rf"have {EMBEDDER.dim} dimensions: shape .* was to come, and \(8,\) did"):
        filled.vector(EMBEDDER.embed("wing")[:8], 3)


def test_scores_are_those_of_the_legs(filled: HubEngine) -> None:
    question = "which wing has a boundary layer at the nose of a body"
    vector = EMBEDDER.embed(question)
    near, cosines = filled.vector(vector, 30)
    matched, bm25 = filled.lexical(question, 30)
    ids = np.array(sorted({*near.tolist(), *matched.tolist()}))
    rows, words = filled.score(question, ids)
    exact = rows @ vector
    at = {id: place for place, id in enumerate(ids.tolist())}
    np.testing.assert_allclose(exact[[at[id] for id in near.tolist()]], cosines, atol=1e-6)
    np.testing.assert_array_equal(words[[at[id] for id in matched.tolist()]], bm25)
    assert 0 < len(matched) < len(ids)
    assert (words[[at[id] for id in set(ids.tolist()) - set(matched.tolist())]] == 0).all()


def test_a_word_said_twice_counts_twice(filled: HubEngine) -> None:
    ids, scores = filled.lexical("wing", 1)
    twice, doubled = filled.lexical("a wing, any wing", 1)
    assert ids.tolist() == twice.tolist()
    np.testing.assert_allclose(doubled, 2 * scores, rtol=1e-6)


def test_a_sample_is_spread_over_the_hub(filled: HubEngine) -> None:
    whole, _ = filled.score("", np.arange(1, len(LINES) + 1))
    np.testing.assert_array_equal(filled.sample(100), whole)
    np.testing.assert_array_equal(filled.sample(3), whole[[0, 3, 7]])


def test_a_chunk_without_a_known_token_is_found_by_its_words(engine: HubEngine) -> None:
    document, state, chunks, vectors = cut("one", "zxqj")
    engine.apply([(document, state, chunks, np.zeros_like(vectors)), cut("two", "a wing")])
    ids, _ = engine.lexical("ZXQJ", 5)
    assert [p.doc_id for p in engine.passages(ids)] == ["one"]
    assert ids.tolist()[0] not in engine.vector(EMBEDDER.embed("wing"), 5)[0].tolist()
    vectors, bm25 = engine.score("zxqj", ids)
    assert not vectors.any()
    assert bm25[0] > 0


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_no_question_fails(filled: HubEngine, text: str) -> None:
    ids, scores = filled.lexical(text, 30)
    assert len(ids) == len(scores) <= len(LINES)
    assert len(filled.score(text, np.arange(1, 4))[1]) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200))
def test_no_text_at_all_fails(filled: HubEngine, text: str) -> None:
    ids, scores = filled.lexical(text, 30)
    np.testing.assert_array_equal(filled.score(text, ids)[1], scores)


def test_stop_words_count_only_where_there_is_nothing_else(filled: HubEngine) -> None:
    assert filled.passages(filled.lexical("to be, or not to be?", 3)[0])[0].text == LINES[7]
    assert [p.text for p in filled.passages(filled.lexical("the librarian", 9)[0])] == [LINES[3]]


@pytest.mark.parametrize(("question", "line"), [("cafe", 5), ("検索", 6), ("CATALOGUING", 1), ("resume", 5)])
def test_words_are_found_in_other_forms(filled: HubEngine, question: str, line: int) -> None:
    assert LINES[line] in [p.text for p in filled.passages(filled.lexical(question, 9)[0])]


def test_settings_make_a_new_revision(filled: HubEngine) -> None:
    info = filled.configure(visibility=Visibility.PRIVATE, owner="else", alpha=0.5, min_score=0.25)
    assert (info.visibility, info.owner, info.alpha, info.min_score) == (Visibility.PRIVATE, "else", 0.5, 0.25)
    assert info.revision == 2
    assert filled.info() == info
    again = filled.configure(visibility=Visibility.PUBLIC)
    assert (again.owner, again.alpha, again.min_score, again.revision) == ("else", 0.5, 0.25, 3)
    free = filled.configure(min_score=None)
    assert (free.owner, free.alpha, free.min_score, free.revision) == ("else", 0.5, None, 4)
    assert filled.info() == free
    assert len(filled.lexical("wing", 9)[0]) == 1


def test_closing_twice_does_nothing(engine: HubEngine) -> None:
    engine.close()
    engine.close()
