"""A watched folder: every edit arrives, a deletion only where it is one, and what has not changed costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import InputError
from recall_cli.hub.ingest import watch as watching
from recall_cli.hub.ingest.documents import ReadPage
from recall_cli.hub.ingest.sources import File
from recall_cli.hub.ingest.watch import UNSETTLED_S, Refresh, Watch, watch_hub
from recall_cli.hub.models import Document, NoSuchHub, Report
from recall_cli.hub.session import WatchStatus, read_pulse, write_pulse
from recall_cli.hub.stores.folder import make_hub, open_hub, remove_hub
from recall_cli.hub.stores.local import EmbeddedEngine

OLD = 1_700_000_000
"""A time of change that lies well before every look."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    make_hub(tmp_path / "hubs", "h", HashEmbedder())
    opened = open_hub(tmp_path / "hubs", "h")
    yield opened
    opened.close()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        write(folder / f"{name}.md", f"text of {name}")
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, by id."""
    names: list[str] = []
    read_file = watching.read_file

    def noting(file: File, read_page: ReadPage, *, encoding: str = "") -> Document | str:
        names.append(file.id)
        return read_file(file, read_page, encoding=encoding)

    monkeypatch.setattr(watching, "read_file", noting)
    return names


def write(path: Path, text: str, at: int = OLD) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))


class Clock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.now = OLD + 1_000.0

    def __call__(self) -> float:
        return self.now


def looks(watch: Watch, clock: Clock, times: int = 2, step: float = 2.0) -> Report:
    """Look some times, and return the last report that said something."""
    last = Report()
    for _ in range(times):
        clock.now += step
        refresh = watch.look(now=clock, clock=clock)
        last = refresh.report if refresh is not None else last
    return last


def texts(engine: EmbeddedEngine) -> dict[str, str]:
    found = {id: engine.document(id) for id, _ in engine.documents()}
    return {id: document.text for id, document in found.items() if document is not None}


@pytest.mark.parametrize("prune", [False, True])
def test_an_edit_arrives_once_the_folder_is_quiet_and_nothing_else_is_read(
    prune: bool, engine: EmbeddedEngine, docs: Path, opened: list[str]
) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=prune), Clock()
    assert looks(watch, clock, 1).added == 3
    opened.clear()
    assert looks(watch, clock, 3) == Report()
    assert not opened
    write(docs / "b.md", "another text", OLD + 10)
    write(docs / "deep/d.md", "text of d")
    clock.now += 2
    assert watch.look(now=clock, clock=clock) is None
    clock.now += 2
    refresh = watch.look(now=clock, clock=clock)
    assert refresh is not None
    assert (refresh.report.added, refresh.report.changed) == (1, 1)
    # The edit came after the last look at which all was as before: two looks of two seconds ago.
    assert refresh.lag_s == 4
    assert sorted(opened) == ["b.md", "deep/d.md"]
    assert texts(engine) == {
        "a.md": "text of a", "b.md": "another text", "c.md": "text of c", "deep/d.md": "text of d",
    }  # fmt: skip


def test_a_folder_that_never_rests_is_read_all_the_same(engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs)), Clock()
    looks(watch, clock, 1)
    write(docs / "b.md", "wanted", OLD + 10)
    done = []
    for n in range(12):
        write(docs / "log.txt", f"line {n}", OLD + 10 + n)
        clock.now += 2
        done.append(watch.look(now=clock, clock=clock) is not None)
    assert True in done[: int(UNSETTLED_S / 2) + 1]
    assert texts(engine)["b.md"] == "wanted"


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_is_set_holds_nothing_up(engine: EmbeddedEngine, docs: Path, jump: float) -> None:
    watch, clock, day = Watch(engine, HashEmbedder(), str(docs)), Clock(), Clock()
    watch.look(now=day, clock=clock)
    lags = []
    for n in range(12):
        write(docs / "log.txt", f"line {n}", OLD + 10 + n)
        clock.now += 2
        day.now += jump if n == 1 else 2
        refresh = watch.look(now=day, clock=clock)
        lags += [] if refresh is None else [refresh.lag_s]
    assert len(lags) == 2
    assert all(lag is not None and 0 < lag < 30 for lag in lags)


def test_two_edits_under_one_time_are_both_seen(engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs)), Clock()
    now = int(clock.now)
    write(docs / "a.md", "first!", now)
    looks(watch, clock, 1, step=0.5)
    # Same size, same time of change: only a second reading can tell.
    write(docs / "a.md", "second", now)
    looks(watch, clock, 4)
    assert texts(engine)["a.md"] == "second"


@pytest.mark.parametrize("paranoid", [False, True])
def test_only_the_paranoid_see_what_size_and_time_hide(paranoid: bool, engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), paranoid=paranoid), Clock()
    looks(watch, clock, 1)
    write(docs / "a.md", "TEXT OF A")
    looks(watch, clock, 4)
    assert texts(engine)["a.md"] == ("TEXT OF A" if paranoid else "text of a")


@pytest.mark.parametrize("prune", [False, True])
def test_deletions_follow_where_that_was_asked_for(prune: bool, engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=prune), Clock()
    looks(watch, clock, 1)
    (docs / "b.md").unlink()
    assert looks(watch, clock).removed == int(prune)
    assert ("b.md" in texts(engine)) != prune


def test_the_first_look_removes_what_went_while_nobody_watched(engine: EmbeddedEngine, docs: Path) -> None:
    looks(Watch(engine, HashEmbedder(), str(docs)), Clock(), 1)
    (docs / "b.md").unlink()
    assert looks(Watch(engine, HashEmbedder(), str(docs), prune=True), Clock(), 1).removed == 1


def test_a_document_that_changes_its_id_leaves_no_ghost(engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=True), Clock()
    looks(watch, clock, 1)
    write(docs / "a.md", "---\nid: alpha\n---\ntext of a", OLD + 10)
    (docs / "b.md").rename(docs / "z.md")
    looks(watch, clock)
    assert sorted(texts(engine)) == ["alpha", "c.md", "z.md"]


def test_what_cannot_be_read_is_not_deleted(engine: EmbeddedEngine, docs: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=True), Clock()
    looks(watch, clock, 1)
    (docs / "a.md").unlink()
    (docs / "lost.md").symlink_to("nowhere.md")
    looks(watch, clock, 4)
    assert "a.md" in texts(engine)
    (docs / "lost.md").unlink()
    looks(watch, clock, 4)
    assert "a.md" not in texts(engine)


def test_a_file_that_is_saved_in_another_encoding_keeps_its_document_until_it_goes(
    engine: EmbeddedEngine, docs: Path
) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=True), Clock()
    looks(watch, clock, 1)
    (docs / "a.md").write_bytes("Größe".encode("latin-1"))
    (docs / "b.md").unlink()
    looks(watch, clock, 4)
    assert sorted(texts(engine)) == ["a.md", "c.md"]
    (docs / "a.md").unlink()
    looks(watch, clock, 4)
    assert sorted(texts(engine)) == ["c.md"]


def test_a_folder_that_is_not_mounted_empties_no_hub(engine: EmbeddedEngine, docs: Path, tmp_path: Path) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs), prune=True), Clock()
    looks(watch, clock, 1)
    docs.rename(tmp_path / "away")
    with pytest.raises(InputError):
        looks(watch, clock, 1)
    docs.mkdir()
    with pytest.raises(InputError):
        looks(watch, clock, 1)
    docs.rmdir()
    (tmp_path / "away").rename(docs)
    assert looks(watch, clock, 3) == Report()
    assert len(texts(engine)) == 3


def test_a_write_that_failed_is_tried_again(
    engine: EmbeddedEngine, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, clock = Watch(engine, HashEmbedder(), str(docs)), Clock()
    looks(watch, clock, 1)
    write(docs / "a.md", "edited", OLD + 10)
    with monkeypatch.context() as broken:
        broken.setattr(EmbeddedEngine, "apply", lambda *_, **__: (_ for _ in ()).throw(InputError("full")))
        with pytest.raises(InputError):
            looks(watch, clock, 2)
    looks(watch, clock, 1)
    assert texts(engine)["a.md"] == "edited"


def test_a_sign_of_life_has_its_age(tmp_path: Path) -> None:
    assert read_pulse(tmp_path, now=5.0) is None
    write_pulse(tmp_path, WatchStatus("docs", 3.0, 2.0, 1.5, 4.0))
    assert read_pulse(tmp_path, now=5.0) == {
        "source": "docs", "looked": 3.0, "refreshed": 2.0, "lag_s": 1.5, "slowest_lag_s": 4.0, "looked_ago_s": 2.0,
    }  # fmt: skip
    (tmp_path / "watch.json").write_text("half a li")
    assert read_pulse(tmp_path, now=5.0) is None


def test_a_watch_ends_with_its_hub(engine: EmbeddedEngine, docs: Path, tmp_path: Path) -> None:
    hubs = tmp_path / "hubs"
    told: list[int] = []

    def told_once(refresh: Refresh) -> None:
        told.append(refresh.report.added)
        remove_hub(hubs, "h")
        if len(told) == 1:
            make_hub(hubs, "h", HashEmbedder())

    with pytest.raises(NoSuchHub):
        watch_hub(hubs, "h", str(docs), interval_s=0.0, told=told_once, failed=pytest.fail)
    # The hub that was made anew under its name was fed from the beginning.
    assert told == [3, 3]


def test_a_watching_process_brings_edits_to_one_that_searches(
    engine: EmbeddedEngine, docs: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "recall_cli", "hub", "watch", "h", str(docs), "--interval", "0.05"]
    process = subprocess.Popen(
        [*command, "--hub-dir", str(tmp_path / "hubs")], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        assert "3 added" in process.stderr.readline()
        write(docs / "a.md", "a zebra came by", int(time.time()))
        assert "1 changed" in process.stderr.readline()
        # This process had the hub open all the while.
        ids, _ = engine.lexical("zebra", 5)
        assert [passage.doc_id for passage in engine.passages(ids)] == ["a.md"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        pulse = read_pulse(tmp_path / "hubs/h", now=time.time())
        assert pulse is not None
        assert pulse["source"] == str(docs)
        assert pulse["lag_s"] is not None
    finally:
        process.kill()
        process.wait(20)
        if process.stderr is not None:
            process.stderr.close()
