"""A store moves between SQLite and PostgreSQL and back, broken off or not, and nothing of it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.maintenance import TENANTS, items, move
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cli.app import main
from recall_cli.errors import InputError, StoreError
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import Completion, Store, Usage

EMBEDDER = HashEmbedder()


def fill(store: Store, entries: int = 40, odd: str = "\x00\ud800") -> None:
    ids: list[int] = []
    for n in range(entries):
        request = text_request(f"question {n}{odd}", f"space {n % 3}")
        answer = Completion(bytes([n, 255, 0]), "a-model", Usage(n, 5, 3, 2, 1), 12.5)
        vector = EMBEDDER.embed(request.text) if n % 5 else None
        group = ids[n % 2] if n % 7 == 6 else ids[3] if n in (10, 12) else None
        ids.append(store.append(request, answer, vector, created=float(n), expires=n or None, group=group).id)
    store.delete(ids[3:5])
    store.touch({ids[8]: 99.5})
    store.learn({ids[9]: (ids[9], 3, 1), ids[10]: (ids[3], 2, 0)})
    store.save(TENANTS, {"key": "ab"})


def contents(store: Store) -> list[bytes]:
    return sorted(item.digest() for item in items(store))


def groups(store: Store) -> set[frozenset[bytes]]:
    found: dict[int, set[bytes]] = {}
    for entry in store.entries():
        found.setdefault(entry.id if entry.group is None else entry.group, set()).add(entry.identity)
    return {frozenset(group) for group in found.values()}


def test_there_and_back_again(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SqliteStore(tmp_path / "a.db", embedder=EMBEDDER)
    fill(source)
    assert main(["cache", "migrate", str(tmp_path / "a.db"), database]) == 0
    assert "38 entries are in both stores, 38 of them copied now" in capsys.readouterr().err
    shared = PostgresStore(database, embedder=EMBEDDER)
    assert contents(shared) == contents(source)
    assert groups(shared) == groups(source)
    assert shared.saved(TENANTS) == {"key": "ab"}
    assert main(["cache", "migrate", database, str(tmp_path / "b.db")]) == 0
    back = SqliteStore(tmp_path / "b.db", embedder=EMBEDDER)
    assert contents(back) == contents(source)
    assert groups(back) == groups(source)
    for store in (source, back, shared):
        store.close()


def test_a_run_that_was_broken_off_goes_on(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recall_cli.cache.stores.maintenance.BATCH", 10)
    source, target = SqliteStore(tmp_path / "a.db", embedder=EMBEDDER), PostgresStore(database, embedder=EMBEDDER)
    fill(source)

    def stop(done: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(source, target, stop)
    assert len(contents(target)) == 20
    moved = move(source, target)
    assert (moved.entries, moved.copied) == (38, 18)
    assert move(source, target).copied == 0
    assert contents(target) == contents(source)
    assert groups(target) == groups(source)
    source.append(text_request("question 5", "space 2"), Completion(b"newer"), None, created=1e9, expires=None)
    assert move(source, target).copied == 1
    source.close()
    target.close()


def test_what_differs_in_the_end_is_said(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = SqliteStore(tmp_path / "a.db", embedder=EMBEDDER), PostgresStore(database, embedder=EMBEDDER)
    fill(source)
    monkeypatch.setattr(target, "touch", lambda used: None)
    with pytest.raises(InputError, match="not the same"):
        move(source, target)
    target.save(TENANTS, {"key": "cd"})
    with pytest.raises(InputError, match="keyed otherwise"):
        move(source, target)
    source.close()
    target.close()


def test_a_store_whose_entries_need_no_key_moves_beside_others(tmp_path: Path) -> None:
    """A library's cache has none; an import takes it beside a server's entries, and so does a move."""
    source, target = (SqliteStore(tmp_path / name, embedder=EMBEDDER) for name in ("a.db", "b.db"))
    source.append(text_request("a question"), Completion(b"an answer"), None, created=1.0, expires=None)
    fill(target)
    assert move(source, target).copied == 1
    assert target.saved(TENANTS) == {"key": "ab"}
    source.close()
    target.close()


def test_commands_look_into_a_database(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "ls", database]) == 4
    assert "no store of this role" in capsys.readouterr().err
    store = PostgresStore(database, embedder=EMBEDDER)
    fill(store, odd="")
    (first, *_) = store.entries()
    for command in (["ls", database], ["stats", database], ["show", database, str(first.id)]):
        assert main(["cache", *command]) == 0
    printed = capsys.readouterr().out
    assert "question 0" in printed
    assert "38" in printed
    assert main(["cache", "rm", database, str(first.id)]) == 0
    assert main(["cache", "purge", database, "--namespace", "space 1"]) == 0
    assert {entry.namespace for entry in store.entries()} == {"space 0", "space 2"}
    assert main(["cache", "upkeep", database]) == 0
    assert main(["cache", "reembed", database, "--embedder", "hash-v1"]) == 2
    store.close()
    with pytest.raises(StoreError):
        store.entries().__next__()


def test_savings_reads_a_shared_store_as_it_reads_a_file(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for store in (SqliteStore(tmp_path / "a.db", embedder=EMBEDDER), PostgresStore(database, embedder=EMBEDDER)):
        fill(store, odd="")
        store.close()
    for name in (str(tmp_path / "a.db"), database):
        assert main(["savings", name, "--json", "--embedder", "hash-v1"]) == 0
        summary = json.loads(capsys.readouterr().out)["summary"]
        found.append({key: summary[key] for key in ("requests", "cacheable", "excluded", "spend_usd")})
    assert found[0] == found[1]
    assert found[0]["requests"] == 38
