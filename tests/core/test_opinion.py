"""The local second opinion: symmetric, sure of equal texts, wary of traps, safe between threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.core import opinion as module
from recall_cli.core.opinion import ALL_FIELDS, OpinionWeights, SecondOpinion, load_opinion, opinion_of, read, shipped
from recall_cli.core.prior import SIGNS
from recall_cli.errors import RecallError, UsageError

ASKED = "Can I return the item within 30 days of delivery?"


@pytest.fixture(scope="module")
def opinion():
    return load_opinion()


def test_it_agrees_to_the_same_question_and_not_to_another(opinion):
    assert opinion.agrees("can i return the item within 30 days of delivery", ASKED, 0.99)
    assert not opinion.agrees("Can I return the item within 60 days of delivery?", ASKED, 0.99)
    assert not opinion.agrees("What is the capital of France?", ASKED, 0.99)


def test_less_similarity_is_never_safer(opinion):
    logits = [opinion.logit("May I send it back within 30 days?", ASKED, s) for s in (1.0, 0.9, 0.7, 0.5, 0.0, -1.0)]
    assert logits == sorted(logits)


texts = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["", "?", "a\ud800b", ASKED, "NOT 12"])


@settings(max_examples=25, deadline=None)
@given(texts, texts)
def test_features_are_symmetric_and_bounded(opinion, a, b):
    meaning, covered = opinion.features(a, b)
    again = opinion.features(b, a)
    assert again == pytest.approx((meaning, covered), abs=1e-5)
    assert -1 <= meaning <= 1
    assert -1.001 <= covered <= 1.001
    assert opinion.features(a, a) == pytest.approx((1, 1), abs=1e-5)


def test_a_text_is_read_once_and_the_oldest_forgotten(opinion, monkeypatch):
    read_texts = []
    make = module.read_text
    monkeypatch.setattr(module, "KEPT", 2)
    monkeypatch.setattr(module, "read_text", lambda model, text: read_texts.append(text) or make(model, text))
    fresh = SecondOpinion(opinion.model, shipped())
    for a, b in (("one", "two"), ("one", "two"), ("one", "three"), ("one", "two")):
        fresh.features(a, b)
    assert read_texts == ["one", "two", "three", "two"]


def test_threads_get_what_one_gets(opinion):
    pairs = [(f"question {i % 7}", f"answer {i % 5}") for i in range(60)]
    alone = [opinion.features(a, b) for a, b in pairs]
    fresh = SecondOpinion(opinion.model, shipped())
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda pair: fresh.features(*pair), pairs)) == alone


def test_shipped_weights_keep_their_signs():
    given = dict(zip(ALL_FIELDS, shipped().weights, strict=True))
    assert all(given[name] * sign >= 0 for name, sign in SIGNS.items())
    assert given["meaning"] < 0
    assert given["covered"] < 0


def test_weights_of_other_features_are_refused():
    with pytest.raises(RecallError, match="opinion-0"):
        read({"features": "opinion-0"})


def test_names_of_opinions():
    assert opinion_of("none") is None
    with pytest.raises(UsageError, match="llm:gpt"):
        opinion_of("llm:gpt")


def test_the_limit_decides(opinion):
    for limit, agrees in ((99.0, True), (-99.0, False)):
        weights = OpinionWeights(0.0, shipped().weights, limit, "")
        assert SecondOpinion(opinion.model, weights).agrees("a cat", "a dog", 0.5) is agrees
