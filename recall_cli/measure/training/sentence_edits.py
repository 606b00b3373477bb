"""Edits of plain sentences: some change what is said, some do not. Each returns None where it does not apply.

They know WordNet's synonyms and opposites, and none of the lists that the checks of `cache.evidence.evidence` use: what
is measured must not be what made the measure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from recall_cli.measure.synthetic.chance import pick
from recall_cli.measure.synthetic.edits import AFTER, BEFORE
from recall_cli.measure.training.wordnet import Synset

NAMES = ("Boston", "Berlin", "Maria", "Thomas", "Italy", "Kenya", "Monday", "July", "Smith", "Peter", "Japan", "Friday")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twenty", "thirty")
VERB = re.compile(r"\b(?:is|are|was|were|can|could|will|would|should|must|may|does|did|has|have)\b(?! not|n't)")
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
DIGITS = re.compile(r"\b\d+\b")
TAIL = re.compile(r"^(.*\w) ((?:in|at|on|after|before|during|for|with|from) [\w ]+)$")
ARTICLE = re.compile(r"\b(?:the|a|an|very|really|quite|just) ")
LEAST_LETTERS = 5
"""Of a word that gets a synonym: shorter ones have too many meanings."""

T = TypeVar("T")
Edit = Callable[[str, np.random.Generator], "str | None"]


@dataclass(frozen=True, slots=True)
class Editor:
    """The edits that need a dictionary, by word."""

    synonyms: Mapping[str, Sequence[str]]
    opposites: Mapping[str, str]

    def synonym(self, text: str, rng: np.random.Generator) -> str | None:
        """Say one word by another that has a meaning in common."""
        words = [word for word in text.split() if len(word) >= LEAST_LETTERS and self.synonyms.get(word)]
        if not words:
            return None
        word = pick(rng, words)
        return replaced(text, word, pick(rng, self.synonyms[word]))

    def opposite(self, text: str, rng: np.random.Generator) -> str | None:
        """Say the opposite of one word."""
        words = [word for word in text.split() if word in self.opposites]
        word = pick(rng, words) if words else ""
        return replaced(text, word, self.opposites[word]) if word else None

    def same(self) -> Sequence[Edit]:
        """Return the edits that keep what is said."""
        return self.synonym, polite, tail_first, terse

    def other(self) -> Sequence[Edit]:
        """Return those that change it."""
        return negated, other_number, other_name, self.opposite


def editor(synsets: Iterable[Synset], opposites: Mapping[str, str]) -> Editor:
    """Return the edits by these meanings; of a word with several meanings the first one counts."""
    synonyms: dict[str, Sequence[str]] = {}
    for synset in synsets:
        for word in synset.words:
            synonyms.setdefault(word, [other for other in synset.words if other != word])
    return Editor(synonyms, opposites)


def replaced(text: str, word: str, other: str) -> str | None:
    """Return text with a whole word, or phrase, replaced; None when it is not in the text."""
    found, times = re.subn(rf"(?<![\w-]){re.escape(word)}(?![\w-])", lambda _: other, text)
    return found if times else None


def negated(text: str, _: np.random.Generator) -> str | None:
    """Put "not" behind the first auxiliary."""
    return f"{text[: found.end()]} not{text[found.end() :]}" if (found := VERB.search(text)) else None


def other_number(text: str, rng: np.random.Generator) -> str | None:
    """Change one number, in digits or in letters."""
    if found := DIGITS.search(text):
        return f"{text[: found.start()]}{int(found.group()) + pick(rng, (1, 2, 5, 10, 30))}{text[found.end() :]}"
    words = [word for word in text.split() if word in NUMBERS]
    return replaced(text, words[0], _another(rng, NUMBERS, words[0])) if words else None


def other_name(text: str, rng: np.random.Generator) -> str | None:
    """Change one capitalised word inside the sentence."""
    names = NAME.findall(text)
    name = pick(rng, names) if names else ""
    return replaced(text, name, _another(rng, NAMES, name)) if name else None


def polite(text: str, rng: np.random.Generator) -> str:
    """Greet before it, or thank behind it."""
    return f"{pick(rng, BEFORE)}{text[:1].lower()}{text[1:]}" if rng.random() < 0.5 else f"{text}.{pick(rng, AFTER)}"


def tail_first(text: str, _: np.random.Generator) -> str | None:
    """Move a phrase from the end to the front."""
    return f"{found.group(2)}, {found.group(1)}" if (found := TAIL.match(text)) else None


def terse(text: str, _: np.random.Generator) -> str:
    """Leave out articles and words of degree."""
    return ARTICLE.sub("", text)


def _another(rng: np.random.Generator, choices: Sequence[T], than: T) -> T:
    return pick(rng, [choice for choice in choices if choice != than])
