"""Every SQLite file that recall makes, opened by several processes at once while there is none yet."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cache.stores import sqlite_file
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import StoreError
from recall_cli.hub.stores import catalog, signing_keys

ROOT = Path(__file__).resolve().parents[3]
EMBEDDER = HashEmbedder()


class Opened(Protocol):
    def close(self) -> None: ...


def open_store(path: Path) -> Opened:
    return SqliteStore(path, embedder=EMBEDDER)


def open_keys(path: Path) -> Opened:
    return signing_keys.KeyRing(path)


KINDS = {"store": open_store, "keys": open_keys}
"""The files that several processes may make at one path; a hub is made aside and moved in whole."""
MARKS = {
    "store": (sqlite_file.APPLICATION_ID, sqlite_file.SCHEMA_VERSION),
    "keys": (signing_keys.APPLICATION_ID, signing_keys.SCHEMA_VERSION),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def marks(path: Path) -> tuple[int, int, str]:
    with closing(sqlite3.connect(path)) as db:
        looks = ("application_id", "user_version", "journal_mode")
        id, version, journal = (db.execute(f"PRAGMA {look}").fetchone()[0] for look in looks)
        return id, version, journal


class Rival:
    """The other process: it opens the file just before the n-th statement of ours, and waits for nobody."""

    def __init__(self, patch: pytest.MonkeyPatch, open: Callable[[], Opened], at: int) -> None:
        self.open, self.left, self.patch = open, at, patch
        self.is_open = self.is_busy = False
        self.held: list[Opened] = []
        rival, connect = self, sqlite3.connect

        class Watched(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                rival.step()
                return super().execute(*args)

        patch.setattr(sqlite_file.sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Watched))

    def step(self) -> None:
        if self.is_busy:
            return
        self.left -= 1
        if self.left == 0:
            self.attempt()

    def attempt(self) -> None:
        self.is_busy = True
        with self.patch.context() as patch:
            patch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 0)
            try:
                self.held.append(self.open())
                self.is_open = True
            except StoreError as error:
                assert "locked" in str(error)  # noqa: PT017 (it would wait, and we are within a write)
        self.is_busy = False


@pytest.mark.parametrize("stays", [False, True])
def test_another_process_may_make_the_file_between_any_two_statements(
    tmp_path: Path, kind: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, was_made = 0, set()
    while True:
        at += 1
        path = tmp_path / f"{at}.db"
        with monkeypatch.context() as patch:
            rival = Rival(patch, lambda path=path: KINDS[kind](path), at)  # type: ignore[misc]
            if not stays:
                rival.open = lambda path=path: closed(KINDS[kind](path))  # type: ignore[misc]
            ours = KINDS[kind](path)
            reached = rival.left <= 0
            was_made.add(rival.is_open)
            if not rival.is_open:
                rival.attempt()
            assert rival.is_open
            for opened in (ours, *rival.held):
                opened.close()
        assert marks(path) == (*MARKS[kind], "wal")
        if not reached:
            break
    assert at > 5
    assert was_made == {True, False}


def closed(opened: Opened) -> Opened:
    opened.close()
    return opened


RACE = """
import sys
from pathlib import Path
from tests.cache.stores.test_sqlite_file import KINDS

open, folder = KINDS[sys.argv[1]], Path(sys.argv[2])
held = []
for line in sys.stdin:
    try:
        held.append(open(folder / line.strip()))
        print("opened", flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


def test_processes_that_open_a_new_file_at_the_same_moment_all_have_it(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", RACE, kind, str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    try:
        for number in range(30):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{number}.db\n")
            for process in processes:
                assert process.stdin is not None
                process.stdin.flush()
            said = [process.stdout.readline().strip() for process in processes if process.stdout]
            assert said == ["opened"] * len(processes)
            assert marks(tmp_path / f"{number}.db") == (*MARKS[kind], "wal")
    finally:
        for process in processes:
            process.communicate()


def test_all_that_race_for_the_keys_sign_with_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for at in range(1, 20):
        path = tmp_path / f"{at}.db"
        with monkeypatch.context() as patch:
            rival = Rival(patch, lambda path=path: signing_keys.KeyRing(path), at)  # type: ignore[misc]
            ours = signing_keys.KeyRing(path)
            for theirs in rival.held:
                assert isinstance(theirs, signing_keys.KeyRing)
                assert len(ours.live()) == 1
                assert ours.signing() == theirs.signing()
                theirs.close()
                compared += 1
            ours.close()
    assert compared > 1


def write_tables(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE other (x)")


def write_only_an_id(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA application_id = 7")


def write_only_a_version(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA user_version = 7")


def write_another_kind_of_ours(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE meta (key, value)")
    db.execute(f"PRAGMA application_id = {catalog.APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")


REFUSED = {"store": "is a SQLite database, but not a recall store", "keys": "holds no keys that this recall reads"}


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(
    "write",
    [write_tables, write_only_an_id, write_only_a_version, write_another_kind_of_ours],
    ids=lambda f: f.__name__,
)
def test_a_foreign_database_is_refused_unchanged_even_while_its_owner_writes(
    tmp_path: Path, kind: str, write: Callable[[sqlite3.Connection], None], journal: str
) -> None:
    path = tmp_path / "s.db"
    path.touch(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute(f"PRAGMA journal_mode = {journal}")
        write(owner)
        before = path.read_bytes()
        owner.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=re.escape(REFUSED[kind])):
            KINDS[kind](path)
        owner.execute("ROLLBACK")
        assert path.read_bytes() == before
        assert owner.execute("PRAGMA journal_mode").fetchone()[0] == journal


def test_a_file_of_a_newer_version_is_refused_unchanged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.db"
    KINDS[kind](path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"schema 99|holds no keys that this recall reads"):
        KINDS[kind](path)
    assert path.read_bytes() == before


def test_a_file_that_is_there_opens_while_another_process_writes(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    KINDS[kind](path).close()
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        KINDS[kind](path).close()


def test_a_file_whose_first_rows_fail_holds_nothing(tmp_path: Path) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise RuntimeError("no first row")

    path = tmp_path / "s.db"
    with closing(sqlite_file.connect(path)) as db:
        with pytest.raises(RuntimeError):
            sqlite_file.open_or_create(db, sqlite_file.SCHEMA, 1, 1, fill=fail)
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        assert not db.in_transaction
    open_store(path).close()


def test_a_hub_is_not_made_over_another(tmp_path: Path) -> None:
    catalog.create(tmp_path / "hub.db", "one", EMBEDDER)
    with pytest.raises(StoreError, match="there already"):
        catalog.create(tmp_path / "hub.db", "two", EMBEDDER)
    assert catalog.Catalog(tmp_path / "hub.db").written("slug") == "one"
