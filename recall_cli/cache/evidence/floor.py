"""The floor under every semantic hit, whatever the policy: both texts were read, and what differs in them was seen.

A sum of word vectors is blind to order, case, accents and symbols, and knows nothing of letters, numbers and code. So
where two texts have the same words, or differ in what no vector tells, similarity proves nothing. Looked at only where
a hit would be served: a miss pays for one look at the words of its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from typing import NamedTuple

from recall_cli.cache.embed.registry import reads, reads_word
from recall_cli.cache.evidence.evidence import one_slip
from recall_cli.cache.evidence.lexicon import (
    AFTER_DIGITS,
    MONTHS,
    NUMBER_WORDS,
    ORDINALS,
    SCALES,
    WEEKDAYS,
    WEIGHTS,
    plain,
    ranks,
)
from recall_cli.cache.evidence.lexicon import DIRECTIONS as _DIRECTIONS
from recall_cli.cache.evidence.lexicon import read as known_word
from recall_cli.cache.evidence.text_features import CONTENT
from recall_cli.types import Embedder, Evidence

UNREAD, NOT_TOLD_APART = "unread_text", "not_told_apart"
"""The reasons of a miss."""

KEPT = 1 << 16
"""Written words remembered before the memory starts afresh."""
LONGEST_KEPT = 48
TEXTS_KEPT = 2_048
"""Texts that are kept taken apart: a popular entry is, not at every hit."""

WORD, NUMBER, CODE, MARK = range(4)
"""Kinds of what stands between two spaces: words, a quantity, anything with symbols in it, punctuation alone."""

_OPENING = "\"'“”‘’«»([¿¡"
_CLOSING = "\"'“”‘’«»)].,;:!?…"
_QUOTES = str.maketrans("", "", "\"'“”‘’«»")
_STOPS = frozenset(".!?…")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*(?:-[^\W\d_]+(?:['’][^\W\d_]+)*)*")
_ABBREVIATED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_QUANTITY = re.compile(
    rf"[$€£¥]?\d+(?:[.,:]\d+)*(?:%|{'|'.join(sorted(AFTER_DIGITS))}|[kmb]n?)?[$€£¥]?|\d{{4}}-\d\d?-\d\d?", re.IGNORECASE
)
_ALONE = frozenset(("a", "i"))
"""Letters that are words."""
GRAMMAR = 0.05
"""Up to this weight a word is one of grammar or courtesy: "the", "please", "how"."""
QUESTIONS = {word: word for word in ("who", "when", "where", "why", "how")} | {"what": "what", "which": "what"}
"""Words that ask for different things, though their vectors are short; "what port" and "which port" is one question."""
DIRECTIONS = {word: word for word in sorted(_DIRECTIONS)}
"""Words that turn a sentence round: to and from, before and after."""
_COUNTED = frozenset((*NUMBER_WORDS, *ORDINALS, *SCALES, *WEEKDAYS, *MONTHS))
"""Words that `cache.evidence.numbers` reads as quantities, and compares as such."""


class Token(NamedTuple):
    """A word as it is compared, and how it was written."""

    plain: str
    """Lower case, without accents; code and symbols as they are."""
    cased: str
    kind: int


Chunk = tuple[tuple[Token, ...], str, str]
"""What stands between two spaces: its tokens, and the punctuation before and behind them."""

_chunks: dict[str, Chunk] = {}


class Floor:
    """Judges pairs for one embedder. Safe to share between threads."""

    def __init__(self, embedder: Embedder) -> None:
        self.reads: Callable[[str], bool] = reads(embedder)
        """Whether the embedder has read a text, to its end."""
        self._reads_word = reads_word(embedder)

    def refusal(self, text: str, stored: str, found: Evidence) -> str:
        """Return why the stored text's answer may not serve the text by meaning, "" when it may.

        Symmetric; equal texts differ in nothing.

        :param found: what the evidence says of the two texts.
        """
        if text == stored:
            return ""
        if not (self.reads(text) and self.reads(stored)):
            return UNREAD
        return "" if self.tells_apart(text, stored, found) else NOT_TOLD_APART

    def tells_apart(self, text: str, stored: str, found: Evidence) -> bool:
        """Return whether all that differs between two read texts was seen by the embedder, or weighed."""
        if found.numbers or found.roles:
            return False
        mine, theirs = _written(text), _written(stored)
        if mine.order == theirs.order:
            return _is_written_alike(mine, theirs)
        if mine.code != theirs.code:
            return False
        ours, others = mine.words - theirs.words, theirs.words - mine.words
        if not ours and not others and sorted(mine.order) == sorted(theirs.order):
            return _is_moved_clause(mine, theirs) or _is_moved_clause(theirs, mine)
        if (mine.again or theirs.again) and _repeats_otherwise(mine, theirs):
            return False
        return (
            self._saw(ours, others)
            and self._saw(others, ours)
            and mine.is_cased_as(theirs)
            and theirs.is_cased_as(mine)
            and _in_order(mine, theirs, ours | others)
        )

    def _saw(self, words: AbstractSet[str], facing: AbstractSet[str]) -> bool:
        """Return whether each word that only one text has is one that the embedder reads."""
        for word in words:
            if word in _COUNTED or word[0].isdecimal():
                continue  # weighed with the numbers
            if len(word) == 1 and word not in _ALONE:
                return False
            if not self._reads_word(word.partition("'")[0]) and not _is_known_by(word, facing):
                return False
        return True


class _Written:
    """A text as its words follow one another."""

    def __init__(self, text: str) -> None:
        self.tokens: list[Token] = []
        self.starts: list[tuple[str, str]] = []
        """Of each token, the punctuation behind the one before it, and that which opens it."""
        behind = ""
        for piece in text.split():
            made, before, after = _chunks.get(piece) or _read(piece)
            for token in made:
                self.tokens.append(token)
                self.starts.append((behind, before))
                behind = before = ""
            behind += before + after
        self.starts.append((behind, ""))
        self.order = [token[0] for token in self.tokens]
        self.words = frozenset(self.order)
        self.cased = frozenset([token[1] for token in self.tokens])
        self.again = len(self.order) != len(self.words)
        """Whether a word comes twice."""
        self.code: list[str] = []
        self.counts = False
        for plain_form, _, kind in self.tokens:
            if kind == CODE or (len(plain_form) == 1 and kind == WORD and plain_form not in _ALONE):
                self.code.append(plain_form)
            elif kind == NUMBER:
                self.counts = True

    def is_cased_as(self, other: _Written) -> bool:
        """Return whether each word of the other text that this one has too is written here in a way that means it."""
        odd = other.cased - self.cased
        if not odd or self.words.isdisjoint(map(plain, odd)):
            return True
        forms: dict[str, set[str]] = {}
        opening: set[str] = set()
        for at, token in enumerate(self.tokens):
            forms.setdefault(token.plain, set()).add(token.cased)
            if self.opens(at):
                opening.add(token.plain)
        shouts, free = self.shouts or other.shouts, self.names_nothing or other.names_nothing
        for at, token in enumerate(other.tokens):
            known = forms.get(token.plain, ())
            if not known or token.cased in known:
                continue
            if not all(_is_accented_as(form, token.cased) for form in known):
                return False
            if shouts or _is_me(token):
                continue
            if not all(_is_capital(form, token.cased, free) for form in known):
                return False
            if not (free or token.plain in opening or other.opens(at)):
                return False
        return True

    @cached_property
    def shouts(self) -> bool:
        """Whether all of it is in capitals: then they name nothing."""
        words = [token.cased for token in self.tokens if token.kind == WORD]
        return len(words) > 2 and all(word.isupper() for word in words)

    @cached_property
    def names_nothing(self) -> bool:
        """Whether it is all in small letters, or a heading whose words all have a capital: neither tells names."""
        words = [token.cased for token in self.tokens if token.kind == WORD]
        if not any(word != word.lower() for word in words):
            return True
        return len(words) > 2 and all(word[0].isupper() for word in words)

    @cached_property
    def marks(self) -> list[str]:
        """The punctuation between the words, without quotes."""
        return [(behind + before).translate(_QUOTES) for behind, before in self.starts[1:-1]]

    @cached_property
    def names(self) -> set[str]:
        """The words whose capital is not explained by the start of a sentence."""
        if self.cased == self.words or self.shouts or self.names_nothing:
            return set()
        return {
            token.plain
            for at, token in enumerate(self.tokens)
            if token.kind == WORD and token.cased[0].isupper() and token.plain != "i" and not self.opens(at)
        }

    def opens(self, at: int) -> bool:
        """Return whether a sentence starts with the token at this place."""
        behind, before = self.starts[at]
        return at == 0 or bool(before) or (bool(behind) and (behind[-1] in _STOPS or behind[-1] == ":"))


_written = lru_cache(maxsize=TEXTS_KEPT)(_Written)


def _repeats_otherwise(a: _Written, b: _Written) -> bool:
    """Return whether a word of weight stands in one text more often than in the other, which has it too.

    A sum of vectors hardly moves for that.
    """
    times, others = Counter(a.order), Counter(b.order)
    return any(times[word] != others[word] and _weight(word) > CONTENT for word in a.words & b.words)


def _is_written_alike(a: _Written, b: _Written) -> bool:
    """Return whether two texts of the same words in one order differ in nothing that has a meaning."""
    shouts, free = a.shouts or b.shouts, a.names_nothing or b.names_nothing
    for at, (one, other) in enumerate(zip(a.tokens, b.tokens, strict=True)):
        if one.cased == other.cased:
            continue
        if not _is_accented_as(one.cased, other.cased):
            return False
        if shouts or _is_me(one):
            continue
        if not _is_capital(one.cased, other.cased, free) or not (free or a.opens(at) or b.opens(at)):
            return False
    # Between the words every mark counts; at the ends none does.
    return a.marks == b.marks


def _is_me(token: Token) -> bool:
    return token.plain[:2] in ("i", "i'")


def _is_accented_as(a: str, b: str) -> bool:
    return a.lower().replace("’", "'") == b.lower().replace("’", "'")


def _is_capital(a: str, b: str, free: bool) -> bool:
    """Return whether two forms of a word differ in the first letter's case alone.

    :param free: one of the texts tells no names by its letters: then UK and uk are one word too, though not US and us.
    """
    if a[1:] == b[1:]:
        return True
    return free and (a.isupper() or b.isupper()) and (a.islower() or b.islower()) and _weight(a.lower()) > CONTENT


def _in_order(a: _Written, b: _Written, only: AbstractSet[str]) -> bool:
    """Return whether the quantities that both texts have follow one another in the same order, and so do the names.

    Where the texts differ in nothing but words of grammar, so must all their other words.

    :param only: the words that one text alone has.
    """
    common = a.words & b.words
    if all(_weight(word) <= GRAMMAR or word in DIRECTIONS for word in only):
        for which in (QUESTIONS, DIRECTIONS):
            mine, theirs = ({which[word] for word in text.words & only & which.keys()} for text in (a, b))
            if mine and theirs and mine != theirs:
                return False
        told = {word for word in common if _weight(word) > GRAMMAR}
        return [word for word in a.order if word in told] == [word for word in b.order if word in told]
    named = (a.names | b.names) & common
    if a.counts and b.counts:
        named |= {token.plain for token in a.tokens if token.kind == NUMBER} & common
    if len(named) < 2 and not (a.again and b.again):
        return True
    return all(
        [token.plain for token in a.tokens if token.kind == kind and token.plain in named]
        == [token.plain for token in b.tokens if token.kind == kind and token.plain in named]
        for kind in (NUMBER, WORD)
    )


def _weight(word: str) -> float:
    """Return how much of a text a written word stands for, 0..1."""
    tokens = known_word(word).tokens
    return WEIGHTS[tokens[0]] if len(tokens) == 1 else max([WEIGHTS[token] for token in tokens], default=1.0)


def _is_known_by(word: str, facing: AbstractSet[str]) -> bool:
    """Return whether a word is a form of one that only the other text has, or a typing error of a known one."""
    forms = known_word(word).tokens
    if any(known_word(other).tokens == forms for other in facing):
        return True
    known = ranks()
    return len(word) > 3 and word not in known and any(other in known and one_slip(word, other) for other in facing)


def _is_moved_clause(a: _Written, b: _Written) -> bool:
    """Return whether b is a with its last words moved to the front, behind a comma: "For a train, how do I pay?".

    They must begin with a word of grammar, which goes on telling what they are: "Alice, did Bob pay?" is not "did Bob
    pay Alice?".
    """
    commas = [at for at, (behind, _) in enumerate(b.starts[1:-1], 1) if behind == ","]
    if len(commas) != 1 or any(behind for behind, _ in a.starts[1:-1]):
        return False
    seam = commas[0]
    return (
        seam > 1
        and b.order[seam:] + b.order[:seam] == a.order
        and _weight(b.order[0]) <= CONTENT
        and a.is_cased_as(b)
        and b.is_cased_as(a)
    )


def _read(piece: str) -> Chunk:
    """Return what stands between two spaces, taken apart."""
    global _chunks
    made = _apart(piece)
    if len(piece) <= LONGEST_KEPT:
        if len(_chunks) >= KEPT:
            # A new dict, not clear(): another thread may be reading the old one.
            _chunks = {}
        _chunks[piece] = made
    return made


def _apart(piece: str) -> Chunk:
    core = piece.lstrip(_OPENING)
    before = piece[: len(piece) - len(core)]
    core = core.rstrip(_CLOSING)
    after = piece[len(before) + len(core) :]
    if not core:
        return (), "", before + after
    if _LETTERS.fullmatch(core):
        parts = core.split("-")
        if all(len(part) == 1 for part in parts) and len(parts) > 1:
            return (Token(core, core, CODE),), before, after
        if min(map(len, parts)) == 1:
            parts = ["".join(parts)]  # e-mail, x-ray
        return tuple([Token(plain(part), part, WORD) for part in map(_owner, parts)]), before, after
    if _ABBREVIATED.fullmatch(core):
        letters = core.replace(".", "")
        return (Token(plain(letters), letters, WORD),), before, after
    if _QUANTITY.fullmatch(core):
        return (Token(core.lower(), core.lower(), NUMBER),), before, after
    if core.isalnum():
        return (Token(core, core, CODE),), before, after
    if core.replace("-", "").isalnum() and core[0] != "-":
        return (Token(core, core, CODE),), before, after
    # Brackets and marks at its edges may belong to it: f(a), a[0], ^a?
    return (Token(piece, piece, CODE),), "", ""


def _owner(word: str) -> str:
    """Return a word without its "'s": who's, Alice's."""
    return word[:-2] if word[-2:].lower() in ("'s", "’s") and len(word) > 2 else word
