"""Several `recall serve` on one database: what one stores, all serve; what fails there fails no request."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from recall_cli.errors import StoreError, StoreUnavailable
from recall_cli.postgres import replica_cache
from recall_cli.postgres.store import PostgresStore
from recall_cli.proxy import serve
from recall_cli.proxy.settings import Settings
from recall_cli.types import Decision, Lookup, Outcome
from tests.postgres.server import Cable, Server
from tests.proxy.answers import provider
from tests.proxy.conftest import Start
from tests.proxy.fake import EMBEDDER, FakeUpstream, Reply, RunningProxy, Seen, ask
from tests.proxy.test_operation import Process, get

NEAR = "how do i reset my password"
MISSED = Lookup(Decision(Outcome.MISS, reason="empty_partition"))
PAUSE = threading.Event()
LOOKS = (
    "red old wooden tall round cheap soft heavy bright sweet frozen hollow tiny sharp quiet wild dry golden broken new"
)
THINGS = "chairs bridges cakes ships candles guitars roads shoes clocks bottles"


def soon(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"it did not come to hold within {seconds:g} s"
        PAUSE.wait(0.01)


def held(proxy: RunningProxy) -> int:
    return len(proxy.server.keeper.cache)


def test_what_one_stores_the_other_serves(start: Start, database: str) -> None:
    one, upstream = start(store=database)
    other, idle = start(store=database)
    assert ask(one).outcome == "MISS"
    one.settle()
    assert ask(other).outcome == "EXACT", "a partition that is not in memory is looked up in the database"
    assert ask(other, NEAR).outcome == "SEMANTIC"
    assert ask(other, "What is the capital of France?").outcome == "MISS"
    other.settle()
    soon(lambda: held(one) == held(other) == 2)
    assert ask(one, "What is the capital of France?").outcome == "EXACT", "and one that is there follows the others"
    assert [len(upstream.seen), len(idle.seen)] == [1, 1]


def test_what_is_deleted_on_one_is_served_by_none(start: Start, database: str) -> None:
    one, _ = start(store=database)
    other, _ = start(store=database)
    ask(one)
    one.settle()
    soon(lambda: ask(other).outcome == "EXACT" and held(other) == 1)
    (entry,) = one.server.keeper.cache.store.entries()
    assert one.server.keeper.ask_writer(lambda: one.server.keeper.cache.delete([entry.id])).result(20) == 1
    soon(lambda: held(other) == 0)
    assert ask(other).outcome == "MISS"


def test_the_same_miss_on_two_replicas_makes_one_call(start: Start, database: str) -> None:
    go = threading.Event()

    def slow(seen: Seen) -> Reply:
        reply = provider(lambda prompt: f"to {prompt}")(seen)
        return Reply([go, *reply.pieces], headers=reply.headers)

    one, upstream = start(slow, store=database)
    other, idle = start(slow, store=database)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(ask, one)
        soon(lambda: len(upstream.seen) == 1)
        more = [pool.submit(ask, where) for where in (one, other, other, other)]
        soon(lambda: one.server.metrics.joined == 1 and bool(other.server.proxy.collapse._contests))
        go.set()
        answers = [done.result(20) for done in (first, *more)]
    assert {(got.status, got.text) for got in answers} == {(200, "to How do I reset my password?")}
    assert (len(upstream.seen), len(idle.seen)) == (1, 0)


def test_a_claim_ends_with_what_it_was_for(start: Start, database: str) -> None:
    broken = threading.Event()

    def fails(seen: Seen) -> Reply:
        broken.wait(20)
        return Reply([b'{"error": {"message": "no"}}'], status=500)

    one, upstream = start(fails, store=database)
    other, idle = start(store=database)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, one)
        soon(lambda: len(upstream.seen) == 1)
        second = pool.submit(ask, other)
        soon(lambda: bool(other.server.proxy.collapse._contests))
        broken.set()
        assert first.result(20).status == 500
        assert second.result(20).outcome == "MISS", "who waited in vain asks"
    assert len(idle.seen) == 1


def test_tenants_do_not_meet_across_replicas(start: Start, database: str) -> None:
    one, _ = start(store=database)
    other, _ = start(store=database)
    ask(one, key="k-1")
    one.settle()
    assert ask(other, key="k-2").outcome == "MISS"
    assert ask(other, NEAR, key="k-3").outcome == "MISS"
    assert ask(other, model="another").outcome == "MISS"
    assert ask(other, NEAR, model="a third").outcome == "MISS"
    assert ask(other, NEAR, key="k-1").outcome == "SEMANTIC"


def test_a_database_that_is_cut_off_fails_no_request(
    start: Start, postgres: Server, database: str, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The waits of a real outage, shortened; what they are follows from nothing but these.
    for module, name in (
        ("store", "WRITE_S"),
        ("store", "READ_S"),
        ("replication", "READ_S"),
        ("replica_cache", "STALE_S"),
    ):
        monkeypatch.setattr(f"recall_cli.postgres.{module}.{name}", 0.5)
    proxy, _ = start(provider(lambda prompt: f"to {prompt}"), store=postgres.through(database, cable.folder))
    ask(proxy)
    proxy.settle()
    soon(lambda: held(proxy) == 1)
    cache = proxy.server.keeper.cache
    assert isinstance(cache, replica_cache.SharedCache)

    def load(worker: int) -> list[int]:
        asked = []
        for n in range(40):
            prompt = f"What does article {worker * 1_000 + n} cost?"
            got = ask(proxy, prompt if n % 2 else "How do I reset my password?")
            assert got.text.startswith("to ")
            asked.append(got.status)
        return asked

    cable.cut()
    with ThreadPoolExecutor(4) as pool:
        answered = [status for done in pool.map(load, range(4)) for status in done]
    assert answered == [200] * 160
    soon(lambda: time.monotonic() - cache.heard > replica_cache.STALE_S)
    assert ask(proxy).reason == "cache_fault", "what others may have deleted is not served for ever"
    soon(lambda: {"lookup", "write", "follow"} <= set(proxy.server.metrics.faults))
    assert not proxy.server.metrics.store_ok
    cable.mend()
    cable.tear()
    soon(lambda: proxy.server.metrics.store_ok)
    soon(lambda: ask(proxy).outcome == "EXACT")
    soon(lambda: ask(proxy, "A question after the outage?").outcome == "EXACT")


@pytest.mark.parametrize("times", [200])
def test_an_answer_is_an_exact_and_a_semantic_hit_elsewhere_every_time(
    start: Start, database: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.postgres.replica_sync.POLL_S", 0.02)
    one, _ = start(provider(lambda prompt: f"to {prompt}"), store=database, tau=0.99)
    other, idle = start(provider(lambda prompt: f"to {prompt}"), store=database, tau=0.99)
    for n in range(times):
        prompt = f"How are {LOOKS.split()[n % 20]} {THINGS.split()[n // 20]} made?"
        assert ask(one, prompt).outcome == "MISS"
        if n:
            soon(lambda wanted=n + 1: held(other) == wanted)  # type: ignore[misc]
        else:
            one.settle()
        assert ask(other, prompt).outcome == "EXACT"
        got = ask(other, prompt.upper())
        assert (got.outcome, got.text) == ("SEMANTIC", f"to {prompt}")
        soon(lambda: held(other) > 0)
    assert idle.seen == []


def test_kill_9_of_a_replica_loses_nothing_acknowledged(database: str, tmp_path: Path) -> None:
    upstream = FakeUpstream(provider(lambda prompt: f"to {prompt}"))
    log = tmp_path / "log.jsonl"
    try:
        first = Process(upstream, database, log, "--tau", "1")
        with ThreadPoolExecutor(2) as pool:
            work = pool.submit(_hammer, first)
            soon(lambda: log.exists() and log.read_text().count('"stored"') > 50)
            assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
            work.result(60)
        lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        acknowledged = {row["identity"] for row in map(json.loads, lines) if row.get("event") == "stored"}
        opened = PostgresStore(database, embedder=EMBEDDER)
        there = {entry.identity.hex() for entry in opened.entries()}
        opened.close()
        assert len(acknowledged) > 50
        assert acknowledged <= there
    finally:
        upstream.close()


def _hammer(proxy: Process) -> None:
    for n in range(100_000):
        try:
            ask(proxy, f"What does article {n} of the catalogue cost?")  # type: ignore[arg-type]
        except (OSError, HTTPException):  # it was killed, perhaps in the middle of an answer
            return


def test_a_replica_that_starts_without_its_database_passes_everything_on_and_joins_later(
    start: Start, postgres: Server, database: str, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.postgres.connection.REST_S", 0.1)
    other, _ = start(store=database)
    ask(other)
    other.settle()
    cable.unplug()
    proxy, upstream = start(store=postgres.through(database, cable.folder), admin=True)
    for _ in range(2):
        got = ask(proxy)
        assert (got.status, got.outcome, got.reason) == (200, "BYPASS", "store_away")
    assert len(upstream.seen) == 2
    assert readiness(proxy) == "not reached yet: every request is passed on"
    assert not proxy.server.metrics.store_ok
    cable.plug()
    soon(lambda: readiness(proxy) == "ok")
    assert ask(proxy).outcome == "EXACT"
    assert ask(proxy, NEAR).outcome == "SEMANTIC"
    assert proxy.server.metrics.store_ok
    soon(lambda: held(proxy) == 1 and proxy.server.metrics.held()[0] == 1)
    assert ask(proxy, "What is the capital of France?").outcome == "MISS"
    soon(lambda: held(other) == 2)
    assert ask(other, "What is the capital of France?").outcome == "EXACT"


def test_a_database_that_refuses_is_told_at_the_start(database: str) -> None:
    for url in (database.replace("/test_", "/never_"), database.replace("recall_owner", "nobody_known")):
        with pytest.raises(StoreError) as refused:
            serve.Server(serve.ServePlan(Settings(), store=url, log=None), embedder=EMBEDDER)
        assert not isinstance(refused.value, StoreUnavailable)


def readiness(proxy: RunningProxy) -> str:
    store: str = json.loads(get(proxy, "/readyz")[1])["store"]
    return store


def test_a_replica_that_has_not_followed_yet_asks_the_database_before_the_upstream(
    start: Start, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = start(provider(lambda prompt: f"to {prompt}"), store=database)
    other, idle = start(provider(lambda prompt: f"to {prompt}"), store=database)
    ask(other, "Where is the town hall?")
    other.settle()
    # Its memory is behind the database, as it is for a moment after each write elsewhere.
    monkeypatch.setattr(other.server.keeper.cache, "match", lambda request, vector: MISSED)
    monkeypatch.setattr(other.server.keeper.cache, "exact", lambda request: None)
    ask(one)
    one.settle()
    got = ask(other)
    assert (got.outcome, got.text) == ("EXACT", "to How do I reset my password?")
    assert len(idle.seen) == 1
    assert not other.server.proxy.collapse._mine, "the claim is given back"
    old = ask(other, headers={"Cache-Control": "max-age=0"})
    assert old.outcome == "MISS", "and what is too old for the caller is not served this way either"
