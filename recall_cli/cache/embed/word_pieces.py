"""Whether an embedder has read a text, as told by the pieces that its tokenizer cuts the text into.

A word that is one piece has a row of its own, and that row says what the word means. A word that is spelled in
letters, or in pieces of two of them, has no meaning in the sum of their rows: two such words look alike. So do two
texts of a script that the vocabulary holds letter by letter, and two texts whose words are unknown. Such texts may be
matched by identity alone.

Nearly every text is of words that were seen before: it costs a split and one comparison of sets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

KEPT = 1 << 16
"""Words remembered before the memory starts afresh."""
LONGEST_KEPT = 48
"""Characters of the longest word worth remembering."""

SPELT = 3.0
"""Letters in a piece, on average, below which a word of several pieces is spelled and not read. In CLINC150 and
BANKING77 0.3 % of the texts have more spelled words than `MOST_SPELT` allows; of everyday questions in Turkish, Polish
and Vietnamese nearly all have."""
SPELT_WITHOUT_SPACES = 1.3
"""The same for scripts whose letters are words or syllables: Chinese, Japanese, Korean."""
MOST_SPELT = 0.4
"""Share of a text's words that may be spelled."""
SINGLES = 6
"""Letters that stand alone from which a text may be one that is written letter by letter."""
MOST_SINGLES = 0.6
"""Share of a text's words that may be single letters, when there are so many."""
SCRIPT_HELD = 50
"""Pieces of two letters and more from which a vocabulary is taken to hold a script."""
DIGEST = 16
"""Characters from which a run of letters and digits may be a digest, a token or base64."""
DIGEST_PIECE = 2.5
"""Characters in a piece, on average, below which it is one."""

LONGEST = 1 << 62
"""Characters that no text has."""

_RUN = re.compile(r"[^\W\d_]+")
_PACKED = re.compile(rf"[0-9A-Fa-f]{{8}}(?:-[0-9A-Fa-f]{{4}}){{3}}-[0-9A-Fa-f]{{12}}|[A-Za-z0-9+/=_]{{{DIGEST},}}")
_HELD_WHOLE = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
_ALONE = frozenset("aiAI")
"""Letters that are words."""

Count = tuple[int, int, int]
"""Of one written word: its runs of letters, how many of them are spelled, how many are single letters."""
_UNREAD: Count = (0, -1, 0)
"""A written word that is opaque: unknown, a digest, or of a script that the vocabulary does not hold."""


class Pieces:
    """Judges texts by one tokenizer's pieces. Safe to share between threads.

    :param ids: returns a text's token ids.
    :param blank: the ids that say nothing, which is that of the unknown token.
    :param vocabulary: returns all pieces as they are written, for the scripts it holds.
    :param short: characters below which every text is read to its end, and `whole` tells whether a longer one is.
    """

    def __init__(
        self,
        ids: Callable[[str], Sequence[int]],
        blank: Collection[int],
        vocabulary: Callable[[], Iterable[str]],
        short: int = LONGEST,
        whole: Callable[[str], bool] = lambda text: True,
    ) -> None:
        self._ids = ids
        self._blank = frozenset(blank)
        self._vocabulary = vocabulary
        self._short, self._to_end = short, whole
        self._whole: set[str] = set()
        """Written words that are read and hold nothing spelled: a text of these is read."""
        self._counts: dict[str, Count] = {}

    def reads(self, text: str) -> bool:
        """Return whether the pieces tell what the text says, to its end."""
        words = text.split()
        odd = self._odd(words)
        if odd and not self._tells(words, odd):
            return False
        return len(text) < self._short or self._to_end(text)

    def _odd(self, words: list[str]) -> list[str]:
        """Return the words that are not known to be read."""
        # In every lookup: one test for what nearly every text is.
        whole = self._whole
        return [] if whole.issuperset(words) else [word for word in words if word not in whole]

    def _tells(self, words: list[str], odd: list[str]) -> bool:
        runs = len(words) - len(odd)
        spelt = singles = 0
        for word in odd:
            count = self._counts.get(word) or self._learn(word)
            if count is _UNREAD:
                return False
            runs += count[0]
            spelt += count[1]
            singles += count[2]
        return spelt <= MOST_SPELT * runs and not (singles >= SINGLES and singles > MOST_SINGLES * runs)

    def reads_word(self, word: str) -> bool:
        """Return whether the pieces tell what one word says: it is known, and neither spelled nor a single letter."""
        count = self._counts.get(word) or self._learn(word)
        return count is not _UNREAD and not count[1] and not count[2]

    def _learn(self, word: str) -> Count:
        count = self._count(word)
        if len(word) <= LONGEST_KEPT:
            if len(self._counts) >= KEPT:
                # New ones, not clear(): another thread may be reading the old ones.
                self._counts, self._whole = {}, set()
            self._counts[word] = count
            if count is not _UNREAD and not count[1] and not count[2]:
                self._whole.add(word)
        return count

    def _count(self, word: str) -> Count:
        if not self._blank.isdisjoint(self._ids(word)):
            return _UNREAD
        if any(self._is_digest(part) for part in _PACKED.findall(word)):
            return _UNREAD
        if not word.isascii() and not self._holds(word):
            return _UNREAD
        runs: list[str] = _RUN.findall(word)
        singles = sum([len(run) == 1 and run not in _ALONE for run in runs])
        return len(runs), sum([self._is_spelt(run) for run in runs if len(run) > 1]), singles

    def _is_spelt(self, run: str) -> bool:
        pieces = len(self._ids(run))
        least = SPELT_WITHOUT_SPACES if script(run[0]) in _HELD_WHOLE else SPELT
        return pieces > 1 and len(run) < least * pieces

    def _is_digest(self, part: str) -> bool:
        digits = any(c.isdigit() for c in part)
        letters = any(c.isalpha() for c in part)
        # Base64 may have no digit, but then it has capitals in the middle.
        mixed = letters and (digits or (part[1:].lower() != part[1:] and part.upper() != part))
        return mixed and len(part) < DIGEST_PIECE * len(self._ids(part))

    def _holds(self, word: str) -> bool:
        """Return whether the vocabulary holds the scripts of a word's letters, and each of its symbols as one piece."""
        for letter in word:
            if letter.isascii():
                continue
            category = unicodedata.category(letter)[0]
            if category in "LM":
                name = script(letter)
                if name not in ("LATIN", "COMBINING", "") and name not in self._scripts:
                    return False
            elif category == "S" and len(self._ids(letter)) > 1:
                return False  # spelled in bytes
        return True

    @cached_property
    def _scripts(self) -> frozenset[str]:
        """The scripts of which there are many pieces with two letters and more."""
        held: dict[str, int] = {}
        for piece in self._vocabulary():
            if piece.isascii():
                continue
            letters = [c for c in piece if c.isalpha()]
            if len(letters) > 1:
                name = script(letters[-1])
                held[name] = held.get(name, 0) + 1
        return frozenset([name for name, count in held.items() if count >= SCRIPT_HELD])


def script(letter: str) -> str:
    """Return the first word of a letter's name in Unicode, which is its script: "LATIN", "CYRILLIC", "CJK"."""
    return unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
