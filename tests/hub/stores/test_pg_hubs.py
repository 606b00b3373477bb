"""Hubs in a database, by the command line and over HTTP; and carried there and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cli.app import main
from recall_cli.errors import InputError, StoreError, StoreMismatch
from recall_cli.hub.ingest.pipeline import ingest, move
from recall_cli.hub.models import Document, HubEngine, NoSuchHub, Visibility
from recall_cli.hub.stores.folder import HubFolder
from recall_cli.hub.stores.migrate import carry, move_hub
from recall_cli.hub.stores.open import DatabasePlace, opened
from recall_cli.hub.stores.pg_hubs import PostgresHubs
from recall_cli.postgres.connection import CONNECTIONS, Deadlined
from tests.hub.hub_server import DOCUMENTS, HASH, Serve
from tests.postgres.server import Cable, Server

LONG = Document("long.md", "A paragraph about invoices and refunds, again and again.\n\n" * 200, "Long", "", 12.5)


@pytest.fixture
def place(database: str, tmp_path: Path) -> DatabasePlace:
    return DatabasePlace(database, tmp_path / "keys")


def fill(engine: HubEngine) -> None:
    ingest(engine, HASH, [*DOCUMENTS, LONG, Document("nul", "a\x00b", "T\x00", "u\x00")])
    engine.configure(visibility=Visibility.PRIVATE, alpha=0.25, min_score=-0.5)


def test_the_command_line_takes_a_database(
    place: DatabasePlace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ["--store", place.url, "--hub-dir", str(place.folder)]
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "reset.md").write_text("# Passwords\n\nTo reset a password, open the settings page.")
    (docs / "refund.md").write_text("# Refunds\n\nA refund of an invoice takes five days.")
    assert main(["hub", "add", "help", "--embedder", "hash-v1", "--owner", "me", *store]) == 0
    assert main(["hub", "add", "help", *store]) == 2
    assert main(["hub", "ingest", "help", str(docs), *store]) == 0
    assert main(["hub", "set", "help", "--visibility", "private", *store]) == 0
    capsys.readouterr()
    assert main(["hub", "query", "help", "open the settings page to reset a password", "--json", *store]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["doc_id"] == "reset.md"
    monkeypatch.setenv("RECALL_HUB_STORE", place.url)
    assert main(["hub", "token", "mint", "help", "--owner"]) == 0
    assert main(["hub", "token", "keys", "--json"]) == 0
    printed = capsys.readouterr().out
    assert [row["signs"] for row in json.loads(printed[printed.index("{") :])["rows"]] == [True]
    assert main(["hub", "token", "rotate"]) == 0
    capsys.readouterr()
    assert main(["hub", "status", "help", "--json"]) == 0
    state = json.loads(capsys.readouterr().out)["summary"]
    assert (state["documents"], state["visibility"], state["embedder"]) == (2, "private", "hash-v1")
    assert main(["hub", "rm", "help", "refund.md"]) == 0
    capsys.readouterr()
    assert main(["hub", "export", "help"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["reset.md"]
    assert main(["hub", "reembed", "help", "--embedder", "static"]) == 0
    capsys.readouterr()
    assert main(["hub", "list", "--json"]) == 0
    assert [(row["hub"], row["embedder"]) for row in json.loads(capsys.readouterr().out)["rows"]] == [
        ("help", "static")
    ]
    assert main(["hub", "rm", "help", "--yes"]) == 0
    assert main(["hub", "status", "help"]) == 4
    assert "no hub called 'help'" in capsys.readouterr().err


def test_a_store_of_hubs_is_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "list", "--store", "answers.db"]) == 2
    assert main(["hub", "list", "--store", "postgresql://me:secret@host/db"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_a_server_serves_the_hubs_of_a_database(serve: Serve, place: DatabasePlace) -> None:
    server = serve(place=place)
    assert server.ask("help", "reset a password").status == 404
    with closing(PostgresHubs(place.url)) as hubs:  # another replica
        hubs.make("help", HASH)
        ingest(hubs.open("help"), HASH, DOCUMENTS)
        assert server.ask("help", "reset a password").worded == ["reset.md"]
        ingest(hubs.open("help"), HASH, [replace(DOCUMENTS[1], text="Reset the invoice.")])
        assert set(server.ask("help", "reset a password").worded) == {"reset.md", "billing.md"}
        assert server.face.names() == ["help"]
        hubs.open("help").configure(visibility=Visibility.RESTRICTED)
        assert server.ask("help", "reset a password").status == 401
        hubs.remove("help")
        assert server.ask("help", "reset a password").status == 404


def test_replicas_take_each_others_tokens_and_revocations(serve: Serve, place: DatabasePlace) -> None:
    one, other = serve(place=place), serve(place=replace(place, folder=place.folder / "another"))
    with closing(PostgresHubs(place.url)) as hubs:
        hubs.make("help", HASH, visibility=Visibility.PRIVATE)
        ingest(hubs.open("help"), HASH, DOCUMENTS)
    minted = one.mint("help")
    assert [server.ask("help", token=minted.token).status for server in (one, other)] == [200, 200]
    other.tokens.revoke(minted.jti)
    assert [server.ask("help", token=minted.token).status for server in (one, other)] == [401, 401]
    assert not list(place.folder.rglob("keys.db"))


def test_a_server_that_starts_without_its_database_asks_callers_to_try_again(
    serve: Serve, postgres: Server, place: DatabasePlace, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.postgres.connection.REST_S", 0.0)
    with closing(PostgresHubs(place.url)) as hubs:
        hubs.make("help", HASH)
        ingest(hubs.open("help"), HASH, DOCUMENTS)
    cable.unplug()
    server = serve(place=replace(place, url=postgres.through(place.url, cable.folder)))
    assert server.face.shown_names() == "not known, for the database does not answer"
    answer = server.ask("help")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "5")
    cable.plug()
    assert server.ask("help").worded == ["reset.md"]
    assert server.face.shown_names() == "help"


@pytest.mark.parametrize("visibility", [Visibility.PUBLIC, Visibility.PRIVATE])
def test_no_question_fails_after_a_restart_of_the_database(
    serve: Serve, postgres: Server, place: DatabasePlace, visibility: Visibility
) -> None:
    server = serve(place=place)
    with closing(PostgresHubs(place.url)) as hubs:
        hubs.make("help", HASH, visibility=visibility)
        ingest(hubs.open("help"), HASH, DOCUMENTS)
    token = server.mint("help").token
    assert server.ask("help", token=token).status == 200
    store = server.face.hubs.store
    assert isinstance(store, PostgresHubs)
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(store._database.connection(5.0)).execute("SELECT 1")
    postgres.restart()
    # Another question each time: what is kept in memory would need no database.
    asked = [server.ask("help", f"reset a password {n}", token=token).status for n in range(2 * CONNECTIONS)]
    assert asked == [200] * len(asked)


def test_two_writers_of_one_hub_lose_nothing(place: DatabasePlace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with closing(PostgresHubs(place.url)) as one, closing(PostgresHubs(place.url)) as other:
        one.make("hub", HASH)
        engines = [one.open("hub"), other.open("hub")]

        def write(n: int) -> None:
            documents = [Document(f"{n}-{i}", f"the common word and own{n}word{i}") for i in range(5)]
            ingest(engines[n % 2], HASH, documents)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(8)))
        info = engines[0].info()
        assert (info.documents, info.chunks, info.revision) == (40, 40, 8)
        ids, _ = engines[1].lexical("common", 100)
        assert len(ids) == len(engines[1].passages(ids)) == 40


def test_a_write_whose_connection_dies_changes_nothing(place: DatabasePlace, postgres: Server) -> None:
    def documents() -> Iterator[Document]:
        for n in range(3_000):
            if n == 2_500:  # when the first batches are staged
                with postgres.superuser(place.url) as db:
                    db.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
            yield Document(str(n), f"word{n}")

    with closing(PostgresHubs(place.url)) as hubs:
        hubs.make("hub", HASH)
        ingest(hubs.open("hub"), HASH, DOCUMENTS)
        with pytest.raises(StoreError):
            ingest(hubs.open("hub"), HASH, documents())
    with opened(place, "hub") as engine:
        assert (engine.info().documents, engine.info().revision) == (3, 1)
        assert len(engine.lexical("word7 invoice", 9)[0]) == 2
        assert ingest(engine, HASH, [Document("7", "word7")]).revision == 2


def test_an_ingest_during_a_move_is_moved_too(place: DatabasePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    static = make_embedder("static")
    with closing(PostgresHubs(place.url)) as hubs:
        hubs.make("hub", HASH)
        engine = hubs.open("hub")
        ingest(engine, HASH, DOCUMENTS)
        lock = engine._locked

        def after_another(db: Deadlined) -> AbstractContextManager[dict[str, Any]]:
            monkeypatch.setattr(engine, "_locked", lock)
            ingest(engine, HASH, [replace(DOCUMENTS[0], text="Another text."), Document("new", "A new wing.")])
            assert len(engine.vector(HASH.embed("wing"), 9)[0]) == 4
            return lock(db)

        # All that was there is embedded, and the lock is not had yet.
        monkeypatch.setattr(engine, "_locked", after_another)
        move(engine, static)
        assert engine.info().fingerprint == static.fingerprint
        ids, _ = engine.vector(static.embed("a wing"), 9)
        assert engine.passages(ids)[0].doc_id == "new"
        assert len(ids) == 4
        with pytest.raises(StoreMismatch):
            ingest(engine, HASH, [Document("late", "text")])
        assert ingest(engine, static, [Document("late", "text")]).added == 1


def test_a_hub_goes_to_a_database_and_back(place: DatabasePlace, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    with closing(HubFolder(here)) as hubs:
        hubs.make("hub", HASH, visibility=Visibility.PRIVATE, owner="me")
        with opened(here, "hub") as engine:
            fill(engine)
    there = carry(here, place, "hub")
    assert (there.documents, there.copied) == (5, 5)
    assert carry(here, place, "hub") == replace(there, copied=0)
    assert carry(place, back, "hub") == there
    with opened(here, "hub") as first, opened(place, "hub") as second, opened(back, "hub") as third:
        documents = [[engine.document(id) for id, _ in engine.documents()] for engine in (first, second, third)]
        assert documents[0] == documents[1] == documents[2]
        settings = {(i.visibility, i.owner, i.alpha, i.min_score) for i in (first.info(), second.info(), third.info())}
        assert settings == {(Visibility.PRIVATE, "me", 0.25, -0.5)}
        assert ingest(second, HASH, [replace(LONG, url="https://new")]).embedded == 0
        first.configure(min_score=None)
    carry(here, place, "hub")
    with opened(place, "hub") as second:
        assert second.info().min_score is None


def test_a_move_that_broke_off_goes_on(place: DatabasePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recall_cli.hub.stores.batches.BATCH", 2)
    with closing(HubFolder(tmp_path)) as hubs:
        hubs.make("hub", HASH)
        with opened(tmp_path, "hub") as engine:
            fill(engine)

    def pull_the_plug(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry(tmp_path, place, "hub", pull_the_plug)
    moved = carry(tmp_path, place, "hub")
    assert 0 < moved.copied < moved.documents == 5


def test_what_differs_in_the_end_is_told(place: DatabasePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(HubFolder(tmp_path)) as hubs, closing(PostgresHubs(place.url)) as others:
        hubs.make("hub", HASH)
        with opened(tmp_path, "hub") as engine:
            fill(engine)
            others.make("hub", make_embedder("static"))
            with pytest.raises(StoreMismatch):
                move_hub(engine, others.open("hub"))
            others.remove("hub")
            others.make("hub", HASH)
            target = others.open("hub")
            monkeypatch.setattr(target, "apply", lambda upserts, **more: len(list(upserts)))
            with pytest.raises(InputError, match="of 5 documents 0 arrived"):
                move_hub(engine, target)
    with pytest.raises(NoSuchHub):
        carry(tmp_path, place, "other")
