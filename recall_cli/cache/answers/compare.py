"""Do two answers say the same? same, different or unsure: every label a policy learns from comes from here.

The two errors do not weigh the same. A false "different" on one answer in a hundred halves what a policy
with a 1 % target may serve, a false "same" lets a wrong hit pass unseen.
So both verdicts need proof, and everything between is unsure, which gives no label. Proof of "different"
is a contradiction in answers that are otherwise about the same thing: other numbers in the same places,
the opposite word, yes against no, other values in one structure. Two fluent texts that differ in their
words alone are never proof of anything.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from recall_cli.cache.answers import structured as values
from recall_cli.cache.answers.amounts import compare_amounts
from recall_cli.cache.answers.code import compare_code
from recall_cli.cache.answers.labels import compare_labels, key_and_value
from recall_cli.cache.answers.verdict import Comparison, Same, different, same, unsure
from recall_cli.cache.answers.yes_no import compare_refusals, compare_symbols
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.lexicon import WEIGHTS, plain, read
from recall_cli.cache.evidence.text_features import CONTENT, TextFeatures, facts
from recall_cli.types import Embedder

__all__ = ["JUDGED", "VERSION", "Comparator", "Comparison", "Judge", "Same", "compare", "compare_values"]

VERSION = "compare-2"
"""Names the rules below: labels made by others may not be mixed with these."""

SAME_OVERLAP = 0.8
"""Weighted overlap from which, with nothing speaking against it, two answers say the same."""
SAME_SIMILARITY = 0.95
FRAME = 0.45
"""Overlap from which a contradiction is one: below it the texts may speak of different things, or in other words."""
CLOSE_FRAME = 0.6
"""The same for evidence that a mere rewording may bring about: an opposite, another name."""
ELSEWHERE = 0.45
ELSEWHERE_OVERLAP = 0.1
"""Similarity and overlap below which two answers speak of different things. Without this, labels would come
from look-alikes only, and a policy would take the answers of unrelated questions for unknown, not for wrong.
Of reworded answers of ours the 1st percentile is 0.63; of unrelated ones the median is 0.32."""
FACTS_OVERLAP = 0.5
"""The same for answers that both name the same numbers, which are most of what such an answer is."""
TURN = 3
"""Words in which two answers may differ and be each other's opposite: more is another way to say something."""
CUT_OFF = 0.85
"""Share of the longer answer's words below which the shorter one is taken to leave something out."""
CHANGED = 0.5
"""`Evidence.detail` from which a word that was exchanged may be what the answer is about."""
LISTED = 2
"""Words of an item in a list within a line: with more it is a sentence with commas."""
SHORT = 4
"""Words up to which an answer is little more than its number."""

_FENCE = re.compile(r"^```[\w-]*\n(.*?)\n?```$", re.DOTALL)
_MARKUP = re.compile(
    r"(?<!\w)[*_`]+|[*_`]+(?!\w)|^\s*[#>]+\s|^\s*(?:[-•]|\d+[.)])\s+",  # 2**3, C# and a_b are no markup
    re.MULTILINE,
)
_COMMA = re.compile(r"\s*(?:[,;]\s*(?:and|or)?|\band\b)\s+")
_SPACE = re.compile(r"\s+")
_INSIDE = re.compile(r"(?<=[a-z,;:] )[A-Z]\w+|\b[A-Z]\w*[A-Z]\w*")
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(.*\S)", re.MULTILINE)
_YES = re.compile(r"^\W*(yes|yep|yeah|correct|true)\b")
_NO = re.compile(r"^\W*(no|nope|not|unfortunately|false|never|incorrect)\b")
_COURTESY = re.compile(
    r"^\W*(?:sure|of course|certainly|absolutely|definitely|happy to help|glad to help|(?:great|good) question|"
    r"thanks for (?:asking|your question)|here is what i found|here you go|here's [^.:]{1,30})\s*[!.:,]+\s+(?=\S)",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?<=[.!?])\s+(?:please )?(?:let me know|(?:i )?hope (?:this|that) helps|feel free|don't hesitate|"
    r"is there anything else|if you (?:have|need) (?:any|more|further|anything))[^.!?]*[.!?]*\s*$",
    re.IGNORECASE,
)
_HEDGE = re.compile(r"\b(i (?:do not|don't|cannot|can't)|as an ai|it depends|i'm not sure|i am not sure|unable to)\b")


JUDGED = "judge"
"""The reason of a verdict that a judge gave."""
Judge = Callable[[str, str], bool | None]
"""Decides on what the rules leave open, an LLM for instance; None when it does not know either."""


class Comparator:
    """Compares answers by rules, then by similarity where an embedder is given, then by a judge where one is given."""

    def __init__(self, embedder: Embedder | None = None, judge: Judge | None = None, judge_name: str = "") -> None:
        self._embedder = embedder
        self._judge = judge
        self.name = "+".join(
            [VERSION, *([embedder.fingerprint[:12]] if embedder else []), *([judge_name or "judge"] if judge else [])]
        )

    def __call__(self, a: str, b: str) -> Comparison:
        """Return whether two answers say the same."""
        similarity = None
        if self._embedder is not None and a and b:
            similarity = float(self._embedder.embed(a).dot(self._embedder.embed(b)))
        found = compare(a, b, similarity)
        if found.verdict is Same.UNSURE and self._judge is not None:
            said = self._judge(a, b)
            if said is not None:
                return Comparison(Same.SAME if said else Same.DIFFERENT, JUDGED)
        return found


def compare(a: str, b: str, similarity: float | None = None) -> Comparison:
    """Return whether two answers say the same.

    :param similarity: cosine of the two, when the caller has it; without it, answers that share no words are unsure.
    """
    if a == b:
        return same("equal")
    fenced = all(_FENCE.match(text.strip()) for text in (a, b))
    a, b = _bare(a), _bare(b)
    one, two = _normal(a), _normal(b)
    # Before the case and the signs are lost, which mean nothing in prose alone.
    found = _data(a, b) or _short(a, b) or compare_code(a, b, fenced=fenced)
    if found is not None:
        return found
    if not one or not two:
        return Comparison(Same.SAME if one == two else Same.UNSURE, "empty")
    if one == two:
        return same("equal but for case, space and markup")
    found = compare_refusals(plain(a), plain(b)) or _enumerated(one, two) or compare_labels(a, b)
    return found or _texts(a, b, one, two, similarity)


def _bare(text: str) -> str:
    """Return an answer without its fence, and without the courtesies before and behind what it says."""
    text = text.strip()
    fenced = _FENCE.match(text)
    if fenced:
        return fenced.group(1).strip()
    return _CLOSING.sub("", _COURTESY.sub("", text))


def _normal(text: str) -> str:
    return _SPACE.sub(" ", _MARKUP.sub(" ", plain(text))).strip(" .!?,;:\"'")


def compare_values(a: Any, b: Any) -> Comparison:
    """Compare two decoded JSON values: see `cache.answers.structured`."""
    return values.compare_values(a, b, compare)


def _data(a: str, b: str) -> Comparison | None:
    """Compare two answers of which one at least is a structure; None when neither is."""
    one, two = values.decoded(a), values.decoded(b)
    if one is not None and two is not None:
        return compare_values(one[0], two[0])
    return None if one is two else unsure("structure against text")


def _short(a: str, b: str) -> Comparison | None:
    """Compare two answers of a word or an amount; None when they are longer."""
    (key, one), (other, two) = key_and_value(a), key_and_value(b)
    if key and other and key != other:
        one, two = a, b
    return compare_symbols(one, two) or compare_amounts(one, two)


def _texts(a: str, b: str, one: str, two: str, similarity: float | None) -> Comparison:
    listed = _as_sets(a, b)
    if listed is not None:
        return listed
    # Without the markers of list items, whose numbers would pass for numbers of the answer.
    mine, theirs = facts(_MARKUP.sub(" ", a)), facts(_MARKUP.sub(" ", b))
    found = evidence(mine, theirs, similarity or 0.0)
    polarity = _polarity(one), _polarity(two)
    if polarity[0] * polarity[1] < 0:
        if _HEDGE.search(one) or _HEDGE.search(two):
            return unsure("a refusal or a condition")
        if mine.negators != theirs.negators or max(mine.count, theirs.count) <= 2:
            return different("yes against no")
        return unsure("yes against no, in like words")
    elsewhere = similarity is not None and similarity < ELSEWHERE and found.overlap < ELSEWHERE_OVERLAP
    if elsewhere and min(mine.count, theirs.count) > SHORT and not (_HEDGE.search(one) or _HEDGE.search(two)):
        return different("about something else")
    aligned = found.length_ratio >= CUT_OFF
    apart = len(mine.words ^ theirs.words)
    if found.numbers == 1.0:
        one_for_one = len(mine.numbers) == len(theirs.numbers) > 0
        if one_for_one and (found.overlap >= FRAME or max(mine.count, theirs.count) <= SHORT):
            return different("another number")
        return unsure("other numbers in another text")
    if found.roles == 1.0:
        if found.overlap >= SAME_OVERLAP and aligned:
            return different("exchanged roles")
        return unsure("exchanged roles in another text")
    if found.negation == 1.0:
        # Two answers that both say no mean the same no, whatever else they deny.
        if not polarity[0] and not polarity[1] and found.overlap >= CLOSE_FRAME and aligned and apart <= TURN:
            return different("the opposite")
        return unsure("an opposite in another text")
    if found.names > 0:
        if _other_name(a, b, mine, theirs) and found.overlap >= FRAME and aligned:
            return different("another name")
        return unsure("other names")
    if found.numbers > 0 or polarity[0] != polarity[1] or mine.negators != theirs.negators:
        return unsure("one says more than the other")
    if one.startswith(two) or two.startswith(one):
        return unsure("one goes on where the other ends")
    if found.detail > 0 and max(_content(mine, theirs), _content(theirs, mine)) == 1:
        # grew and fell, Austria and Denmark: in one frame, one exchanged word is more often the point than a synonym.
        return unsure("one word exchanged")
    if _signs(a) != _signs(b):
        return unsure("other signs")
    if mine.numbers and mine.keys == theirs.keys and found.overlap >= FACTS_OVERLAP:
        return same("the same numbers and names")
    if aligned and found.overlap >= SAME_OVERLAP and found.detail < CHANGED:
        return same("the same words")
    if aligned and similarity is not None and similarity >= SAME_SIMILARITY and found.detail < CHANGED:
        return same("nearly the same text")
    return unsure("other words")


def _polarity(text: str) -> int:
    return 1 if _YES.match(text) else -1 if _NO.match(text) else 0


def _content(its: TextFeatures, other: TextFeatures) -> int:
    """Return how many words that say what a text is about the other lacks."""
    return sum([WEIGHTS[token] > CONTENT for token in its.words - other.words])


def _other_name(a: str, b: str, mine: TextFeatures, theirs: TextFeatures) -> bool:
    """Return True when each answer names one thing, by its capital, that the other does not: one was put for the other.

    Rare words without a capital are as likely a rewording.
    """
    ours = _capitals(a, mine) - theirs.words
    others = _capitals(b, theirs) - mine.words
    return len(ours) == len(others) == 1 and len(mine.keys - theirs.words) == len(theirs.keys - mine.words) == 1


def _capitals(text: str, its: TextFeatures) -> set[str]:
    """Return the named words of a text that it writes with a capital inside a sentence."""
    inside = {token for word in _INSIDE.findall(text) for token in read(word).tokens}
    return inside & its.keys


def _as_sets(a: str, b: str) -> Comparison | None:
    """Compare two answers that are lists of items, as sets; None when they are not."""
    items = [[_normal(item) for item in _ITEM.findall(text)] for text in (a, b)]
    if min(len(found) for found in items) < 2:
        return None
    if len(items[0]) == len(items[1]) and sorted(items[0]) != sorted(items[1]) and set(items[0]) & set(items[1]):
        # Two lists that both may be right, where the question leaves open what belongs on it.
        return unsure("other items")
    if sorted(items[0]) == sorted(items[1]):
        numbered = any(re.search(r"^\s*\d+[.)]\s", text, re.MULTILINE) for text in (a, b))
        if numbered and items[0] != items[1]:
            # Who numbers a list says that its order counts.
            return different("steps in another order")
        around = [_normal(_ITEM.sub("", text)) for text in (a, b)]
        if around[0] == around[1] or evidence(facts(around[0]), facts(around[1]), 0.0).numbers == 0:
            return same("the same items")
    return None


def _enumerated(one: str, two: str) -> Comparison | None:
    """Compare two lists within a line, as "red, green and blue", as sets; None when they are not or differ."""
    items = [_COMMA.split(text) for text in (one, two)]
    if min(map(len, items)) < 2 or max(len(item.split()) for found in items for item in found) > LISTED:
        return None
    if sorted(items[0]) == sorted(items[1]):
        return same("the same items")
    found = compare_values(*items)
    return found if found.verdict is Same.DIFFERENT and _polarity(one) == _polarity(two) == 0 else None


def _signs(text: str) -> set[str]:
    """Return the signs that mean something: of mathematics, and pictures."""
    return {c for c in text if c in "#+<>=" or unicodedata.category(c) in ("Sm", "So")}
