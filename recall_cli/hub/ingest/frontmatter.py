"""Front matter: the facts that a file tells of itself, between `---` lines before its text.

It is read by a YAML library, for people write all that YAML allows. Its base loader makes nothing but text of values:
an id `007` keeps its zeros, and a title `yes` is no truth value.
"""

from __future__ import annotations

import re
from typing import Any

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
