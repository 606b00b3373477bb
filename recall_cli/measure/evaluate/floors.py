"""What a replay needs to hold texts to the cache's own floor: the evidence of pairs, and an embedder's reading."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.evidence.evidence import compare
from recall_cli.cache.evidence.floor import Floor
from recall_cli.cache.evidence.text_features import TextFeatures, facts
from recall_cli.types import Embedder, Evidence


@cache
def embedder_of(name: str) -> Embedder:
    """Load an embedder once a process: each seed of a text world embeds its own prompts."""
    return make_embedder(name)


@cache
def floor_of(name: str) -> Floor:
    """Return the floor of an embedder, made once a process."""
    return Floor(embedder_of(name))


class TextEvidence:
    """What two texts tell about each other; each text is read once, when it is first needed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._facts: dict[int, TextFeatures] = {}

    def __call__(self, i: int, j: int) -> Evidence:
        """Return the evidence of the texts at these positions."""
        found = Evidence(0.0)
        compare(self._read(i), self._read(j), found)
        return found

    def _read(self, i: int) -> TextFeatures:
        known = self._facts.get(i)
        if known is None:
            known = self._facts[i] = facts(self._texts[i])
        return known
