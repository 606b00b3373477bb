"""Short answers: labels.

A label carries no context, so its words are all there is. Two labels are different when they are members of one
scale, when one denies the other, or when nothing makes them spellings, abbreviations or synonyms of one another.
Short prose ("looks good", "seems fine") is no label and is left to the rules for texts.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from recall_cli.cache.answers.verdict import Comparison, different, same, unsure
from recall_cli.cache.answers.yes_no import pole
from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER, make_embedder
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.lexicon import NEGATORS, in_order, listed, plain, ranks
from recall_cli.cache.evidence.text_features import facts
from recall_cli.types import Embedder

MOST_WORDS, MOST_CHARS = 4, 48
"""Of a label: what is longer is a text."""
LIKE = 0.45
"""Cosine of two single words from which they may be synonyms. Of 40 pairs of synonyms 35 reach it, of 60 pairs of
labels of one enumeration 6 do; those are nearly all in `_SCALES`."""
LIKE_UNREAD = 0.65
"""The same for two words that the embedder only knows by their pieces: an ending in common makes them alike."""
STEM = 4
"""Letters in common at the start from which two words may be forms of one."""

_SCALES = [
    listed(line)
    for line in """
positive negative neutral mixed
positiv negativ neutral gemischt
positivo negativo neutral neutro mixto misto
positif negatif neutre mixte
positief negatief neutraal
good bad poor average
happy sad angry neutral
joy sadness anger fear surprise disgust love neutral
approve reject deny escalate
approved rejected denied declined pending escalated
accept reject decline
accepted rejected declined
allow deny block
spam ham legitimate
toxic safe
safe unsafe
valid invalid
relevant irrelevant
entailment contradiction neutral
supported refuted
pass fail
passed failed
success failure
open closed pending
active inactive
enabled disabled
low medium high critical
minor major critical
small medium large
easy medium hard
cold warm hot
male female
buy sell hold
north south east west
left right center
red orange yellow green blue purple black white gray brown pink
monday tuesday wednesday thursday friday saturday sunday
january february march april may june july august september october november december
spring summer autumn winter
english french german spanish italian portuguese dutch russian chinese japanese korean arabic hindi turkish polish
billing shipping payment delivery refund return returns refunds account technical sales support
sports football politics business technology science health entertainment world
first second third fourth fifth
always never sometimes
real fake genuine
adult minor child
none some all
before after
increase decrease
up down
true false
yes no maybe
""".strip().splitlines()
]
"""Words that exclude one another where they are labels; a line is a scale."""

_DENIALS = NEGATORS | listed("kein keine nicht geen niet ingen inte ikke pas non nao не нет nie")
_DENYING = in_order("un in im ir il dis non")
"""What turns a word round when it is put before it."""
_NOTHING = listed("n/a na none null nil unknown nothing unclear unspecified undetermined - other")
"""Words that all may mean that there is no label."""

_COURTESIES = listed(
    "ok okay sure done understood thanks thank hello hi hey certainly alright great good fine perfect noted agreed "
    "absolutely definitely welcome sorry goodbye bye cheers nice cool yes yep yeah right correct got roger confirmed"
)
"""Words that all may mean no more than "I have heard you"."""

_KEY = re.compile(
    r"^(?:(?:the|my|your|final|predicted|overall|correct)\s+){0,3}"
    r"(?P<key>category|label|class|classification|sentiment|answer|intent|topic|type|result|output|verdict|decision|"
    r"status|priority|language|prediction|tag|department|team|route|rating|score|grade|choice|option|emotion|severity|"
    r"value|response|genre|tone|urgency|action)"
    r"(?:\s+(?:of|for)\s+(?:the|this|that)\s+\w+(?:\s+\w+)?)?\s*(?:[:=]|\s(?:is|would be|=>|->)\s*:?)\s*",
    re.IGNORECASE,
)
_EDGES = " \t\n\"'`´‘’“”«»„.,;:!?*_()[]{}<>"
_JOINED = re.compile(r"^[A-Za-z0-9]+(?:[_/\-.:][A-Za-z0-9]+)+$")
_SPLIT = re.compile(r"[\s_/\-]+")
_OPTION = re.compile(r"^\(?([A-Za-z])[.):]\s+(?=\S)|^(?:option|choice|answer)\s+([A-Za-z])$", re.IGNORECASE)
_GRADE = re.compile(r"(?<=\w)[-+#]+$")
_PARTING = re.compile(r"[.!?;:,]\s|\n")


def key_and_value(text: str) -> tuple[str, str]:
    """Return what a short answer is said to be of ("category"), "" when it does not say, and the rest."""
    text = text.strip().strip("*_`")
    found = _KEY.match(text)
    if found is None or not text[found.end() :].strip(_EDGES):
        return "", text
    return found["key"].lower(), text[found.end() :]


def compare_labels(a: str, b: str) -> Comparison | None:
    """Compare two labels; None when one of them is none, or when the rules for texts know better."""
    (key, a), (other_key, b) = key_and_value(a), key_and_value(b)
    a, b = a.strip(), b.strip()
    if key and other_key and key != other_key:
        return None
    poles = pole(plain(a)), pole(plain(b))
    if poles[0] and poles[1]:
        if poles[0][1] != poles[1][1]:
            return different("yes against no")
        return same("the same label") if poles[0][0] == poles[1][0] else unsure("yes in other words")
    one, two = _words(a), _words(b)
    if " ".join(one) == " ".join(two) and one and (key or other_key or (_label_like(a) and _label_like(b))):
        grades = [_GRADE.search(text.strip(_EDGES)) for text in (a, b)]
        alike = len({found and found[0] for found in grades}) == 1
        return same("the same label") if alike else different("another label")
    letter, other_letter = _OPTION.match(a), _OPTION.match(b)
    if letter and other_letter:
        return _options(a, b, letter, other_letter)
    if not (_label_like(a) and _label_like(b)) or not one or not two:
        return None
    if any(any(c.isdigit() for c in word) for word in (*one, *two)):
        return _codes(a, b, one, two)
    found = _apart(a, b, one, two)
    if found is None and key and other_key and not set(one) & set(two):
        return different("another label")
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip(_EDGES) for part in _SPLIT.split(plain(text))) if word)


def _label_like(text: str) -> bool:
    inner = text.strip(_EDGES)
    return len(inner) <= MOST_CHARS and len(_words(inner)) <= MOST_WORDS and not _PARTING.search(inner)


def _options(a: str, b: str, one: re.Match[str], two: re.Match[str]) -> Comparison | None:
    """Compare two lettered choices, as "A) Paris" and "B) Rome"."""
    letters = [(found[1] or found[2]).lower() for found in (one, two)]
    rests = [_words(text[found.end() :]) for text, found in ((a, one), (b, two))]
    if letters[0] == letters[1]:
        return same("the same choice") if rests[0] == rests[1] else None
    return unsure("one text behind two letters") if rests[0] == rests[1] and rests[0] else different("another choice")


def _codes(a: str, b: str, one: tuple[str, ...], two: tuple[str, ...]) -> Comparison | None:
    """Compare two labels with digits in them, as P1 and P2, gpt-4 and gpt-5, Class 3 and Class 4."""
    mine, theirs = ([word for word in words if any(c.isdigit() for c in word)] for words in (one, two))
    if any(c.isalpha() for word in (*one, *two) for c in word) and len(mine) == len(theirs) == 1 and mine != theirs:
        rest = [tuple(word for word in words if word not in has) for words, has in ((one, mine), (two, theirs))]
        shape = [re.sub(r"\d+", "0", found[0]) for found in (mine, theirs)]
        if rest[0] == rest[1] and shape[0] == shape[1] and not mine[0].isdigit() and not _measured(a + " " + b):
            return different("another code")
    return None


def _measured(text: str) -> bool:
    return bool(re.search(r"\d\s*(?:st|nd|rd|th|am|pm|[kmg]?b|[kcm]?m|k|h|s|min|kg|g|mg|lb|ml|l)\b", plain(text)))


def _apart(a: str, b: str, one: tuple[str, ...], two: tuple[str, ...]) -> Comparison | None:
    """Compare two labels of other words."""
    mine, theirs = set(one), set(two)
    denied = mine ^ theirs
    if denied and denied <= _DENIALS:
        return different("one denies the other")
    ours, others = mine - theirs, theirs - mine
    if len(ours) == len(others) == 1:
        word, other = ours.pop(), others.pop()
        if _excluded(word, other):
            return different("another label")
        if len(one) > 1 and len(word) == len(other) == 1:
            return different("another label")  # Type A, Type B
        ours, others = {word}, {other}
    if _letters("".join(one)) == _letters("".join(two)):
        # C, C# and C++ are three languages, A and A+ two grades.
        return different("another label") if {*"+#"} & ({*a} ^ {*b}) else unsure("another spelling")
    if all(plain(text).strip(_EDGES) in _NOTHING for text in (a, b)):
        return unsure("no label in other words")
    found = evidence(facts(" ".join(one)), facts(" ".join(two)), 0.0)
    if found.negation == 1.0 and max(len(one), len(two)) <= 2 and (len(one) == len(two) == 1 or mine & theirs):
        return different("the opposite label")
    if mine <= theirs or theirs <= mine:
        return unsure("one label within the other")
    if found.overlap >= 0.99 and found.detail == 0.0:
        return same("the same label in other words")
    if found.overlap > 0 and len(one) == len(two) == 1 and one[0].isascii():
        return unsure("another spelling")
    if mine <= _COURTESIES and theirs <= _COURTESIES:
        return unsure("courtesies")
    if len(one) == len(two) == 1:
        return _single(one[0], two[0])
    if all(_JOINED.match(text.strip(_EDGES)) or text.isupper() for text in (a, b)):
        # Identifiers of a program's enumeration: whoever wrote them meant two things.
        return different("another label")
    named = all(_named(text) for text in (a, b))
    if named and not mine & theirs and not _short_for(one, two) and not _short_for(two, one) and not _like(a, b):
        return different("another label")
    return None


def _excluded(word: str, other: str) -> bool:
    return any(word in scale and other in scale for scale in _SCALES)


def _named(text: str) -> bool:
    """Return True for Words That All Begin With A Capital."""
    return all(part[:1].isupper() for part in text.strip(_EDGES).split() if part.lower() not in ("and", "of", "&"))


def _single(word: str, other: str) -> Comparison:
    if _script(word) != _script(other):
        return unsure("another script")
    if _script(word) in ("CJK", "HANGUL", "HIRAGANA", "KATAKANA"):
        # Two signs to a word: what they have in common says little, and one that denies is one sign more.
        short, long = sorted((word, other), key=len)
        denied = short in long and any(c in "不非没無无未" for c in long.replace(short, "", 1))
        return different("another label") if short not in long or denied else unsure("one label within the other")
    if any(x == prefix + y for prefix in _DENYING for x, y in ((word, other), (other, word))):
        return different("the opposite label")
    if len(word) == 1 or len(other) == 1:
        return different("another label") if len(word) == len(other) else unsure("an abbreviation")
    start = 0
    for x, y in zip(word, other, strict=False):
        if x != y:
            break
        start += 1
    if start >= STEM or start == min(len(word), len(other)) or _short_for((word,), (other,)):
        return unsure("another spelling")
    if _short_for((other,), (word,)) or _one_letter(word, other):
        return unsure("another spelling")
    if _like(word, other):
        return unsure("words that may say the same")
    return different("another label")


def _letters(word: str) -> str:
    return "".join(c for c in word if c.isalnum())


def _one_letter(word: str, other: str) -> bool:
    """Return True when a typing error makes one of the other: exactly one of the two is a word that is known."""
    if (
        not word.isascii()
        or (word in ranks()) == (other in ranks())
        or abs(len(word) - len(other)) > 1
        or min(len(word), len(other)) < 4
    ):
        return False
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) == len(longer):
        return sum(x != y for x, y in zip(shorter, longer, strict=True)) <= 2
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


def _script(word: str) -> str:
    return unicodedata.name(next((c for c in word if c.isalpha()), "?"), "?").split()[0]


def _short_for(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Return True when one may be an abbreviation of the other: NYC, acct, mgmt."""
    if len(short) > 1:
        return False
    word = short[0].replace(".", "")
    if len(long) > 1:
        initials = "".join(part[0] for part in long)
        return word in (initials, initials[: len(word)]) or (len(word) <= 4 and word[:2] == initials[:2])
    rest = iter(long[0])
    return len(word) <= 5 and len(word) < len(long[0]) and word[0] == long[0][0] and all(c in rest for c in word)


@lru_cache(4096)
def _like(a: str, b: str) -> bool:
    """Return True when the bundled embedder, whose scale `LIKE` was measured on, takes two labels for alike."""
    known = [all(word in ranks() for word in _words(text)) for text in (a, b)]
    if not any(known) and not (a.isascii() and b.isascii()):
        return False  # spelled letter by letter, any two words of one script are alike
    model = _bundled()
    return float(model.embed(plain(a)).dot(model.embed(plain(b)))) >= (LIKE if any(known) else LIKE_UNREAD)


@cache
def _bundled() -> Embedder:
    return make_embedder(DEFAULT_EMBEDDER)
