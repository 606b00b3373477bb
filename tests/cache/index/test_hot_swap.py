"""What happens while a successor is being built: nothing is lost, nothing is blocked, nothing breaks."""

from __future__ import annotations

import logging
import os
import signal
import threading

import numpy as np
import pytest

from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.index.exact import ExactIndex
from recall_cli.cache.index.hnsw import HnswIndex
from recall_cli.cache.index.hot_swap import SwappableIndex, _relays, _stop_all

DIM = 16


@pytest.fixture
def rows():
    rows = np.random.default_rng(0).standard_normal((2_000, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_changes_during_a_hand_over_reach_the_successor(rows):
    relay, gate, started = SwappableIndex(ExactIndex(DIM)), threading.Event(), threading.Event()
    relay.add(np.arange(1_000), rows[:1_000])
    old = relay._engine

    def make():
        started.set()
        assert gate.wait(10)
        return ExactIndex(DIM)

    relay._hand_over(make, background=True)
    assert started.wait(10)
    relay.remove(range(100))
    relay.add(np.arange(1_000, 1_900), rows[1_000:1_900])
    relay.remove([1_500, 100])
    relay.add(np.array([5, 1_500]), rows[[1_900, 1_901]])  # known ids, other vectors
    relay._hand_over(lambda: pytest.fail("one at a time"), background=False)
    assert relay.search(rows[200])[0].tolist() == [200]
    assert relay._engine is old
    gate.set()
    relay.wait()
    assert relay._engine is not old
    here = {id: id for id in range(101, 1_900)} | {5: 1_900, 1_500: 1_901}
    assert sorted(relay.ids().tolist()) == sorted(here)
    for id, row in here.items():
        assert relay.search(rows[row])[0].tolist() == [id]


def test_a_failing_successor_leaves_the_engine_in_service(rows, caplog):
    relay = SwappableIndex(ExactIndex(DIM))
    relay.add(np.arange(10), rows[:10])

    def make():
        raise MemoryError

    with caplog.at_level(logging.ERROR):
        relay._hand_over(make, background=True)
        relay.wait()
    assert "stays in service" in caplog.text
    relay.add(np.arange(10, 20), rows[10:20])
    assert relay.search(rows[15])[0].tolist() == [15]
    relay._hand_over(lambda: pytest.fail("not tried again"), background=False)


def test_a_graph_sheds_its_deleted_nodes(rows):
    index = HnswIndex(DIM, background=False)
    index.add(np.arange(1_000), rows[:1_000])
    index.remove(range(499))
    assert index._engine.nodes == 1_000
    index.remove([499])
    assert (index._engine.nodes, index._engine.deleted, len(index)) == (500, 0, 500)
    index.remove([500])
    index.compact()
    assert isinstance(index._engine, ExactIndex)  # too few for a graph
    assert [index.search(row)[0][0] for row in rows[501:1_000]] == list(range(501, 1_000))
    index.add(np.arange(1_000, 1_600), rows[1_000:1_600])
    index.remove(range(501, 600))
    assert (index._engine.nodes, index._engine.deleted) == (1_099, 99)
    index.compact()
    assert (index._engine.nodes, len(index)) == (1_000, 1_000)


def test_compacting_gives_the_same_graph_every_time(rows):
    answers = []
    for _ in range(2):
        index = HnswIndex(DIM, M=4, ef_construction=8, ef_search=4, background=False)
        index.add(np.arange(2_000), rows)
        index.remove(range(0, 900))
        index.compact()
        answers.append([index.search(row, 4)[0].tolist() for row in rows[:300]])
    assert answers[0] == answers[1]


def test_a_search_widens_where_the_graph_is_too_narrow(rows):
    """hnswlib raises when ef, M and the deleted nodes leave it with fewer than k rows."""
    index = HnswIndex(DIM, M=2, ef_construction=4, ef_search=2, background=False)
    index.add(np.arange(1_000), rows[:1_000])
    index.remove(range(0, 998, 2))
    for query in rows[:50]:
        ids, cosines = index.search(query, 501)
        assert len(set(ids.tolist())) == 501
        assert cosines == pytest.approx(np.sort(rows[ids] @ query)[::-1], abs=2e-6)
    assert index._engine._graph.ef == 2


def test_auto_goes_through_its_kinds_and_answers_throughout(rows):
    index = AutoIndex(DIM, scan_at=100, hnsw_at=400, background=False)
    kinds = []
    for at in range(0, 600, 20):
        index.add(np.arange(at, at + 20), rows[at : at + 20])
        kinds.append(index.kind)
        assert [index.search(row)[0][0] for row in rows[: at + 20]] == list(range(at + 20))
    assert kinds == ["exact"] * 4 + ["scan"] * 15 + ["hnsw"] * 11


def test_auto_opens_a_large_store_as_a_scan_and_never_moves_to_a_graph_by_itself(rows):
    index = AutoIndex(DIM)
    index.add(np.arange(2_000), rows)
    assert index.kind == "scan"
    assert AutoIndex(DIM, scan_at=None).kind == "exact"


def test_a_move_that_fails_at_once_leaves_the_write_done_and_is_not_tried_again(rows, caplog, monkeypatch):
    index = AutoIndex(DIM, scan_at=20)
    tried = []

    def fail():
        tried.append(1)
        raise MemoryError

    monkeypatch.setattr(index, "_scan", fail)
    with caplog.at_level(logging.ERROR):
        for at in range(0, 60, 10):
            index.add(np.arange(at, at + 10), rows[at : at + 10])
            index.wait()
    assert (tried, index.kind, len(index)) == ([1], "exact", 60)
    assert "stays in service" in caplog.text
    opened = AutoIndex(DIM, scan_at=20)
    monkeypatch.setattr(opened, "_scan", fail)
    opened.add(np.arange(50), rows[:50])
    assert (opened.kind, len(opened)) == ("exact", 50)


def test_the_scan_is_prepared_before_it_is_needed(rows, monkeypatch):
    prepared = threading.Event()
    monkeypatch.setattr("recall_cli.cache.index.auto._prepare", lambda dim: prepared.set())
    index = AutoIndex(DIM, scan_at=100)
    index.add(np.arange(49), rows[:49])
    assert not prepared.is_set()
    index.add(np.array([49]), rows[49:50])
    assert prepared.wait(10)
    prepared.clear()
    index.add(np.arange(50, 60), rows[50:60])
    assert not prepared.wait(0.05)
    assert index.kind == "exact"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_during_a_rebuild_goes_on(rows):
    relay, gate, started = SwappableIndex(ExactIndex(DIM)), threading.Event(), threading.Event()
    relay.add(np.arange(100), rows[:100])

    def make():
        with relay._engine._lock:  # as `fetch` may hold it at that moment
            started.set()
            assert gate.wait(10)
        return ExactIndex(DIM)

    relay._hand_over(make, background=True)
    assert started.wait(10)
    child = os.fork()
    if not child:
        right = False
        try:
            signal.alarm(10)
            relay.add(np.array([100]), rows[100:101])
            relay._hand_over(lambda: ExactIndex(DIM), background=False)
            relay.wait()
            right = relay._changes is None and relay.search(rows[100])[0].tolist() == [100]
        finally:
            os._exit(0 if right else 1)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    relay.wait()
    assert relay.search(rows[50])[0].tolist() == [50]


def test_the_end_of_the_process_ends_building(rows):
    relay, started = SwappableIndex(ExactIndex(DIM)), threading.Event()
    relay.add(np.arange(2_000), rows)
    filled = []

    class Slow(ExactIndex):
        def add(self, ids, vectors):
            super().add(ids, vectors)
            filled.append(len(ids))
            started.set()
            stopped.wait(10)

    stopped = threading.Event()
    engine = relay._engine
    relay._hand_over(lambda: Slow(DIM), background=True)
    assert started.wait(10)
    others = set(_relays) - {relay}
    for other in others:
        _relays.discard(other)
    ending = threading.Thread(target=_stop_all)
    ending.start()
    ending.join(0.2)
    assert relay._stopped
    assert ending.is_alive()  # it waits for the builder
    stopped.set()
    ending.join(10)
    for other in others:
        _relays.add(other)
    assert not relay._builder.is_alive()
    assert len(filled) == 1
    assert relay._engine is engine


def test_a_long_log_is_replayed_without_stopping_the_writers(rows):
    relay, gate, started = SwappableIndex(ExactIndex(DIM)), threading.Event(), threading.Event()
    blocked = []

    class Watching(ExactIndex):
        def add(self, ids, vectors):
            blocked.append((relay._writing.locked(), len(ids)))
            super().add(ids, vectors)

    def make():
        started.set()
        assert gate.wait(10)
        return Watching(DIM)

    relay._hand_over(make, background=True)
    assert started.wait(10)
    relay.add(np.arange(1_000), rows[:1_000])
    gate.set()
    relay.wait()
    assert blocked == [(False, 1_000)]
    assert relay.search(rows[7])[0].tolist() == [7]


def test_the_width_of_a_search_holds_for_rebuilt_graphs(rows):
    index = HnswIndex(DIM, M=8, ef_construction=16, background=False)
    index.add(np.arange(1_500), rows[:1_500])
    index.ef_search = 33
    assert (index.ef_search, index._engine._graph.ef) == (33, 33)
    index.compact()
    assert (index.ef_search, index._engine._graph.ef) == (33, 33)
    with pytest.raises(ValueError, match="ef_search"):
        index.ef_search = 1
