"""The approximations of the scan: how often the nearest row is among the candidates, and what its codes survive."""

from __future__ import annotations

import numpy as np
import pytest

from recall_cli.cache.index import scan
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.index.exact import SCAN_FROM_DIM, ExactIndex
from recall_cli.cache.index.scan import Codes, ScanIndex

# So that a few dozen rows are coded.
few = pytest.fixture(lambda monkeypatch: monkeypatch.setattr(scan, "COMPARE_ALL", 1))


def unit(random, n, dim):
    rows = random.standard_normal((n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def recall(index, rows, queries, k=1):
    """The share of the true k best that the index returns, by similarity: ties count."""
    exact = ExactIndex(rows.shape[1])
    exact.add(np.arange(len(rows)), rows)
    hits = 0
    for query in queries:
        worst = exact.search(query, k)[1][-1]
        hits += int((index.search(query, k)[1] >= worst - 2e-6).sum())
    return hits / (k * len(queries))


@pytest.mark.parametrize(
    ("dim", "options", "least"),
    [(32, {}, 0.995), (256, {}, 0.97), (256, {"m": 256}, 0.995), (256, {"refine": 256}, 0.99)],
)
def test_recall_on_random_vectors(dim, options, least):
    random = np.random.default_rng(0)
    rows, queries = unit(random, 6_000, dim), unit(random, 300, dim)
    index = ScanIndex(dim, **options)
    index.add(np.arange(len(rows)), rows)
    assert recall(index, rows, queries) >= least


def test_near_duplicates_are_always_found():
    random = np.random.default_rng(1)
    rows = unit(random, 6_000, 256)
    index = ScanIndex(256)
    index.add(np.arange(len(rows)), rows)
    noise = unit(random, 1_000, 256)
    noise -= (noise * rows[:1_000]).sum(axis=1, keepdims=True) * rows[:1_000]
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    near = 0.8 * rows[:1_000] + 0.6 * noise
    assert [index.search(query)[0][0] for query in near] == list(range(1_000))


def test_a_shared_direction_is_taken_out():
    """Transformer embeddings point one way (here: mean cosine 0.7); coded around zero, recall is far lower."""
    random = np.random.default_rng(2)
    shared = 1.5 * unit(random, 1, 256)
    rows, queries = (unit(random, n, 256) + shared for n in (6_000, 300))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    index = ScanIndex(256)
    index.add(np.arange(len(rows)), rows)
    centred = recall(index, rows, queries)
    index._codes = Codes(256, 128, np.zeros(256, np.float32), nearest=scan.REFINE)
    index._codes.append(rows)
    assert centred >= 0.9
    assert recall(index, rows, queries) < centred - 0.05


def test_recall_at_ten():
    random = np.random.default_rng(3)
    # Neighbours as sentences have them: topics with their variants.
    rows = (unit(random, 400, 256)[:, None] + 0.8 * unit(random, 6_000, 256).reshape(400, 15, 256)).reshape(-1, 256)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = ScanIndex(256)
    index.add(np.arange(len(rows)), rows)
    assert recall(index, rows, rows[:300], k=10) >= 0.999


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("dim", [600, 1_536, 2_048])
def test_many_codes_do_not_overflow(dim):
    """Without the guard faiss's sums wrap, and a row is not found by its own vector."""
    rows = unit(np.random.default_rng(4), 300, dim)
    index = ScanIndex(dim)
    index.add(np.arange(300), rows)
    assert [index.search(row)[0][0] for row in rows] == list(range(300))


@pytest.mark.usefixtures("few")
def test_codes_after_many_moves_are_those_of_a_fresh_index(monkeypatch):
    """Removal writes into faiss's packed blocks; whatever it left behind would show in a later row's code."""
    monkeypatch.setattr(scan, "DRIFT", 9.0)  # keep the mean, so that codes can be compared
    random = np.random.default_rng(5)
    rows = unit(random, 1_200, 48)
    index = ScanIndex(48)
    here = []
    for at in range(0, 1_200, 80):
        index.add(np.arange(at, at + 80), rows[at : at + 80])
        here += range(at, at + 80)
        gone = random.choice(here, 50, replace=False).tolist() if at else []
        index.remove(gone)
        here = [id for id in here if id not in gone]
    assert same_codes(index)
    assert len(here) == 500


def same_codes(index):
    """Whether the codes are those that its rows get anew."""
    rows = index._book.rows
    fresh = Codes(index._dim, index._m, index._codes.mean, nearest=1)
    fresh.append(index._matrix[:rows])
    codes = [codes._index.reconstruct_n(0, rows) for codes in (index._codes, fresh)]
    return len(index._codes) == rows and (codes[0] == codes[1]).all()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("step", [1, 7, 400])
def test_rows_of_another_direction_are_coded_around_their_own_mean(step):
    """Without that, near-duplicates of the new rows are lost: .19 found where they share most."""
    random = np.random.default_rng(6)
    old, new = (0.98 * unit(random, 1, 256) + (1 - 0.98**2) ** 0.5 * unit(random, 800, 256) for _ in range(2))
    old, new = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (old, new))
    index = ScanIndex(256)
    index.add(np.arange(800), old)
    renewed = 0
    for at in range(0, 800, step):
        ids = np.arange(at, min(at + step, 800))
        index.remove(ids)
        index.add(ids + 800, new[ids])
        renewed += index._next is not None
        if at % 97 == 0:
            index.remove([800 + at])
            index.add(np.array([800 + at]), new[at : at + 1])
    assert step > 1 or renewed > 20  # a little with each add
    for at in range(200):  # until the mean is looked at once more
        index.remove([800 + at])
        index.add(np.array([1_600 + at]), new[at : at + 1])
    while index._next is not None:
        index._renew(0)
    assert same_codes(index)
    assert np.square(index._codes.mean - new.mean(axis=0)).sum() < 0.1 * index._codes.spread
    near = new + 0.01 * unit(random, 800, 256)
    assert recall(index, new, near / np.linalg.norm(near, axis=1, keepdims=True)) >= 0.99


@pytest.mark.usefixtures("few")
def test_rows_alike_are_not_coded_anew():
    random = np.random.default_rng(7)
    index = ScanIndex(64)
    index.add(np.arange(500), unit(random, 500, 64))
    codes = index._codes
    for at in range(500, 3_000, 50):
        index.add(np.arange(at, at + 50), unit(random, 50, 64))
        index.remove(range(at - 500, at - 450))
    assert index._codes is codes


def test_few_rows_are_compared_in_full_and_have_no_codes():
    random = np.random.default_rng(8)
    rows = unit(random, 1_100, 256)
    index = ScanIndex(256)
    index.add(np.arange(1_000), rows[:1_000])
    assert index._codes is None
    assert recall(index, rows[:1_000], unit(random, 50, 256)) == 1
    index.add(np.arange(1_000, 1_100), rows[1_000:])
    assert len(index._codes) == 1_100
    index.remove(range(600))
    assert [index.search(row)[0][0] for row in rows[600:]] == list(range(600, 1_100))
    assert index._codes is None  # given up at half the number, not to make and drop them by turns


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("k", [1, 2, 5, 71])
def test_where_faiss_finds_nothing_the_rows_are_compared(k):
    """It answers -1 for "none": taken for a row, that was an id from memory nobody had written."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((71, 32)).astype(np.float32) * 1e-6
    rows[:, 0] = 1
    index = ScanIndex(32, m=1, refine=1)
    index.add(np.arange(1_000, 1_071), rows / np.linalg.norm(rows, axis=1, keepdims=True))
    index._book.newest[71:] = 9
    nothing = 0
    for query in unit(random, 200, 32):
        nothing += index._codes.nearest(query)[0] < 0
        ids, cosines = index.search(query, k)
        assert len(ids) == len(cosines) == k
        assert ids.min() >= 1_000
    assert nothing > 10


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("dim", [2, 3, 4, 6, 8, 12, 15, 16])
def test_rows_of_few_dimensions_all_find_themselves(dim):
    rows = np.unique(unit(np.random.default_rng(9), 20_000, dim), axis=0)
    for index in (AutoIndex(dim), ScanIndex(dim)):
        index.add(np.arange(len(rows)), rows)
        assert [index.search(row, 2)[0].tolist()[0] == at for at, row in enumerate(rows[:300])].count(False) <= (
            300 if dim == 2 else 0  # of 20,000 in a circle, neighbours are equal in float32
        )
        assert all(index.search(row)[1][0] >= 1 - 1e-6 for row in rows[:300])
    assert AutoIndex(SCAN_FROM_DIM - 1)._scan_at is None


@pytest.mark.usefixtures("few")
def test_rows_are_coded_by_one_thread(monkeypatch):
    """OpenMP's threads spin, which on busy cores makes it slower; what the caller had set is set again."""
    import faiss

    seen = []
    add = faiss.IndexPQFastScan.add_c

    def watched(*arguments):
        seen.append(faiss.omp_get_max_threads())
        return add(*arguments)

    monkeypatch.setattr(faiss.IndexPQFastScan, "add_c", watched)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        index = ScanIndex(32)
        index.add(np.arange(60), unit(np.random.default_rng(0), 60, 32))
        assert seen == [1]
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)


def test_options_out_of_range_are_refused():
    for options in ({"m": 0}, {"m": 33}, {"refine": 0}):
        with pytest.raises(ValueError, match="must be"):
            ScanIndex(32, **options)
