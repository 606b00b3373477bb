"""The approximations of the scan: how often the nearest row is among the candidates, and what its codes survive."""

from __future__ import annotations

import numpy as np
import pytest

from recall_cli.core.index import ExactIndex
from recall_cli.core.scan import FIT_AT, ScanIndex


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
    index._mean[:] = 0
    index._set_codebook(variance=1.0)
    index._codes.reset()
    index._encode(0, len(rows))
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


@pytest.mark.parametrize("dim", [600, 1_536, 2_048])
def test_many_codes_do_not_overflow(dim):
    """Without the guard faiss's sums wrap, and a row is not found by its own vector."""
    rows = unit(np.random.default_rng(4), 300, dim)
    index = ScanIndex(dim)
    index.add(np.arange(300), rows)
    assert [index.search(row)[0][0] for row in rows] == list(range(300))


def test_codes_after_many_moves_are_those_of_a_fresh_index():
    """Removal writes into faiss's packed blocks; whatever it left behind would show in a later row's code."""
    random = np.random.default_rng(5)
    rows = unit(random, 1_200, 48)
    index = ScanIndex(48)
    index._fitted_at = FIT_AT[-1]  # keep the codebook, so that codes can be compared
    here = []
    for at in range(0, 1_200, 40):
        index.add(np.arange(at, at + 40), rows[at : at + 40])
        here += range(at, at + 40)
        gone = random.choice(here, 25, replace=False).tolist()
        index.remove(gone)
        here = [id for id in here if id not in gone]
    fresh = ScanIndex(48)
    fresh._fitted_at = FIT_AT[-1]
    fresh.add(np.arange(len(here)), index._matrix[: len(here)])
    assert index._codes.ntotal == len(here) == 450
    assert (index._codes.reconstruct_n(0, 450) == fresh._codes.reconstruct_n(0, 450)).all()


def test_options_out_of_range_are_refused():
    for options in ({"m": 0}, {"m": 33}, {"refine": 0}):
        with pytest.raises(ValueError, match="must be"):
            ScanIndex(32, **options)
