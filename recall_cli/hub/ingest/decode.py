"""The bytes of a file to text: what a mark or the page itself says, else UTF-8, never a guess.

A wrong guess puts gibberish into a hub that nobody finds again. What is not UTF-8 and does not say what it is, is left
out and counted, until its reader names the encoding.
"""

from __future__ import annotations

import codecs

from recall_cli.errors import UsageError

MARKS = (
    # The marks of UTF-32 begin with those of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
WIDER = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030"}
"""What pages mean that name the narrower one, as browsers read them."""
NO_CHARSETS = frozenset(("unicode-escape", "raw-unicode-escape", "utf-7", "punycode", "idna"))
"""What Python reads as text, and what no text is in: escapes, which may make letters that are none, and host names."""


def check_encoding(name: str) -> None:
    """Raise UsageError when there is no text encoding of that name; "" stands for none."""
    if name and not _exists(name):
        raise UsageError(f"there is no encoding {name!r}", hint="name one as in --encoding cp1252")


def decode(data: bytes, *, declared: str = "", fallback: str = "") -> str | None:
    """Return the text, with LF as its line ends; None when nothing says how to read it.

    :param declared: what the content says of itself, as a page's head does; it may be wrong, and UTF-8 comes before it.
    :param fallback: what whoever ingests it says.
    """
    mark = next((name for start, name in MARKS if data.startswith(start)), "")
    for name in (mark or "utf-8", declared, fallback):
        text = _read(data, name)
        if text is not None:
            return text.replace("\r\n", "\n").replace("\r", "\n")
    return None


def is_binary(data: bytes) -> bool:
    """Return whether these are no text at all: text has no NUL, unless a mark says that it takes two bytes a letter."""
    return b"\0" in data and not data.startswith(tuple(start for start, _ in MARKS))


def _read(data: bytes, name: str) -> str | None:
    if not name or not _exists(name):
        return None
    try:
        return data.decode(WIDER.get(codecs.lookup(name).name, name))
    except UnicodeError:
        return None


def _exists(name: str) -> bool:
    try:
        "".encode(name)
        return codecs.lookup(name).name not in NO_CHARSETS
    except (LookupError, ValueError):
        return False
