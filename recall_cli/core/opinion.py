"""A local second opinion on a hit: what a small transformer says of two prompts, weighed with the evidence.

The static table sees words; the transformer (`core.sentence`) sees them in their order. It costs milliseconds, so
it is asked only for what the first stage would serve. It refuses and never adds: with it at hand, the first
stage's cutoff may be lower. Its weights, like the prior's, are learned on several sets and held to their signs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import orjson

from recall_cli.core.embed import bundled_folder
from recall_cli.core.evidence import compare
from recall_cli.core.prior import FIELDS, row
from recall_cli.core.sentence import SentenceModel, load_sentence_model, unit
from recall_cli.core.text_facts import facts
from recall_cli.errors import RecallError, UsageError
from recall_cli.types import Evidence, Vector

FEATURES = "opinion-2"
"""Names the meaning of the weights: those of another are void."""
MEANING, COVERED = "meaning", "covered"
ALL_FIELDS = (*FIELDS, MEANING, COVERED)
"""What the weights stand for: the prior's fields, then what the transformer adds.

Meaning is the cosine of the two texts. Covered looks word by word, each in its context: how near the word that is
worst matched in the other text comes to a match, in the text whose worst is better. Function words take part: in
another context they are other vectors.
"""
KEPT = 1_024
"""Texts that are kept read, about 20 kB each: a popular entry is read once, not at every hit."""


@dataclass(frozen=True, slots=True)
class OpinionWeights:
    """Logit of P(wrong) = level + the sum of weights times features; a hit stands while P is at most `limit`."""

    level: float
    weights: tuple[float, ...]
    """In the order of ALL_FIELDS."""
    limit: float
    """The logit up to which the opinion agrees."""
    version: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the transformer sees it."""

    mean: Vector
    """Shape (384,), unit length."""
    words: Vector
    """Shape (words, 384), unit length each."""


class SecondOpinion:
    """Says whether one answer serves two prompts. Safe to share between threads."""

    def __init__(self, model: SentenceModel, weights: OpinionWeights) -> None:
        self.model = model
        self.weights = weights
        self._kept: OrderedDict[str, Reading] = OrderedDict()
        self._lock = threading.Lock()

    def agrees(self, text: str, stored: str, similarity: float) -> bool:
        """Return whether the stored prompt's answer may be served.

        :param similarity: the cosine that the first stage found.
        """
        return self.logit(text, stored, similarity) <= self.weights.limit

    def logit(self, text: str, stored: str, similarity: float) -> float:
        """Return the logit of the probability that the stored prompt's answer is wrong."""
        found = Evidence(similarity)
        compare(facts(text), facts(stored), found)
        features = (*row(found), *self.features(text, stored))
        return self.weights.level + sum([w * x for w, x in zip(self.weights.weights, features, strict=True)])

    def features(self, a: str, b: str) -> tuple[float, float]:
        """Return (meaning, covered) of two texts; symmetric."""
        one, two = self._read(a), self._read(b)
        meaning = float(np.clip(one.mean @ two.mean, -1.0, 1.0))
        if not len(one.words) or not len(two.words):
            return meaning, 1.0
        near = one.words @ two.words.T
        return meaning, float(max(near.max(axis=1).min(), near.max(axis=0).min()))

    def _read(self, text: str) -> Reading:
        with self._lock:
            known = self._kept.get(text)
            if known is not None:
                self._kept.move_to_end(text)
                return known
        # Outside the lock: two threads may read one text twice, and none waits for another's.
        made = read_text(self.model, text)
        with self._lock:
            self._kept[text] = made
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made


def read_text(model: SentenceModel, text: str) -> Reading:
    """Return what the transformer makes of a text: a unit vector of it, and of each word in its context."""
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
    return Reading(unit(states.mean(axis=0)), words[kept])


def load_opinion() -> SecondOpinion:
    """Return the second opinion of the extra `verify`. Raises EmbedderError when it is not installed."""
    return SecondOpinion(load_sentence_model(bundled_folder()), shipped())


def opinion_of(name: str) -> SecondOpinion | None:
    """Return what `--verify-on-hit` names where only the local opinion can be asked: "none" or "model"."""
    if name not in ("none", "model"):
        raise UsageError(f"there is no second opinion {name!r} here", hint="choose none or model (extra: verify)")
    return load_opinion() if name == "model" else None


@cache
def shipped() -> OpinionWeights:
    """Return the weights that come with the package."""
    return read(orjson.loads((files("recall_cli.core") / "opinion-weights.json").read_bytes()))


def read(document: Mapping[str, Any]) -> OpinionWeights:
    """Return the weights in a decoded file. Raises RecallError when it was made for other features."""
    if document.get("features") != FEATURES:
        raise RecallError(
            f"these weights are for {document.get('features')!r}, not for {FEATURES!r}",
            hint="learn them again: python -m recall_cli.measure.opinion_fit",
        )
    weights = tuple(float(document["weights"][name]) for name in ALL_FIELDS)
    return OpinionWeights(float(document["level"]), weights, float(document["limit"]), str(document["version"]))
