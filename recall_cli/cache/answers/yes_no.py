"""Answers that are a yes, a no, a sign or a refusal, and no more."""

from __future__ import annotations

import re
import unicodedata

from recall_cli.cache.answers.verdict import Comparison, different, same, unsure
from recall_cli.cache.evidence.lexicon import NEGATORS, listed, plain

_POLES = {
    word: (family, pole)
    for family, (yeses, noes) in {
        "yes": ("yes yep yeah yup", "no nope nah"),
        "true": ("true", "false"),
        "correct": ("correct right", "incorrect wrong"),
        "de": ("ja", "nein"),
        "nl": ("ja", "nee"),
        "nordic": ("ja", "nej nei"),
        "es": ("si", "no"),
        "fr": ("oui", "non"),
        "pt": ("sim", "nao"),
        "ru": ("да", "нет"),
        "pl": ("tak", "nie"),
        "tr": ("evet", "hayir"),
        "el": ("ναι", "οχι"),
        "hi": ("हां हाँ", "नहीं"),
        "ar": ("نعم", "لا"),
        "ja": ("はい", "いいえ"),
        "zh": ("是 是的 对", "否 不 不是 不对"),
        "ko": ("네 예", "아니요 아니오"),
        "marks": ("✓ ✔ ✅ ☑", "✗ ✘ ❌ ❎ ✖ ×"),
        "thumbs": ("👍", "👎"),
    }.items()
    for words, pole in ((yeses, 1), (noes, -1))
    for word in plain(words).split()
}
"""Word to its family and what it says. `no` and `ja` stand in several languages and mean one thing in all."""

_ECHO = listed(
    "it is it's that that's this is isn't aint not are aren't they you i we he she does do did can could will would "
    "has have doesn't don't didn't can't cannot won't wouldn't hasn't haven't was wasn't were weren't correct right "
    "sir indeed definitely absolutely certainly of course sure true exactly so to there"
)
"""Words that repeat a yes or a no without adding to it."""

_REFUSAL = re.compile(
    r"^\W*(?:(?:i'm|i am|we're|we are) (?:very |so |really |truly )?sorry[,.;:!]?\s*(?:but\s+|that\s+)?|"
    r"sorry[,.;:!]?\s*(?:but\s+)?|i apologi[sz]e[,.;:!]?\s*(?:but\s+)?|my apologies[,.;:!]?\s*(?:but\s+)?|"
    r"unfortunately,?\s+|as an ai(?: \w+){0,3},?\s+)*"
    r"(?:(?:i|we) (?:can't|can not|cannot|won't|will not|could not|couldn't|am unable to|am not able to|do not|don't|"
    r"am not allowed to|must decline)|i'm (?:unable|not able|not allowed) to)\s+(?:to\s+)?"
    r"(?P<what>help|assist|comply|fulfil|fulfill|answer|provide|do that|do this|share|discuss|engage|generate|create|"
    r"support|continue|know\b|have (?:\w+\s+){0,3}(?:information|access|data|knowledge|context|details)|have enough|"
    r"process)",
)
_BARE_REFUSAL = re.compile(
    r"(?:help|assist)(?: you)?(?: with (?:that|this|it|your request|that request|this request))?\b[\s.!]*$|"
    r"(?:comply|fulfil|fulfill|answer|do that|do this|provide that|know)"
    r"(?: (?:with )?(?:that|this|it|your request|that request|this request|the answer|that question|this question))?"
    r"[\s.!]*$"
)
# What carries no meaning of its own: skin colours, the choice of how an emoji is drawn, its joiner.
_DRAWING = dict.fromkeys([0xFE0E, 0xFE0F, 0x200D, *range(0x1F3FB, 0x1F400)])


def compare_symbols(a: str, b: str) -> Comparison | None:
    """Compare two answers of which one holds no letter or digit, as emoji and marks; None for others."""
    one, two = (unicodedata.normalize("NFC", text).translate(_DRAWING).strip().strip("\"'` .") for text in (a, b))
    if not one or not two or (_worded(one) and _worded(two)):
        return None
    if one == two:
        return same("the same symbols")
    if _worded(one) or _worded(two):
        said = polarity(one) * polarity(two)
        return different("yes against no") if said < 0 else unsure("a symbol against words")
    faces = _mood(one), _mood(two)
    if faces[0] and faces[0] == faces[1]:
        return unsure("two faces of one mood")
    if polarity(one) * polarity(two) > 0:
        return same("the same symbols")
    return different("another symbol")


def _worded(text: str) -> bool:
    return any(c.isalnum() for c in text)


def _mood(text: str) -> int:
    names = " ".join(unicodedata.name(c, "") for c in text)
    if re.search(r"CRYING|FROWN|ANGRY|POUTING|DISAPPOINTED|SAD|WORRIED|PENSIVE|BROKEN", names):
        return -1
    return 1 if re.search(r"SMIL|GRINNING|TEARS OF JOY|HEART|CLAPPING|PARTY|BEAMING", names) else 0


def compare_refusals(one: str, two: str) -> Comparison | None:
    """Compare two answers of which one refuses to answer, None when neither does.

    :param one: in lower case, as `plain` makes it; `two` as well.
    """
    refusals = [_REFUSAL.match(text) for text in (one, two)]
    if not any(refusals):
        return None
    if all(refusals):
        bare = [
            bool(found and _BARE_REFUSAL.match(text, found.start("what")))
            for found, text in zip(refusals, (one, two), strict=True)
        ]
        return same("both refuse") if all(bare) else None
    other = one if refusals[0] is None else two
    if not _worded(other) or _DOUBTFUL.search(other):
        # "There is no such order" may be what the other one is sorry for.
        return unsure("a refusal or a condition")
    return different("a refusal against an answer")


_DOUBTFUL = re.compile(
    r"\b(?:cannot|can't|unable|sorry|unfortunately|depends|don't|do not|doesn't|does not|isn't|is not|aren't|"
    r"are not|not|no|never|unknown|unclear|unavailable|none|nothing|without|contact|consult|n/a)\b"
)


def polarity(text: str) -> int:
    """Return 1 for an answer that is yes and no more, -1 for no, 0 for any other."""
    found = pole(plain(text).translate(_DRAWING))
    return found[1] if found else 0


def pole(text: str) -> tuple[str, int] | None:
    """Return the family of a yes or no and what it says, 1 or -1; None for a text that is more than that."""
    words = re.findall(r"[^\s.,;:!?\"'`*_()]+(?:'[a-z]+)?", text)
    if not words or words[0] not in _POLES or any(word not in _ECHO for word in words[1:]):
        return None
    family, pole = _POLES[words[0]]
    if pole > 0 and any(word in NEGATORS or word.endswith("n't") for word in words[1:]):
        return None  # "Right, it isn't." agrees and denies.
    return family, pole
