"""Both verdicts need proof; the error rates on answers of known class stay where the study wants them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.answers.compare import VERSION, Comparator, compare, compare_values
from recall_cli.cache.answers.verdict import Same
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.measure.evaluate.comparator import KINDS, answer_pairs, mistakes, run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def comparator() -> Comparator:
    return Comparator(make_embedder("static"))


@given(st.text(max_size=80))
def test_an_answer_says_what_it_says(text: str) -> None:
    assert compare(text, text).verdict is Same.SAME
    assert compare(text, f"\n{text} ").verdict is not Same.DIFFERENT


@given(st.text(max_size=60), st.text(max_size=60))
def test_symmetric(a: str, b: str) -> None:
    assert compare(a, b).verdict is compare(b, a).verdict


@given(JSON)
def test_a_structure_equals_itself_whatever_the_order_of_its_keys(value: object) -> None:
    assert compare_values(value, json.loads(json.dumps(value))).verdict is Same.SAME
    if isinstance(value, dict):
        turned = dict(reversed(value.items()))
        assert compare(json.dumps(value), json.dumps(turned)).verdict is Same.SAME


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("Paris.", "paris", Same.SAME),
        ("**42**", "42", Same.SAME),
        ("It opens at 5pm.", "It opens at 17:00.", Same.SAME),
        ("- milk\n- eggs", "* eggs\n* milk", Same.SAME),
        ("Sure! You have 30 days.", "You have 30 days. Let me know if you need more!", Same.SAME),
        ('{"a": 1, "b": [1, 2]}', '```json\n{"b": [1, 2], "a": 1.0}\n```', Same.SAME),
        ("You have 30 days to return it.", "You have 14 days to return it.", Same.DIFFERENT),
        ("7", "8", Same.DIFFERENT),
        ("Yes, that is supported.", "No, that is not supported.", Same.DIFFERENT),
        ('{"city": "Oslo"}', '{"city": "Turin"}', Same.DIFFERENT),
        ('{"breakfast": true}', '{"breakfast": false}', Same.DIFFERENT),
        ("1. open\n2. close", "1. close\n2. open", Same.DIFFERENT),
        ("It depends on the plan.", "Yes, on every plan.", Same.UNSURE),
        ("", "Hello there", Same.UNSURE),
        ("{}", '{"a": 1}', Same.UNSURE),
        ("You can pay by card or in cash.", "Payment is possible with a card; cash works too.", Same.UNSURE),
    ],
)
def test_verdicts(a: str, b: str, verdict: Same) -> None:
    assert compare(a, b).verdict is verdict
    assert compare(b, a).verdict is verdict


def test_unrelated_answers_are_different_once_they_are_embedded(comparator: Comparator) -> None:
    a, b = (
        "The train to Lisbon leaves at nine from platform four.",
        "Use the orjson library, which parses the whole file.",
    )
    assert compare(a, b).label is None
    assert comparator(a, b).label is False


def test_a_judge_decides_what_the_rules_leave_open_and_nothing_else() -> None:
    asked: list[tuple[str, str]] = []

    def judge(a: str, b: str) -> bool | None:
        asked.append((a, b))
        return True

    judged = Comparator(judge=judge, judge_name="llm:small")
    assert judged.name == f"{VERSION}+llm:small"
    assert judged("7", "8").label is False
    assert not asked
    assert judged("Pay by card or cash, please.", "Cards are taken; coins work too.").label is True
    assert len(asked) == 1
    assert Comparator(judge=lambda a, b: None)("Pay by card or cash.", "Coins work too, as do cards.").label is None


def test_error_rates_on_answers_of_known_class(comparator: Comparator) -> None:
    result = run(each=120, seed=7, comparator=comparator)
    assert [row["kind"] for row in result.rows] == list(KINDS)
    assert result.summary["false_different_rate"] <= 0.005
    assert result.summary["false_same_rate"] <= 0.01
    # A comparator that never says anything would pass the above.
    assert result.summary["label_share_same"] > 0.5
    assert result.summary["label_share_different"] > 0.25


def test_answer_pairs_are_repeatable_and_mistakes_can_be_read() -> None:
    pairs = answer_pairs(20, 3)
    assert pairs == answer_pairs(20, 3)
    assert all(pair.same is not found.label for pair, found in mistakes(pairs))
