"""One form for prompts that differ in nothing anybody means: spaces, case, closing marks, the order of JSON keys."""

from __future__ import annotations

import orjson

OPENING = "\"'`“”‘’«»„‚¿¡"
CLOSING = ".,;:!?…。，；：！？、" + OPENING
"""What stands around a text. No brackets, signs or units: `c++`, `5 %` and `f(x)` end in what they say."""


def normal_text(text: str) -> str:
    """Return the text as its normalised key sees it; a text of marks alone stays as it is."""
    if text[:1] in "{[" and text:
        try:
            return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
        except ValueError:
            pass
    plain = " ".join(text.casefold().split())
    bare = plain.lstrip(OPENING).rstrip(CLOSING + " ")
    if bare[-1:].isdigit() and "!" in plain[len(plain.rstrip(CLOSING + " ")) :]:
        # 5! is no 5.
        return plain
    return bare or plain
