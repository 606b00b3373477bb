"""The normalised key: what it forgives, and what it must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.measure.savings.rows import folded, normal_text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I pay?", "  how do i   PAY "),
        ("How do I pay?", "how do I pay!!"),
        ("“Where is it?”", "where is it"),
        ("' Where is it '", "where is it"),
        ("¿Dónde está?", "dónde está"),
        ("a\tb\r\nc", "A b c."),
        ("STRASSE", "straße"),
        ("今天是几号？", "今天是几号"),
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],\n "a":1}'),
        ("[1, 2]", "[1,2]"),
    ],
)
def test_one_key(one: str, other: str) -> None:
    assert normal_text(one) == normal_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is C++?", "What is C?"),
        ("What is C#?", "What is C?"),
        ("5 %", "5"),
        ("-5", "5"),
        ("$5", "5"),
        ("What is 5!", "What is 5"),
        ("What is 5!?", "What is 5?"),
        ("f(x)", "f(x"),
        ("don't", "dont"),
        ("a.b", "ab"),
        ("?", "!"),
        ("", "?"),
        ('{"a": "X"}', '{"a": "x"}'),
        ("[1, 2]", "[2, 1]"),
        ("how do I pay", "how do I pay you"),
    ],
)
def test_two_keys(one: str, other: str) -> None:
    assert normal_text(one) != normal_text(other)


@given(st.one_of(st.text(), st.text(st.characters(max_codepoint=127))))
def test_folding_ascii_is_folding(text: str) -> None:
    assert folded(text) == " ".join(text.casefold().split())


@given(st.text(st.characters(max_codepoint=300)))
def test_normalising_twice_is_normalising_once_for_words(text: str) -> None:
    assert normal_text(normal_text(text)) == normal_text(text) or text[:1] in "{[" or normal_text(text)[:1] in "{["
