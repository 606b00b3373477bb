"""A text as the small transformer reads it: a vector of the whole, and one of each word in its context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.embed.minilm import SentenceModel, unit
from recall_cli.cache.evidence.lexicon import WEIGHTS, read
from recall_cli.cache.evidence.text_features import Facts, facts
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Reading:
    """What two texts are compared by. Words are those of the transformer's tokenizer, marks left out."""

    facts: Facts
    mean: Vector
    """Shape (384,), unit length."""
    words: Vector
    """Shape (words, 384), unit length each."""
    tokens: tuple[str, ...]
    """Of each word, the canonical token that synonyms share."""
    weights: NDArray[np.float64]
    """Of each word, how much it says what a text is about, 0..1."""


def read_text(model: SentenceModel, text: str) -> Reading:
    """Return what the transformer makes of a text."""
    (encoding,) = model.encode([text])
    states = model.states(encoding)
    place: list[int] = [-1 if word is None else word for word in encoding.word_ids]
    words: Vector = np.zeros((max(place, default=-1) + 1, model.dim), dtype=np.float32)
    # Without [CLS] and [SEP]; the pieces of a word are summed.
    np.add.at(words, place, states[1:-1])
    words /= np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-9)
    spans = [encoding.word_to_chars(word) or (0, 0) for word in range(len(words))]
    # No mark may be the match of a word: in its context every token carries some of the whole text.
    kept = [i for i, (start, end) in enumerate(spans) if text[start:end].isalnum()]
    tokens = tuple([_canonical(text[slice(*spans[i])].lower()) for i in kept])
    weights = np.array([WEIGHTS[token] for token in tokens], dtype=np.float64)
    return Reading(facts(text), unit(states.mean(axis=0)), words[kept], tokens, weights)


def _canonical(word: str) -> str:
    found = read(word).tokens
    return found[0] if found else word
