"""A local second opinion on a hit: what a small transformer says of two prompts, weighed with its doubts.

The static table sees words; the transformer (`cache.embed.minilm`) sees them in their order. It costs milliseconds,
so it is asked only for what the first stage would serve. It refuses and never adds: with it at hand, the first
stage's cutoff may be lower. What the first stage thought is no part of it. Its weights are learned on several kinds
of pairs, are held to their signs, and are tested on kinds that they have not seen.

Pairs that say the same in other words differ in many of them, a number or a "not" among them, and that decides
nothing. So a doubt counts by how much the two texts have in common: fully between texts that share their words and
their meaning, not at all between others. Where no doubt is left the meaning alone ranks the pairs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from recall_cli.cache.embed.minilm import SentenceModel, load_sentence_model, unit
from recall_cli.cache.embed.registry import bundled_folder
from recall_cli.cache.evidence.evidence import compare
from recall_cli.cache.evidence.lexicon import NEGATORS, WEIGHTS, read
from recall_cli.cache.evidence.text_features import CONTENT, TextFeatures, facts
from recall_cli.cache.policy.registry import CHECKS
from recall_cli.errors import RecallError, UsageError
from recall_cli.types import Evidence, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Reading:
    """What two texts are compared by. Words are those of the transformer's tokenizer, marks left out."""

    facts: TextFeatures
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


MEANING = "meaning"
SIGNS = {
    MEANING: -1,
    "numbers": 1,
    "contradiction": 1,
    "negator": 1,
    "roles": 1,
    "exchanged": 1,
    "uncovered": 1,
}
"""The fields, and which way each may move the risk of a wrong answer.

Meaning is the cosine of the two texts. Numbers and roles are the checks of `cache.evidence.evidence`. Contradiction is
a word against its opposite, or a negated word that the other text has too; negator is any other "not" on one side
alone. Exchanged looks at words that only one text has: how much the weightiest says that nothing in the other comes
near, in the text where that is less, so that words merely added do not count. Uncovered looks at all words, "of" and
"at" too: how far the worst matched word is from a match, in the text whose worst is better.
"""
FIELDS = tuple(SIGNS)
FAR, NEAR = 0.5, 0.9
"""Cosines between which texts come to be near enough for doubts: most pairs of one intent lie between."""
REACH = 5
"""Tokens behind a negator among which its word is looked for."""


def row(a: Reading, b: Reading) -> tuple[float, ...]:
    """Return the numbers in the order of FIELDS; symmetric, and (1, 0, 0, ...) for equal texts."""
    meaning = float(np.clip(a.mean @ b.mean, -1.0, 1.0))
    found = Evidence(meaning)
    compare(a.facts, b.facts, found)
    common = found.overlap * min(1.0, max(0.0, (meaning - FAR) / (NEAR - FAR)))
    if not common:
        return (meaning, *(0.0,) * (len(FIELDS) - 1))
    sure = found.negation and _contradicts(a.facts, b.facts)
    exchanged, uncovered = _alignment(a, b)
    return (
        meaning,
        common * found.numbers,
        common * sure,
        common * (found.negation - sure),
        common * found.roles,
        common * exchanged,
        common * uncovered,
    )


def _contradicts(a: TextFeatures, b: TextFeatures) -> float:
    """Return 1 unless the turn is a "not" beside a word that the other text lacks: "isn't here yet" is "too late"."""
    if a.negators == b.negators:
        return 1.0
    return float(_denies(a, b) or _denies(b, a))


def _denies(one: TextFeatures, other: TextFeatures) -> bool:
    """Return whether a negator that only one text has stands with a word that both have."""
    for place, token in enumerate(one.order):
        if token not in NEGATORS or token in other.words:
            continue
        behind = [word for word in one.order[place + 1 : place + 1 + REACH] if _tells(word)]
        before = [word for word in one.order[:place] if _tells(word)]
        # "not working", but "what does not?": then it is the word before.
        if not other.words.isdisjoint(behind[:1] or before[-1:]):
            return True
    return False


def _tells(token: str) -> bool:
    return token not in NEGATORS and WEIGHTS[token] > CONTENT


def _alignment(a: Reading, b: Reading) -> tuple[float, float]:
    """Return (exchanged, uncovered), both 0 where a text has no words."""
    if not a.tokens or not b.tokens:
        return 0.0, 0.0
    near = a.words @ b.words.T
    mine, theirs = near.max(axis=1), near.max(axis=0)
    exchanged = min(_alone(a, b, mine), _alone(b, a, theirs))
    return exchanged, float(np.clip(1 - max(mine.min(), theirs.min()), 0.0, 1.0))


def _alone(one: Reading, other: Reading, near: Vector) -> float:
    """Return the most that one word says which the other text does not; `near` is each word's best cosine there."""
    known = frozenset(other.tokens)
    alone = [place for place, token in enumerate(one.tokens) if token not in known]
    if not alone:
        return 0.0
    return float((one.weights[alone] * np.clip(1 - near[alone], 0.0, 1.0)).max())


FEATURES = "opinion-3"
"""Names the meaning of the weights: those of another are void."""
KEPT = 1_024
"""Texts that are kept read, about 20 kB each: a popular entry is read once, not at every hit."""


@dataclass(frozen=True, slots=True)
class OpinionWeights:
    """Logit of P(wrong) = level + the sum of weights times fields; a hit stands while P is at most `limit`."""

    level: float
    weights: tuple[float, ...]
    """In the order of `doubts.FIELDS`."""
    limit: float
    """The logit up to which the opinion agrees."""
    version: str


class SecondOpinion:
    """Says whether one answer serves two prompts. Safe to share between threads."""

    def __init__(self, model: SentenceModel, weights: OpinionWeights) -> None:
        self.model = model
        self.weights = weights
        self._kept: OrderedDict[str, Reading] = OrderedDict()
        self._lock = threading.Lock()

    def agrees(self, text: str, stored: str) -> bool:
        """Return whether the stored prompt's answer may be served."""
        return self.logit(text, stored) <= self.weights.limit

    def logit(self, text: str, stored: str) -> float:
        """Return the logit of the probability that the stored prompt's answer is wrong."""
        fields = self.row(text, stored)
        return self.weights.level + sum([w * x for w, x in zip(self.weights.weights, fields, strict=True)])

    def row(self, a: str, b: str) -> tuple[float, ...]:
        """Return the meaning that two texts share and the doubts, in the order of `doubts.FIELDS`; symmetric."""
        return row(self._read(a), self._read(b))

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


def load_opinion() -> SecondOpinion:
    """Return the second opinion of the extra `verify`. Raises EmbedderError when it is not installed."""
    return SecondOpinion(load_sentence_model(bundled_folder()), shipped())


def opinion_of(name: str) -> SecondOpinion | None:
    """Return the second opinion that `--verify-on-hit` names where only the local one can be asked; None for none."""
    if name not in CHECKS:
        raise UsageError(
            f"there is no second opinion {name!r} here", hint="choose none, evidence or model (extra: verify)"
        )
    return load_opinion() if name == "model" else None


@cache
def shipped() -> OpinionWeights:
    """Return the weights that come with the package."""
    return read_weights(orjson.loads((files("recall_cli.cache.answers") / "opinion-weights.json").read_bytes()))


def read_weights(document: Mapping[str, Any]) -> OpinionWeights:
    """Return the weights in a decoded file. Raises RecallError when it was made for other features."""
    if document.get("features") != FEATURES:
        raise RecallError(
            f"these weights are for {document.get('features')!r}, not for {FEATURES!r}",
            hint="learn them again: python -m training.fit_second_opinion",
        )
    weights = tuple(float(document["weights"][name]) for name in FIELDS)
    return OpinionWeights(float(document["level"]), weights, float(document["limit"]), str(document["version"]))
