"""A local second opinion on a hit: what a small transformer says of two prompts, weighed with its doubts.

The static table sees words; the transformer (`cache.embed.minilm`) sees them in their order. It costs milliseconds, so
it is asked only for what the first stage would serve. It refuses and never adds: with it at hand, the first
stage's cutoff may be lower. What the first stage thought is no part of it. Its weights are learned on several kinds
of pairs, are held to their signs, and are tested on kinds that they have not seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from recall_cli.cache.answers.doubts import FIELDS, row
from recall_cli.cache.answers.reading import Reading, read_text
from recall_cli.cache.embed.minilm import SentenceModel, load_sentence_model
from recall_cli.cache.embed.registry import bundled_folder
from recall_cli.cache.policy.registry import CHECKS
from recall_cli.errors import RecallError, UsageError

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
    return read(orjson.loads((files("recall_cli.cache.answers") / "opinion-weights.json").read_bytes()))


def read(document: Mapping[str, Any]) -> OpinionWeights:
    """Return the weights in a decoded file. Raises RecallError when it was made for other features."""
    if document.get("features") != FEATURES:
        raise RecallError(
            f"these weights are for {document.get('features')!r}, not for {FEATURES!r}",
            hint="learn them again: python -m recall_cli.measure.training.fit_second_opinion",
        )
    weights = tuple(float(document["weights"][name]) for name in FIELDS)
    return OpinionWeights(float(document["level"]), weights, float(document["limit"]), str(document["version"]))
