"""Short answers are decided: labels, amounts, data, code, refusals. Paraphrases and spellings are never different."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.answers.compare import Comparator, compare, compare_values
from recall_cli.cache.answers.verdict import Same
from recall_cli.cache.embed.registry import make_embedder

ENUMERATIONS = [
    ["positive", "negative", "neutral"],
    ["Billing", "Shipping", "Technical Support", "Account Access"],
    ["approve", "reject"],
    ["spam", "ham"],
    ["A", "B", "C", "D"],
    ["yes", "no"],
    ["true", "false"],
    ["low", "medium", "high", "critical"],
    ["P1", "P2", "P3"],
    ["in_stock", "out_of_stock", "back_order"],
    ["entailment", "contradiction", "neutral"],
    ["relevant", "irrelevant"],
    ["toxic", "not toxic"],
    ["joy", "sadness", "anger", "fear"],
    ["English", "French", "German", "Japanese"],
    ["sports", "politics", "business", "technology"],
    ["question", "statement", "complaint"],
    ["positivo", "negativo", "neutro"],
    ["positiv", "negativ"],
    ["genehmigt", "abgelehnt"],
    ["позитивный", "негативный"],
    ["正面", "负面"],
    ["긍정", "부정"],
    ["はい", "いいえ"],
    ["oui", "non"],
    ["👍", "👎"],
    ["✅", "❌"],
    ["🟢", "🟡", "🔴"],
    ["★★★☆☆", "★★★★☆"],
    ["C", "C#", "C++"],
    ["A+", "A", "A-"],
    ["GET", "POST", "DELETE"],
    ["5 kg", "5 lb", "7 kg"],
    ["$5", "€5", "£5"],
    ["1", "2", "-1"],
    ["10-20", "20-30"],
    [">5", "<5"],
    ["2024-03-05", "2024-03-06"],
    ["4/5", "3/5"],
    ["20 °C", "30 °C"],
]
SPELLINGS = [
    ["Yes", "yes.", "Yes, it is.", "YES!", "**Yes**", "Answer: yes"],
    ["No", "no.", "No, it isn't.", "No, it does not."],
    ["Billing", "billing.", "Category: Billing", "**Billing**", '"Billing"', "The category is billing."],
    ["positive", "Positive.", "Sentiment: positive", "The sentiment of this review is positive."],
    ["5 kg", "5000 g", "5.0 kilograms"],
    ["$5", "5 dollars", "5.00 USD", "USD 5", "US$5"],
    ["5 March 2024", "2024-03-05", "March 5, 2024", "Tuesday, 5th March 2024"],
    ["1,000", "1000", "1000.0"],
    ["5-10 days", "5 to 10 days", "5–10 days"],
    ["90 minutes", "1.5 hours"],
    ["red, green and blue", "blue, green, red"],
    ['["a", "b"]', '["b", "a"]', "['a', 'b']"],
    ['{"label": "a", "n": 1}', '{"n": 1.0, "label": "a"}', "label: a\nn: 1", '```json\n{"n":1,"label":"A"}\n```'],
    ['<a x="1" y="2"><b>3</b></a>', '<a y="2" x="1">\n  <b>3</b>\n</a>'],
    ["SELECT name FROM users WHERE age > 5", "select name\nfrom users\nwhere age > 5;"],
    ["I'm sorry, but I can't assist with that.", "I cannot help with that request.", "Sorry, I'm unable to help."],
]
DIFFERENT = [
    ("x > y", "y > x"),
    ("x > y", "x < y"),
    ("2**3", "2*3"),
    ("a - b", "b - a"),
    ("git reset --hard", "git reset --soft"),
    ("SELECT name FROM users WHERE age > 5", "SELECT name FROM users WHERE age < 5"),
    ("SELECT COUNT(*) FROM users", "SELECT COUNT(*) FROM orders"),
    ("def f(x):\n    return x + 1", "def f(x):\n    return x - 1"),
    ("```python\nprint(1)\n```", "```python\nprint(2)\n```"),
    ("<label>positive</label>", "<label>negative</label>"),
    ("label: positive\nscore: 5", "label: negative\nscore: 5"),
    ('{"a": {"label": "x", "n": 1}}', '{"a": {"n": 2, "label": "x"}}'),
    ('{"label": "a", "confidence": 0.9}', '{"label": "b", "confidence": 0.9}'),
    ('["red", "blue"]', '["green", "pink"]'),
    ("[1, 2, 3]", "[3, 2, 1]"),
    ('{"steps": ["x", "y"]}', '{"steps": ["y", "x"]}'),
    ("I'm sorry, but I can't help with that.", "The capital of France is Paris."),
    ("I don't know.", "Paris"),
    ("A) Paris", "B) Rome"),
    ("Sentiment: 👍", "Sentiment: 👎"),
    ("Yes", "No, it isn't."),
]
OPEN = [
    ("looks good", "seems fine"),
    ("Looks good", "Seems fine"),
    ("sofa", "couch"),
    ("Delicious", "Tasty"),
    ("happy", "joyful"),
    ("OK", "Sure"),
    ("Thanks!", "Thank you"),
    ("NYC", "New York City"),
    ("USA", "United States"),
    ("Москва", "Moscow"),
    ("positive", "very positive"),
    ("Billing", "Billing issue"),
    ("All good", "No problem"),
    ("In stock", "Available"),
    ("not found", "missing"),
    ("Restart the router.", "Reboot it."),
    ("N/A", "Unknown"),
    ("05/03/2024", "2024-05-03"),
    ("3.14", "3.14159"),
    ("50%", "0.5"),
    ("7", "7 days"),
    ("I can't find that order.", "There is no order with that number."),
    ('{"label": "a"}', '{"label": "a", "note": "x"}'),
    ('{"label": "a", "confidence": 0.91}', '{"label": "a", "confidence": 0.93}'),
    ("def f(x):\n    return x + 1", "def g(y):\n    return y + 1"),
    ("😀", "😃"),
]
DIFFERENT += [pair for labels in ENUMERATIONS for pair in itertools.combinations(labels, 2)]
SAME = [pair for spellings in SPELLINGS for pair in itertools.combinations(spellings, 2)]
CASES = [(*pair, Same.DIFFERENT) for pair in DIFFERENT] + [(*pair, Same.SAME) for pair in SAME]
CASES += [(*pair, Same.UNSURE) for pair in OPEN]


@pytest.fixture(scope="module")
def comparator() -> Comparator:
    return Comparator(make_embedder("static"))


@pytest.mark.parametrize(("a", "b", "verdict"), CASES)
def test_short_answers(a: str, b: str, verdict: Same, comparator: Comparator) -> None:
    # With an embedder and without one: every consumer of the rules gets the same labels.
    for said in (compare(a, b), compare(b, a), comparator(a, b), comparator(b, a)):
        assert said.verdict is verdict, said.reason


@pytest.mark.parametrize(("a", "b"), [pair for pair in DIFFERENT if not any(c in "\n{[<" for c in "".join(pair))])
def test_two_labels_are_as_different_inside_a_structure(a: str, b: str) -> None:
    assert compare_values({"label": a}, {"label": b}).verdict is Same.DIFFERENT
    assert compare(json.dumps({"out": {"label": a}, "n": 1}), json.dumps({"n": 1, "out": {"label": b}})).label is False


@pytest.mark.parametrize("labels", ENUMERATIONS)
def test_spelling_a_label_otherwise_changes_nothing(labels: list[str]) -> None:
    for label in labels:
        for other in (f"{label}.", f"**{label}**", f'"{label}"', f"Answer: {label}", f" {label}\n", f"`{label}`"):
            assert compare(label, other).label is not False
    for a, b in itertools.combinations(labels, 2):
        assert compare(f"Answer: {a}", f"Answer: {b}").label is False


LEAF = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.sampled_from(["a", "b", "yes", "no"])
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner), max_leaves=8
)


def turned(value: object) -> object:
    """Return the value with the keys of all its objects in another order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_the_order_of_keys_never_matters(value: object) -> None:
    assert compare(json.dumps(value), json.dumps(turned(value), indent=2)).verdict is Same.SAME


@given(JSON, JSON)
def test_structures_are_compared_symmetrically(a: object, b: object) -> None:
    assert compare_values(a, b).verdict is compare_values(b, a).verdict
    assert compare(json.dumps(a), json.dumps(b)).verdict is compare(json.dumps(b), json.dumps(a)).verdict


SHORT = st.sampled_from([text for case in CASES for text in case[:2]]) | st.text(
    "ab1 -+%$.,:#/<>*[]{}'\"\n", max_size=9
)


@given(SHORT, SHORT)
def test_short_answers_are_compared_symmetrically_and_never_fail(a: str, b: str) -> None:
    assert compare(a, b).verdict is compare(b, a).verdict
    assert compare(a, a).verdict is Same.SAME


@given(
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", " kg", " km", " EUR", "%", " days"]),
)
def test_numbers_are_the_same_when_they_are_equal(a: int, b: int, unit: str) -> None:
    assert compare(f"{a}{unit}", f"{float(b)}{unit}").verdict is (Same.SAME if a == b else Same.DIFFERENT)


@pytest.mark.parametrize(
    "hostile", ["[" * 5000, '{"a":' * 5000, "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", "<a>" * 3000]
)
def test_a_hostile_document_is_a_text(hostile: str) -> None:
    assert compare(hostile, hostile + "x").verdict is not Same.SAME
    assert compare(hostile, "ok").verdict is Same.UNSURE
