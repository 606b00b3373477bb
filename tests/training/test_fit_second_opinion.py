"""The kinds that the second opinion is learned from and tested on, and what the fit makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.cache.answers.second_opinion import FIELDS, MEANING, SIGNS
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.measure.embedder.model_eval import Labelled
from recall_cli.measure.evaluate.evidence_fit import risk
from recall_cli.measure.evaluate.evidence_sets import Rows
from recall_cli.measure.evaluate.pairs import Pair
from training import opinion_sets, wordnet
from training.fit_second_opinion import CENTRE, TRAPS_PASSED, learn, limit_of

LINES = {
    "data.noun": (
        '00001740 03 n 02 car 0 motor_vehicle 0 000 | a vehicle; "he said that he needs a car to get to work"',
        "00002137 03 n 01 lorry 0 000 | a large vehicle",
        '00002300 03 n 02 loss 0 defeat 0 001 ! 00002400 n 0202 | a lost game; "they took the loss of the game well"',
        '00002400 03 n 02 win 0 victory 0 001 ! 00002300 n 0202 | a won game; "the home team had a narrow win"',
    ),
    "data.adj": ("00003553 00 s 01 galore(ip) 0 000 | in great numbers",),
}


@pytest.fixture
def folder(tmp_path):
    for name in wordnet.FILES:
        (tmp_path / name).write_text("  1 licence\n" + "".join(f"{line}\n" for line in LINES.get(name, ())))
    return tmp_path


def test_opposites_are_of_words_not_of_meanings(folder):
    assert wordnet.antonyms(folder) == {"defeat": "victory", "victory": "defeat"}


def test_a_word_of_a_sentence_becomes_its_synonym_or_its_neighbour(folder):
    found = list(wordnet.synsets(folder))
    same, trap = opinion_sets.words_in_sentences(found, [0, 2], 2, np.random.default_rng(0))
    assert same == Pair(same.a, "he said that he needs a motor vehicle to get to work", True)
    assert trap == Pair(same.a, "he said that he needs a lorry to get to work", False)


def test_terms_keep_their_meaning_in_true_pairs_alone(folder):
    found = list(wordnet.synsets(folder))
    pairs = opinion_sets.terms(found, [0, 2] * 20, 60, np.random.default_rng(1))
    for same, trap in zip(pairs[::2], pairs[1::2], strict=True):
        assert same.same
        assert not trap.same
        assert same.a == trap.a
        assert any(word in str(same.b) for word in ("car", "motor vehicle", "loss", "defeat"))
        assert any(word in str(trap.b) for word in ("lorry", "win"))


TEXT = "she said that the 12 men from Paris were quick to see the defeat before dinner"


def test_every_edit_applies_and_changes_the_text():
    edits = opinion_sets.Editor({"dinner": ["supper"]}, {"defeat": "victory"})
    rng = np.random.default_rng(0)
    changed = {edit.__name__: edit(TEXT, rng) for edit in (*edits.same(), *edits.other())}
    assert changed["synonym"].endswith("supper")
    assert changed["opposite"].endswith("the victory before dinner")
    assert "were not quick" in changed["negated"]
    assert " 12 men" not in changed["other_number"]
    assert "Paris" not in changed["other_name"]
    assert changed["tail_first"].startswith("before dinner, she said")
    assert " the " not in changed["terse"]
    assert len(changed) == len({*changed.values()}) == 8
    nothing = "plain"
    assert all(edit(nothing, rng) is None for edit in edits.other())


def test_own_questions_stand_in_threes():
    pairs = opinion_sets.asked_apart()
    assert len(pairs) >= 270
    assert sum(pair.same for pair in pairs) * 3 == len(pairs)
    asked = [str(pair.a).casefold() for pair in pairs[::3]]
    assert len(asked) == len(set(asked))
    assert all(pair.a != pair.b and pair.a.strip() == pair.a and pair.b.strip() == pair.b for pair in pairs)


def test_own_questions_are_not_those_that_weights_are_learned_from():
    learned = {str(side).casefold() for pair in opinion_sets.prompts() for side in (pair.a, pair.b)}
    assert learned.isdisjoint(str(side).casefold() for pair in opinion_sets.asked_apart() for side in (pair.a, pair.b))


def test_docstrings_are_of_one_method_by_two_hands():
    pairs = opinion_sets.docstrings(np.random.default_rng(0))
    assert sum(pair.same for pair in pairs) > 50
    assert sum(not pair.same for pair in pairs) > 50
    assert all("\n" not in str(side) for pair in pairs for side in (pair.a, pair.b))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=40))
def test_disjoint_pairs_share_no_text(drawn):
    pairs = [Pair(str(a), str(b), same) for a, b, same in drawn if a != b]
    found = opinion_sets.disjoint(pairs, 0)
    sides = [side for pair in found for side in (pair.a, pair.b)]
    assert len(sides) == len(set(sides))
    assert [pair.same for pair in found] == [i % 2 == 0 for i in range(len(found))]


def test_intents_make_pairs_of_one_and_of_two():
    texts = [
        (f"{verb} my {noun} {i}", verb) for i in range(8) for verb in ("pay", "cancel") for noun in ("bill", "card")
    ]
    kinds = opinion_sets.intents(Labelled("set", texts, [], []), make_embedder("hash-v1"), 40, 0)
    assert [kind.name for kind in kinds] == ["set, nearest pairs", "set, random pairs"]
    for kind in kinds:
        assert kind.pairs
        assert all(pair.same == (pair.a.split()[0] == pair.b.split()[0]) for pair in kind.pairs)


def made(name, family, weights, n=800, seed=0):
    """Pairs whose risk is known, but for a slope along meaning that is the set's own."""
    rng = np.random.default_rng([seed, len(name)])
    x = np.column_stack([rng.uniform(0.5, 1, n), *(rng.random(n) * (rng.random(n) < 0.4) for _ in FIELDS[1:])])
    z = x @ np.array(weights) + len(name) * (0.75 - x[:, 0]) + 4
    same = rng.random(n) > 1 / (1 + np.exp(-z))
    return Rows(name, family, x, x[:, 0], same, np.zeros(n, dtype=np.int64))


TRUE = (CENTRE[MEANING], 4.0, 5.0, 1.0, 3.0, 2.0, 2.0)


def test_the_doubts_are_learned_and_the_meaning_is_given():
    _, weights = learn([made("a", "a", TRUE), made("bbbb", "b", TRUE), made("cccccc", "c", TRUE)])
    found = dict(zip(FIELDS, weights, strict=True))
    assert found[MEANING] == pytest.approx(CENTRE[MEANING], abs=1e-3)
    assert weights[1:] == pytest.approx(TRUE[1:], abs=1.5)


def test_no_set_teaches_a_wrong_sign():
    turned = (TRUE[0], *(-weight for weight in TRUE[1:]))
    _, weights = learn([made("a", "a", turned)])
    assert all(weight * sign >= 0 for weight, sign in zip(weights, SIGNS.values(), strict=True))


def test_the_limit_lets_its_share_of_traps_through_in_the_families_mean():
    sets = [made("a", "a", TRUE), made("bbb", "b", TRUE), made("ccccc", "b", TRUE, seed=1)]
    _, weights = learn(sets)
    limit = limit_of(sets, weights)
    passed = [float((risk(rows, weights)[~rows.same] <= limit).mean()) for rows in sets]
    assert (passed[0] + (passed[1] + passed[2]) / 2) / 2 == pytest.approx(TRAPS_PASSED, abs=0.01)
