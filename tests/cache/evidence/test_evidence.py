"""The evidence sees what a cosine does not, is symmetric, and finds nothing between equal texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.evidence.evidence import VETOES, check_vetoes, evidence, margin, vetoes
from recall_cli.cache.evidence.lexicon import BARE, HEADS, OPPOSITES, RARE, WEIGHTS, canonical, ranks
from recall_cli.cache.evidence.numbers import quantities
from recall_cli.cache.evidence.text_features import facts, is_anaphoric
from recall_cli.errors import UsageError
from recall_cli.types import Evidence

CHECKS = ("numbers", "negation", "roles", "detail", "names")

VOCABULARY = """
    how do I cancel turn on off the from to Paris London 5 five 5pm 17:00 not never without enable disable 3rd third
    before after MySQL Postgres tenant landlord £50 10% recieve receive 2026-03-05 March don't cheapest ? , 东京 naïve
"""
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.one_of(st.lists(WORDS, max_size=9).map(" ".join), st.text(max_size=40))


def of(a: str, b: str, similarity: float = 0.9) -> Evidence:
    return evidence(facts(a), facts(b), similarity)


@given(TEXTS)
def test_equal_texts_have_nothing_against_them(text: str) -> None:
    found = of(text, text, 1.0)
    assert found.overlap == found.length_ratio == 1.0
    assert [getattr(found, name) for name in CHECKS] == [0.0] * len(CHECKS)


@given(TEXTS, TEXTS)
def test_symmetric(a: str, b: str) -> None:
    one, two = of(a, b), of(b, a)
    for name in (*CHECKS, "overlap", "length_ratio"):
        assert getattr(one, name) == pytest.approx(getattr(two, name)), name


@given(TEXTS, TEXTS)
def test_within_its_range(a: str, b: str) -> None:
    found = of(a, b)
    assert all(0.0 <= getattr(found, name) <= 1.0 for name in (*CHECKS, "overlap", "length_ratio"))


@pytest.mark.parametrize(
    ("field", "a", "b"),
    [
        ("numbers", "What's 15% of 200?", "What's 50% of 200?"),
        ("numbers", "Hold the hall from the 2nd to the 4th", "Hold the hall from the 4th to the 12th"),
        ("numbers", "Can I take 2 pills every 4 hours?", "Can I take 2 pills every 2 hours?"),
        ("numbers", "Is 5 kg allowed?", "Is 5 lb allowed?"),
        ("numbers", "How much rain fell in March?", "How much rain fell in August?"),
        ("numbers", "do you open on Monday", "do you open on Friday"),
        ("numbers", "What changed in version 3.11.2?", "What changed in version 3.12.2?"),
        ("numbers", "delivery within 48 hours", "delivery within 48 days"),
        ("negation", "Which plants can live indoors?", "Which plants can't live indoors?"),
        ("negation", "How do I enable alerts?", "How do I disable alerts?"),
        ("negation", "How do I turn on sync on my phone?", "How do I turn off sync on my phone?"),
        ("negation", "Can I lock the screen?", "Can I unlock the screen?"),
        (
            "negation",
            "the cheapest flight to Rome",
            "the most expensive flight to Rome".replace("most expensive", "priciest"),
        ),
        ("negation", "When will my order ship?", "When did my order ship?"),
        ("negation", "Should I buy bonds now?", "Should I sell bonds now?"),
        ("roles", "transfer from savings to current", "transfer from current to savings"),
        ("roles", "How do I convert a spreadsheet to JSON?", "How do I convert JSON to a spreadsheet?"),
        (
            "roles",
            "Does a nurse approve the leave of a sales manager?",
            "Does a sales manager approve the leave of a nurse?",
        ),
        ("roles", "Is Python faster than Java?", "Is Java faster than Python?"),
    ],
)
def test_contradictions(field: str, a: str, b: str) -> None:
    assert getattr(of(a, b), field) == 1.0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Can you meet at 5pm?", "Can you meet at 17:00?"),
        ("the 1st of May", "the first of may"),
        ("I paid 1,000 euros", "I paid a thousand euros".replace("a thousand", "one thousand")),
        ("due on 2026-03-05", "due on 5 March 2026"),
        ("shipping in 2 days", "shipping in 48 hours"),
        ("the fee for two-factor tokens", "the fee for 2-factor tokens"),
        ("Why isn't sync enabled?", "Why is sync disabled?"),
        ("How can I obtain a refund?", "How do I get a refund?"),
        ("At the pool, which classes do you offer?", "Which classes do you offer at the pool?"),
        ("Why can't I log in?", "Why can I not log in?"),
        ("it is 20 percent", "it is twenty %"),
    ],
)
def test_other_spellings_contradict_nothing(a: str, b: str) -> None:
    found = of(a, b)
    assert (found.numbers, found.negation, found.roles) == (0.0, 0.0, 0.0)


def test_a_slip_of_the_pen_is_the_word_and_another_name_is_not() -> None:
    assert of("Do you offer a vegetarian menu?", "Do you offer a vegitarian menu?").overlap == 1.0
    swapped = of("What is the currency of Slovenia?", "What is the currency of Slovakia?")
    assert swapped.names == 1.0
    assert swapped.detail > 0.3


def test_one_number_alone_is_half_a_contradiction() -> None:
    assert of("the fee for 2023", "the fee").numbers == 0.5
    assert of("the first one", "the one").numbers == 0.0


def test_margin_is_to_the_best_of_another_group() -> None:
    assert margin(0.9, 1, [(0.88, 1), (0.7, 2), (0.6, 3)]) == pytest.approx(0.2)
    assert margin(0.9, 1, [(0.88, 1), (0.8, 1)]) == pytest.approx(0.1)  # the cautious value
    assert margin(0.9, 1, []) == 0.0
    found = evidence(facts("a b"), facts("a b"), 0.9, [(0.5, 2)], group=1, labels=2, wrong=1)
    assert (found.margin, found.history) == (pytest.approx(0.4), pytest.approx(0.375))


ANAPHORIC = (
    *(
        "",
        "  ",
        "?",
        "yes",
        "continue",
        "Paris",
        "ok thanks",
        "how do I fix it?",
        "and the second one?",
        "tell me more",
    ),
    *("what about Paris?", "why?", "explain this", "can you make it shorter", "do it again", "option 2", "weiter"),
)
ALONE = (
    *(
        "How do I reset my password?",
        "reset password",
        "Why is the sky blue?",
        "What's 15% of 200?",
        "东京的天气怎么样",
    ),
    *("What is the capital of France?", "When does form B7 come?", "Is it wise to swim after 40 minutes of sauna?"),
)


@pytest.mark.parametrize("text", ANAPHORIC)
def test_anaphoric(text: str) -> None:
    assert is_anaphoric(text)


@pytest.mark.parametrize("text", ALONE)
def test_stands_on_its_own(text: str) -> None:
    assert not is_anaphoric(text)


@given(st.text(max_size=60))
def test_anaphora_never_fails(text: str) -> None:
    assert is_anaphoric(text) in (True, False)


def test_vetoes_name_the_check() -> None:
    found = of("Is 5 kg allowed?", "Is 6 kg allowed?")
    assert vetoes(found, frozenset({"numbers", "names"})) == "numbers"
    assert vetoes(found, frozenset({"negation"})) is None
    assert vetoes(of("x y", "x y"), frozenset(VETOES)) is None
    with pytest.raises(UsageError, match="no check 'colour'"):
        check_vetoes(["numbers", "colour"])


def test_opposites_are_mutual_and_written_in_canonical_form() -> None:
    for word, others in OPPOSITES.items():
        assert word not in others
        assert all(word in OPPOSITES[other] for other in others), word
        assert canonical(word) in (word, HEADS.get(word)), word


def test_an_unknown_word_weighs_the_most_and_a_filler_hardly_anything() -> None:
    assert WEIGHTS["klaviyo"] == 1.0
    assert WEIGHTS["please"] < 0.05 < WEIGHTS["password"] < 1.0


def test_quantities_have_one_form() -> None:
    assert quantities("at 5 p.m. on 3 May").hard == {"clock 1020", "3", "month 5"}
    assert quantities("two hundred and fifty thousand").hard == {"250000"}
    assert quantities("I may march on").hard == frozenset()
    assert quantities("£2.50 and 3k").hard == {"2.5", "3000"}


@given(TEXTS)
def test_what_is_remembered_with_the_words_is_what_the_text_says(text: str) -> None:
    found = facts(text)
    assert found.words == frozenset(found.order)
    assert found.mass == pytest.approx(sum(WEIGHTS[token] for token in found.words))
    assert found.keys >= {token for token in found.words if WEIGHTS[token] >= RARE}
    assert set(found.poles) == {t for t in found.words if t in OPPOSITES or BARE[t] in ranks()}
    assert bool(found.roles()) <= found.directed
    assert found.roles() is found.roles()  # worked out once


def test_no_more_neighbours_are_looked_up_than_the_margin_takes() -> None:
    seen: list[int] = []

    def group(id: int) -> int:
        seen.append(id)
        return 1 if id < 3 else id

    assert margin(0.9, 1, zip([0.8, 0.7, 0.6, 0.5], map(group, [1, 2, 3, 4]), strict=True)) == pytest.approx(0.3)
    assert seen == [1, 2, 3]
