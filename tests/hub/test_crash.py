"""Killed writers, other processes and damaged files: searches see the last whole revision, always."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import tantivy

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import StoreError, UpstreamError
from recall_cli.hub.ingest.pipeline import ingest, move
from recall_cli.hub.models import Document, Visibility
from recall_cli.hub.stores import bm25, local
from recall_cli.hub.stores.bm25 import Busy, Damaged, LexicalWriter
from recall_cli.hub.stores.catalog import Snapshot
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.hub.stores.local import EmbeddedEngine
from recall_cli.types import Vector

EMBEDDER = HashEmbedder()
OLD = [Document(f"d{i}", f"a marker and an old wing number{i}") for i in range(12)]
NEW = [Document(f"d{i}", f"a marker and a new library number{i}") for i in range(3, 15)]

PREAMBLE = """
import os, signal, sys
from pathlib import Path
from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.hub.stores import batches as upserts
from recall_cli.hub.stores.catalog import Catalog
from recall_cli.hub.stores.folder import open_hub
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.stores.bm25 import LexicalWriter
from recall_cli.hub.models import Document
NEW = [Document(f"d{i}", f"a marker and a new library number{i}") for i in range(3, 15)]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
engine = open_hub(Path(sys.argv[1]), "hub")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_hub(tmp_path, "hub", EMBEDDER)
    engine = open_hub(tmp_path, "hub")
    ingest(engine, EMBEDDER, OLD)
    engine.close()
    return tmp_path


@pytest.fixture
def engine(place: Path) -> Iterator[EmbeddedEngine]:
    made = open_hub(place, "hub")
    yield made
    made.close()


def child(place: Path, code: str) -> subprocess.Popen[str]:
    """Start a process that has the hub open."""
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + dedent(code), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(place: Path, code: str) -> None:
    """Run a process that kills itself."""
    process = child(place, code)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def texts(engine: EmbeddedEngine) -> list[str]:
    """What both legs and the catalog agree on."""
    info = engine.info()
    ids, _ = engine.lexical("marker", 50)
    near, _ = engine.vector(EMBEDDER.embed("anything"), 50)
    assert sorted(ids.tolist()) == sorted(near.tolist())
    assert len(ids) == info.chunks == info.documents
    return sorted(passage.text for passage in engine.passages(ids))


BEFORE = sorted(document.text for document in OLD)
AFTER = sorted([document.text for document in OLD[:3]] + [document.text for document in NEW])


def test_a_process_killed_in_the_middle_leaves_the_revision_before(place: Path, engine: EmbeddedEngine) -> None:
    process = child(
        place,
        """
        upserts.BATCH = 2
        def slowly():
            yield from NEW[:7]
            print("in the middle", flush=True)
            sys.stdin.read()
        ingest(engine, HashEmbedder(), slowly())
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in the middle\n"
    assert texts(engine) == BEFORE
    other = open_hub(place, "hub")
    assert texts(other) == BEFORE
    process.kill()
    process.communicate(timeout=60)
    assert texts(engine) == texts(other) == BEFORE
    other.close()
    report = ingest(engine, EMBEDDER, NEW)
    assert (report.added, report.changed, report.revision) == (3, 9, 2)
    # What the killed one had embedded is not embedded again.
    assert report.embedded == len(NEW) - 6
    assert texts(engine) == AFTER
    assert hidden(place) == len(NEW) - 3, "only what this write has replaced is still there"
    ingest(engine, EMBEDDER, [NEW[0]], prune=True)
    assert hidden(place) == len(AFTER) - 1


def hidden(place: Path) -> int:
    """Return how many documents are in the file that no search sees."""
    db = sqlite3.connect(place / "hub" / "hub.db")
    [(count,)] = db.execute("SELECT COUNT(*) FROM documents WHERE hidden IS NOT NULL").fetchall()
    db.close()
    return count


AT = {
    "before the catalog's commit": "Catalog.next_revision = die",
    "between the two commits": "LexicalWriter.commit = die",
    "before the catalog hears of the words": """
        real = Catalog.set
        Catalog.set = lambda self, **facts: die() if 'indexed' in facts else real(self, **facts)""",
}


@pytest.mark.parametrize("where", AT)
def test_wherever_it_is_killed_both_legs_agree(place: Path, engine: EmbeddedEngine, where: str) -> None:
    killed(place, dedent(AT[where]) + "\ningest(engine, HashEmbedder(), NEW)")
    expected = BEFORE if where.startswith("before the catalog's") else AFTER
    reopened = open_hub(place, "hub")
    assert texts(reopened) == expected
    reopened.close()
    # The engine that was open all the time follows too, once it may.
    engine.info()
    assert texts(engine) == expected


def test_an_open_hub_brings_up_to_date_what_a_killed_writer_left(place: Path, engine: EmbeddedEngine) -> None:
    killed(place, "LexicalWriter.commit = die\ningest(engine, HashEmbedder(), NEW)")
    engine.info()
    assert texts(engine) == AFTER


def test_the_next_writer_brings_it_up_to_date_too(place: Path, engine: EmbeddedEngine) -> None:
    killed(place, "LexicalWriter.commit = die\ningest(engine, HashEmbedder(), NEW)")
    report = ingest(engine, EMBEDDER, [Document("more", "one marker more")])
    assert report.revision == 3
    assert texts(engine) == sorted([*AFTER, "one marker more"])


def test_a_write_of_another_process_is_seen_by_the_next_search(place: Path, engine: EmbeddedEngine) -> None:
    process = child(place, "ingest(engine, HashEmbedder(), NEW)")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert texts(engine) == AFTER
    process = child(place, "engine.configure(visibility='private', alpha=0.75)")
    process.communicate(timeout=60)
    info = engine.info()
    assert (info.visibility, info.alpha, info.revision) == (Visibility.PRIVATE, 0.75, 3)


def test_a_search_looks_at_the_file_only_after_a_write(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = engine._refresh
    monkeypatch.setattr(engine, "_refresh", lambda: (looks.append(1), real()))
    for _ in range(3):
        assert texts(engine) == BEFORE
    assert looks == []
    ingest(engine, EMBEDDER, NEW)
    texts(engine)
    seen = len(looks)
    texts(engine)
    assert len(looks) == seen


def test_one_writer_at_a_time(place: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    process = child(
        place,
        """
        upserts.BATCH = 2
        def slowly():
            yield from NEW[:7]
            print("in the middle", flush=True)
            sys.stdin.read()
            yield from NEW[7:]
        ingest(engine, HashEmbedder(), slowly())
        """,
    )
    assert process.stdout is not None
    process.stdout.readline()
    monkeypatch.setattr(local, "WAIT_S", 0.0)
    with pytest.raises(Busy):
        ingest(engine, EMBEDDER, [Document("more", "one marker more")])
    assert texts(engine) == BEFORE
    # Who may ask can be changed all the time: an ingest locks nobody out before its last moment.
    assert engine.configure(visibility=Visibility.PRIVATE).revision == 2
    process.communicate("", timeout=60)
    assert (engine.info().visibility, engine.info().revision) == (Visibility.PRIVATE, 3)
    assert texts(engine) == AFTER


def test_who_may_ask_changes_although_somebody_is_writing(place: Path, engine: EmbeddedEngine) -> None:
    other = open_hub(place, "hub")
    killed(place, "LexicalWriter.commit = die\ningest(engine, HashEmbedder(), NEW)")
    with engine._words.writing():
        other._catalog.set(visibility="private")
        info = other.info()
        assert (info.visibility, info.revision) == (Visibility.PRIVATE, 1)
        assert texts(other) == BEFORE
    other._retry_at = 0.0
    other.info()
    assert (texts(other), other.info().revision) == (AFTER, 2)
    other.close()


def test_who_may_ask_changes_although_the_hub_moves_to_another_embedder(place: Path, engine: EmbeddedEngine) -> None:
    other = open_hub(place, "hub")

    class Slow(HashEmbedder):
        fingerprint = "another"

        def embed_many(self, texts: Sequence[str]) -> Vector:
            assert other.configure(visibility=Visibility.PRIVATE).revision == 2
            return super().embed_many(texts)

    assert move(engine, Slow()).revision == 3
    for one in (engine, other):
        info = one.info()
        assert (info.visibility, info.revision, info.fingerprint) == (Visibility.PRIVATE, 3, "another")
        assert texts(one) == BEFORE
    other.close()


def test_a_move_that_fails_leaves_the_hub_as_it_was_and_can_be_made_again(engine: EmbeddedEngine) -> None:
    class Other(HashEmbedder):
        fingerprint = "another"
        fails = True

        def embed_many(self, texts: Sequence[str]) -> Vector:
            if self.fails:
                raise UpstreamError("no answer")
            return super().embed_many(texts)

    embedder = Other()
    with pytest.raises(UpstreamError):
        move(engine, embedder)
    assert (engine.info().fingerprint, engine.info().revision, texts(engine)) == (EMBEDDER.fingerprint, 1, BEFORE)
    embedder.fails = False
    assert move(engine, embedder).embedded == len(OLD)
    assert (engine.info().fingerprint, texts(engine)) == ("another", BEFORE)
    # They are known under their new digests.
    assert ingest(engine, embedder, [replace(OLD[0], url="https://x.org")]).embedded == 0


def _truncate(words: Path, suffix: str) -> None:
    for path in words.glob(f"*{suffix}"):
        path.write_bytes(path.read_bytes()[:-20])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "a file in its place": lambda words: (shutil.rmtree(words), words.write_bytes(b"x")),
    "no meta.json": lambda words: (words / "meta.json").unlink(),
    "empty meta.json": lambda words: (words / "meta.json").write_bytes(b""),
    "another's meta.json": lambda words: (words / "meta.json").write_bytes(b'{"segments": []}'),
    "no terms": lambda words: [path.unlink() for path in words.glob("*.term")],
    "no ids": lambda words: [path.unlink() for path in words.glob("*.fast")],
    "no positions": lambda words: [path.unlink() for path in words.glob("*.pos")],
    "half of the postings": lambda words: _truncate(words, ".idx"),
    "half of the terms": lambda words: _truncate(words, ".term"),
    "no lock": lambda words: (words / ".tantivy-writer.lock").unlink(),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_damaged_word_index_is_made_anew_from_the_catalog(place: Path, fault: str) -> None:
    DAMAGE[fault](place / "hub" / "words")
    engine = open_hub(place, "hub")
    assert texts(engine) == BEFORE
    ingest(engine, EMBEDDER, NEW)
    assert texts(engine) == AFTER
    engine.close()


def test_who_may_ask_waits_for_no_thread_that_brings_a_revision_in(
    place: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_hub(place, "hub")
    begun, goes_on = threading.Event(), threading.Event()
    show = EmbeddedEngine._show

    def slowly(self: EmbeddedEngine, state: Snapshot) -> None:
        begun.set()
        assert goes_on.wait(60)
        show(self, state)

    ingest(other, EMBEDDER, NEW)
    monkeypatch.setattr(EmbeddedEngine, "_show", slowly)
    searching = threading.Thread(target=engine.info)
    searching.start()
    try:
        assert begun.wait(60)
        monkeypatch.setattr(EmbeddedEngine, "_show", show)
        # The first is of the revision that is on its way, the second comes after it.
        for visibility in (Visibility.PRIVATE, Visibility.PUBLIC, Visibility.PRIVATE):
            other.configure(visibility=visibility)
            assert (engine.info().visibility, engine.info().revision) == (visibility, 1)
    finally:
        goes_on.set()
        searching.join()
    assert (engine.info().visibility, engine.info().revision) == (Visibility.PRIVATE, 5)
    other.close()


class PanicException(BaseException):
    """Stands for a panic, which is no Exception."""


class Panicking:
    num_docs = 1

    def search(self, *_: object, **__: object) -> None:
        raise PanicException("index out of bounds")


def _overwrite(words: Path, *suffixes: str) -> None:
    """Let what an open index reads be something else: its files are mapped into memory."""
    for path in words.iterdir():
        if path.name.endswith(suffixes):
            with path.open("r+b") as file:
                file.write(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("suffixes", [(".idx",), (".term",), (".fast",), (".idx", ".managed.json", "meta.json")])
def test_damage_that_a_search_finds_is_mended_in_place(place: Path, suffixes: tuple[str, ...]) -> None:
    engine, other = open_hub(place, "hub"), open_hub(place, "hub")
    _overwrite(place / "hub" / "words", *suffixes)
    assert texts(engine) == BEFORE
    ids, scores = engine.lexical("number7", 3)
    np.testing.assert_array_equal(engine.score("number7", ids)[1], scores)
    ingest(engine, EMBEDDER, NEW)
    assert texts(engine) == texts(other) == AFTER
    engine.close()
    other.close()


def test_damage_that_scores_find_is_mended_too(engine: EmbeddedEngine) -> None:
    ids, scores = engine.lexical("number7", 3)
    engine._words._searcher = Panicking()  # type: ignore[assignment]
    np.testing.assert_array_equal(engine.score("number7", ids)[1], scores)


def test_damage_that_a_new_revision_finds_is_mended(place: Path, engine: EmbeddedEngine) -> None:
    other = open_hub(place, "hub")
    ingest(other, EMBEDDER, NEW)
    _overwrite(place / "hub" / "words", ".term")
    assert texts(engine) == AFTER
    other.close()


def test_while_it_is_mended_others_are_told_and_wait_for_nothing(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    mend = engine._mend

    def mending(found: Damaged) -> None:
        thread = threading.Thread(target=asking)
        thread.start()
        thread.join()
        mend(found)

    def asking() -> None:
        with pytest.raises(Damaged) as error:
            engine.lexical("marker", 3)
        told.append(error.value.hint)

    monkeypatch.setattr(engine, "_mend", mending)
    engine._words._searcher = Panicking()  # type: ignore[assignment]
    assert texts(engine) == BEFORE
    assert told == ["it is made anew: ask again"]


def test_a_damaged_word_index_waits_for_its_writer(engine: EmbeddedEngine) -> None:
    engine._words._searcher = Panicking()  # type: ignore[assignment]
    with engine._words.writing(), pytest.raises(Busy):
        engine.lexical("marker", 3)
    assert texts(engine) == BEFORE


def test_a_word_index_that_panics_when_it_is_opened_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tantivy.Index
    panics = iter([True])

    def index(*args: Any, **more: Any) -> tantivy.Index:
        if next(panics, False):
            raise PanicException("start <= end")
        return made(*args, **more)

    monkeypatch.setattr(tantivy, "Index", index)
    engine = open_hub(place, "hub")
    assert texts(engine) == BEFORE
    engine.close()


def test_a_word_index_that_cannot_be_made_anew_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> tantivy.Index:
        raise ValueError("Permission denied")

    monkeypatch.setattr(tantivy, "Index", never)
    # As in a folder that may be read and not be changed.
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(StoreError, match="Permission denied"):
        open_hub(place, "hub")


def test_a_word_that_the_disk_refuses_is_told(engine: EmbeddedEngine) -> None:
    class Full:
        def add_document(self, _: tantivy.Document) -> None:
            raise ValueError("No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        LexicalWriter(Full(), engine._words._schema).add(1, "", "text")  # type: ignore[arg-type]


ODD = {
    "a vector of another length": "UPDATE vectors SET vector = x'0000803f'",
    "a vector that is none": "UPDATE vectors SET vector = CAST(x'0000c07f' || zeroblob(1020) AS BLOB)",
    "no fact": "DELETE FROM meta WHERE key = 'alpha'",
    "a fact of another kind": "UPDATE meta SET value = 'everybody' WHERE key = 'visibility'",
    "no number": "UPDATE meta SET value = 'x' WHERE key = 'dim'",
}


@pytest.mark.parametrize("fault", ODD)
def test_a_catalog_that_makes_no_sense_is_told(place: Path, fault: str) -> None:
    with sqlite3.connect(place / "hub" / "hub.db") as db:
        db.executescript(ODD[fault])
    with pytest.raises(StoreError, match="damaged"):
        open_hub(place, "hub").close()


def test_a_word_index_of_another_time_is_brought_up_to_date(place: Path) -> None:
    words, kept = place / "hub" / "words", place / "kept"
    shutil.copytree(words, kept)
    engine = open_hub(place, "hub")
    ingest(engine, EMBEDDER, NEW)
    engine.close()
    newer = place / "newer"
    shutil.copytree(words, newer)
    shutil.rmtree(words)
    shutil.copytree(kept, words)
    engine = open_hub(place, "hub")
    assert texts(engine) == AFTER
    engine.close()


def test_a_word_index_of_another_analyzer_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "ANALYZER", "another")
    engine = open_hub(place, "hub")
    assert texts(engine) == BEFORE
    engine.close()


@pytest.mark.parametrize("in_place", [1_024, 0])
def test_searches_beside_writes_see_whole_revisions(
    place: Path, in_place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "IN_PLACE", in_place)
    monkeypatch.setattr(local, "IN_PLACE_SHARE", 1_000)
    engine = open_hub(place, "hub")
    ended = threading.Event()
    seen: list[set[int]] = [set(), set()]

    def search(leg: int) -> None:
        vector = EMBEDDER.embed("anything")
        while not ended.is_set():
            ids, _ = engine.vector(vector, 50) if leg == 0 else engine.lexical("marker", 50)
            seen[leg].add(len(set(ids.tolist())))

    threads = [threading.Thread(target=search, args=(leg,)) for leg in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(8):
            ingest(engine, EMBEDDER, [Document(d.id, f"{d.text} at turn{turn}") for d in OLD])
            assert len(engine.lexical(f"turn{turn}", 50)[0]) == len(OLD)
            assert len(engine.vector(EMBEDDER.embed(f"{OLD[0].text} at turn{turn}"), 1)[0]) == 1
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert seen == [{len(OLD)}, {len(OLD)}]
    engine.close()
