"""One written word -> what it means for a comparison: canonical tokens, their weight, what kind it is.

Canonical: lower case without accents, singular, no -ing or -ed where a known word remains, American
spelling, the head of its synonyms; contractions are opened ("can't" -> can, not). All of it is
remembered by written word, so a text costs a dictionary look-up a word.

Weight: how much of a text a word stands for, 0..1. The bundled vocabulary is ordered by frequency, and
by Zipf's law the r-th word has frequency proportional to 1/r: the weight is r / (r + HALF), which is
the smooth inverse frequency that the bundled embedder uses. A word that the vocabulary does not hold
(a name, a code, a typing error, another language) weighs 1: the most that any word can.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from recall_cli.cache.evidence.opposites import BARE, NEGATORS, OPPOSITES
from recall_cli.cache.evidence.synonyms import FILLERS, HEADS, in_order, listed

HALF = 900.0
"""The rank at which a word weighs half: a/p(r) with the embedder's a = 1e-4 and p(r) = 1 / (11 r)."""

FILLER_WEIGHT = 0.03
"""What a word of courtesy or grammar weighs: something, so that texts of nothing else can still differ."""

NUMBER, CAPITAL, NEGATION, POLE, ROLE, KEY, PAST, FUTURE, GOING = 1, 2, 4, 8, 16, 32, 64, 128, 256
"""Kinds, as bits: a text without the bit skips that part of the work."""

RARE = 0.9
"""From this weight on a word counts as named or rare: beyond the 8,000 most frequent words."""

KEPT = 1 << 16
"""Written words remembered before the memory starts afresh."""

LONGEST_KEPT = 48
"""Characters of the longest word worth remembering."""

DIRECTIONS = listed("from to into onto than over before after by for versus vs against")
"""Words that give what follows a role: exchanging what stands at two of them changes the question."""

NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        in_order(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty"
        )
    )
} | {
    word: value
    for value, word in zip(range(30, 100, 10), in_order("thirty forty fifty sixty seventy eighty ninety"), strict=True)
}
ORDINALS = {
    word: value
    for value, word in enumerate(
        in_order("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"), start=1
    )
}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
MONTHS = {
    name: number
    for number, names in enumerate(
        in_order(
            "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sep sept|"
            "october oct|november nov|december dec",
            "|",
        ),
        start=1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(in_order("monday|tuesday|wednesday|thursday|friday|saturday|sunday", "|"))
    for name in (names, names + "s")
} | {"tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "mon": 0, "sat": 5, "sun": 6}
UNSURE_DATES = frozenset({"may", "mar", "march", "mon", "sat", "sun"})
"""Words that are dates only beside something that makes them one."""
_PAST = frozenset({"did", "was", "were", "had"})
_FUTURE = frozenset({"will", "shall", "gonna"})
CLOCK_WORDS = {"noon": 720, "midday": 720, "midnight": 0}
_ALWAYS_NUMBER = (
    frozenset([*NUMBER_WORDS, *ORDINALS, *SCALES, *WEEKDAYS, *CLOCK_WORDS, *MONTHS])
    - UNSURE_DATES
    - {"first", "second"}
)
_MAYBE_NUMBER = UNSURE_DATES | {"first", "second"}
"""Words that may be numbers, and are words as well: the first and the last train."""

_IRREGULAR = dict(
    pair.split(":")
    for pair in in_order("""
    fell:fall fallen:fall rose:rise risen:rise grew:grow grown:grow shrank:shrink bought:buy paid:pay
    sent:send got:get gotten:get gone:go went:go done:do did:do does:do made:make was:be were:be is:be
    are:be am:be been:be being:be has:have had:have lost:lose won:win children:child men:man women:woman
    took:take taken:take gave:give given:give came:come saw:see seen:see found:find kept:keep left:leave
    told:tell said:say sold:sell spent:spend wrote:write written:write broke:break broken:broken
    chose:choose chosen:choose forgot:forget forgotten:forget began:begin begun:begin ate:eat eaten:eat
    drove:drive driven:drive flew:fly flown:fly knew:know known:know ran:run stole:steal stolen:steal
    woke:wake lent:lend built:build meant:mean met:meet held:hold heard:hear felt:feel slept:sleep
    taught:teach thought:think brought:bring caught:catch hid:hide hidden:hide feet:foot teeth:tooth
    mice:mouse lives:life wives:wife knives:knife leaves:leave cancelled:cancel canceled:cancel
    cancelling:cancel canceling:cancel travelling:travel centre:center theatre:theater metre:meter
    litre:liter fibre:fiber cheque:check programme:program licence:license defence:defense tyre:tire
    grey:gray kerb:curb instalment:installment
    """)
)
_NOT_STEMMED = listed("""
    evening morning during nothing something anything everything king wedding string spring ceiling sibling
    speed exceed proceed succeed hundred breed indeed naked sacred news series species always less unless
    across address process access business class previous plus bus gas lens yes this his hers its us as is
    was has does thus canvas christmas texas paris perhaps sometimes besides towards whereas means pass miss
    loss boss cross press physics mathematics economics politics analysis basis crisis status virus bonus
    campus census focus
    """)

_PARTS = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+(?:'[a-z]+)?")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
AFTER_DIGITS = listed("am pm st nd rd th kg km cm mm mb gb tb kb ml mg ms px oclock")


class Word(NamedTuple):
    """What a written word stands for."""

    tokens: tuple[str, ...]
    kinds: int
    mass: float
    """Sum of the tokens' weights."""
    keys: tuple[str, ...]
    """The tokens that are named or rare."""
    poles: tuple[str, ...]
    """The tokens with a known opposite, or with a prefix that turns them round."""


class _Weights(dict[str, float]):
    """Canonical token to weight, filled on demand."""

    def __missing__(self, token: str) -> float:
        if len(self) >= KEPT:
            self.clear()
        weight = self[token] = _weight(token)
        return weight


WEIGHTS = _Weights()


@cache
def ranks() -> dict[str, int]:
    """Return the bundled vocabulary's whole words with their rank by frequency, "the" being 0."""
    import orjson

    from recall_cli.cache.embed.registry import bundled_folder

    vocabulary = orjson.loads((bundled_folder() / "tokenizer.json").read_bytes())["model"]["vocab"]
    first = vocabulary["the"]
    return {word: id - first for word, id in vocabulary.items() if id >= first and not word.startswith("##")}


_known: dict[str, Word] = {}


def read(written: str) -> Word:
    """Return what a space-separated piece of text stands for."""
    global _known
    word = _known.get(written)
    if word is None:
        word = _read(written)
        if len(written) <= LONGEST_KEPT:
            if len(_known) >= KEPT:
                # A new dict, not clear(): another thread may be reading the old one.
                _known = {}
            _known[written] = word
    return word


def memory() -> dict[str, Word]:
    """Return the words remembered so far, for a caller that reads many in a row."""
    return _known


def plain(text: str) -> str:
    """Return text in lower case without accents, with straight apostrophes."""
    text = text.lower().replace("\u2019", "'").replace("\u2018", "'")
    if text.isascii():
        return text
    # Only marks on Latin letters: taking them from other scripts would change the word.
    composed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in composed if not "\u0300" <= c <= "\u036f"))


def _read(written: str) -> Word:
    kinds = 0
    tokens: list[str] = []
    letters = written.strip("\"'([{<*_`.,;:!?")
    # A capital that sentence case does not explain is looked for where the word stands (text_facts).
    if any(c.isupper() for c in letters) and letters not in ("I", "I'm", "I've", "I'll", "I'd"):
        kinds |= CAPITAL
    if letters.removesuffix("'s") in ("US", "U.S"):
        # The one country that lower case turns into a pronoun.
        return _word(["usa"], CAPITAL)
    for part in _PARTS.findall(plain(written)):
        kinds |= _part(part, tokens)
    if any(c in "%$£€¥" for c in written):
        kinds |= NUMBER
    for token in tokens:
        if token in NEGATORS:
            kinds |= NEGATION
        if token in DIRECTIONS:
            kinds |= ROLE
    word = _word(tokens, kinds | (GOING if written == "going" else 0))
    return word._replace(kinds=word.kinds | (KEY if word.keys else 0) | (POLE if word.poles else 0))


def _word(tokens: list[str], kinds: int) -> Word:
    vocabulary = ranks()
    return Word(
        tuple(tokens),
        kinds,
        sum([WEIGHTS[token] for token in tokens]),
        tuple([token for token in tokens if WEIGHTS[token] >= RARE]),
        tuple([token for token in tokens if token in OPPOSITES or BARE[token] in vocabulary]),
    )


def _part(part: str, tokens: list[str]) -> int:
    """Add the tokens of one run of letters and digits; return its kinds."""
    base, _, tail = part.partition("'")
    if tail == "t" and base.endswith("n"):
        base = {"can": "can", "won": "will", "shan": "shall"}.get(base, base[:-1])
        tokens += [canonical(base), "not"]
        return NEGATION | (PAST if base in _PAST else FUTURE if base in _FUTURE else 0)
    if tail == "ll":
        tokens += [canonical(base), "will"]
        return FUTURE
    if base in (
        "cant",
        "dont",
        "wont",
        "isnt",
        "doesnt",
        "didnt",
        "arent",
        "couldnt",
        "shouldnt",
        "wasnt",
        "havent",
        "hasnt",
    ):
        tokens += [canonical("can" if base == "cant" else base[:-2].removesuffix("n")), "not"]
        return NEGATION
    if base == "cannot":
        tokens += ["can", "not"]
        return NEGATION
    if any(c.isdigit() for c in base):
        # The digits are `cache.evidence.numbers`' business; letters that belong to a code ("p60", "2fa") stay a word.
        tokens += [canonical(run) for run in _LETTERS.findall(base) if run not in AFTER_DIGITS]
        return NUMBER
    if base in _ALWAYS_NUMBER:
        return NUMBER
    tokens.append(canonical(base))
    if base in _MAYBE_NUMBER:
        return NUMBER
    return PAST if base in _PAST else FUTURE if base in _FUTURE else 0


def canonical(word: str) -> str:
    """Return the form that stands for a lower-case word."""
    stem = _stem(word)
    return HEADS.get(stem, stem)


def _stem(word: str) -> str:
    if word in HEADS or word in FILLERS or word in OPPOSITES or word in NEGATORS:
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    if len(word) < 4 or word in _NOT_STEMMED or not word.isascii():
        return word
    vocabulary = ranks()
    shorter = _shorter(word)
    for stem in shorter:
        if stem in OPPOSITES or stem in HEADS:
            return stem
    found = [stem for stem in shorter if stem in vocabulary]
    if found:
        return min(found, key=vocabulary.__getitem__)
    if word not in vocabulary and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _shorter(word: str) -> list[str]:
    """Return what the word may be a form of."""
    out: list[str] = []
    if word.endswith("ies") and len(word) > 4:
        out = [word[:-3] + "y", word[:-1]]
    elif word.endswith(("ches", "shes", "sses", "xes", "zes")):
        out = [word[:-2]]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        out = [word[:-1]]
    elif word.endswith("ing") and len(word) > 5:
        out = _without(word[:-3])
    elif word.endswith("ied") and len(word) > 4:
        out = [word[:-3] + "y"]
    elif word.endswith("ed") and len(word) > 4:
        out = _without(word[:-2])
    elif word.endswith("our") and len(word) > 5:
        out = [word[:-3] + "or"]
    elif word.endswith(("ise", "yse")) and len(word) > 5:
        out = [word[:-2] + "ze"]
    elif word.endswith("isation"):
        out = [word[:-7] + "ization"]
    return [stem for stem in out if len(stem) > 2 and any(c in "aeiouy" for c in stem)]


def _without(stem: str) -> list[str]:
    """Return the words a stem that lost -ing or -ed may be: put(t)ing, mak(e)ing, fix(-)ing."""
    out = [stem, stem + "e"]
    if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "ls":
        out = [stem[:-1]]
    elif len(stem) > 3 and stem[-1] == stem[-2]:
        out.append(stem[:-1])
    return out


def _weight(token: str) -> float:
    if token in FILLERS:
        return FILLER_WEIGHT
    rank = ranks().get(token)
    if rank is None:
        # One CJK character is a known word of that script, not a rare one.
        return 0.5 if len(token) == 1 else 1.0
    return max(FILLER_WEIGHT, rank / (rank + HALF))
