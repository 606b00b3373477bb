"""A web page to the text that its readers see, with headings, lists, code and tables as Markdown writes them.

The parser is lexbor's: it repairs what browsers repair, so that a `<nav>` nobody closed ends where a reader would say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DROPPED = frozenset(
    ("script", "style", "noscript", "template", "nav", "head", "title", "svg", "math", "iframe", "object", "canvas",
     "audio", "video", "button", "select", "textarea", "dialog")
)  # fmt: skip
"""What is no text of the page: code, drawings, controls, and the links that every page of a site has.

A form stays: some frameworks put the whole page into one.
"""
DROPPED_ROLES = frozenset(("navigation", "banner", "contentinfo", "search", "dialog", "alertdialog"))
BLOCKS = frozenset(
    ("p", "div", "section", "article", "main", "header", "footer", "aside", "ul", "ol", "dl", "dt", "dd", "table",
     "blockquote", "figure", "figcaption", "address", "details", "summary", "fieldset", "hr", "body", "pre")
)  # fmt: skip
LINES = frozenset(("li", "tr", "br", "caption"))
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}

_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is read."""

    title: str
    url: str
    """Its canonical address, "" when it names none."""
    text: str


def declared_charset(data: bytes) -> str:
    """Return the character set that the page's head names, "" for none."""
    found = _CHARSET.search(data, 0, 4096)
    return found.group(1).decode("ascii") if found else ""


def read_page(html: str) -> Page:
    """Return what a page says. A page with no text has the text ""."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    title = tree.css_first("head title")
    link = tree.css_first('link[rel="canonical"]')
    url = (link.attributes.get("href") or "").strip() if link is not None else ""
    text = next(filter(None, (_Writer().write(root) for root in _roots(tree))), "")
    return Page(
        _SPACES.sub(" ", title.text()).strip() if title is not None else "",
        url if url.startswith(("http://", "https://")) else "",
        text,
    )


def _roots(tree: Any) -> Iterator[Any]:
    """Yield the nodes that may hold the page's own content: its main part, its one article, all of it."""
    yield from tree.css("main, [role=main]")[:1]
    articles = tree.css("article")
    if len(articles) == 1:
        yield articles[0]
    if tree.body is not None:
        yield tree.body


class _Writer:
    """Walks a tree without recursion: pages nest as deep as they like."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line: list[str] = []
        self._mark = ""
        self._verbatim = 0
        self._within = 0
        """Articles around the node: the footer of one is text, that of the page is the same on every page."""

    def write(self, root: Any) -> str:
        """Return the text of a node."""
        self._within = int(root.tag != "body")
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._leave(node.tag)
                continue
            if node.tag == "-text":
                self._line.append(node.text_content or "")
                continue
            if self._is_dropped(node):
                continue
            self._enter(node.tag)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
        self._end_line(2)
        return re.sub(r"\n{3,}", "\n\n", "".join(self._parts)).strip()

    def _is_dropped(self, node: Any) -> bool:
        tag = node.tag
        if tag is None or tag.startswith(("-", "!", "_")) or tag in DROPPED:
            return True
        if tag == "footer" and not self._within:
            return True
        attributes = node.attributes
        return "hidden" in attributes or (attributes.get("role") or "").lower() in DROPPED_ROLES

    def _enter(self, tag: str) -> None:
        if tag in HEADINGS:
            self._end_line(2)
            self._mark = HEADINGS[tag]
        elif tag == "pre":
            self._end_line(2)
            self._parts.append("```\n")
            self._verbatim += 1
        elif tag in BLOCKS:
            self._end_line(2)
            self._within += tag == "article"
        elif tag in LINES:
            self._end_line(1)
            self._mark = "- " if tag == "li" else ""
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")

    def _leave(self, tag: str) -> None:
        if tag == "pre":
            self._end_line(1)
            self._verbatim -= 1
            self._parts.append("```\n\n")
        elif tag in HEADINGS or tag in BLOCKS:
            self._end_line(2)
            self._within -= tag == "article"
        elif tag in LINES:
            self._end_line(1)
        else:
            return
        self._mark = ""

    def _end_line(self, ends: int) -> None:
        """Write the line that has gathered, and `ends` line ends after it."""
        line = "".join(self._line)
        line = line.strip("\n") if self._verbatim else _SPACES.sub(" ", line).strip()
        self._line.clear()
        if line:
            self._parts.append(self._mark + line)
            self._mark = ""
            self._parts.append("\n" * ends)
        elif ends == 2 and self._parts and self._parts[-1] == "\n":
            self._parts.append("\n")
