"""One file, or one row, to a document; or the reason why it is none, which has words here too.

Front matter is what a file says of itself between `---` lines before its text. A YAML library reads it, for people
write all that YAML allows. Its base loader makes nothing but text of values: an id `007` keeps its zeros, and a title
`yes` is no truth value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recall_cli.hub.ingest import html
from recall_cli.hub.ingest.decode import decode, is_binary
from recall_cli.hub.models import Document
from recall_cli.logs.times import EPOCH_MIN, dated, parse_time
from recall_cli.types import Json

MAX_CHARS = 64 << 10
"""Of a block; a longer one is no front matter."""

_BLOCK = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def split(text: str) -> tuple[dict[str, str], str]:
    """Return the facts, by name, and the text after them; no facts and the whole text where there is no such block.

    Only plain values are facts: lists and tables have no place in a document's title, URL, id or date. A block that is
    no YAML is a part of the text.
    """
    found = _BLOCK.match(text, 0, MAX_CHARS)
    # A block that ends where the look does may go on behind it.
    if found is None or found.end() == MAX_CHARS:
        return {}, text
    facts = _load(found.group(1))
    if facts is None:
        return {}, text
    return facts, text[found.end() :]


def _load(block: str) -> dict[str, str] | None:
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        value = yaml.load(block, loader)
    except (yaml.YAMLError, RecursionError):
        return None
    if value == "" or value is None:
        return {}
    if not isinstance(value, dict):
        return None
    return {
        name.lower(): item.strip()
        for name, item in value.items()
        if isinstance(name, str) and isinstance(item, str) and item.strip()
    }


REASONS = {
    "binary": "no text, but binary data",
    "duplicate_id": "under an id that came before",
    "empty": "without text",
    "hidden": "hidden files and folders",
    "id_too_long": "with an id that is too long",
    "line_too_long": "lines that are too long",
    "link_to_outside": "links that lead out of the folder",
    "malformed_json": "lines that are no JSON",
    "no_id": "without an id",
    "no_text": "without a text",
    "no_url_or_path": "rows without a URL or a path",
    "not_a_file": "no files, but pipes or devices",
    "not_an_object": "lines that are no object",
    "other_type": "files of another type",
    "path_to_outside": "paths that lead out of the folder",
    "path_without_folder": "paths on standard input",
    "too_large": "files over 32 MiB",
    "too_tangled": "pages that take too long to read",
    "unknown_encoding": "not UTF-8, and nothing says what",
    "unreadable": "that could not be read",
}
"""By the code that counts are kept and sent under."""


MARKDOWN = frozenset((".md", ".markdown", ".mdx"))
HTML = frozenset((".html", ".htm", ".xhtml"))
TEXT = frozenset((".txt", ".text", ".rst", ".adoc", ".org", ".tex"))
KINDS = MARKDOWN | HTML | TEXT
"""Suffixes of files that are documents."""
MAX_BYTES = 32 << 20
"""Of a file; more is a dump, not a document that somebody wrote."""
MAX_ID_CHARS = 1_024
MAX_TITLE_CHARS = 1_000
"""What follows is cut off: a title is embedded and indexed with every chunk, so that its length counts as often."""
MAX_URL_CHARS = 8_000
UNKNOWN_ENCODING = "unknown_encoding"
TOO_TANGLED = "too_tangled"
NAMED = frozenset((UNKNOWN_ENCODING, TOO_TANGLED))
"""Reasons of which whoever fed the source is warned, with the name of a file."""
UNREAD = frozenset(("unreadable", "malformed_json", "line_too_long")) | NAMED
"""Reasons that say nothing of whether the document is still there."""

ReadPage = Callable[[str], html.Page | None]
"""A page's source to what it says; None when it would take more time or memory than a page may."""

_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$", re.MULTILINE)


@dataclass(slots=True)
class Intake:
    """What reading a source found beside its documents."""

    skipped: Counter[str] = field(default_factory=Counter)
    """Files and rows that gave no document, by reason."""
    named: dict[str, str] = field(default_factory=dict)
    """The first file under each reason: people must find it to mend it."""
    faults: list[str] = field(default_factory=list)
    """Sentences: what could not be read to its end."""

    def skip(self, file: str, reason: str) -> None:
        """Count a file that gave no document."""
        self.skipped[reason] += 1
        self.named.setdefault(reason, file)

    @property
    def is_whole(self) -> bool:
        """True when everything was read: then a document that did not come is gone, and may be removed."""
        return not self.faults and UNREAD.isdisjoint(self.skipped)


def from_file(
    data: bytes,
    *,
    id: str,
    suffix: str,
    updated: float | None = None,
    encoding: str = "",
    told: Mapping[str, str] | None = None,
    read_page: ReadPage = html.read_page,
) -> Document | str:
    """Return the document of a file, or the reason why it is none.

    :param id: what it is called where the file does not name an id itself.
    :param suffix: in lower case, with its dot: what is read as a page, as Markdown, as plain text.
    :param encoding: of files that are not UTF-8 and do not say what they are.
    :param told: facts (id, title, url) that come before what the file says of itself.
    :param read_page: for pages of strangers, a `pages.PageReader`'s.
    """
    if is_binary(data):
        return "binary"
    is_page = suffix in HTML
    text = decode(data, declared=html.declared_charset(data) if is_page else "", fallback=encoding)
    if text is None:
        return UNKNOWN_ENCODING
    facts, text = split(text)
    if is_page:
        page = read_page(text)
        if page is None:
            return TOO_TANGLED
        text = page.text
        said_title, said_url = page.title, page.url
    else:
        heading = _HEADING.search(text) if suffix in MARKDOWN else None
        said_title, said_url = _heading(heading.group(1)) if heading else "", ""
    facts = {"id": id, "title": said_title, "url": said_url, **facts, **(told or {})}
    moment = parse_time(facts.get("updated"))
    # Archives that are made to be equal on every machine put their files at the epoch's beginning.
    when = moment.seconds if moment else updated if updated is not None and dated(updated) else None
    return _document(facts["id"], text, " ".join(facts["title"].split()), facts["url"], when)


def _heading(line: str) -> str:
    """Return the words of a heading without the marks that may close it."""
    return line.rstrip(" \t").rstrip("#").rstrip(" \t") or line


def from_row(row: Json) -> Document | str:
    """Return the document of a row `{id, title, url, text, updated}`, or the reason why it is none.

    Public test sets write `_id`; a row without an id goes by its URL. What a hub exports comes back as it was, to the
    last blank.
    """
    text = row.get("text")
    if not isinstance(text, str):
        return "no_text"
    url = _scalar(row.get("url"))
    id = _scalar(row.get("id", row.get("_id")))
    return _document(id if id.strip() else url, text, _scalar(row.get("title")), url, _updated(row.get("updated")))


def _updated(value: Any) -> float | None:
    moment = parse_time(value)
    if moment is not None:
        return moment.seconds
    # Before 2001 a number is no timestamp of a log, but it may be that of an old file.
    is_old = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < EPOCH_MIN
    return float(value) if is_old else None


def _document(id: str, text: str, title: str, url: str, updated: float | None) -> Document | str:
    if not id.strip():
        return "no_id"
    if len(id) > MAX_ID_CHARS:
        return "id_too_long"
    if len(url) > MAX_URL_CHARS:
        return "url_too_long"
    return Document(id, text, title[:MAX_TITLE_CHARS], url, updated)


def _scalar(value: Any) -> str:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
