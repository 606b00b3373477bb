"""The pairs that the prior weights are learned on: several shapes, none of them trusted alone.

A *family* is one source of text; a *set* is one shape of it (which kind of "same" stands against which
kind of "different"). Folds never share a question text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import facts
from recall_cli.cache.policy.risk_model import FIELDS, row
from recall_cli.errors import InputError
from recall_cli.measure.embedder.model_eval import Labelled, load
from recall_cli.measure.embedder.scores import nearest_pairs, sample_pairs
from recall_cli.types import Embedder, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

SHAPES = (("low", "minimal"), ("high", "minimal"), ("low", "reworded"), ("high", "reworded"))
"""Which same-answer wording stands against which trap. In the first the traps look more alike than the
true pairs, in the last it is the other way round: weights that only learned a shape fail on the other."""

ENTRIES = 10
"""Stored utterances an intent in the stream sets: as dense as a young cache."""

NEAR = 8
"""Candidates whose answer groups make the margin."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One set as numbers."""

    name: str
    family: str
    x: Floats
    """Shape (n, len(FIELDS))."""
    similarity: Floats
    same: Bools
    fold: Ints

    def take(self, which: Bools) -> Rows:
        """Return some of the rows."""
        return Rows(self.name, self.family, self.x[which], self.similarity[which], self.same[which], self.fold[which])


Texts = Sequence[tuple[str, str, bool, int]]
"""a, b, same, fold."""


def rows_of(name: str, family: str, texts: Texts, embedder: Embedder) -> Rows:
    """Return the evidence of text pairs: similarity and what the texts tell, no margin and no history."""
    a = embedder.embed_many([pair[0] for pair in texts])
    b = embedder.embed_many([pair[1] for pair in texts])
    similarity = np.einsum("ij,ij->i", a, b).astype(np.float64)
    x = np.empty((len(texts), len(FIELDS)))
    for i, (one, two, _, _) in enumerate(texts):
        x[i] = row(evidence(facts(two), facts(one), float(similarity[i])))
    same = np.array([pair[2] for pair in texts], dtype=np.bool_)
    return Rows(name, family, x, similarity, same, np.array([pair[3] for pair in texts], dtype=np.int64))


def world(embedder: Embedder, n: int, seed: int) -> list[Rows]:
    """Return the text world in four shapes; its two splits, which share no template, are the folds."""
    from recall_cli.measure.synthetic import text as textworld

    texts: list[tuple[str, str, bool, int]] = []
    styles: list[str] = []
    splits: tuple[textworld.Split, ...] = ("train", "held-out")
    for fold, split in enumerate(splits):
        for pair in textworld.pairs(n, seed, split, conversations=0.0):
            if isinstance(pair.a, str) and isinstance(pair.b, str):
                texts.append((pair.a, pair.b, pair.same, fold))
                styles.append(pair.style)
    rows = rows_of("", "text world", texts, embedder)
    style = np.array(styles)
    found = []
    for same, trap in SHAPES:
        some = rows.take((style == same) | (style == trap))
        found.append(Rows(f"text world, {same}/{trap}", *_after_name(some)))
    return found


def _after_name(rows: Rows) -> tuple[str, Floats, Floats, Bools, Ints]:
    return rows.family, rows.x, rows.similarity, rows.same, rows.fold


def fow(folder: Path, embedder: Embedder, folds: int = 5) -> Rows:
    """Return fow-cache-dev; pairs that share a question text are in one fold."""
    path = folder / "fow-cache-dev" / "pairs.jsonl"
    try:
        pairs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        texts = [(str(p["a"]), str(p["b"]), bool(p["same_answer"])) for p in pairs]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="give the evaluation data folder") from error
    fold = folds_by_text([(a, b) for a, b, _ in texts], folds)
    return rows_of("fow-cache-dev", "fow-cache-dev", [(*t, int(f)) for t, f in zip(texts, fold, strict=True)], embedder)


def folds_by_text(pairs: Sequence[tuple[str, str]], folds: int, seed: int = 0) -> Ints:
    """Return a fold a pair such that no text, but for case, space and punctuation, is in two folds."""
    leader: dict[str, str] = {}

    def find(text: str) -> str:
        while leader.setdefault(text, text) != text:
            text = leader[text]
        return text

    keys = [tuple("".join(c for c in text.casefold() if c.isalnum()) for text in pair) for pair in pairs]
    for a, b in keys:
        leader[find(a)] = find(b)
    groups = [find(a) for a, _ in keys]
    names = sorted(set(groups))
    np.random.default_rng([seed, 21]).shuffle(names)
    # The largest groups first, each to the fold with the fewest pairs so far.
    size = {name: groups.count(name) for name in names}
    load_of = [0] * folds
    where: dict[str, int] = {}
    for name in sorted(names, key=lambda g: -size[g]):
        where[name] = load_of.index(min(load_of))
        load_of[where[name]] += size[name]
    return np.array([where[group] for group in groups], dtype=np.int64)


def intents(folder: Path, embedder: Embedder, seed: int, most: int = 1_000) -> list[Rows]:
    """Return CLINC150 and BANKING77 in three shapes, each in two folds.

    Random pairs, nearest pairs, and the best candidate of a store with its margin.

    "Same" is of the same intent: kinder than the same answer. Texts, not intents, part the folds.
    """
    found: list[Rows] = []
    for labelled in load(folder):
        halves = [_half(labelled, fold, embedder, seed, most) for fold in (0, 1)]
        for which, name in enumerate(("random pairs", "nearest pairs", "best of a store")):
            found.append(_joined(f"{labelled.name}, {name}", [half[which] for half in halves]))
    return found


def _half(labelled: Labelled, fold: int, embedder: Embedder, seed: int, most: int) -> tuple[Rows, Rows, Rows]:
    # Text and intent, each text once: a text twice would be its own nearest neighbour.
    texts = dict([*labelled.train, *labelled.test])
    rng = np.random.default_rng([seed, 22])
    order = rng.permutation(len(texts))
    every = list(texts.items())
    mine = [every[i] for place, i in enumerate(order) if place % 2 == fold]
    names = {name: i for i, name in enumerate(sorted(set(texts.values())))}
    vectors = embedder.embed_many([text for text, _ in mine])
    known = np.flatnonzero(vectors.any(axis=1))
    mine = [mine[i] for i in known]
    vectors = vectors[known]
    intent = np.array([names[name] for _, name in mine], dtype=np.int64)
    few = slice(0, most)
    drawn = sample_pairs(intent, most, seed), nearest_pairs(vectors[few], intent[few])
    rows = []
    for left, right in drawn:
        ends = zip(left.tolist(), right.tolist(), strict=True)
        pairs = [(mine[i][0], mine[j][0], bool(intent[i] == intent[j]), fold) for i, j in ends]
        rows.append(rows_of(labelled.name, labelled.name, pairs, embedder))
    return rows[0], rows[1], _store_rows(labelled.name, mine, vectors, intent, fold, most)


def _store_rows(
    family: str, texts: Sequence[tuple[str, str]], vectors: Vector, intent: Ints, fold: int, most: int
) -> Rows:
    """Return the best candidate of each query, with its margin to the best of another intent."""
    stored: list[int] = []
    asked: list[int] = []
    count: dict[int, int] = {}
    for i, its in enumerate(intent):
        seen = count.get(int(its), 0)
        (stored if seen < ENTRIES else asked).append(i)
        count[int(its)] = seen + 1
    asked = asked[:most]
    scores = vectors[asked] @ vectors[stored].T
    best = np.argsort(-scores, axis=1)[:, :NEAR]
    known = {i: facts(texts[i][0]) for i in stored}
    x = np.empty((len(asked), len(FIELDS)))
    similarity = np.empty(len(asked))
    same = np.empty(len(asked), dtype=np.bool_)
    for n, i in enumerate(asked):
        near = [(float(scores[n, j]), int(intent[stored[j]])) for j in best[n]]
        entry = stored[best[n, 0]]
        similarity[n] = near[0][0]
        x[n] = row(evidence(facts(texts[i][0]), known[entry], near[0][0], near[1:], group=near[0][1]))
        same[n] = intent[i] == intent[entry]
    return Rows(family, family, x, similarity, same, np.full(len(asked), fold, dtype=np.int64))


def _joined(name: str, parts: Sequence[Rows]) -> Rows:
    return Rows(
        name,
        parts[0].family,
        np.concatenate([p.x for p in parts]),
        np.concatenate([p.similarity for p in parts]),
        np.concatenate([p.same for p in parts]),
        np.concatenate([p.fold for p in parts]),
    )
