"""Pair sets of `model eval`: what a file holds, traps by category, rank correlation."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import InputError
from recall_cli.measure.embedder import model_eval, pair_sets
from recall_cli.measure.embedder.pair_sets import Graded, PairData, spearman
from recall_cli.measure.evaluate.pairs import Pair


class ByFirstWord:
    """Texts are alike when their first words are equal."""

    name = fingerprint = "first word"
    dim = 256
    _hash = HashEmbedder()

    def embed(self, text):
        return self._hash.embed(text.split()[0])

    def embed_many(self, texts):
        return np.stack([self.embed(text) for text in texts])


def pairs(same, category, n, other="b"):
    return [Pair(f"a{i}{category} x", f"{'a' if same else other}{i}{category} y", same, category) for i in range(n)]


def test_traps_by_category():
    data = PairData("made", [*pairs(True, "", 40), *pairs(False, "number", 30), *pairs(False, "scope", 30, "a")])
    found = {row["against"]: row for row in pair_sets.rows(ByFirstWord(), data, 0, 20)}
    assert set(found) == {"all", "number", "scope"}
    assert found["number"]["auc"].value == 1
    assert found["number"]["hit_rate_at_0.05"].value == 1
    assert found["scope"]["auc"].value == 0.5
    assert found["scope"]["hit_rate_at_0.05"].value == 0
    assert found["all"]["n"] == 100
    assert (found["scope"]["should_hit"], found["scope"]["traps"]) == (40, 30)


def test_a_category_of_few_traps_or_of_all_gets_no_row():
    few = PairData("few", [*pairs(True, "", 40), *pairs(False, "number", 30), *pairs(False, "rare", 2)])
    one = PairData("one", [*pairs(True, "", 40), *pairs(False, "number", 30)])
    assert {row["against"] for row in pair_sets.rows(ByFirstWord(), few, 0, 2)} == {"all", "number"}
    assert {row["against"] for row in pair_sets.rows(ByFirstWord(), one, 0, 2)} == {"all"}


def test_differences_of_pair_sets_are_paired():
    data = PairData("made", [*pairs(True, "", 40), *pairs(False, "number", 30)])
    made = {"one": ByFirstWord(), "two": HashEmbedder()}
    result = model_eval.run(["one", "two"], [], pair_data=[data], timed=False, make=made.__getitem__, resamples=20)
    first, second = result.rows
    assert "auc_difference" not in first
    assert second["auc_difference"] == pytest.approx(second["auc"] - 1)
    low, high = second["auc_difference_interval"]
    assert low <= second["auc_difference"] <= high


def test_a_file_is_graded_by_its_column(tmp_path):
    graded = tmp_path / "sts.csv"
    graded.write_text("sentence1,sentence2,score\na b,a c,5\nb x,c x,0.5\nd,e,none\nf,g,nan\nh,i,-inf\n")
    found = pair_sets.load(str(graded))
    assert isinstance(found, Graded)
    assert (found.a, found.b, found.grades.tolist()) == (("a b", "b x"), ("a c", "c x"), [5, 0.5])
    (warning,) = found.warnings
    assert warning.message == f"3 rows of {graded} without two texts and a grade that is a number: left out"
    (row,) = pair_sets.rows(ByFirstWord(), found, 0, 5)
    assert row["spearman"].value == pytest.approx(1)
    labelled = tmp_path / "pairs.jsonl"
    labelled.write_text("".join(json.dumps({"a": "x", "b": f"y{i}", "same": i % 2}) + "\n" for i in range(4)))
    assert isinstance(pair_sets.load(str(labelled)), PairData)


def test_standard_input_is_read_once_whatever_it_holds(monkeypatch):
    labelled = b'{"a": "x", "b": "y", "same": true}\n{"a": "x", "b": "z", "same": false}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(labelled)))
    found = pair_sets.load("-")
    assert isinstance(found, PairData)
    assert [(pair.b, pair.same) for pair in found.pairs] == [("y", True), ("z", False)]


def test_a_set_of_one_pair_is_refused():
    with pytest.raises(InputError, match="holds 1 pairs"):
        model_eval.run(["x"], [], pair_data=[PairData("tiny", pairs(True, "", 1))], make=lambda _: ByFirstWord())


@given(st.lists(st.integers(0, 6), min_size=3, max_size=40))
def test_spearman_sees_order_alone(values):
    a = np.array(values, dtype=np.float64)
    b = np.random.default_rng(len(values)).integers(0, 5, len(values)).astype(np.float64)
    plain = spearman(a, b)
    if np.isnan(plain):
        assert len(set(values)) == 1 or len(set(b.tolist())) == 1
        return
    assert -1 - 1e-9 <= plain <= 1 + 1e-9
    assert spearman(np.exp(a), b) == pytest.approx(plain)
    assert spearman(-a, b) == pytest.approx(-plain)
    assert spearman(b, a) == pytest.approx(plain)


def test_spearman_shares_ranks_of_ties():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    assert spearman(np.array([1.0, 2, 2, 9]), np.array([1.0, 2, 3, 4])) == pytest.approx(4.5 / np.sqrt(22.5))


def test_costs_are_measured_for_every_embedder():
    result = model_eval.run(["one"], [], pair_data=[pair_sets.world()], make=lambda _: ByFirstWord(), resamples=2)
    (row,) = [row for row in result.rows if row["measure"] == "cost"]
    assert row["embed_us"]["p50"] > 0
    assert row["bytes"] is None
