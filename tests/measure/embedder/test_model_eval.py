"""The measurement itself: known answers on synthetic data, and nothing scored where it was chosen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.embedder import model_eval
from recall_cli.measure.embedder.model_eval import Labelled
from recall_cli.measure.embedder.scores import auc_and_tpr, choose, held_out, nearest, nearest_pairs, sample_pairs

INTENTS = 12
QUICK = {"pairs": 2_000, "resamples": 40}


class Stand:
    """An embedder that sees the intent in the text ("3:17"), or nothing but noise."""

    dim = 16

    def __init__(self, name):
        self.name = self.fingerprint = name

    def embed(self, text):
        rng = np.random.default_rng([*self.name.encode(), *text.encode()])
        vector = 1e-3 * rng.normal(size=self.dim)
        if self.name == "perfect":
            if text.startswith("out"):
                vector[INTENTS + int(text[-1]) % 4] += 1
            else:
                vector[int(text.split(":")[0])] += 1
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def embed_many(self, texts):
        return np.stack([self.embed(text) for text in texts])


def synthetic():
    rows = [[(f"{i}:{part}{j}", str(i)) for i in range(INTENTS) for j in range(25)] for part in ("a", "b")]
    return Labelled("synthetic", rows[0], rows[1], [f"out {j}" for j in range(40)])


def rows_of(result, embedder, measure):
    return [row for row in result.rows if row["embedder"] == embedder and row["measure"] == measure]


@pytest.fixture(scope="module")
def result():
    return model_eval.run(["perfect", "random"], [synthetic()], make=Stand, timed=False, **QUICK)


def test_a_perfect_embedder(result):
    for row in rows_of(result, "perfect", "pairs"):
        assert row["auc"] == 1
        assert row["tpr_at_fpr_1"] == 1
        assert row["auc_interval"] == [1, 1]
    for row in rows_of(result, "perfect", "cache"):
        # Every in-scope query is served, up to those that sit exactly at the half's last score.
        assert row["hit_rate"] >= 300 / 340 - 0.02
        assert row["n"] == 340
        assert row["entries"] == INTENTS * 20


def test_a_random_embedder(result):
    row = next(row for row in rows_of(result, "random", "pairs") if row["pairs"] == "random")
    assert row["auc"] == pytest.approx(0.5, abs=0.05)
    assert row["auc_interval"][0] < row["auc"] < row["auc_interval"][1]
    assert row["auc_difference"] == pytest.approx(row["auc"] - 1)
    for row in rows_of(result, "random", "cache"):
        assert row["hit_rate"] < 0.2


def test_intervals_hold_their_value_and_rates_are_fractions(result):
    for row in result.rows:
        for name in ("auc", "tpr_at_fpr_1", "hit_rate", "false_hit_rate", "false_per_hit"):
            if row.get(name) is not None:
                assert 0 <= row[name] <= 1
                low, high = row[f"{name}_interval"]
                assert 0 <= low <= high <= 1


def test_a_seed_repeats_the_run(result):
    again = model_eval.run(["perfect", "random"], [synthetic()], make=Stand, timed=False, **QUICK)
    assert again.rows == result.rows
    other = model_eval.run(["perfect", "random"], [synthetic()], make=Stand, timed=False, seed=1, **QUICK)
    assert other.rows != result.rows


def test_nothing_to_measure_is_a_usage_error():
    with pytest.raises(UsageError):
        model_eval.run([], [synthetic()], make=Stand)
    with pytest.raises(UsageError):
        model_eval.run(["random"], [], make=Stand)


def test_missing_data_names_the_option(tmp_path):
    with pytest.raises(InputError, match="cannot be read") as error:
        model_eval.load(tmp_path)
    assert "--data" in error.value.hint


def test_keep_per_intent_is_seeded_and_capped():
    intents = [str(i % 3) for i in range(60)] + ["rare"]
    kept = model_eval.keep_per_intent(intents, 5, 0)
    assert sorted(intents[i] for i in kept) == ["0"] * 5 + ["1"] * 5 + ["2"] * 5 + ["rare"]
    assert kept == model_eval.keep_per_intent(intents, 5, 0)
    assert kept != model_eval.keep_per_intent(intents, 5, 1)


labels = st.lists(st.integers(0, 4), min_size=4, max_size=40).filter(
    lambda rows: len(set(rows)) > 1 and len(set(rows)) < len(rows)
)


@given(labels, st.integers(0, 5))
def test_sampled_pairs_are_what_they_say(rows, seed):
    intents = np.unique(rows, return_inverse=True)[1].astype(np.int64)
    left, right = sample_pairs(intents, 50, seed)
    same = intents[left] == intents[right]
    assert same[:50].all()
    assert not same[50:].any()
    assert (left != right).all()


def test_nearest_pairs_by_hand():
    vectors = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]], dtype=np.float32)
    left, right = nearest_pairs(vectors, np.array([0, 0, 1, 1]))
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [
        *[(0, 1), (1, 0), (2, 3), (3, 2)],
        *[(0, 2), (1, 2), (2, 1), (3, 1)],
    ]


scored = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=60)


@given(scored.filter(lambda rows: len({positive for _, positive in rows}) == 2))
def test_auc_counts_pairs_and_halves_ties(rows):
    scores = np.array([score for score, _ in rows], dtype=np.float64)
    positive = np.array([yes for _, yes in rows])
    auc, tpr = auc_and_tpr(scores, positive, np.arange(len(rows)), len(rows), resamples=1)
    gap = scores[positive][:, np.newaxis] - scores[~positive]
    assert auc.value == pytest.approx(np.mean((gap > 0) + 0.5 * (gap == 0)))
    allowed = math.floor(0.01 * (~positive).sum())
    cutoffs = [c for c in scores if (scores[~positive] >= c).sum() <= allowed]
    assert tpr.value == pytest.approx(max((np.mean(scores[positive] >= c) for c in cutoffs), default=0))


@given(scored, st.sampled_from(["queries", "hits"]))
def test_choose_keeps_the_budget_and_is_monotone(rows, share):
    scores = np.array([score for score, _ in rows], dtype=np.float64)
    right = np.array([yes for _, yes in rows])
    last = -1
    for budget in (0.0, 0.01, 0.05, 0.2, 0.5, 1.0):
        served = scores >= choose(scores, right, budget, share)
        whole = served.sum() if share == "hits" else len(rows)
        assert (served & ~right).sum() <= budget * whole
        assert served.sum() >= last
        last = served.sum()
    assert last == len(rows)


@given(scored, st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_weights_are_repeats(rows, counts):
    scores = np.array([score for score, _ in rows], dtype=np.float64)
    right = np.array([yes for _, yes in rows])
    times = np.array(counts[: len(rows)])
    if times.sum():
        weighted = choose(scores, right, 0.1, "queries", times.astype(np.float64))
        assert weighted == choose(scores.repeat(times), right.repeat(times), 0.1, "queries")


@pytest.mark.parametrize("share", ["queries", "hits"])
def test_hit_rate_grows_with_the_budget(share):
    rng = np.random.default_rng(5)
    right = rng.random(2_000) < 0.7
    scores = rng.normal(right * 1.5, 1)
    rates = [held_out(scores, right, b, share, resamples=2)["hit_rate"].value for b in (0.01, 0.05, 0.1, 0.3)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_cutoff_never_sees_the_queries_it_is_scored_on(monkeypatch):
    """Each query is tagged by its score; the rows shown to `choose` and the rows judged are disjoint."""
    n = 101
    scores = np.arange(n, dtype=np.float64)
    right = np.arange(n) % 3 > 0
    shown = []

    def spy(fit, *_):
        shown.append(set(fit.tolist()))
        return -math.inf if len(shown) == 1 else math.inf

    monkeypatch.setattr("recall_cli.measure.embedder.scores.choose", spy)
    found = held_out(scores, right, 0.01, "queries", resamples=1)
    first, second = shown[:2]
    assert not first & second
    assert first | second == set(scores.tolist())
    # The first cutoff serves everything it judges, the second nothing: exactly the second half is served.
    assert found["hit_rate"].value == pytest.approx(len(second) / n)


def test_resamples_never_move_a_query_across_the_halves(monkeypatch):
    n = 40
    seen = []
    monkeypatch.setattr(
        "recall_cli.measure.embedder.scores.choose",
        lambda fit, *_: seen.append(frozenset(fit.tolist())) or 0.0,
    )
    held_out(np.arange(n, dtype=np.float64), np.ones(n, dtype=bool), 0.01, "queries", resamples=20)
    assert len(set(seen[:-1])) == 2  # the two halves, whatever is drawn within them
    assert len(seen[-1]) == n  # and once all of them, for the in-sample figure


def test_no_hits_have_no_share_of_false_ones():
    wrong = Labelled("wrong", [("0:a", "x"), ("1:a", "y")], [("0:b", "y"), ("1:b", "x"), ("0:c", "y"), ("1:c", "x")])
    found = model_eval.run(["perfect"], [wrong], make=Stand, timed=False, pairs=10, resamples=5)
    for row in rows_of(found, "perfect", "cache"):
        assert row["hit_rate"] == 0
        assert row["false_per_hit"] is None
        assert row["false_per_hit_interval"] is None
        assert row["cutoffs"] == [None, None]


def test_one_query_cannot_be_halved():
    with pytest.raises(InputError):
        held_out(np.ones(1), np.ones(1, dtype=bool), 0.01, "queries")


def test_nearest_matches_brute_force():
    rng = np.random.default_rng(0)
    entries, queries = rng.normal(size=(30, 8)).astype(np.float32), rng.normal(size=(2_100, 8)).astype(np.float32)
    scores, best = nearest(entries, queries)
    np.testing.assert_allclose(scores, (queries @ entries.T).max(axis=1), rtol=1e-5)
    assert (best == (queries @ entries.T).argmax(axis=1)).mean() > 0.999


@pytest.mark.shared
def test_bundled_model_on_the_evaluation_data():
    folder = model_eval.default_folder()
    if folder is None:
        pytest.skip("no evaluation data beside this checkout")
    found = model_eval.run(["static", "hash-v1"], model_eval.load(folder), timed=False, pairs=5_000, resamples=20)
    for name, floor in (("CLINC150", 0.88), ("BANKING77", 0.83)):
        auc = {r["embedder"]: r["auc"] for r in found.rows if r["data"] == name and r.get("pairs") == "random"}
        assert auc["static"] > floor
        assert auc["hash-v1"] == pytest.approx(0.5, abs=0.03)
