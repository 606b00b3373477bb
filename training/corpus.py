"""Texts that the bundled table is fitted to: cleared ones only, and none of what it is evaluated on.

Three sources, each with its licence: prompts of our own text world, WordNet, and the docstrings of the standard
library of the Python that runs the build.

From the text world the fit learns contrasts: one question in three wordings, and a trap in two of them. A trap keeps
the wording and changes what decides the answer, so within one group nothing but meaning tells the two apart. Kinds of
traps take turns: in the world itself names alone would be half of them.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from recall_cli.measure.embedder.model_eval import default_folder, load
from recall_cli.measure.embedder.pair_sets import fow
from recall_cli.measure.synthetic import text as textworld
from recall_cli.measure.synthetic.classes import SWAP, AnswerClass, Intent, neighbour, random_class
from recall_cli.measure.synthetic.classes import load as load_intents
from recall_cli.measure.synthetic.edits import noise, text_of
from recall_cli.measure.synthetic.grammar import pick
from recall_cli.measure.synthetic.text import Split, two_templates
from recall_cli.measure.synthetic.wording import Wording, draw_wording
from training import wordnet


@dataclass(frozen=True, slots=True)
class Contrast:
    """Five prompts: the first three deserve one answer, the last two another."""

    asked: str
    reworded: str
    """The same question by another template."""
    varied: str
    """The same question by the first template, with other free words."""
    trap: str
    """The neighbouring question in the wording of `asked`."""
    reworded_trap: str
    """It in the wording of `reworded`."""


PROMPTS = tuple(field.name for field in fields(Contrast))


def contrasts(n: int, seed: int, split: Split = "train") -> list[Contrast]:
    """Return n groups; exchanged roles are left out, for a sum of word vectors cannot see them."""
    rng = np.random.default_rng([seed, 13])
    ways: dict[str, list[tuple[Intent, str]]] = defaultdict(list)
    for intent in load_intents():
        for trap, dimension in intent.moves:
            if trap != SWAP:
                ways[trap].append((intent, dimension))
    traps = sorted(ways)
    found: list[Contrast] = []
    for turn in count():
        if len(found) == n:
            break
        intent, dimension = pick(rng, ways[traps[turn % len(traps)]])
        asked = random_class(intent, rng)
        other = neighbour(asked, dimension, rng)
        if other is None:
            continue
        one, two = two_templates(intent, split, rng)
        here, there, again = (draw_wording(intent, template, rng) for template in (one, two, one))

        def said(wording: Wording, of: AnswerClass) -> str:
            return text_of(noise(wording.of(of), rng))

        group = Contrast(
            said(here, asked), said(there, asked), said(again, asked), said(here, other), said(there, other)
        )
        if group.asked.casefold() != group.trap.casefold():
            found.append(group)
    return found


SHORTEST, LONGEST = 8, 300
"""Characters of a sentence worth learning from: shorter is a word, longer is cut by the teacher."""
WORLD_STREAMS, WORLD_PROMPTS = 4, 12_000
PARAGRAPHS = 3
"""Of a docstring: what comes later is tables and examples."""
NO_DOCS = frozenset({"site-packages", "test", "tests", "idlelib", "lib2to3", "idle_test"})
SENTENCE = re.compile(r"(?<=[.!?])\s")

Texts = Callable[[Path], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where texts come from, and what they may be used under."""

    name: str
    licence: str
    texts: Texts
    """Takes the folder of WordNet."""


def own_prompts(_: Path) -> Iterator[str]:
    """Yield prompts of the text world's train wordings; the held-out ones are for evaluation."""
    for seed in range(WORLD_STREAMS):
        for item in textworld.stream(WORLD_PROMPTS, 900 + seed, split="train", classes=4_000, one_offs=0.6, zipf=0.3):
            yield item.text


def docstrings(_: Path) -> Iterator[str]:
    """Yield the first sentences of the standard library's docstrings."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if NO_DOCS.isdisjoint(path.relative_to(library).parts):
            yield from _sentences_of(path)


def _sentences_of(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, OSError):
        return  # a file of another Python, kept as data
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            paragraphs = (ast.get_docstring(node) or "").split("\n\n")[:PARAGRAPHS]
            yield from (SENTENCE.split(" ".join(paragraph.split()))[0] for paragraph in paragraphs)


SOURCES = (
    Source("recall's text world, train wordings", "Apache-2.0", own_prompts),
    Source("WordNet 3.0: glosses, examples, synonyms", "WordNet licence", wordnet.sentences),
    Source("docstrings of Python's standard library", "PSF-2.0", docstrings),
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Distinct sentences in a seeded order, and where they came from."""

    texts: tuple[str, ...]
    sources: tuple[dict[str, Any], ...]
    left_out: int
    """Sentences that an evaluation set holds too."""
    digest: str


def corpus(folder: Path, data: Path | None, sources: Sequence[Source] = SOURCES) -> Corpus:
    """Return the sentences of all sources. Raises InputError when WordNet cannot be read.

    :param data: the evaluation data, whose every text is left out by its hash; None looks beside the checkout.
    """
    banned = evaluation_hashes(data)
    seen: set[bytes] = set()
    texts: list[str] = []
    counts = []
    left_out = 0
    for source in sources:
        before = len(texts)
        for text in source.texts(folder):
            line = " ".join(text.split())
            key = text_hash(line)
            if not SHORTEST <= len(line) <= LONGEST or key in seen:
                continue
            seen.add(key)
            if key in banned:
                left_out += 1
            else:
                texts.append(line)
        counts.append({"source": source.name, "licence": source.licence, "sentences": len(texts) - before})
    # Whatever part of it is taken, every source is in it.
    order = np.random.default_rng(0).permutation(len(texts)).tolist()
    shuffled = tuple(texts[i] for i in order)
    return Corpus(shuffled, tuple(counts), left_out, blake3("\n".join(shuffled).encode("utf-8", "replace")).hexdigest())


def text_hash(text: str) -> bytes:
    """Return what texts share that differ in case, spaces and punctuation alone."""
    return blake3("".join(c for c in text.casefold() if c.isalnum()).encode("utf-8", "replace")).digest(16)


def evaluation_hashes(data: Path | None) -> frozenset[bytes]:
    """Return the hashes of every text that the tables of MODEL.md are measured on; empty without the data."""
    folder = data or default_folder()
    if folder is None:
        return frozenset()
    texts: list[Iterable[str]] = []
    for labelled in load(folder):
        texts += [[text for text, _ in (*labelled.train, *labelled.test)], labelled.outside]
    texts.append([str(side) for pair in fow(folder).pairs for side in (pair.a, pair.b)])
    return frozenset(text_hash(text) for some in texts for text in some)
