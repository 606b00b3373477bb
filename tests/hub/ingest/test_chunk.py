"""Cutting: nothing is lost, nothing is too large, and cuts are where a reader would make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.hub.ingest.chunk import LARGEST, SMALLEST, chunk_digest, chunks, document_digest

SENTENCE = "The boundary layer separates from the wing. "
pieces = st.sampled_from(
    ["# Heading\n", "## Two\n\n", "\n\n", "\n", "```\n", "~~~~\n", "# no heading", " ", "\r\n", "x" * 700, SENTENCE * 9,
     "日本語の文。" * 60, "a\x00b", "🦅", "word " * 120, "\u2028", "\ud800"]
)  # fmt: skip
texts = st.lists(pieces, max_size=30).map("".join) | st.text(max_size=300)


@given(text=texts)
def test_joined_chunks_are_the_text(text: str) -> None:
    found = chunks(text)
    assert "".join(found) == text
    assert all(0 < len(chunk) <= LARGEST for chunk in found)


@pytest.mark.parametrize("line", ["x" * 50_000, "é" * 50_000, "日" * 50_000, "\n" * 9_000, "```\n" + "x\n" * 9_000])
def test_what_has_no_boundary_is_cut_too(line: str) -> None:
    found = chunks(line)
    assert "".join(found) == line
    assert max(map(len, found)) <= LARGEST
    assert min(map(len, found)) >= max(map(len, found)) / 6


def test_letters_that_are_words_count_as_such() -> None:
    assert max(map(len, chunks("日本" * 5_000))) <= LARGEST / 5


def test_a_chunk_ends_before_a_heading() -> None:
    text = "".join(f"## Part {i}\n\n{SENTENCE * 20}\n\n" for i in range(6))
    found = chunks(text)
    assert len(found) == 6
    assert all(chunk.startswith(f"## Part {i}\n") for i, chunk in enumerate(found))


def test_short_sections_share_a_chunk() -> None:
    text = "".join(f"## Part {i}\n\n{SENTENCE}\n\n" for i in range(40))
    found = chunks(text)
    assert all(len(chunk) >= SMALLEST for chunk in found[:-1])
    assert all(chunk.startswith("## ") for chunk in found)


def test_cuts_fall_between_paragraphs_then_sentences_then_words() -> None:
    paragraphs = (SENTENCE * 15).strip() + "\n\n"
    assert all(chunk.endswith("\n\n") for chunk in chunks(paragraphs * 12))
    assert all(chunk.endswith(". ") for chunk in chunks(SENTENCE * 300))
    assert all(chunk.endswith(" ") for chunk in chunks("word " * 3_000))


def test_code_is_kept_whole_where_it_fits() -> None:
    code = "```python\n" + "# not a heading\nx = 1\n\n" * 50 + "```\n"
    text = (SENTENCE * 20 + "\n\n" + code) * 6
    assert len(code) < LARGEST
    assert all(chunk.count("```") % 2 == 0 for chunk in chunks(text))


def test_a_comment_in_code_is_no_heading() -> None:
    text = "```\n" + "# comment\ncode\n" * 60 + "```\n" + SENTENCE * 8
    assert chunks(text)[0].startswith("```")
    assert len(chunks(text)) == 1


def test_the_last_chunk_is_no_crumb() -> None:
    for extra in range(1, 700, 37):
        found = chunks("word " * 480 + "word " * extra)
        assert min(map(len, found)) >= SMALLEST * 0.9


def test_an_edit_leaves_the_chunks_before_it_and_those_of_other_sections() -> None:
    parts = [f"# Part {i}\n\n{(SENTENCE * (7 + i % 5) + chr(10) * 2) * 9}" for i in range(20)]
    before = chunks("".join(parts))
    parts[10] = parts[10].replace("wing", "nose of the body", 1)
    after = chunks("".join(parts))
    assert 1 <= len(set(after) - set(before)) <= 4


def test_digests_tell_the_parts_apart() -> None:
    assert chunk_digest("f", "a", "b") != chunk_digest("f", "ab", "")
    assert chunk_digest("f", "a", "b") != chunk_digest("g", "a", "b")
    assert document_digest("t", "u", "x") != document_digest("t", "", "ux")
    assert len(chunk_digest("f", "\ud800", "")) == len(document_digest("", "", "")) == 16
