"""Leaves hold each row at most once, near ones together, and repeat by their seed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.teacher import LEAF, leaves


def unit(n, seed, dims=8):
    rows = np.random.default_rng(seed).normal(size=(n, dims))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


@given(st.integers(1, 300), st.integers(0, 9))
def test_every_row_is_in_one_leaf_at_most_and_few_are_in_none(n, seed):
    found = leaves(unit(n, seed), np.random.default_rng(seed))
    assert found.shape[1:] == (LEAF,)
    assert len(set(found.reshape(-1).tolist())) == found.size <= n
    assert n - found.size < LEAF


def test_equal_rows_end_the_cutting():
    assert len(leaves(np.ones((100, 4), dtype=np.float16), np.random.default_rng(0))) == 100 // LEAF


def test_neighbours_stand_together():
    vectors = unit(4_096, 1)
    found = leaves(vectors, np.random.default_rng(2))
    rows = vectors[found].astype(np.float32)
    within = (rows @ rows.transpose(0, 2, 1)).mean()
    strangers = vectors[np.random.default_rng(3).permutation(4_096)].reshape(-1, LEAF, 8).astype(np.float32)
    # A row's cosine with itself is a sixteenth of either mean.
    assert within > (strangers @ strangers.transpose(0, 2, 1)).mean() + 0.3


def test_leaves_repeat_by_their_seed_and_another_cuts_elsewhere():
    vectors = unit(512, 4)
    one, same, other = (leaves(vectors, np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert {frozenset(leaf) for leaf in one.tolist()} != {frozenset(leaf) for leaf in other.tolist()}
