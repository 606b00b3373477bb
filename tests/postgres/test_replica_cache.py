"""A cache over a shared store: it decides as any cache does, wherever an entry is, and follows what others do."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index.auto import make_index
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.memory import NotInMemory
from recall_cli.errors import StoreError
from recall_cli.postgres import lookup, replication
from recall_cli.postgres.replica_cache import ENTRY_BYTES, SharedCache
from recall_cli.postgres.replica_sync import Follower
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import Completion, Evidence, Lookup, Outcome, Policy

STATIC = make_embedder("static")
PROMPTS = [
    f"How do I {verb} my {thing}?" for verb in ("reset", "change", "find", "lose") for thing in ("key", "cat", "bike")
]
ASKED = [*PROMPTS, *(prompt.upper() for prompt in PROMPTS), "Something else entirely", "", "How do I find a cat?"]
ROW = 4 * STATIC.dim + ENTRY_BYTES
"""Memory that one entry is held to take."""
Make = Callable[..., tuple[SharedCache, Follower]]


@pytest.fixture
def replica(database: str) -> Iterator[Make]:
    made: list[SharedCache] = []

    def make(policy: Policy | None = None, **options: object) -> tuple[SharedCache, Follower]:
        store = PostgresStore(database, embedder=STATIC)
        cache = SharedCache(embedder=STATIC, policy=policy or StaticPolicy(0.9), store=store, **options)  # type: ignore[arg-type]
        made.append(cache)
        follower = Follower(cache)
        follower.turn()
        return cache, follower

    yield make
    for cache in made:
        cache.close()


def put(cache: Cache, text: str, answer: str = "", **more: object) -> int:
    made = cache.put(text_request(text), Completion((answer or f"to {text}").encode()), **more)  # type: ignore[arg-type]
    assert made is not None
    return made


def said(found: Lookup) -> tuple[Outcome, bytes | None, float]:
    return (
        found.decision.outcome,
        found.completion and found.completion.body,
        round(found.decision.similarity or 0.0, 4),
    )


def adaptive() -> AdaptivePolicy:
    return AdaptivePolicy(version="v", target_false_hit=0.05, warmup=10)


def settle(follower: Follower) -> None:
    """Take in all that waits: one turn brings a page."""
    for _ in range(3):
        follower.turn()


@pytest.mark.parametrize("learns", [False, True], ids=["static", "adaptive"])
def test_it_decides_as_a_cache_in_memory_does_wherever_the_entries_are(replica: Make, learns: bool) -> None:
    policy = adaptive if learns else (lambda: StaticPolicy(0.9))
    alone = Cache(embedder=STATIC, policy=policy())
    writer, _ = replica(policy())
    for prompt in PROMPTS:
        put(alone, prompt)
        put(writer, prompt)
    expected = [said(alone.get(text_request(prompt))) for prompt in ASKED]
    assert {outcome for outcome, _, _ in expected} >= {Outcome.EXACT, Outcome.MISS}
    cold, follower = replica(policy())
    cold.want = lambda partition: None
    assert [said(cold.get(text_request(prompt))) for prompt in ASKED] == expected
    assert len(cold) == 0
    warm, follower = replica(policy())
    warm.get(text_request("anything"))
    settle(follower)
    assert len(warm) == len(PROMPTS)
    assert [said(warm.get(text_request(prompt))) for prompt in ASKED] == expected
    assert [said(warm.get(text_request(prompt))) for prompt in ASKED] == expected, "with the answers in memory too"


def test_what_is_not_in_memory_is_said_before_anything_is_decided(replica: Make) -> None:
    policy = adaptive()
    cache, follower = replica(policy)
    put(cache, "How do I reset my key?")
    request = text_request("how do I reset my key")
    with pytest.raises(NotInMemory):
        cache.exact(request)
    follower.want(request.partition)
    settle(follower)
    assert cache.exact(request) is None
    with pytest.raises(NotInMemory) as absent:
        cache.match(request, STATIC.embed(request.text))
    assert absent.value.id is not None
    assert policy.state()["ring"]["next"] == 0, "the policy has not counted a decision that will be taken again"
    cache.get(request)
    assert policy.state()["ring"]["next"] == 1
    assert cache.match(request, STATIC.embed(request.text)).decision.similarity is not None, "and now it is at hand"


def test_memory_holds_no_more_than_it_is_given(replica: Make) -> None:
    writer, _ = replica()
    requests = [text_request(f"prompt {n}", f"space {n % 6}") for n in range(60)]
    for request in requests:
        writer.put(request, Completion(b"answer"))
    cache, follower = replica(held_bytes=25 * ROW)
    for request in requests:
        assert cache.get(request).decision.outcome is Outcome.EXACT
        settle(follower)
        assert len(cache) <= 25
        assert cache.held.rows == len(cache)
    assert len(cache) == 20, "two partitions have room"
    assert [cache.get(request).decision.outcome for request in requests] == [Outcome.EXACT] * 60


def test_a_partition_that_has_no_room_is_searched_in_the_database(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.postgres.replica_sync.PAGE", 5)
    monkeypatch.setattr(lookup, "ROWS", lookup.ROWS.replace("LIMIT 5000", "LIMIT 5"))
    writer, _ = replica()
    for prompt in PROMPTS:
        put(writer, prompt)
    cache, follower = replica(held_bytes=10 * ROW)
    for _ in range(2):
        assert cache.get(text_request(PROMPTS[0])).decision.outcome is Outcome.EXACT
        settle(follower)
        assert len(cache) == cache.held.rows == 0


def test_a_replica_that_was_cut_off_catches_up(replica: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "MOST", 7)
    for name in ("ENTRIES", "GONE"):
        monkeypatch.setattr(replication, name, getattr(replication, name).replace("LIMIT 2000", "LIMIT 7"))
    one, _ = replica()
    other, follower = replica()
    other.get(text_request("x"))
    settle(follower)
    ids = [put(one, f"prompt {n}") for n in range(20)]
    follower.turn()
    assert len(other) == 20
    ids += [put(one, f"prompt {n}") for n in range(20, 40)]
    one.delete(ids[:10] + ids[30:35])
    put(one, "prompt 20", "another answer")
    follower.turn()
    assert len(other) == 25
    assert said(other.get(text_request("prompt 20")))[1] == b"another answer"
    with other._lock:
        assert {other._shelf.get(id) is not None for id in ids[:10] + ids[30:35]} == {False}


def test_after_a_gap_nothing_from_before_it_is_trusted(replica: Make) -> None:
    one, _ = replica()
    other, follower = replica()
    other.get(text_request("x"))
    settle(follower)
    gone = put(one, "prompt")
    follower.turn()
    assert len(other) == 1
    one.delete([gone])
    with one.shared.writing() as db:
        db.execute("UPDATE recall.gone SET at = now() - interval '2 hours'")
    assert replication.tidy(one.shared, None, None) == 0
    follower.turn()
    assert len(other) == 0
    assert other.get(text_request("prompt")).decision.outcome is Outcome.MISS


def test_a_replica_that_hears_nothing_serves_nothing(replica: Make) -> None:
    cache, follower = replica()
    put(cache, "prompt")
    cache.get(text_request("prompt"))
    settle(follower)
    cache.get(text_request("prompt"))
    assert cache.exact(text_request("prompt")) is not None
    cache.heard = time.monotonic() - 60
    with pytest.raises(StoreError, match="nothing was heard"):
        cache.exact(text_request("prompt"))
    follower.turn()
    assert cache.exact(text_request("prompt")) is not None


def test_labels_of_all_replicas_are_pooled_and_none_is_lost(replica: Make) -> None:
    replicas = [replica(adaptive()) for _ in range(3)]
    entry = put(replicas[0][0], "How do I reset my key?")
    request = text_request("how do I reset a key")

    def work(at: int) -> None:
        cache, follower = replicas[at]
        for n in range(30):
            found = cache.get(request)
            assert found.decision.entry == entry
            cache.observe(request, found, same=n % 10 != 0)
            if n % 7 == 0:
                follower.turn()
        follower.turn()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for _, follower in replicas:
        follower.turn()
    learned = [cache.policy for cache, _ in replicas]
    assert [policy.labels for policy in learned] == [90] * 3  # type: ignore[attr-defined]
    (stored,) = replicas[0][0].store.entries()
    assert (stored.labels, stored.wrong) == (90, 9)
    late, _ = replica(adaptive())
    assert late.policy.labels == 90, "one that comes later learns them all"  # type: ignore[attr-defined]
    stranger, _ = replica(AdaptivePolicy(version="another embedder"))
    assert stranger.policy.labels == 0  # type: ignore[attr-defined]


def test_an_audited_hit_stands_for_those_that_were_not_drawn() -> None:
    policy, far = adaptive(), Evidence(0.95, margin=0.3)
    policy.adopt("space", far, same=True, served=True, propensity=0.05)
    assert policy.state()["ring"]["next"] == 20
    assert policy.labels == 1
    policy.adopt("space", far, same=False, served=False, propensity=1.0)
    assert policy.state()["ring"]["next"] == 21
    assert policy.spaces()["space"]["audits"] == 1


def test_upkeep_deletes_what_expired_and_what_is_too_much(replica: Make) -> None:
    cache, _ = replica()
    kept = [put(cache, f"prompt {n}") for n in range(6)]
    put(cache, "short-lived", ttl=1e-6)
    cache.store.touch({kept[0]: time.time() + 9})
    assert replication.tidy(cache.shared, None, None) == 1
    assert replication.tidy(cache.shared, 4, None) == 2
    assert [entry.id for entry in cache.store.entries()] == [kept[0], *kept[3:]], "the longest unused go"
    size = sum(entry.size for entry in cache.store.entries())
    assert replication.tidy(cache.shared, None, size - 1) == 1
    assert replication.tidy(cache.shared, 3, size) == 0


def test_a_large_partition_has_a_graph_of_its_own(replica: Make, database: str) -> None:
    cache, _ = replica()
    random = np.random.default_rng(0)
    vectors = random.standard_normal((300, STATIC.dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = make_index("exact", STATIC.dim)
    for space, rows in (("large", vectors), ("small", vectors[:20])):
        with cache.store.batch():
            ids = [
                cache.store.append(text_request(f"{n}", space), Completion(b"x"), row, created=1.0, expires=None).id
                for n, row in enumerate(rows)
            ]
        if space == "large":
            exact.add(np.array(ids), rows)
    assert lookup.tend_graphs(cache.shared.database, at_least=100) == (1, 0)
    assert lookup.tend_graphs(cache.shared.database, at_least=100) == (0, 0)
    partition = text_request("", "large").partition
    queries = vectors[:40] + 0.02 * random.standard_normal((40, STATIC.dim)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    for query in queries:
        near = lookup.nearest(cache.shared, partition, query, 8, 2.0)
        ids, similarities = exact.search(query, 8)
        assert near[0].entry.id == ids[0]
        assert near[0].similarity == pytest.approx(float(similarities[0]), abs=1e-5)
        assert len(near) == 8
    with psycopg.connect(database, autocommit=True) as db:
        plan = db.execute("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'near%'").fetchall()
    assert len(plan) == 1
    assert partition.hex() in plan[0][0]
    assert lookup.tend_graphs(cache.shared.database, at_least=1_000) == (0, 1)


def test_writers_of_one_tenant_wait_for_each_other_and_ids_commit_in_order(replica: Make, database: str) -> None:
    one, _ = replica()
    other, _ = replica()
    inside, done = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        with one.store.batch():
            put(one, "first")
            inside.set()
            assert done.wait(20)
            order.append("one")

    def quick() -> None:
        put(other, "second")
        order.append("other")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow)
        assert inside.wait(20)
        second = pool.submit(quick)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(database, autocommit=True) as db:
            while not second.done() and db.execute(waiting).fetchone() != (1,):
                pass
        assert not second.done()
        done.set()
        first.result(20)
        second.result(20)
    assert order == ["one", "other"]
    assert [one.store.text(entry.id) for entry in one.store.entries()] == ["first", "second"]


def test_what_cannot_be_held_or_written_keeps_nothing_else_waiting(replica: Make, database: str) -> None:
    faults: list[BaseException] = []
    cache, _ = replica(adaptive())
    follower = Follower(cache, fault=faults.append)
    follower.turn()
    put(cache, "prompt")
    found = cache.get(text_request("another prompt"))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("UPDATE recall.vectors SET vector = '[1, 0]'")
        db.execute("ALTER TABLE recall.labels ADD CHECK (namespace <> '')")
    cache.observe(text_request("another prompt", ""), found, same=True)
    cache.labels[0] = dataclasses.replace(cache.labels[0], namespace="")
    fine = text_request("fine", "another space")
    cache.put(fine, Completion(b"x"))
    cache.get(fine)
    settle(follower)
    assert [type(fault) for fault in faults] == [StoreError, StoreError]
    assert not cache.labels
    assert len(cache) == 1, "the other partition is here"
    assert cache.get(fine).decision.outcome is Outcome.EXACT
