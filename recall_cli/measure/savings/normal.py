"""One form for prompts that differ in nothing anybody means: spaces, case, closing marks, the order of JSON keys."""

from __future__ import annotations

import orjson

OPENING = "\"'`“”‘’«»„‚¿¡"
CLOSING = ".,;:!?…。，；：！？、" + OPENING
"""What stands around a text. No brackets, signs or units: `c++`, `5 %` and `f(x)` end in what they say."""

_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_FOLD = bytes.maketrans(_SPACES, b" " * len(_SPACES)).lower()


def folded(text: str) -> str:
    """Return the text in one case, with single spaces between its words and none around it."""
    if not text.isascii():
        return " ".join(text.casefold().split())
    # The same for ASCII at a fifth of the time: no list of words is made.
    raw = text.encode("ascii").translate(_FOLD)
    while b"  " in raw:
        raw = raw.replace(b"  ", b" ")
    return raw.decode("ascii").strip(" ")


def normal_text(text: str) -> str:
    """Return the text as its normalised key sees it; a text of marks alone stays as it is."""
    if text.startswith(("{", "[")):
        try:
            return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
        except ValueError:
            pass
    plain = folded(text)
    bare = plain.lstrip(OPENING + " ").rstrip(CLOSING + " ")
    if bare[-1:].isdigit() and "!" in plain[len(plain.rstrip(CLOSING + " ")) :]:
        # 5! is no 5.
        return plain
    return bare or plain
