"""Pages to text: what readers see stays, what frames it goes, and no page breaks the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.hub.ingest.html import declared_charset, read_page

PAGE = """<!doctype html><html><head><title> A &amp; B
 page</title><link rel=canonical href="https://example.org/a"><style>p{}</style></head><body>
<nav><a href=/>Home</a></nav><header><h1>Top</h1></header>
<h2>First <em>thing</em></h2><p>Hello&nbsp;<b>wor</b>ld.<br>next<ul><li>one<li>two</ul>tail
<pre><code>def f():
    return  1
</code></pre><table><tr><th>a<th>b<tr><td>1<td>2</table>
<script>evil()</script><p hidden>unseen</p><div role=navigation>menu</div><!-- comment --><footer>(c) us</footer>"""


def test_a_page_reads_as_its_reader_sees_it() -> None:
    page = read_page(PAGE)
    assert page.title == "A & B page"
    assert page.url == "https://example.org/a"
    assert page.text == (
        "# Top\n\n## First thing\n\nHello world.\nnext\n\n- one\n- two\n\ntail\n\n"
        "```\ndef f():\n    return  1\n```\n\na | b\n1 | 2"
    )


@pytest.mark.parametrize("tag", ["script", "style", "nav", "noscript", "template", "svg", "footer"])
def test_what_frames_a_page_is_no_text_of_it(tag: str) -> None:
    assert read_page(f"<body><p>kept</p><{tag}>dropped</{tag}><p>kept too</p>").text == "kept\n\nkept too"


def test_the_footer_of_an_article_belongs_to_it() -> None:
    text = read_page("<article>one<footer>signed</footer></article><article>two</article><footer>site</footer>").text
    assert text == "one\n\nsigned\n\ntwo"


@pytest.mark.parametrize(
    "html",
    ["<p>menu</p><main><p>said</p></main>", "<p>menu</p><article>said</article>", "<main></main><p>said</p>"],
)
def test_the_main_part_is_the_page_where_it_says_something(html: str) -> None:
    assert read_page(html).text == "said"


def test_any_depth_is_read() -> None:
    # Ten times as deep as Python's own stack; the parser's time grows with the square.
    assert read_page("<div>" * 10_000 + "deep").text == "deep"


@given(st.lists(st.text(st.characters(whitelist_categories=("L", "N")), min_size=1), min_size=1, max_size=8))
def test_every_word_outside_frames_is_kept(words: list[str]) -> None:
    html = "".join(f"<p>{word}</p>" for word in words)
    assert read_page(html).text.split() == words


@given(st.text())
def test_no_text_is_too_odd_for_a_page(html: str) -> None:
    read_page(html)


@pytest.mark.parametrize(
    ("head", "charset"),
    [
        (b'<meta charset="windows-1251">', "windows-1251"),
        (b"<META http-equiv=Content-Type content='text/html; charset=Shift_JIS'>", "Shift_JIS"),
        (b"<p>charset=utf-8", ""),
    ],
)
def test_the_character_set_of_a_head(head: bytes, charset: str) -> None:
    assert declared_charset(head) == charset
