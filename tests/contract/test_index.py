"""One contract, every index: the same calls give the same answers, whatever is inside.

The oracle is a dictionary of vectors. Dimensions are small, so that the big cases fit in a test run.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recall_cli.cache.index import hnsw, scan
from recall_cli.cache.index.auto import AutoIndex, index_maker, make_index
from recall_cli.cache.index.exact import ExactIndex, checked_query, checked_rows
from recall_cli.cache.index.hnsw import HnswIndex
from recall_cli.cache.index.hnsw_library import FAISS, HNSWLIB, WITHOUT_HNSWLIB, graph_library
from recall_cli.cache.index.scan import ScanIndex
from recall_cli.errors import UsageError

DIM = 32
CLOSE = 2e-6  # float32 sums in another order


class FaissHnswIndex(HnswIndex):
    library = FAISS


# `auto` moves so early that a test of a few hundred rows goes through all its kinds.
ENGINES = {
    "exact": ExactIndex,
    "scan": ScanIndex,
    "hnsw": lambda dim: HnswIndex(dim, background=False),
    "hnsw-background": lambda dim: HnswIndex(dim),
    "hnsw-faiss": lambda dim: FaissHnswIndex(dim, background=False),
    "auto": lambda dim: AutoIndex(dim, scan_at=60, hnsw_at=200, background=False),
    "auto-background": lambda dim: AutoIndex(dim, scan_at=60, hnsw_at=200),
}

# A graph takes most of its time to link; a coarser one suffices for a test of bookkeeping.
LEAN = ENGINES | {
    "hnsw": lambda dim: HnswIndex(dim, M=16, ef_construction=16, ef_search=128, background=False),
    "hnsw-background": lambda dim: HnswIndex(dim, M=16, ef_construction=16, ef_search=128),
    "hnsw-faiss": lambda dim: FaissHnswIndex(dim, M=16, ef_construction=16, ef_search=128, background=False),
    "auto": lambda dim: AutoIndex(dim, scan_at=2_000, background=False),
    "auto-background": lambda dim: AutoIndex(dim, scan_at=2_000),
}


@pytest.fixture(autouse=True)
def early_codes(monkeypatch):
    """Let a scan code its rows from 49 on, and a graph begin at 30, as they do with thousands."""
    monkeypatch.setattr(scan, "COMPARE_ALL", 1)
    monkeypatch.setattr(hnsw, "GRAPH_FROM", 30)


NO_HNSWLIB = pytest.mark.skipif(graph_library() != HNSWLIB, reason=f"{WITHOUT_HNSWLIB}, which hnsw-faiss tests")


@pytest.fixture(params=[pytest.param(name, marks=NO_HNSWLIB) if name == "hnsw" else name for name in ENGINES])
def index(request):
    return ENGINES[request.param](DIM)


def unit(random: np.random.Generator, n: int, dim: int = DIM) -> np.ndarray:
    rows = random.standard_normal((n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def settle(index) -> None:
    if hasattr(index, "wait"):
        index.wait()


def found(index, vectors: np.ndarray) -> np.ndarray:
    return np.array([index.search(vector)[0][0] for vector in vectors])


def refuses(index, ids, vectors, match: str) -> None:
    before = len(index)
    with pytest.raises(ValueError, match=match):
        index.add(np.array(ids), vectors)
    assert len(index) == before


# -- small sets ----------------------------------------------------------------------------------------------


def test_an_empty_index_finds_nothing(index):
    for k in (1, 5):
        ids, similarities = index.search(unit(np.random.default_rng(0), 1)[0], k)
        assert (len(index), ids.shape, similarities.shape) == (0, (0,), (0,))
        assert (ids.dtype, similarities.dtype) == (np.int64, np.float32)


def test_adding_nothing_changes_nothing(index):
    index.add(np.empty(0, np.int64), np.empty((0, DIM), np.float32))
    index.remove([])
    assert len(index) == 0


def test_one_row_is_found_from_anywhere(index):
    random = np.random.default_rng(1)
    row, other = unit(random, 2)
    index.add(np.array([7]), row[None])
    for query, cosine in ((row, 1.0), (-row, -1.0), (other, float(row @ other))):
        for k in (1, 3):
            ids, similarities = index.search(query, k)
            assert ids.tolist() == [7]
            assert similarities == pytest.approx([cosine], abs=CLOSE)


@pytest.mark.parametrize("n", [2, 20, 47, 48, 49, 300])
@pytest.mark.parametrize("spare", [-1, 0, 1, 10])
def test_k_around_n_returns_the_right_rows_best_first(index, n, spare):
    random = np.random.default_rng(n)
    rows, query = unit(random, n), unit(random, 1)[0]
    index.add(np.arange(n) * 3, rows)
    settle(index)
    ids, similarities = index.search(query, n + spare)
    truth = np.sort(rows @ query)[::-1][: n + spare]
    assert similarities == pytest.approx(truth, abs=CLOSE)
    assert rows[ids // 3] @ query == pytest.approx(truth, abs=CLOSE)
    assert len(set(ids.tolist())) == len(ids)


def test_answers_are_copies(index):
    rows = unit(np.random.default_rng(2), 100)
    index.add(np.arange(100), rows)
    for k in (1, 5):
        first = index.search(rows[0], k)
        kept = (first[0].copy(), first[1].copy())
        index.search(rows[1], k)
        index.remove([0])
        index.add(np.array([0]), rows[:1])
        assert (first[0] == kept[0]).all()
        assert (first[1] == kept[1]).all()
        first[0][:] = -1
        first[1][:] = -1
        assert index.search(rows[0])[0].tolist() == [0]


def test_the_caller_may_reuse_its_arrays(index):
    rows = unit(np.random.default_rng(3), 80)
    ids, buffer = np.arange(80), rows.copy()
    index.add(ids, buffer)
    ids[:], buffer[:] = 0, np.nan
    assert found(index, rows).tolist() == list(range(80))


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 100])
def test_what_cannot_be_stored_is_refused_whole(index, n):
    random = np.random.default_rng(4)
    index.add(np.arange(n), unit(random, n))
    good = unit(random, 3)
    for value, match in ((np.nan, "NaN"), (np.inf, "NaN"), (-np.inf, "NaN")):
        bad = good.copy()
        bad[1, 5] = value
        refuses(index, [1000, 1001, 1002], bad, match)
    refuses(index, [1000, 1001, 1002], good * np.float32([[1], [0], [1]]), "zeros")
    refuses(index, [1000, 1001, 1002], good * 2, "length 2")
    refuses(index, [1000, 1001, 1002], good[:, :-1], "shape")
    refuses(index, [1000, 1001], good, "shape")
    refuses(index, [1000], good[0], "shape")
    refuses(index, [[1000, 1001, 1002]], good, "ids")
    refuses(index, [0.5, 1.5, 2.5], good, "ids")
    refuses(index, [1000, 0, 1001], good, "already")
    refuses(index, [1000, 1000, 1001], good, "twice")
    index.add(np.array([1000, 1001, 1002]), good)
    assert found(index, good).tolist() == [1000, 1001, 1002]


@pytest.mark.parametrize("n", [0, 1, 100])
def test_queries_are_checked(index, n):
    random = np.random.default_rng(5)
    index.add(np.arange(n), unit(random, n))
    query = unit(random, 1)[0]
    for bad in (query * np.nan, query * np.inf, query * 2, query[:-1], query[None]):
        with pytest.raises(ValueError, match="query"), np.errstate(invalid="ignore"):
            index.search(bad)
    with pytest.raises(ValueError, match="k must"):
        index.search(query, 0)
    assert index.search(np.zeros(DIM, np.float32), 3)[0].tolist() == []


def test_ids_that_no_store_gives_out_are_refused_and_ignored(index):
    rows = unit(np.random.default_rng(20), 3)
    index.add(np.array([2**63 - 1, -(2**63)]), rows[:2])
    refuses(index, np.array([2**63 + 5], np.uint64), rows[2:], "2\\*\\*63")
    index.add(np.array([5], np.uint64), rows[2:])
    index.remove([2**63, 2**70, -(2**63) - 1])
    assert found(index, rows).tolist() == [2**63 - 1, -(2**63), 5]


@pytest.mark.parametrize("dim", [32, 256, 1_000])
@pytest.mark.parametrize("edge", [1 - 2e-3, 1 + 2e-3])
def test_what_may_be_asked_may_be_added(dim, edge):
    """A cache asks before it stores: a length at the very edge must not pass one check and fail the other."""
    random = np.random.default_rng(21)
    rows = unit(random, 1_500, dim) * np.float32(edge**0.5) * (1 + 1e-7 * random.integers(-9, 10, (1_500, 1)))
    rows = rows.astype(np.float32)
    passed = 0
    for at, row in enumerate(rows):
        verdicts = []
        for check in (
            lambda row=row: checked_query(row, dim, 1),
            lambda row=row: checked_rows(np.array([1]), row[None], dim),
            lambda at=at: checked_rows(np.arange(3), rows[[0, at, 0]][1:2].repeat(3, 0), dim),
        ):
            try:
                check()
                verdicts.append(True)
            except ValueError:
                verdicts.append(False)
        assert len(set(verdicts)) == 1
        passed += verdicts[0]
    assert 100 < passed < 1_400


# -- removal and growth --------------------------------------------------------------------------------------


def test_removed_ids_are_never_returned_and_may_come_back(index):
    random = np.random.default_rng(6)
    rows = unit(random, 400)
    index.add(np.arange(400), rows)
    index.remove(range(0, 400, 2))
    index.remove([0, 2, 99_999])  # gone already, never there
    settle(index)
    assert len(index) == 200
    for row in rows:
        assert (index.search(row, 20)[0] % 2 == 1).all()
    again = unit(random, 200)
    index.add(np.arange(0, 400, 2), again)
    assert found(index, again).tolist() == list(range(0, 400, 2))
    assert found(index, rows[1::2]).tolist() == list(range(1, 400, 2))
    index.remove(np.arange(400))
    assert len(index) == 0
    assert index.search(rows[0], 3)[0].tolist() == []
    index.add(np.array([5]), rows[:1])
    assert index.search(rows[0])[0].tolist() == [5]


def test_a_crowd_of_removed_neighbours_hides_nobody(index):
    """Rows near the query that are gone must not use up the places of candidates."""
    random = np.random.default_rng(7)
    centre = unit(random, 1)
    crowd = centre + 0.02 * unit(random, 500)
    crowd /= np.linalg.norm(crowd, axis=1, keepdims=True)
    index.add(np.arange(500), crowd)
    index.add(np.arange(500, 900), unit(random, 400))
    index.remove(range(499))
    assert index.search(centre[0])[0].tolist() == [499]


def test_a_rebuild_from_the_stored_vectors_gives_the_same_answers(request, index):
    random = np.random.default_rng(8)
    rows = unit(random, 500)
    index.add(np.arange(500), rows)
    index.remove(range(100, 300))
    settle(index)
    ids, vectors = index.fetch(index.ids())
    assert (vectors == rows[ids]).all()
    rebuilt = ENGINES[request.node.callspec.params["index"]](DIM)
    order = random.permutation(len(ids))
    rebuilt.add(ids[order], vectors[order])
    settle(rebuilt)
    for query in np.concatenate([rows[:120], unit(random, 20)]):
        before, after = index.search(query, 3), rebuilt.search(query, 3)
        assert before[0].tolist() == after[0].tolist()
        assert before[1] == pytest.approx(after[1], abs=CLOSE)


def test_negative_and_large_ids_are_ids_like_any(index):
    rows = unit(np.random.default_rng(9), 3)
    index.add(np.array([-1, 2**62, 0]), rows)
    assert found(index, rows).tolist() == [-1, 2**62, 0]


# -- copies --------------------------------------------------------------------------------------------------


def test_copies_are_all_findable_newest_first(index):
    random = np.random.default_rng(10)
    rows = unit(random, 120)
    index.add(np.arange(100, 220), rows)
    index.add(np.array([7, 500, 300]), rows[[0, 0, 0]])
    assert index.search(rows[0])[0].tolist() == [500]
    assert index.search(rows[0], 3)[0].tolist() == [500, 300, 100]
    ids, similarities = index.search(rows[0], 6)
    assert ids[:4].tolist() == [500, 300, 100, 7]
    assert similarities[:4] == pytest.approx([1.0] * 4, abs=CLOSE)
    assert similarities[4] < 0.99
    index.remove([500, 100])
    assert index.search(rows[0], 2)[0].tolist() == [300, 7]
    index.remove([300])
    assert index.search(rows[0])[0].tolist() == [7]
    index.remove([7])
    assert index.search(rows[0])[1][0] < 0.99
    index.add(np.array([1]), rows[:1])
    assert index.search(rows[0])[0].tolist() == [1]
    assert len(index) == 120


def test_half_of_the_rows_being_one_vector_loses_no_hit(index):
    random = np.random.default_rng(11)
    rows = unit(random, 1_000)
    both = np.concatenate([rows, np.repeat(rows[:1], 1_000, axis=0)])
    order = random.permutation(2_000)
    index.add(order, both[order])
    settle(index)
    assert len(index) == 2_000
    assert found(index, rows[1:]).tolist() == list(range(1, 1_000))
    assert index.search(rows[0])[0].tolist() == [1_999]
    assert index.search(rows[0], 1_001)[1] == pytest.approx([1.0] * 1_001, abs=CLOSE)
    near = rows[1:] + 0.1 * unit(random, 999)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    assert found(index, near).tolist() == list(range(1, 1_000))


# -- many changes --------------------------------------------------------------------------------------------

POOL = unit(np.random.default_rng(12), 90)


class Changes(RuleBasedStateMachine):
    """Any sequence of calls against the dictionary; rows from a small pool, so that copies abound."""

    engine = "exact"

    def __init__(self):
        super().__init__()
        self.index = ENGINES[self.engine](DIM)
        self.rows = {}

    @rule(ids=st.lists(st.integers(0, 200), unique=True, max_size=40), first=st.integers(0, len(POOL) - 1))
    def add(self, ids, first):
        ids = [id for id in ids if id not in self.rows]
        at = (first + np.arange(len(ids))) % len(POOL)
        self.index.add(np.array(ids, np.int64), POOL[at])
        self.rows.update(zip(ids, at.tolist(), strict=True))

    @precondition(lambda self: self.rows)
    @rule(id=st.integers(0, 200), row=st.integers(0, len(POOL) - 1))
    def add_known(self, id, row):
        known = min(self.rows)
        with pytest.raises(ValueError, match="already"):
            self.index.add(np.array([known]), POOL[row : row + 1])

    @rule(ids=st.lists(st.integers(0, 200), max_size=40))
    def remove(self, ids):
        self.index.remove(ids)
        for id in ids:
            self.rows.pop(id, None)

    @rule(at=st.integers(0, len(POOL) - 1), k=st.integers(1, 30))
    def search(self, at, k):
        ids, similarities = self.index.search(POOL[at], k)
        cosines = {id: float(POOL[row] @ POOL[at]) for id, row in self.rows.items()}
        best = sorted(cosines, key=lambda id: (-round(cosines[id], 5), -id))[:k]
        assert similarities == pytest.approx([cosines[id] for id in best], abs=1e-5)
        assert [cosines[id] for id in ids.tolist()] == pytest.approx(similarities.tolist(), abs=1e-5)
        same = [id for id in best if cosines[id] > 1 - 1e-5]
        assert ids[: len(same)].tolist() == same

    @invariant()
    def counts(self):
        assert len(self.index) == len(self.rows)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_any_sequence_of_changes_agrees_with_a_dictionary(engine):
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Changes", (Changes,), {"engine": engine})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("RECALL_MAX_EXAMPLES", "12")),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("engine", [name for name in LEAN if name != "hnsw-background"])
def test_every_retained_entry_is_findable_after_90_000_evictions(engine):
    """A full cache that evicts its oldest: the case in which a graph once stopped answering in production."""
    inserts, kept, step = 100_000, 10_000, 500
    random = np.random.default_rng(13)
    rows = unit(random, inserts)
    index = LEAN[engine](DIM)
    for start in range(0, inserts, step):
        index.add(np.arange(start, start + step), rows[start : start + step])
        if start >= kept:
            index.remove(range(start - kept, start - kept + step))
    settle(index)
    assert len(index) == kept
    last = np.arange(inserts - kept, inserts)
    assert sorted(index.ids().tolist()) == last.tolist()
    assert (found(index, rows[last]) == last).all()
    evicted = random.integers(0, inserts - kept, 500)
    assert (found(index, rows[evicted]) >= inserts - kept).all()
    # And after reopening, which is a new index filled from what the store kept.
    reopened = LEAN[engine](DIM)
    reopened.add(last, rows[last])
    settle(reopened)
    assert (found(reopened, rows[last]) == last).all()


def test_threads_may_search_add_and_remove_at_once(index):
    random = np.random.default_rng(14)
    rows = unit(random, 3_000)
    stay = np.arange(200)
    index.add(stay, rows[stay])
    done, faults = threading.Event(), []

    def guarded(work):
        def run():
            try:
                work()
            except BaseException as fault:
                faults.append(fault)

        return threading.Thread(target=run)

    def search():
        at = 0
        while not done.is_set():
            at = (at + 1) % len(stay)
            ids, similarities = index.search(rows[at], 1 + at % 3)
            assert ids[0] == at
            assert similarities[0] == pytest.approx(1.0, abs=CLOSE)

    def write(first):
        for id in range(first, 3_000, 2):
            index.add(np.array([id]), rows[id : id + 1])
            if id % 8 >= 2:
                index.remove([id])

    searchers = [guarded(search) for _ in range(2)]
    writers = [guarded(lambda first=first: write(first)) for first in (200, 201)]
    for thread in searchers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in searchers:
        thread.join()
    settle(index)
    assert faults == []
    retained = np.concatenate([stay, [id for id in range(200, 3_000) if id % 8 < 2]])
    assert sorted(index.ids().tolist()) == retained.tolist()
    assert (found(index, rows[retained]) == retained).all()


# -- by name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auto", "exact", "scan", "hnsw"])
@pytest.mark.parametrize("dim", [1, 2, 3, 32, 100, 101, 257, 384, 768, 1536])
def test_every_kind_takes_every_dimension(kind, dim):
    index = make_index(kind, dim)
    random = np.random.default_rng(dim)
    rows = unit(random, 120, dim) if dim > 1 else np.array([[1.0], [-1.0]], np.float32)
    index.add(np.arange(len(rows)), rows)
    assert found(index, rows).tolist() == list(range(len(rows)))


def test_unknown_names_and_options_are_usage_errors():
    with pytest.raises(UsageError, match="annoy") as error:
        make_index("annoy", 8)
    assert "scan" in error.value.hint
    with pytest.raises(UsageError, match="exact"):
        make_index("exact", 8, m=4)
    assert make_index("scan", 8, m=4).search(np.eye(8, dtype=np.float32)[0])[0].tolist() == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("exact:kind=1", "no option 'kind'"),
        ("exact:dim=3", "no option 'dim'"),
        ("exact:self=3", "no option 'self'"),
        ("hnsw:seed=-1", "seed must be"),
        ("hnsw:threads=-1", "threads must be"),
        ("hnsw:M=10001", "M must be at most 10000"),
        ("hnsw:ef_search=99999999999999999999", "ef_construction and ef_search must be at most"),
        ("hnsw:M=32,M=16", "twice"),
        ("hnsw:M=32, M=16", "twice"),
        ("auto:scan_at=-1", "at least 1"),
        ("auto:hnsw_at=0", "at least 1"),
        ("scan:m=0", "m must be"),
        ("scan:m=4097", "m must be"),
    ],
)
def test_a_bad_spec_is_one_sentence_at_once(spec, message):
    with pytest.raises(UsageError, match=message) as error:
        index_maker(spec)
    assert str(error.value).isprintable()


def test_what_depends_on_the_dimension_is_refused_when_it_is_known():
    with pytest.raises(UsageError, match="between 1 and the 256"):
        index_maker("scan:m=300", 256)
    make = index_maker("scan:m=300")
    with pytest.raises(UsageError, match="between 1 and the 256"):
        make(256)


def test_any_number_of_candidates_will_do():
    index = index_maker("scan:refine=100000000000")(32)
    rows = unit(np.random.default_rng(22), 100)
    index.add(np.arange(100), rows)
    assert found(index, rows).tolist() == list(range(100))


def test_a_small_set_has_no_graph(monkeypatch):
    monkeypatch.setattr(hnsw, "GRAPH_FROM", 100)
    rows = unit(np.random.default_rng(23), 100)
    for index in (HnswIndex(DIM, background=False), HnswIndex(DIM)):
        index.add(np.arange(99), rows[:99])
        assert isinstance(index._engine, ExactIndex)
        index.add(np.array([99]), rows[99:])
        settle(index)
        assert index._engine.nodes == 100
        assert found(index, rows).tolist() == list(range(100))
    opened = HnswIndex(DIM)
    opened.add(np.arange(100), rows)
    assert opened._engine.nodes == 100
