"""Ingest: what has changed is embedded, what has not is not, and the report says which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import HashEmbedder, make_embedder
from recall_cli.errors import StoreMismatch
from recall_cli.hub.ingest.chunk import LARGEST, chunks
from recall_cli.hub.ingest.pipeline import ingest, move
from recall_cli.hub.models import Document, Report
from recall_cli.hub.stores import batches
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.hub.stores.local import EmbeddedEngine
from recall_cli.types import Vector

SENTENCE = "The {}th boundary layer separates from the wing. "


class Counting(HashEmbedder):
    """Keeps what it was asked to embed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_many(self, texts: Sequence[str]) -> Vector:
        self.texts += texts
        return super().embed_many(texts)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    make_hub(tmp_path, "hub", HashEmbedder())
    made = open_hub(tmp_path, "hub")
    yield made
    made.close()


def article(number: int, sections: int = 8) -> Document:
    text = "".join(
        f"## Section {number}.{at}\n\n" + "".join(SENTENCE.format(f"{number}-{at}-{i}") for i in range(20)) + "\n\n"
        for at in range(sections)
    )
    return Document(f"a/{number}.md", text, f"Article {number}")


def test_only_what_changed_is_embedded(engine: EmbeddedEngine, embedder: Counting) -> None:
    articles = [article(i) for i in range(30)]
    report = ingest(engine, embedder, articles)
    assert (report.added, report.chunks, report.embedded, report.revision) == (30, 240, 240, 1)
    assert len(embedder.texts) == len(set(embedder.texts)) == 240
    embedder.texts.clear()

    report = ingest(engine, embedder, articles)
    assert (report.added, report.changed, report.unchanged, report.chunks) == (0, 0, 30, 0)
    assert report.revision == 1
    assert embedder.texts == []

    old = articles[17]
    articles[17] = replace(old, text=old.text.replace("17-3-9", "new"))
    report = ingest(engine, embedder, articles)
    assert (report.changed, report.unchanged, report.chunks, report.embedded, report.revision) == (1, 29, 8, 1, 2)
    [text] = embedder.texts
    assert "The newth boundary" in text
    assert text.startswith("Article 17\n## Section 17.3\n")
    assert engine.document(old.id) == articles[17]
    assert engine.info().chunks == 240


def test_what_moves_is_not_embedded_again(engine: EmbeddedEngine, embedder: Counting) -> None:
    one = article(1)
    ingest(engine, embedder, [one])
    pieces = chunks(one.text)
    embedder.texts.clear()
    moved = Document("elsewhere.md", "".join(reversed(pieces)), one.title)
    report = ingest(engine, embedder, [moved], prune=True)
    assert (report.added, report.removed, report.chunks, report.embedded) == (1, 1, 8, 0)
    assert embedder.texts == []
    ids, _ = engine.vector(HashEmbedder().embed(f"{one.title}\n{pieces[0]}"), 1)
    assert engine.passages(ids)[0].ordinal == 7


def test_equal_chunks_of_an_ingest_are_embedded_once(engine: EmbeddedEngine, embedder: Counting) -> None:
    report = ingest(engine, embedder, [Document(str(i), "the same licence") for i in range(50)])
    assert (report.chunks, report.embedded, len(embedder.texts)) == (50, 1, 1)
    assert len(engine.vector(HashEmbedder().embed("the same licence"), 30)[0]) == 30


def test_batches_and_progress(engine: EmbeddedEngine, embedder: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH", 16)
    seen: list[tuple[int, int]] = []
    report = ingest(
        engine, embedder, (article(i) for i in range(7)), progress=lambda r: seen.append((r.added, r.embedded))
    )
    assert seen == [(2, 16), (4, 32), (6, 48), (7, 56)]
    assert report.revision == 1


def test_a_title_or_url_makes_a_change(engine: EmbeddedEngine, embedder: Counting) -> None:
    first = Document("a", "text", "title", "url", 1.0)
    ingest(engine, embedder, [first])
    assert ingest(engine, embedder, [replace(first, updated=2.0)]).unchanged == 1
    report = ingest(engine, embedder, [replace(first, url="another")])
    assert (report.changed, report.embedded) == (1, 0)
    report = ingest(engine, embedder, [replace(first, title="another")])
    assert (report.changed, report.embedded) == (1, 1)
    assert embedder.texts[-1] == "another\ntext"


def test_what_is_skipped_is_counted(engine: EmbeddedEngine, embedder: Counting) -> None:
    given = [Document("a", "x"), Document("a", "y"), Document("b", " \n"), Document("c", "", "only a title")]
    report = ingest(engine, embedder, given)
    assert (report.added, report.skipped) == (2, {"duplicate_id": 1, "empty": 1})
    assert engine.passages(engine.lexical("title", 3)[0])[0].doc_id == "c"
    assert engine.document("a") == given[0]


def test_a_document_that_has_become_empty_is_removed(engine: EmbeddedEngine, embedder: Counting) -> None:
    ingest(engine, embedder, [Document("a", "wing"), Document("b", "nose")])
    for dry_run in (True, False):
        report = ingest(engine, embedder, [Document("a", "")], dry_run=dry_run)
        assert (report.removed, report.unchanged, report.skipped) == (1, 0, {"empty": 1})
    assert [id for id, _ in engine.documents()] == ["b"]
    assert ingest(engine, embedder, [Document("a", "")]).removed == 0


def test_prune_removes_what_was_not_fed(engine: EmbeddedEngine, embedder: Counting) -> None:
    documents = [Document(str(i), f"text {i}") for i in range(6)]
    ingest(engine, embedder, documents)
    assert ingest(engine, embedder, documents[:4], prune=lambda: False).removed == 0
    report = ingest(engine, embedder, documents[:4], prune=lambda: True)
    assert (report.removed, report.unchanged, report.revision) == (2, 4, 2)
    assert [id for id, _ in engine.documents()] == ["0", "1", "2", "3"]
    assert ingest(engine, embedder, [], prune=True).removed == 4
    assert engine.info().chunks == 0


def test_a_dry_run_says_the_same_and_does_nothing(engine: EmbeddedEngine, embedder: Counting) -> None:
    ingest(engine, embedder, [article(1), article(2), article(3)])
    embedder.texts.clear()
    state = (engine.info(), list(engine.documents()))
    given = [article(1), replace(article(2), text=article(2).text + "more"), article(4)]

    def told(report: Report) -> tuple[object, ...]:
        return (report.added, report.changed, report.unchanged, report.removed, report.chunks, report.embedded)

    dry = ingest(engine, embedder, given, prune=True, dry_run=True)
    assert embedder.texts == []
    assert (engine.info(), list(engine.documents())) == state
    assert dry.revision == 1
    assert told(dry) == told(ingest(engine, embedder, given, prune=True)) == (1, 1, 1, 1, 16, 9)


def test_lone_surrogates_are_replaced(engine: EmbeddedEngine, embedder: Counting) -> None:
    ingest(engine, embedder, [Document("a\ud800", "wing \udfff", "\ud800", "\ud800")])
    stored = engine.document("a?")
    assert stored == Document("a?", "wing ?", "?", "?")


def test_another_embedder_is_refused(engine: EmbeddedEngine) -> None:
    with pytest.raises(StoreMismatch, match="static"):
        ingest(engine, make_embedder("static"), [Document("a", "x")])


def test_a_broken_embedder_leaves_the_hub_as_it_was(
    engine: EmbeddedEngine, embedder: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH", 4)
    ingest(engine, embedder, [Document("a", "x")])

    def documents() -> Iterator[Document]:
        yield from (Document(f"b{i}", f"text {i}") for i in range(6))
        embedder.embed_many = None  # type: ignore[assignment]
        yield from (Document(f"c{i}", f"text {i}") for i in range(6))

    with pytest.raises(TypeError):
        ingest(engine, embedder, documents())
    assert [id for id, _ in engine.documents()] == ["a"]
    assert engine.info().revision == 1


def test_a_hub_moves_to_another_embedder_whole(engine: EmbeddedEngine, tmp_path: Path) -> None:
    ingest(engine, HashEmbedder(), [article(1), Document("b", "zxqj"), Document("c", "a wing")])
    other = open_hub(tmp_path, "hub")
    static = make_embedder("static")
    report = move(engine, static)
    assert (report.unchanged, report.chunks, report.embedded, report.revision) == (3, 10, 10, 2)
    for one in (engine, other):
        info = one.info()
        assert (info.embedder, info.fingerprint, info.chunks) == ("static", static.fingerprint, 10)
        ids, cosines = one.vector(static.embed("a wing"), 30)
        assert one.passages(ids)[0].doc_id == "c"
        assert cosines[0] == pytest.approx(1.0, abs=1e-5)
        assert len(one.lexical("boundary", 30)[0]) == 8
    other.close()
    # Nothing is embedded twice: the digests are those of the new embedder.
    again = ingest(engine, static, [article(1), Document("d", "a wing")])
    assert (again.unchanged, again.added, again.embedded) == (1, 1, 0)
    assert move(engine, static).embedded == 0


def test_a_move_that_fails_leaves_the_old_vectors(engine: EmbeddedEngine) -> None:
    ingest(engine, HashEmbedder(), [Document("a", "a wing")])

    class Liar(HashEmbedder):
        dim = 8
        fingerprint = "another"

        def embed_many(self, texts: Sequence[str]) -> Vector:
            return np.ones((len(texts), 256), np.float32)

    with pytest.raises(StoreMismatch):
        move(engine, Liar())
    assert engine.info().fingerprint == HashEmbedder.fingerprint
    np.testing.assert_array_equal(engine.sample(1)[0], HashEmbedder().embed("a wing"))


def test_an_ingest_with_the_embedder_before_is_refused_after_a_move(engine: EmbeddedEngine, tmp_path: Path) -> None:
    other = open_hub(tmp_path, "hub")

    def documents() -> Iterator[Document]:
        move(other, make_embedder("static"))
        yield Document("a", "x")

    ingest(engine, HashEmbedder(), [Document("b", "y")])
    with pytest.raises(StoreMismatch, match="meanwhile"):
        ingest(engine, HashEmbedder(), documents())
    other.close()


words = st.sampled_from(["wing", "nose", "heat", "library", "x" * LARGEST, "wing " * 700, "", "café"])
feeds = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcdef"), words, max_size=5), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=15)
@given(feeds=feeds)
def test_a_hub_is_what_was_fed(
    feeds: list[tuple[dict[str, str], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is fed in whatever order, the hub holds the latest of each, and both legs find exactly that."""
    place = tmp_path_factory.mktemp("hubs")
    make_hub(place, "hub", HashEmbedder())
    engine = open_hub(place, "hub")
    model: dict[str, str] = {}
    for fed, prune in feeds:
        documents = [Document(id, f"{id}: {text} marker") for id, text in fed.items()]
        report = ingest(engine, HashEmbedder(), documents, prune=prune)
        if prune:
            assert report.removed == len(set(model) - set(fed))
            model = {}
        model |= {document.id: document.text for document in documents}
        assert {id: engine.document(id).text for id, _ in engine.documents()} == model
        ids, _ = engine.lexical("marker", 100)
        assert sorted(p.doc_id for p in engine.passages(ids)) == sorted(model)
        count = sum(len(chunks(text)) for text in model.values())
        assert engine.info().chunks == count
        assert len(engine.vector(HashEmbedder().embed("any"), 100)[0]) == count
    reopened = open_hub(place, "hub")
    assert reopened.info() == engine.info()
    reopened.close()
    engine.close()
