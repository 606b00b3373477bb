from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recall_cli.hub.models import Match, Passage, Source
from recall_cli.hub.search.fusion import Whitening, best_of_documents, fused, order, stretched, union, unit
from recall_cli.types import Vector

DIM = 16


def vectors(n: int, seed: int = 0) -> Vector:
    """Return rows that share a direction, as a hub's chunks do."""
    rng = np.random.default_rng(seed)
    return unit((rng.normal(size=(n, DIM)) * np.linspace(0.2, 2, DIM) + 1.0).astype(np.float32))


seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 60)


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30), unique=True))
def test_the_union_holds_every_candidate_once_and_knows_its_legs(near: list[int], worded: list[int]) -> None:
    ids, sources = union(np.array(near, dtype=np.int64), np.array(worded, dtype=np.int64))
    assert ids.tolist() == sorted({*near, *worded})
    for id, source in zip(ids.tolist(), sources, strict=True):
        legs = {Source.VECTOR: (True, False), Source.LEXICAL: (False, True), Source.BOTH: (True, True)}
        assert legs[source] == (id in near, id in worded)


@given(seeds, sizes, st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_fused_scores_lie_between_0_and_1_and_move_with_their_candidates(seed: int, n: int, alpha: float) -> None:
    rows, question = vectors(n, seed), vectors(1, seed + 1)[0]
    rng = np.random.default_rng(seed)
    bm25 = rng.gamma(2.0, size=n).astype(np.float32)
    whiten = Whitening(vectors(200, 7))
    scores = fused(question, rows, bm25, alpha=alpha, whiten=whiten)
    assert scores.shape == (n,)
    assert np.all((scores >= 0) & (scores <= 1 + 1e-6))
    deal = rng.permutation(n)
    assert np.allclose(fused(question, rows[deal], bm25[deal], alpha=alpha, whiten=whiten), scores[deal], atol=1e-5)


def test_a_weight_of_0_is_the_lexical_order() -> None:
    bm25 = np.array([1.0, 4.0, 0.0, 2.0], np.float32)
    scores = fused(vectors(1, 3)[0], vectors(4), bm25, alpha=0.0, whiten=Whitening(vectors(50)))
    assert order(scores).tolist() == order(bm25).tolist()


def test_a_missing_leg_never_rewards() -> None:
    rows = np.repeat(vectors(1), 5, axis=0)
    bm25 = np.array([3.0, 0.0, 2.0, 0.0, 1.0], np.float32)
    scores = fused(vectors(1)[0], rows, bm25, alpha=0.4, whiten=Whitening(vectors(50)))
    assert order(scores)[:3].tolist() == [0, 2, 4]


def test_feedback_lifts_what_resembles_the_best() -> None:
    """The twin of the best candidates shares no word with the question and does not lie near it."""
    rows = np.zeros((6, DIM), np.float32)
    rows[:3, 0], rows[3, 0], rows[4, 5], rows[5, 6] = 1.0, 1.0, 1.0, 1.0
    question = np.zeros(DIM, np.float32)
    question[1] = 1.0
    bm25 = np.array([9.0, 8.0, 7.0, 0.0, 0.0, 0.0], np.float32)
    scores = fused(question, rows, bm25, alpha=0.4, whiten=Whitening(rows[:0]))
    assert scores[3] > scores[4]
    assert scores[3] > scores[5]


def test_a_question_without_a_known_token_is_ranked_by_its_words() -> None:
    bm25 = np.array([1.0, 9.0, 3.0], np.float32)
    scores = fused(np.zeros(DIM, np.float32), vectors(3), bm25, alpha=0.0, whiten=Whitening(vectors(20)))
    assert order(scores).tolist() == [1, 2, 0]
    assert np.isfinite(
        fused(np.zeros(DIM, np.float32), vectors(3), bm25, alpha=1.0, whiten=Whitening(vectors(9)))
    ).all()


def test_no_candidate_is_no_score() -> None:
    none = np.zeros((0, DIM), np.float32)
    assert len(fused(vectors(1)[0], none, np.zeros(0, np.float32), alpha=0.4, whiten=Whitening(none))) == 0


@given(arrays(np.float32, st.integers(1, 20), elements=st.floats(0, 100, width=32)))
def test_stretched_scores_keep_their_order(scores: Vector) -> None:
    even = stretched(scores)
    assert even.max() == (1.0 if scores.max() > 0 else 0.0)
    assert even.min() == (0.0 if scores.max() > scores.min() else even.max())
    assert np.all(np.diff(even[np.argsort(scores, kind="stable")]) >= 0)


def test_whitening_without_a_chunk_changes_no_cosine() -> None:
    rows = vectors(30)
    white = Whitening(rows[:0])(rows)
    assert np.allclose(white @ white.T, rows @ rows.T, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 1_000])
def test_whitening_takes_the_common_direction_out(n: int) -> None:
    rows = vectors(n)
    white = Whitening(rows)(rows)
    assert np.isfinite(white).all()
    assert np.allclose(np.einsum("ij,ij->i", white, white), 1.0, atol=1e-4)
    if n > 100:
        assert np.mean(rows @ rows.T) > 0.2
        assert abs(np.mean(white @ white.T)) < 0.02


def test_a_chunk_without_a_known_token_stays_a_zero() -> None:
    rows = vectors(40)
    rows[3] = 0.0
    white = Whitening(rows)(rows)
    assert not white[3].any()
    assert np.array_equal(Whitening(rows)(rows[4:5]), Whitening(np.delete(rows, 3, axis=0))(rows[4:5]))


def match(chunk_id: int, doc_id: str) -> Match:
    return Match(Passage(chunk_id, doc_id, "", "", 0, ""), Source.BOTH, 0.0, 0.0, 0.0)


@given(st.lists(st.sampled_from("abcd")))
def test_a_document_stands_where_its_best_chunk_does(docs: list[str]) -> None:
    matches = [match(i, doc) for i, doc in enumerate(docs)]
    kept = best_of_documents(matches)
    assert [m.passage.doc_id for m in kept] == list(dict.fromkeys(docs))
    assert all(m.passage.chunk_id == docs.index(m.passage.doc_id) for m in kept)
