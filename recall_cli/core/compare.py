"""Do two answers say the same? same, different or unsure: every label a policy learns from comes from here.

The two errors do not weigh the same. A false "different" on one answer in a hundred halves what a policy
with a 1 % target may serve, a false "same" lets a wrong hit pass unseen.
So both verdicts need proof, and everything between is unsure, which gives no label. Proof of "different"
is a contradiction in answers that are otherwise about the same thing: other numbers in the same places,
the opposite word, yes against no, other values in one structure. Two fluent texts that differ in their
words alone are never proof of anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recall_cli.core.evidence import Facts, evidence, facts
from recall_cli.core.text_facts import CONTENT
from recall_cli.core.words import WEIGHTS, plain, read
from recall_cli.types import Embedder

VERSION = "compare-1"
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
SHORT = 4
"""Words up to which an answer is little more than its number."""

_FENCE = re.compile(r"^```[\w-]*\n(.*?)\n?```$", re.DOTALL)
_MARKUP = re.compile(r"[*_`#>]+|^\s*(?:[-•]|\d+[.)])\s+", re.MULTILINE)
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


class Same(StrEnum):
    """The verdict on two answers."""

    SAME = "same"
    DIFFERENT = "different"
    UNSURE = "unsure"

    @property
    def label(self) -> bool | None:
        """True for same, False for different, None for no label."""
        return None if self is Same.UNSURE else self is Same.SAME


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict and the rule that gave it."""

    verdict: Same
    reason: str

    @property
    def label(self) -> bool | None:
        """True for same, False for different, None for no label."""
        return self.verdict.label


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
        return Comparison(Same.SAME, "equal")
    a, b = _bare(a), _bare(b)
    one, two = _normal(a), _normal(b)
    if not one or not two:
        return Comparison(Same.SAME if one == two else Same.UNSURE, "empty")
    if one == two:
        return Comparison(Same.SAME, "equal but for case, space and markup")
    found = _structures(a, b)
    if found is not None:
        return found
    return _texts(a, b, one, two, similarity)


def _bare(text: str) -> str:
    """Return an answer without its fence, and without the courtesies before and behind what it says."""
    text = text.strip()
    fenced = _FENCE.match(text)
    if fenced:
        return fenced.group(1).strip()
    return _CLOSING.sub("", _COURTESY.sub("", text))


def _normal(text: str) -> str:
    return _SPACE.sub(" ", _MARKUP.sub(" ", plain(text))).strip(" .!?,;:\"'")


def _structures(a: str, b: str) -> Comparison | None:
    """Compare two JSON documents; None when neither is one."""
    one, two = _decoded(a), _decoded(b)
    if one is None and two is None:
        return None
    if one is None or two is None:
        return Comparison(Same.UNSURE, "structure against text")
    return compare_values(one[0], two[0])


def _decoded(text: str) -> tuple[Any] | None:
    """Return the decoded object or list in a tuple, None when the text is something else."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return (json.loads(text),)
    except ValueError:
        return None


def compare_values(a: Any, b: Any) -> Comparison:
    """Compare two decoded JSON values, as tool arguments are: the order of keys does not matter, that of lists may.

    Another number, flag or word is a difference. A longer text may say the same in other words, and a
    key more may be a default that one answer spells out: unsure.
    """
    worst = Comparison(Same.SAME, "equal structure")
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() & b.keys():
            found = compare_values(a[key], b[key])
            if found.verdict is Same.DIFFERENT:
                return Comparison(Same.DIFFERENT, f"another {key}" if found.reason == "another value" else found.reason)
            if found.verdict is Same.UNSURE:
                worst = found
        if a.keys() != b.keys():
            # {} against a full object may be a refusal to fill it in: no claim either way.
            return Comparison(Same.UNSURE, "other keys")
        return worst
    if isinstance(a, list) and isinstance(b, list):
        return _lists(a, b)
    if _number(a) and _number(b):
        return worst if float(a) == float(b) else Comparison(Same.DIFFERENT, "another value")
    if isinstance(a, bool) and isinstance(b, bool):
        return worst if a is b else Comparison(Same.DIFFERENT, "another value")
    if isinstance(a, str) and isinstance(b, str):
        return _strings(a, b)
    if a is None and b is None:
        return worst
    # 5 against "5", null against "": spelling more often than meaning.
    return Comparison(Same.SAME if str(a) == str(b) else Same.UNSURE, "other types")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _lists(a: list[Any], b: list[Any]) -> Comparison:
    if a == b:
        return Comparison(Same.SAME, "equal structure")
    texts = [[json.dumps(x, sort_keys=True) for x in values] for values in (a, b)]
    if sorted(texts[0]) == sorted(texts[1]):
        # A list of steps is another answer in another order, a list of names is not; JSON does not say which.
        return Comparison(Same.UNSURE, "another order of a list")
    if len(a) == len(b):
        verdicts = [compare_values(x, y) for x, y in zip(a, b, strict=True)]
        if all(found.verdict is Same.SAME for found in verdicts):
            return Comparison(Same.SAME, "equal structure")
        differing = [found for found in verdicts if found.verdict is Same.DIFFERENT]
        # One item of several that differs in place is a change; all of them may be another order.
        if differing and (len(a) == 1 or len(differing) < len(a)):
            return differing[0]
    return Comparison(Same.UNSURE, "other items of a list")


def _strings(a: str, b: str) -> Comparison:
    """Compare two string values: short ones are data, longer ones are texts."""
    one, two = _normal(a), _normal(b)
    if one == two:
        return Comparison(Same.SAME, "equal structure")
    if max(len(one.split()), len(two.split())) <= 2:
        return Comparison(Same.DIFFERENT if _apart(one, two) else Same.UNSURE, "another value")
    return compare(a, b)


def _apart(one: str, two: str) -> bool:
    """Return True when two short values are no spellings of one another."""
    found = evidence(facts(one), facts(two), 0.0)
    return found.overlap < 0.2 and one not in two and two not in one and (found.numbers == 1 or found.names == 1)


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
            return Comparison(Same.UNSURE, "a refusal or a condition")
        if mine.negators != theirs.negators or max(mine.count, theirs.count) <= 2:
            return Comparison(Same.DIFFERENT, "yes against no")
        return Comparison(Same.UNSURE, "yes against no, in like words")
    elsewhere = similarity is not None and similarity < ELSEWHERE and found.overlap < ELSEWHERE_OVERLAP
    if elsewhere and min(mine.count, theirs.count) > SHORT and not (_HEDGE.search(one) or _HEDGE.search(two)):
        return Comparison(Same.DIFFERENT, "about something else")
    aligned = found.length_ratio >= CUT_OFF
    apart = len(mine.words ^ theirs.words)
    if found.numbers == 1.0:
        one_for_one = len(mine.numbers) == len(theirs.numbers) > 0
        if one_for_one and (found.overlap >= FRAME or max(mine.count, theirs.count) <= SHORT):
            return Comparison(Same.DIFFERENT, "another number")
        return Comparison(Same.UNSURE, "other numbers in another text")
    if found.roles == 1.0:
        if found.overlap >= SAME_OVERLAP and aligned:
            return Comparison(Same.DIFFERENT, "exchanged roles")
        return Comparison(Same.UNSURE, "exchanged roles in another text")
    if found.negation == 1.0:
        # Two answers that both say no mean the same no, whatever else they deny.
        if not polarity[0] and not polarity[1] and found.overlap >= CLOSE_FRAME and aligned and apart <= TURN:
            return Comparison(Same.DIFFERENT, "the opposite")
        return Comparison(Same.UNSURE, "an opposite in another text")
    if found.names > 0:
        if _other_name(a, b, mine, theirs) and found.overlap >= FRAME and aligned:
            return Comparison(Same.DIFFERENT, "another name")
        return Comparison(Same.UNSURE, "other names")
    if found.numbers > 0 or polarity[0] != polarity[1] or mine.negators != theirs.negators:
        return Comparison(Same.UNSURE, "one says more than the other")
    if one.startswith(two) or two.startswith(one):
        return Comparison(Same.UNSURE, "one goes on where the other ends")
    if found.detail > 0 and max(_content(mine, theirs), _content(theirs, mine)) == 1:
        # grew and fell, Austria and Denmark: in one frame, one exchanged word is more often the point than a synonym.
        return Comparison(Same.UNSURE, "one word exchanged")
    if mine.numbers and mine.keys == theirs.keys and found.overlap >= FACTS_OVERLAP:
        return Comparison(Same.SAME, "the same numbers and names")
    if aligned and found.overlap >= SAME_OVERLAP and found.detail < CHANGED:
        return Comparison(Same.SAME, "the same words")
    if aligned and similarity is not None and similarity >= SAME_SIMILARITY and found.detail < CHANGED:
        return Comparison(Same.SAME, "nearly the same text")
    return Comparison(Same.UNSURE, "other words")


def _polarity(text: str) -> int:
    return 1 if _YES.match(text) else -1 if _NO.match(text) else 0


def _content(its: Facts, other: Facts) -> int:
    """Return how many words that say what a text is about the other lacks."""
    return sum([WEIGHTS[token] > CONTENT for token in its.words - other.words])


def _other_name(a: str, b: str, mine: Facts, theirs: Facts) -> bool:
    """Return True when each answer names one thing, by its capital, that the other does not: one was put for the other.

    Rare words without a capital are as likely a rewording.
    """
    ours = _capitals(a, mine) - theirs.words
    others = _capitals(b, theirs) - mine.words
    return len(ours) == len(others) == 1 and len(mine.keys - theirs.words) == len(theirs.keys - mine.words) == 1


def _capitals(text: str, its: Facts) -> set[str]:
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
        return Comparison(Same.UNSURE, "other items")
    if sorted(items[0]) == sorted(items[1]):
        numbered = any(re.search(r"^\s*\d+[.)]\s", text, re.MULTILINE) for text in (a, b))
        if numbered and items[0] != items[1]:
            return Comparison(Same.UNSURE, "steps in another order")
        around = [_normal(_ITEM.sub("", text)) for text in (a, b)]
        if around[0] == around[1] or evidence(facts(around[0]), facts(around[1]), 0.0).numbers == 0:
            return Comparison(Same.SAME, "the same items")
    return None
