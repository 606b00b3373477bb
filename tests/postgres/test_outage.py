"""Connections to a database that stops answering, goes away, and comes back."""

from __future__ import annotations

import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import StoreError
from recall_cli.postgres.connection import CONNECTIONS, Database
from recall_cli.postgres.replication import Claims, Feed
from recall_cli.postgres.store import PostgresStore
from tests.postgres.server import Cable, Server

ASKS: dict[str, Callable[[PostgresStore], object]] = {
    "read": lambda store: store.get(1),
    "write": lambda store: store.save("key", {}),
    "feed": lambda store: Feed(store.database, "v").read(),
}


@pytest.fixture
def far(postgres: Server, database: str, cable: Cable, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    for name in ("store.READ_S", "store.WRITE_S", "replication.READ_S", "replication.CLAIM_S"):
        monkeypatch.setattr(f"recall_cli.postgres.{name}", 0.3)
    return PostgresStore(postgres.through(database, cable.folder), embedder=HashEmbedder())


@pytest.mark.parametrize("what", ASKS)
def test_no_wait_is_without_end(far: PostgresStore, cable: Cable, what: str) -> None:
    cable.cut()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ASKS[what], far)
        try:
            with pytest.raises(StoreError, match="did not answer in time"):
                asked.result(20)
        finally:
            cable.mend()
    far.close()


def test_a_database_that_failed_is_left_alone_but_by_who_probes(far: PostgresStore, cable: Cable) -> None:
    cable.cut()
    with pytest.raises(StoreError, match="in time"):
        far.get(1)
    with pytest.raises(StoreError, match="does not answer"):
        far.get(1)
    cable.mend()
    cable.tear()
    far.database.renew()
    with far.database.connection(5.0, probe=True) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    assert far.get(1) is None, "who probed told the others"
    far.close()


def test_a_claim_is_one_sessions_and_ends_with_it(
    far: PostgresStore, postgres: Server, database: str, cable: Cable
) -> None:
    near = PostgresStore(database, embedder=HashEmbedder())
    mine, theirs = Claims(far.database), Claims(near.database)
    identity = bytes(range(16))
    assert mine.take(identity)
    assert not theirs.take(identity)
    mine.give_back(identity)
    assert theirs.take(identity)
    theirs.give_back(identity)
    assert mine.take(identity)
    cable.tear()
    for _ in range(1_000):
        if theirs.take(identity):
            break
    else:
        pytest.fail("a claim outlived its session")
    assert not mine.take(identity), "asked on a session of its own, which the other's claim holds off"
    theirs.give_back(identity)
    assert mine.take(identity)
    theirs.close()
    mine.close()
    near.close()
    far.close()


def fill_pool(database: Database) -> None:
    """Have all the connections that the pool may hold, none of them in use."""
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(database.connection(5.0)).execute("SELECT 1")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_no_question_fails_after_a_restart_of_the_database(postgres: Server, database: str, mode: str) -> None:
    """None before it either: nobody asked while it was away."""
    store = PostgresStore(database, embedder=HashEmbedder())
    claims = Claims(store.database)
    assert claims.take(bytes(16))
    fill_pool(store.database)
    postgres.restart(mode)
    for _ in range(2 * CONNECTIONS):
        assert store.get(1) is None
    assert claims.take(bytes(16))
    fill_pool(store.database)
    claims.close()
    store.close()


def test_connections_that_end_while_they_are_idle_are_replaced_unseen(
    postgres: Server, database: str, cable: Cable
) -> None:
    store = PostgresStore(postgres.through(database, cable.folder), embedder=HashEmbedder())
    fill_pool(store.database)
    with postgres.superuser(database) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= CONNECTIONS
    for _ in range(2 * CONNECTIONS):
        assert store.get(1) is None
    store.close()


def test_what_the_server_says_unasked_ends_no_connection(postgres: Server, database: str) -> None:
    store = PostgresStore(database, embedder=HashEmbedder())
    with store.database.connection(20.0) as db:
        db.execute("LISTEN news")
        with postgres.superuser(database) as admin:
            admin.execute("NOTIFY news")
        assert select.select([db.pgconn.socket], [], [], 20)[0], "the news have come"
        assert not db.is_gone
        assert db.execute("SELECT 1").fetchone() == (1,)
    store.close()
