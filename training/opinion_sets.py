"""Kinds of pairs that the second opinion is learned from, and others that no fit sees.

Unlike on purpose, in source, length, wording and in what makes a trap: a rule that holds on all of them with each
left out in turn has learned more than how one set was made. A *family* shares a source; it is left out as a whole.

Some pairs are edits of plain sentences, which change what is said or do not; an edit returns None where it does not
apply. They know WordNet's synonyms and opposites, and none of the lists that the checks of `cache.evidence` use: what
is measured must not be what made the measure.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import numpy as np

from recall_cli.cache.evidence.text_features import facts
from recall_cli.measure.embedder import pair_sets
from recall_cli.measure.embedder.model_eval import Labelled, load
from recall_cli.measure.embedder.scores import nearest_pairs, sample_pairs
from recall_cli.measure.evaluate.pairs import Pair
from recall_cli.measure.prompts import Kind, text_bytes
from recall_cli.measure.synthetic import text as textworld
from recall_cli.measure.synthetic.edits import AFTER, BEFORE
from recall_cli.measure.synthetic.grammar import pick
from recall_cli.measure.workload import bundled, workloads_dir
from recall_cli.types import Embedder
from training import wordnet
from training.wordnet import Synset

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


WORLD, OWN, WORDNET = "text world", "own prompts", "WordNet"
TERMS = ("What is meant by {}?", "Explain the term {}", "Define {}", "What does {} mean?", "{} meaning")
TWINS = (("decimal", "_pydecimal"), ("io", "_pyio"))
"""Modules of the standard library in C and again in Python, documented by different hands."""
SIGNATURE = re.compile(r"^[\w.]+\([^)]*\)\s*(?:->\s*[\w, ()]+)?\s*(?:--|:)?\s*")
SENTENCE = re.compile(r"(?<=[.!?])\s")
LEAST, MOST = 6, 18
"""Words of a sentence that is edited."""


@dataclass(frozen=True, slots=True)
class PairKind:
    """Pairs of one kind."""

    name: str
    family: str
    pairs: Sequence[Pair]


def learned(folder: Path, *, n: int = 600, seed: int = 0) -> list[PairKind]:
    """Return the kinds that the weights are learned from; `folder` has WordNet. Raises InputError."""
    rng = np.random.default_rng([seed, 31])
    found = list(wordnet.synsets(folder))
    order = rng.permutation(np.arange(1, len(found) - 1)).tolist()
    return [
        PairKind("text world", WORLD, textworld.pairs(2 * n, seed, "train", conversations=0.0)),
        PairKind("bundled prompts", OWN, prompts()),
        PairKind("a word of a sentence", WORDNET, words_in_sentences(found, order, n, rng)),
        PairKind("terms asked for", WORDNET, terms(found, order, n, rng)),
        PairKind("edited sentences", WORDNET, edited(found, wordnet.antonyms(folder), n, rng)),
    ]


def unseen(data: Path, near: Embedder, *, n: int = 1_200, seed: int = 0) -> list[PairKind]:
    """Return kinds that no fit sees; the text world's other wordings are of a family that one does. Raises InputError.

    :param near: chooses the nearest pairs of one intent and of two.
    """
    kinds = [
        PairKind("text world, held-out wordings", WORLD, textworld.pairs(n // 2, 5, "held-out", conversations=0.0)),
        PairKind("asked apart", "asked apart", asked_apart()),
        PairKind("docstrings", "docstrings", disjoint(docstrings(np.random.default_rng([seed, 33])), seed)),
        PairKind("fow-cache-dev", "fow-cache-dev", pair_sets.fow(data).pairs),
    ]
    return kinds + [kind for labelled in load(data) for kind in intents(labelled, near, n, seed)]


def prompts() -> list[Pair]:
    """Return the questions of the bundled workload with their paraphrases and their look-alikes."""
    return [Pair(entry, query.text, query.kind is Kind.PARAPHRASE, query.trap) for query, entry in bundled().compared()]


def asked_apart() -> list[Pair]:
    """Return everyday questions of our own, each against its rewording and against one that it may be taken for."""
    lines = text_bytes(workloads_dir() / "asked-apart.tsv").decode().splitlines()[1:]
    triples = [line.split("\t") for line in lines]
    return [
        pair
        for asked, same, other in triples
        for pair in (Pair(asked, same, True), Pair(asked, other, False), Pair(same, other, False))
    ]


def words_in_sentences(
    synsets: Sequence[wordnet.Synset], order: Iterable[int], n: int, rng: np.random.Generator
) -> list[Pair]:
    """Return examples in which one word became a synonym, or a word of the meaning that stands beside it."""
    found: list[Pair] = []
    for place in order:
        synset, beside = synsets[place], synsets[place + 1]
        if len(found) >= n:
            break
        if len(synset.words) < 2 or not synset.examples:
            continue
        text = pick(rng, synset.examples)
        word = next((word for word in synset.words if replaced(text, word, "")), None)
        if word is None or len(text.split()) < LEAST:
            continue
        same = replaced(text, word, pick(rng, [other for other in synset.words if other != word]))
        other = replaced(text, word, beside.words[0])
        found += [Pair(text, str(same), True), Pair(text, str(other), False)]
    return found


def terms(synsets: Sequence[wordnet.Synset], order: Iterable[int], n: int, rng: np.random.Generator) -> list[Pair]:
    """Return questions for a term: asked again or for a synonym, against the term of the meaning beside it."""
    found: list[Pair] = []
    for place in order:
        words, other = synsets[place].words, synsets[place + 1].words[0]
        if len(found) >= n:
            break
        if len(words) < 2:
            continue
        one, two = (str(way) for way in rng.permutation(TERMS)[:2])
        word, synonym = (str(word) for word in rng.permutation(words)[:2])
        found.append(Pair(one.format(word), two.format(synonym if rng.random() < 0.5 else word), True))
        found.append(Pair(one.format(word), pick(rng, (one, two)).format(other), False))
    return found


def edited(
    synsets: Sequence[wordnet.Synset], opposites: dict[str, str], n: int, rng: np.random.Generator
) -> list[Pair]:
    """Return sentences with an edit that keeps what they say, and with one that changes it; each kind as often."""
    edits = editor(synsets, opposites)
    texts = sorted({t for s in synsets for t in s.examples if t.isascii() and LEAST <= len(t.split()) <= MOST})
    counts = dict.fromkeys((*edits.same(), *edits.other()), 0)
    found: list[Pair] = []
    for place in rng.permutation(len(texts)).tolist():
        if len(found) >= n:
            break
        text = texts[place]
        for same, choices in ((True, edits.same()), (False, edits.other())):
            for edit in sorted(choices, key=counts.__getitem__):
                changed = edit(text, rng)
                if changed is None or changed.casefold() == text.casefold():
                    continue
                counts[edit] += 1
                if rng.random() < 0.5:
                    # Either label may be reworded on top, so that a rewording tells nothing.
                    changed = pick(rng, edits.same())(changed, rng) or changed
                found.append(Pair(text, changed, same, getattr(edit, "__name__", "")))
                break
    return found


def docstrings(rng: np.random.Generator) -> list[Pair]:
    """Return first sentences on one method by two hands, and against the likest of some others of its class."""
    found: list[Pair] = []
    for compiled, plain in TWINS:
        for owner, theirs in inspect.getmembers(import_module(plain), inspect.isclass):
            mine = getattr(import_module(compiled), owner, None)
            said = {name: (_first(mine, name), _first(theirs, name)) for name in sorted(vars(theirs))}
            said = {name: both for name, both in said.items() if all(both)}
            for name, (one, other) in said.items():
                if one.casefold() != other.casefold():
                    found.append(Pair(one, other, True, "", "", name))
                rest = [text for key, (_, text) in said.items() if key != name and text not in (one, other)]
                if rest:
                    some = [rest[i] for i in rng.permutation(len(rest))[:6]]
                    found.append(Pair(one, max(some, key=lambda text: _overlap(one, text)), False, "", "", name))
    return found


def _first(owner: object, name: str) -> str:
    """Return the first sentence on a method, without its signature; "" when there is none of its own."""
    method = vars(owner).get(name) if inspect.isclass(owner) else None
    paragraphs = [part for part in (inspect.getdoc(method) or "").split("\n\n") if part.strip()] if method else []
    if len(paragraphs) > 1 and SIGNATURE.fullmatch(paragraphs[0]):
        del paragraphs[0]
    return SENTENCE.split(SIGNATURE.sub("", " ".join(paragraphs[0].split())))[0] if paragraphs else ""


def _overlap(a: str, b: str) -> float:
    one, other = facts(a).words, facts(b).words
    return len(one & other) / max(1, len(one | other))


def intents(labelled: Labelled, near: Embedder, n: int, seed: int) -> list[PairKind]:
    """Return pairs of one intent and of two: each utterance with its nearest of either, and pairs drawn at random.

    "Same" is of the same intent: kinder than the same answer, for two amounts are one intent.
    """
    # Each text once: a text twice would be its own nearest neighbour.
    every = list(dict([*labelled.train, *labelled.test]).items())
    chosen = [every[i] for i in np.random.default_rng([seed, 32]).permutation(len(every))[:n]]
    names = {name: i for i, name in enumerate(sorted({name for _, name in chosen}))}
    intent = np.array([names[name] for _, name in chosen], dtype=np.int64)
    drawn = {
        "nearest": nearest_pairs(near.embed_many([text for text, _ in chosen]), intent),
        "random": sample_pairs(intent, n // 2, seed),
    }
    found = []
    for how, ends in drawn.items():
        pairs = [Pair(chosen[i][0], chosen[j][0], bool(intent[i] == intent[j])) for i, j in zip(*ends, strict=True)]
        found.append(PairKind(f"{labelled.name}, {how} pairs", labelled.name, disjoint(pairs, seed)))
    return found


def disjoint(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Return as many of the pairs, of either label in turns, as share no text: else none could be resampled alone."""
    order = np.random.default_rng([seed, 34]).permutation(len(pairs)).tolist()
    waiting = {same: [pairs[i] for i in order if pairs[i].same is same] for same in (True, False)}
    used: set[object] = set()
    found: list[Pair] = []
    while True:
        same = len(found) % 2 == 0
        pair = next((p for p in waiting[same] if p.a not in used and p.b not in used), None)
        if pair is None:
            return found
        used |= {pair.a, pair.b}
        found.append(pair)
