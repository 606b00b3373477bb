"""The local second opinion: symmetric, sure of equal texts, wary of traps, safe between threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.cache.answers import second_opinion as module
from recall_cli.cache.answers.second_opinion import (
    FIELDS,
    MEANING,
    SIGNS,
    OpinionWeights,
    SecondOpinion,
    load_opinion,
    opinion_of,
    read_weights,
    shipped,
)
from recall_cli.errors import RecallError, UsageError

ASKED = "Can I return the item within 30 days of delivery?"


@pytest.fixture(scope="module")
def opinion():
    return load_opinion()


def test_it_agrees_to_the_same_question_and_not_to_another(opinion):
    assert opinion.agrees("can i return the item within 30 days of delivery", ASKED)
    assert not opinion.agrees("Can I return the item within 60 days of delivery?", ASKED)
    assert not opinion.agrees("What is the capital of France?", ASKED)


def doubts(opinion, a, b):
    return dict(zip(FIELDS, opinion.row(a, b), strict=True))


@pytest.mark.parametrize(
    ("field", "a", "b"),
    [
        ("numbers", ASKED, "Can I return the item within 60 days of delivery?"),
        ("contradiction", "Which metals are magnetic?", "Which metals are not magnetic?"),
        ("contradiction", "How do I enable the alarm?", "How do I disable the alarm?"),
        ("negator", "I lost my card abroad, what now?", "I cannot find my card abroad, what now?"),
        ("roles", "Is the moon bigger than the sun?", "Is the sun bigger than the moon?"),
        ("exchanged", "How do I tune a guitar?", "How do I tune a violin?"),
        ("uncovered", "How far is it from Rome?", "How far is it from Rome by boat?"),
    ],
)
def test_a_doubt_is_seen_between_texts_that_are_nearly_alike(opinion, field, a, b):
    found = doubts(opinion, a, b)
    assert found[field] > 0.02
    certain = {"numbers", "contradiction", "negator", "roles"} - {field}
    assert not any(found[other] for other in certain)
    assert opinion.logit(a, b) > opinion.logit(a, a)


def test_words_that_were_only_added_are_no_exchange(opinion):
    assert doubts(opinion, ASKED, "Hello there! " + ASKED)["exchanged"] == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("make me a reservation for 4 at nine", "is there a table free for 2 tonight"),
        ("I don't know why my card was declined", "What is the weather like in Oslo?"),
    ],
)
def test_between_texts_with_little_in_common_the_meaning_alone_counts(opinion, a, b):
    found = doubts(opinion, a, b)
    meaning = found.pop(MEANING)
    assert max(found.values()) < 0.15
    weights = shipped()
    assert opinion.logit(a, b) == pytest.approx(weights.level + weights.weights[0] * meaning, abs=0.8)


texts = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["", "?", "a\ud800b", ASKED, "NOT 12"])


@settings(max_examples=25, deadline=None)
@given(texts, texts)
def test_rows_are_symmetric_and_bounded(opinion, a, b):
    meaning, *rest = opinion.row(a, b)
    assert opinion.row(b, a) == pytest.approx((meaning, *rest), abs=1e-5)
    assert -1 <= meaning <= 1
    assert all(0 <= doubt <= 1 for doubt in rest)
    assert opinion.row(a, a) == pytest.approx((1, *(0,) * len(rest)), abs=1e-5)


def test_a_text_is_read_once_and_the_oldest_forgotten(opinion, monkeypatch):
    read_texts = []
    make = module.read_text
    monkeypatch.setattr(module, "KEPT", 2)
    monkeypatch.setattr(module, "read_text", lambda model, text: read_texts.append(text) or make(model, text))
    fresh = SecondOpinion(opinion.model, shipped())
    for a, b in (("one", "two"), ("one", "two"), ("one", "three"), ("one", "two")):
        fresh.row(a, b)
    assert read_texts == ["one", "two", "three", "two"]


def test_threads_get_what_one_gets(opinion):
    pairs = [(f"question {i % 7}", f"answer {i % 5}") for i in range(60)]
    alone = [opinion.row(a, b) for a, b in pairs]
    fresh = SecondOpinion(opinion.model, shipped())
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda pair: fresh.row(*pair), pairs)) == alone


def test_shipped_weights_keep_their_signs():
    given = dict(zip(FIELDS, shipped().weights, strict=True))
    assert all(given[name] * sign >= 0 for name, sign in SIGNS.items())
    assert given[MEANING] < 0


def test_weights_of_other_features_are_refused():
    with pytest.raises(RecallError, match="opinion-0"):
        read_weights({"features": "opinion-0"})


def test_names_of_opinions():
    assert opinion_of("none") is None
    with pytest.raises(UsageError, match="llm:gpt"):
        opinion_of("llm:gpt")


def test_the_limit_decides(opinion):
    for limit, agrees in ((99.0, True), (-99.0, False)):
        weights = OpinionWeights(0.0, shipped().weights, limit, "")
        assert SecondOpinion(opinion.model, weights).agrees("a cat", "a dog") is agrees
