"""The word index against BM25 written out, and what counts as a word."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.hub.stores.analyzer import MOST_TERMS
from recall_cli.hub.stores.bm25 import Lexical

K1, B = 1.2, 0.75
VOCABULARY = ["wing", "nose", "shock", "heat", "slab", "book", "reader", "flow"]
# Up to 40 words a text: longer lengths are rounded by the index.
texts = st.lists(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=40), min_size=1, max_size=25)


def fill(folder: Path, chunks: dict[int, tuple[str, str]]) -> Lexical:
    words = Lexical(folder)
    with words.writing() as writer:
        for id, (title, text) in chunks.items():
            writer.add(id, title, text)
        writer.commit()
    words.reload()
    return words


def bm25(question: list[str], documents: list[list[str]]) -> np.ndarray:
    """Return the score of every document, by the formula."""
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for word, weight in Counter(question).items():
        n = sum(word in document for document in documents)
        idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
        for at, document in enumerate(documents):
            tf = document.count(word)
            scores[at] += weight * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * len(document) / mean))
    return scores


@settings(max_examples=20)
@given(documents=texts, question=st.lists(st.sampled_from([*VOCABULARY, "absent"]), min_size=1, max_size=6))
def test_scores_are_those_of_the_formula(
    documents: list[list[str]], question: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = fill(tmp_path_factory.mktemp("words"), {i + 1: ("", " ".join(d)) for i, d in enumerate(documents)})
    expected = bm25(question, documents)
    asked = " ".join(question)
    every = np.arange(1, len(documents) + 1)
    np.testing.assert_allclose(words.score(asked, every), expected, rtol=2e-5)
    ids, scores = words.search(asked, len(documents))
    assert set(ids.tolist()) == set(every[expected > 0].tolist())
    np.testing.assert_allclose(scores, np.sort(expected[expected > 0])[::-1], rtol=2e-5)
    some = every[::-2]
    np.testing.assert_array_equal(words.score(asked, some), words.score(asked, every)[some - 1])


def test_a_title_counts_twice(tmp_path: Path) -> None:
    words = fill(tmp_path / "words", {1: ("wing", "slab heat"), 2: ("", "wing wing slab heat"), 3: ("", "slab heat")})
    scores = words.score("wing", np.array([1, 2, 3]))
    assert scores[0] == scores[1] > scores[2] == 0


def test_ids_are_found_whatever_they_are(tmp_path: Path) -> None:
    ids = [1, 2, 255, 65_536, 2**31, 2**53 + 1, 2**62]
    words = fill(tmp_path / "words", {id: ("", f"wing n{id}") for id in ids})
    assert words.ids().tolist() == ids
    for id in ids:
        assert words.search(f"n{id}", 5)[0].tolist() == [id]
        assert words.score(f"n{id}", np.array([id, 7]))[0] > 0
    with words.writing() as writer:
        writer.remove(ids[2:])
        writer.commit()
    words.reload()
    assert words.ids().tolist() == [1, 2]


def test_what_is_not_committed_is_forgotten(tmp_path: Path) -> None:
    words = fill(tmp_path / "words", {1: ("", "wing")})
    with words.writing() as writer:
        writer.add(2, "", "wing")
        writer.remove([1])
    words.reload()
    assert words.ids().tolist() == [1]


@pytest.mark.parametrize(
    ("text", "question", "found"),
    [
        ("running libraries", "RUN library", True),
        ("naïve café", "naive cafe", True),
        ("nai\u0308ve cafe\u0301", "naïve café", True),
        ("naïve", "nai\u0308ve", True),
        ("日本語のテキスト", "本", True),
        ("第3章 part", "章", True),
        ("日本語のテキスト", "中", False),
        ("हिन्दी में पाठ", "हिन्दी", True),
        ("straße", "STRASSE", True),
        ("foo_bar-baz", "baz", True),
        ("version 3.11", "3.11", True),
        ("mail me@host.example", "host", True),
        ("a\x00wing", "wing", True),
        ("x" * 100, "x" * 100, False),
    ],
)
def test_what_is_a_word(tmp_path: Path, text: str, question: str, found: bool) -> None:
    words = fill(tmp_path / "words", {1: ("", text), 2: ("", "something else")})
    assert (1 in words.search(question, 2)[0].tolist()) is found


def test_a_question_of_very_many_words_is_cut(tmp_path: Path) -> None:
    words = fill(tmp_path / "words", {1: ("", "first"), 2: ("", "last")})
    question = "first " + " ".join(f"w{i}" for i in range(5 * MOST_TERMS)) + " last"
    assert words.search(question, 5)[0].tolist() == [1]
