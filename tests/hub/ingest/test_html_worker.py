"""Pages read by another process: what they say is the same, and a hostile one costs its budget, not an ingest."""

from __future__ import annotations

from recall_cli.hub.ingest.html import read_page
from recall_cli.hub.ingest.html_worker import SMALL_CHARS, PageReader

LARGE = "<title>T</title><link rel=canonical href=https://x/>" + "<p>Grüße 寸法" * (SMALL_CHARS // 8)
NESTED = "<ul><li>" * 20_000
"""Two seconds and more of a parser's time."""


def test_the_other_process_reads_what_this_one_would() -> None:
    with PageReader() as reader:
        assert [reader.read(html) for html in (LARGE, LARGE[::-1], "<p>x")] == [
            read_page(html) for html in (LARGE, LARGE[::-1], "<p>x")
        ]


def test_a_page_that_takes_too_long_is_given_up_and_the_next_one_is_read() -> None:
    with PageReader(patience_s=0.1) as reader:
        assert reader.read(NESTED) is None
        assert reader.read(LARGE) == read_page(LARGE)


def test_the_process_ends_with_the_reader() -> None:
    with PageReader() as reader:
        reader.read(LARGE)
        process = reader._process
    assert process is not None
    assert process.poll() is not None
