"""Streams of texts whose answers are known: a classes file, or our own text world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER, read_vectors
from recall_cli.measure.evaluate.floors import TextEvidence, embedder_of
from recall_cli.measure.evaluate.replay import Stream
from recall_cli.measure.synthetic import text as textworld
from recall_cli.types import Embedder, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Labelled(Protocol):
    """A prompt and the class of its answer, as the loaders of `measure.evaluate.pairs` and the text world give them."""

    @property
    def text(self) -> str:
        """The prompt."""

    @property
    def answer_class(self) -> str:
        """Equal means that one answer serves both."""

    @property
    def namespace(self) -> str:
        """Whose cutoff is learned together."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Texts with known classes: one stored answer serves all texts of a class, in its namespace."""

    name: str
    texts: tuple[str, ...]
    classes: tuple[str, ...]
    namespaces: tuple[str, ...]
    vectors: Vector
    """Shape (len(texts), dim)."""
    limit: Mapping[str, int] | int | None = None
    """Texts drawn from each namespace for one stream; None takes all."""
    evidence: bool = True
    """Whether the policy sees what the texts themselves tell, not their vectors alone."""
    embedder: str = DEFAULT_EMBEDDER

    @classmethod
    def of(
        cls,
        name: str,
        items: Sequence[Labelled],
        embedder: Embedder,
        *,
        limit: Mapping[str, int] | int | None = None,
        evidence: bool = True,
    ) -> Classes:
        """Return the source of labelled prompts, embedded once for all streams."""
        texts = tuple(item.text for item in items)
        return cls(
            name,
            texts,
            tuple(item.answer_class for item in items),
            tuple(item.namespace for item in items),
            read_vectors(embedder, texts),
            limit,
            evidence,
            embedder.name,
        )

    def stream(self, seed: int) -> Stream:
        """Return the texts in one random order, each namespace drawn anew: they carry no times."""
        rng = np.random.default_rng(seed)
        names, namespace = np.unique(np.array(self.namespaces), return_inverse=True)
        picked = []
        for space, name in enumerate(names.tolist()):
            members = np.flatnonzero(namespace == space)
            limit = self.limit if self.limit is None or isinstance(self.limit, int) else self.limit.get(name)
            picked.append(rng.permutation(members)[:limit])
        order = rng.permutation(np.concatenate(picked))
        stream = _stream(
            self.name, self.texts, self.classes, self.namespaces, self.vectors, self.evidence, self.embedder
        )
        return stream.reordered(order)


@dataclass(frozen=True, slots=True)
class TextWorld:
    """Our own generated prompts, in the order they are asked: a new stream for each seed."""

    name: str = "text-world"
    queries: int = 7_000
    embedder: str = DEFAULT_EMBEDDER
    evidence: bool = True
    split: textworld.Split | None = None
    """The wordings that are used; the bundled embedder was fitted to those of "train"."""

    def stream(self, seed: int) -> Stream:
        """Return the prompts of this seed, embedded."""
        items = textworld.stream(self.queries, seed, split=self.split)
        return _stream(
            self.name,
            [item.text for item in items],
            [item.answer_class for item in items],
            [item.namespace for item in items],
            read_vectors(embedder_of(self.embedder), [item.text for item in items]),
            self.evidence,
            self.embedder,
        )


def _stream(
    name: str,
    texts: Sequence[str],
    classes: Sequence[str],
    namespaces: Sequence[str],
    vectors: Vector,
    evidence: bool,
    embedder: str,
) -> Stream:
    names, namespace = np.unique(np.array(namespaces), return_inverse=True)
    # A class means the same answer only inside its namespace, and no cache looks beyond it anyway.
    answer = numbers(list(zip(namespaces, classes, strict=True)))
    text = numbers(list(zip(namespaces, texts, strict=True)))
    stream = Stream(name, tuple(names.tolist()), namespace, vectors, answer, text, prompts=texts, embedder=embedder)
    if evidence:
        stream.pair = TextEvidence(texts)
    return stream


def numbers(keys: Sequence[Any]) -> Ints:
    """Return a number for each key, equal where the keys are."""
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
