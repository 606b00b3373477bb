"""A hub that is removed, made anew under its name, or moved to another embedder while it is asked and written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tantivy

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import StoreError, StoreMismatch
from recall_cli.hub.api.errors import as_refusal
from recall_cli.hub.ingest.pipeline import ingest, move
from recall_cli.hub.models import Document, NoSuchHub, Question, Visibility
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.bm25 import Lexical
from recall_cli.hub.stores.catalog import Catalog
from recall_cli.hub.stores.folder import make_hub, open_hub, remove_hub
from recall_cli.hub.stores.local import EmbeddedEngine

EMBEDDER = HashEmbedder()
SECRET = [Document("secret", "a secret marker"), Document("other", "another secret marker")]


class Wide(HashEmbedder):
    """Another space, of more dimensions."""

    name = fingerprint = "wide"
    dim = 384


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    make_hub(tmp_path, "hub", EMBEDDER)
    made = open_hub(tmp_path, "hub")
    ingest(made, EMBEDDER, [Document("open", "an open marker")])
    yield made
    made.close()


def replaced(place: Path) -> EmbeddedEngine:
    """Put a private hub in the place of the public one."""
    remove_hub(place, "hub")
    make_hub(place, "hub", EMBEDDER, visibility=Visibility.PRIVATE)
    made = open_hub(place, "hub")
    ingest(made, EMBEDDER, SECRET)
    return made


def found(engine: EmbeddedEngine) -> list[str]:
    return sorted(passage.doc_id for passage in engine.passages(engine.lexical("marker", 9)[0]))


def test_a_hub_never_shows_what_was_put_in_its_place(tmp_path: Path, engine: EmbeddedEngine) -> None:
    new = replaced(tmp_path)
    # Whatever lets it look for a newer revision: it must not find that of the other one.
    with pytest.raises(NoSuchHub):
        engine.configure(alpha=0.25)
    with pytest.raises(NoSuchHub):
        engine.info()
    assert (found(new), new.info().visibility, new.info().alpha) == (["other", "secret"], Visibility.PRIVATE, 0.5)
    new.close()


def test_a_write_never_reaches_what_was_put_in_its_place(tmp_path: Path, engine: EmbeddedEngine) -> None:
    news: list[EmbeddedEngine] = []

    def documents() -> Iterator[Document]:
        yield Document("late", "a late marker")
        news.append(replaced(tmp_path))
        yield Document("later", "a later marker")

    with pytest.raises(NoSuchHub):
        ingest(engine, EMBEDDER, documents())
    with pytest.raises(NoSuchHub):
        ingest(engine, EMBEDDER, [Document("last", "the last marker")])
    (new,) = news
    new.close()
    new = open_hub(tmp_path, "hub")
    assert found(new) == ["other", "secret"]
    new.close()


def test_words_that_stand_there_twice_are_made_anew(tmp_path: Path, engine: EmbeddedEngine) -> None:
    with engine._words.writing() as words:
        words.add(1, "", "an open marker")
        words.commit()
    again = open_hub(tmp_path, "hub")
    assert again.lexical("marker", 9)[0].tolist() == [1]
    again.close()


def test_a_damaged_index_of_a_removed_hub_is_not_mended(
    tmp_path: Path, engine: EmbeddedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    class Panics:
        def search(self, *_: object, **__: object) -> None:
            raise ValueError("no such file")

    engine._words._searcher = Panics()  # type: ignore[assignment]
    new = replaced(tmp_path)
    with caplog.at_level(logging.WARNING), pytest.raises(NoSuchHub):
        engine.lexical("marker", 9)
    assert not caplog.records
    assert found(new) == ["other", "secret"]
    new.close()


def test_opening_what_was_removed_leaves_nothing_in_its_place(tmp_path: Path) -> None:
    for opens in (lambda: Lexical(tmp_path / "hub" / "words"), lambda: Catalog(tmp_path / "hub" / "hub.db")):
        with pytest.raises(StoreError):
            opens()  # type: ignore[no-untyped-call]
    assert not (tmp_path / "hub").exists()


def test_a_catalog_that_goes_while_it_is_opened_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    with pytest.raises(StoreError, match="unable to open"):
        Catalog(tmp_path / "hub.db")
    assert not (tmp_path / "hub.db").exists()


def test_an_index_that_goes_while_it_is_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def __init__(self, *_: object, **__: object) -> None: ...

        def register_tokenizer(self, *_: object) -> None: ...

        def config_reader(self, *_: object) -> None:
            raise ValueError("Failed to acquire Lockfile: NotFound")

    monkeypatch.setattr(tantivy, "Index", Gone)
    with pytest.raises(StoreError, match="Lockfile"):
        Lexical(tmp_path / "words")


@pytest.mark.parametrize("method", ["vector", "lexical", "score", "passages"])
def test_a_move_in_the_middle_of_a_question_is_told(
    tmp_path: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    hub, other = Hub(engine, EMBEDDER), open_hub(tmp_path, "hub")
    real = getattr(engine, method)

    def moved(*arguments: Any) -> Any:
        move(other, Wide())
        return real(*arguments)

    monkeypatch.setattr(engine, method, moved)
    with pytest.raises(StoreMismatch) as error:
        hub.recall(Question("marker"))
    assert as_refusal(error.value).status == 503
    monkeypatch.undo()
    assert [match.passage.doc_id for match in Hub(engine, Wide()).recall(Question("marker")).results] == ["open"]
    other.close()


def test_a_move_between_the_check_of_a_vector_and_its_search_is_told(
    tmp_path: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, current = open_hub(tmp_path, "hub"), engine._current

    def moved() -> Any:
        view = current()
        move(other, Wide())
        engine._refresh()
        return view

    monkeypatch.setattr(engine, "_current", moved)
    with pytest.raises(StoreMismatch):
        engine.vector(EMBEDDER.embed("marker"), 3)
    other.close()
