"""Who may do what in a shared database: the roles of docs/scaling.md, as they are written there."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.memory import HeldSpace
from recall_cli.errors import StoreError, StoreMismatch, UsageError
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document
from recall_cli.hub.stores.pg_hubs import PostgresHubs
from recall_cli.postgres import lookup
from recall_cli.postgres.open import look_after, open_shared
from recall_cli.postgres.schema import HUB_TABLES, TABLES
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import Completion
from tests.postgres.server import Server

EMBEDDER = HashEmbedder()
TEXT = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")


def documented(who: str) -> str:
    found = re.search(rf"<!-- sql:{who} -->\n```sql\n(.*?)```", TEXT, re.S)
    assert found
    return found.group(1)


@pytest.fixture(scope="module")
def roles(postgres: Server) -> Server:
    with psycopg.connect(postgres.admin, autocommit=True) as db:
        for statement in re.findall(r"^[^;]+", documented("superuser"), re.M):
            if "recall_owner LOGIN" not in statement and "CREATE DATABASE" not in statement:
                db.execute(statement)
    return postgres


@pytest.fixture
def granted(roles: Server, database: str) -> str:
    """A database whose tables are the owner's, and whose rows are the two teams'."""
    look_after(database)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(documented("owner"))
    return database


def team(database: str, name: str) -> str:
    return database.replace("recall_owner@", f"{name}@")


def put(store: PostgresStore, text: str, answer: bytes) -> int:
    vector = EMBEDDER.embed(text)
    return store.append(text_request(text), Completion(answer), vector, created=1.0, expires=None).id


def test_a_role_reaches_no_other_roles_rows(granted: str) -> None:
    a, b = (PostgresStore(team(granted, name), embedder=EMBEDDER) for name in ("team_a", "team_b"))
    mine, theirs = put(a, "question", b"of a"), put(b, "question", b"of b")
    a.save("tenants", {"key": "a"})
    assert b.saved("tenants") is None
    assert b.get(mine) is b.text(mine) is None
    assert b.get(theirs) == Completion(b"of b")
    assert [entry.id for entry in b.entries()] == b.vectors()[0].tolist() == [theirs]
    request = text_request("question")
    assert lookup.find(b, request.identity, 2.0) == (theirs, Completion(b"of b"))
    near = lookup.nearest(b, request.partition, EMBEDDER.embed("question"), 8, 2.0)
    assert [one.entry.id for one in near] == [theirs]
    assert lookup.bring(b, mine) is None
    assert b.remove([mine]) == 0
    b.touch({mine: 9.0})
    b.learn({mine: (1, 1, 1)})
    assert next(a.entries()).used == 1.0
    a.close()
    b.close()


def test_the_wall_is_the_databases_own(granted: str) -> None:
    a = PostgresStore(team(granted, "team_a"), embedder=EMBEDDER)
    put(a, "question", b"of a")
    a.remove([put(a, "another", b"of a")])
    a.save("tenants", {"key": "a"})
    a.close()
    with psycopg.connect(team(granted, "team_b"), autocommit=True) as db:
        for table in TABLES:
            assert db.execute(f"SELECT count(*) FROM recall.{table}").fetchone() == (0,), table
        db.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("SELECT * FROM recall.bodies")
        db.execute("SET row_security = on")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            db.execute("INSERT INTO recall.states (tenant, key, value) VALUES ('team_a', 'tenants', '{}')")
    with psycopg.connect(granted, autocommit=True) as db:
        shown = {table: db.execute(f"SELECT count(*) FROM recall.{table}").fetchone() for table in TABLES}
    assert {table for table, rows in shown.items() if rows != (0,)} == {"vectors"}, "the owner counts rows, and no more"


def test_hubs_have_the_same_wall(granted: str) -> None:
    a, b = (PostgresHubs(team(granted, name)) for name in ("team_a", "team_b"))
    for hubs, text in ((a, "the wing of a bird"), (b, "the wing of a house")):
        hubs.make("hub", EMBEDDER)
        ingest(hubs.open("hub"), EMBEDDER, [Document("one", text), Document("two", text)])
        hubs.open("hub").apply((), ["two"])
        assert [p.text for p in hubs.open("hub").passages(hubs.open("hub").lexical("wing", 9)[0])] == [text]
    rings = [hubs.ring() for hubs in (a, b)]
    signing = [ring.signing() for ring in rings]
    rings[0].revoke("a-token", 1e12)
    assert signing[0] != signing[1]
    assert rings[1].secret(signing[0][0]) is None
    assert [ring.is_revoked("a-token") for ring in rings] == [True, False]
    rings[1].rotate()
    assert rings[0].signing() == signing[0]
    held = {table: f"SELECT hub, count(*) FROM recall.{table} GROUP BY hub" for table in HUB_TABLES}
    numbers = [hubs.open("hub").number for hubs in (a, b)]
    for name, number in zip(("team_a", "team_b"), numbers, strict=True):
        with psycopg.connect(team(granted, name), autocommit=True) as db:
            for table, query in held.items():
                assert [row[0] for row in db.execute(query)] == [number], table
            assert db.execute("SELECT id FROM recall.hubs").fetchall() == [(number,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                db.execute(f"INSERT INTO recall.hub_words VALUES ({sum(numbers) - number}, 99, 'word', 1)")
    with psycopg.connect(granted, autocommit=True) as db:
        assert [db.execute(query).fetchall() for query in held.values()] == [[]] * len(HUB_TABLES)
    a.remove("hub")
    assert (a.names(), b.names()) == ([], ["hub"])
    with psycopg.connect(team(granted, "postgres"), autocommit=True) as db:
        assert [db.execute(query).fetchall()[0][0] for query in held.values()] == [numbers[1]] * len(HUB_TABLES)
    a.close()
    b.close()


def test_serving_may_not_change_the_tables(granted: str) -> None:
    with psycopg.connect(team(granted, "team_a"), autocommit=True) as db:
        for statement in (
            "DROP TABLE recall.labels",
            "ALTER TABLE recall.bodies NO FORCE ROW LEVEL SECURITY",
            "CREATE TABLE recall.mine (x int)",
            "UPDATE recall.bodies SET body = ''",
            "UPDATE recall.vectors SET partition = ''",
            "TRUNCATE recall.entries",
            "DELETE FROM recall.tenants",
            "UPDATE recall.versions SET version = 9",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)


def test_a_superuser_keeps_to_its_own_rows(granted: str) -> None:
    a = PostgresStore(team(granted, "team_a"), embedder=EMBEDDER)
    mine = put(a, "question", b"of a")
    root = PostgresStore(team(granted, "postgres"), embedder=EMBEDDER)
    assert list(root.entries()) == []
    assert root.get(mine) is root.text(mine) is None
    request = text_request("question")
    assert lookup.find(root, request.identity, 2.0) is None
    assert lookup.nearest(root, request.partition, EMBEDDER.embed("question"), 8, 2.0) == []
    assert root.remove([mine]) == 0
    a.close()
    root.close()


def test_who_may_not_make_the_tables_is_told_who_may(roles: Server, database: str) -> None:
    with pytest.raises(StoreError, match="has no recall schema") as told:
        PostgresStore(team(database, "team_a"), embedder=EMBEDDER)
    assert "recall cache upkeep" in told.value.hint


def test_a_newer_schema_and_another_embedder_are_refused(database: str) -> None:
    PostgresStore(database, embedder=EMBEDDER).close()
    other = HeldSpace("another", 64, "0123")
    with pytest.raises(StoreMismatch, match="hash-v1"):
        PostgresStore(database, embedder=other)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("UPDATE recall.versions SET version = 99")
    with pytest.raises(StoreError, match="schema 99"):
        PostgresStore(database, embedder=EMBEDDER)


@pytest.mark.parametrize("url", ["postgresql://me:secret@host/db", "postgres://host/db?user=me&password=secret"])
def test_a_password_is_no_part_of_a_url(url: str) -> None:
    with pytest.raises(UsageError, match="password") as told:
        open_shared(url, EMBEDDER)
    assert "secret" not in str(told.value) + told.value.hint


def test_replicas_that_start_together_make_the_tables_once(database: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(database, embedder=EMBEDDER), range(6)))
    for store in stores:
        put(store, "question", b"answer")
    assert len(list(stores[0].entries())) == 1
    for store in stores:
        store.close()
