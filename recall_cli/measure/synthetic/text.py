"""The text world: prompts of our own whose right answers are known, for evaluation and for learning.

`stream` plays traffic: questions come again in other words, popular ones more often, and some have a twin
that asks for something else. `pairs` sets two texts side by side, same answer or trap, half of each and each
in two shapes: alike in their words and not alike. One author wrote the templates; see the head of
`workloads/text-world.toml` for what the world can and cannot show.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Literal

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.measure.evaluate.pairs import Pair
from recall_cli.measure.prompts import Kind
from recall_cli.measure.synthetic.classes import AnswerClass, Intent, load, near_keys, neighbour, random_class
from recall_cli.measure.synthetic.conversations import talk_pairs
from recall_cli.measure.synthetic.edits import EDITS, noise, text_of
from recall_cli.measure.synthetic.grammar import Template, pick
from recall_cli.measure.synthetic.wording import draw_wording, word

Split = Literal["train", "held-out"]

ASPECT = "aspect"
"""The trap of another question about the same thing: two intents that share a value."""
LOW_OVERLAP = 0.5
"""Share of common words below which two texts count as not alike; near it, both shapes meet."""
TRIES = 200
"""Draws for one pair before its category is passed over: small intents run out of new texts."""
TWINS = 0.5
"""Share of the recurring classes of a stream that have a neighbour among them: what makes it a hard stream."""


@dataclass(frozen=True, slots=True)
class TextItem:
    """One prompt of a stream."""

    text: str
    answer_class: str
    """Items of one class deserve one answer, others never do."""
    namespace: str
    kind: Kind
    """REPEAT: this text was seen; PARAPHRASE: its class was; LOOKALIKE: a neighbouring class was; else NEW."""
    asked: AnswerClass
    """The class itself."""


def domains() -> tuple[str, ...]:
    """Return the names of the domains, which are the namespaces of a stream."""
    return tuple(dict.fromkeys(intent.domain for intent in load()))


def stream(
    n: int,
    seed: int,
    *,
    split: Split | None = None,
    only: Collection[str] | None = None,
    classes: int = 400,
    zipf: float = 1.0,
    one_offs: float = 0.15,
) -> list[TextItem]:
    """Return n prompts in the order they are asked; fewer of one seed are a prefix of more. See `traffic`."""
    asked = traffic(seed, split=split, only=only, classes=classes, zipf=zipf, one_offs=one_offs)
    return list(islice(asked, n))


def traffic(
    seed: int,
    *,
    split: Split | None = None,
    only: Collection[str] | None = None,
    classes: int = 400,
    zipf: float = 1.0,
    one_offs: float = 0.15,
) -> Iterator[TextItem]:
    """Yield prompts without end, in the order they are asked.

    :param split: keep to the templates of one split; None uses all.
    :param only: the domains to ask about; None is all of them.
    :param classes: how many classes recur, over all domains; TWINS of them come with a neighbour.
    :param zipf: exponent of their popularity, 0 for equal.
    :param one_offs: share of prompts whose class was not among those; most are asked once.
    """
    rng = np.random.default_rng([seed, 11])
    intents = _chosen(only)
    pool = _pool(intents, classes, rng)
    weights = 1 / np.arange(1, len(pool) + 1) ** zipf
    heights = np.cumsum(weights / weights.sum())
    owner: dict[str, str] = {}
    texts: set[str] = set()
    seen: set[str] = set()
    near: set[str] = set()
    while True:
        if rng.random() < one_offs:
            asked = random_class(pick(rng, intents), rng)
        else:
            asked = pool[min(int(np.searchsorted(heights, rng.random())), len(pool) - 1)]
        text = word(asked, rng, split)
        if owner.setdefault(text.casefold(), asked.label) != asked.label:
            continue  # two classes in one text would make the truth depend on chance
        keys = set(near_keys(asked))
        if asked.label in seen:
            kind = Kind.REPEAT if text in texts else Kind.PARAPHRASE
        else:
            kind = Kind.LOOKALIKE if keys & near else Kind.NEW
        texts.add(text)
        seen.add(asked.label)
        near |= keys
        yield TextItem(text, asked.label, asked.intent.domain, kind, asked)


def pairs(
    n: int,
    seed: int,
    split: Split = "train",
    *,
    only: Collection[str] | None = None,
    conversations: float = 0.1,
) -> list[Pair]:
    """Return n pairs, half of them with one answer; the splits share no template.

    Equal shares of the four shapes (same: "high" and "low" overlap; trap: "minimal" and "reworded") and,
    within the traps, of the categories as far as they last. `group` of a pair is its domain.

    :param conversations: share of pairs whose sides are conversations (see `textworld_talks`).
    Raises UsageError when the templates do not yield n distinct pairs.
    """
    rng = np.random.default_rng([seed, 12])
    intents = _chosen(only)
    talks = talk_pairs(intents, split, rng) if conversations > 0 else iter(())
    texts = _text_pairs(intents, split, rng)
    found: dict[tuple[str, str], Pair] = {}
    idle = 0
    while len(found) < n:
        source = talks if rng.random() < conversations else texts
        pair = next(source, None)
        key = (str(pair.a).casefold(), str(pair.b).casefold()) if pair else None
        if pair is None or key is None or key in found:
            idle += 1
            if idle > TRIES + n:
                raise UsageError(f"{n:,} pairs were asked for, but the templates yield about {len(found):,}.")
            continue
        found[key] = pair
    return list(found.values())


def _chosen(only: Collection[str] | None) -> list[Intent]:
    unknown = set(only or ()) - set(domains())
    if unknown:
        raise UsageError(f"no domain {', '.join(sorted(unknown))}", hint=f"choose from {', '.join(domains())}")
    return [intent for intent in load() if only is None or intent.domain in only]


def _pool(intents: Sequence[Intent], classes: int, rng: np.random.Generator) -> list[AnswerClass]:
    """Return distinct classes in random order of popularity, about TWINS of them beside a neighbour."""
    pool: dict[str, AnswerClass] = {}
    for _ in range(classes * TRIES):
        asked = random_class(pick(rng, intents), rng)
        pool.setdefault(asked.label, asked)
        if rng.random() < TWINS / (2 - TWINS):
            moves = asked.intent.moves
            twin = neighbour(asked, pick(rng, moves)[1], rng)
            if twin is not None:
                pool.setdefault(twin.label, twin)
        if len(pool) >= classes:
            break
    found = list(pool.values())[:classes]
    return [found[i] for i in rng.permutation(len(found))]


def _text_pairs(intents: Sequence[Intent], split: Split, rng: np.random.Generator) -> Iterator[Pair]:
    """Yield pairs for ever, the shapes and the trap categories taking turns."""
    by_trap: dict[str, list[tuple[Intent, str]]] = defaultdict(list)
    for intent in intents:
        for trap, dimension in intent.moves:
            by_trap[trap].append((intent, dimension))
    traps = sorted({*by_trap, ASPECT})
    for turn in count():
        trap = traps[turn % len(traps)]
        for shape in ("high", "minimal", "low", "reworded"):
            for _ in range(TRIES):
                pair = _of_shape(shape, trap, by_trap[trap], intents, split, rng)
                if pair:
                    yield pair
                    break


def _of_shape(
    shape: str,
    trap: str,
    choices: Sequence[tuple[Intent, str]],
    intents: Sequence[Intent],
    split: Split,
    rng: np.random.Generator,
) -> Pair | None:
    if shape == "high":
        return _same_high(pick(rng, intents), split, rng)
    if shape == "low":
        return _same_low(pick(rng, intents), split, rng)
    if shape == "reworded" and trap == ASPECT:
        return _aspect(intents, split, rng)
    return _trap(choices, trap, split, rng, minimal=shape == "minimal")


def _same_high(intent: Intent, split: Split, rng: np.random.Generator) -> Pair | None:
    """One template twice: other free words, or an edit, or both."""
    asked = random_class(intent, rng)
    templates = intent.templates(split)
    wording = draw_wording(intent, pick(rng, templates), rng)
    a = noise(wording.of(asked), rng)
    edits = ("words", "words", *EDITS, *(("order", "order") if len(wording.template.sentences) > 1 else ()))
    edit = pick(rng, edits)
    if edit in EDITS:
        b = EDITS[edit](wording.of(asked), rng)
    elif edit == "order":
        b = noise(replace(wording, order=1 - wording.order).of(asked), rng)
    else:
        b = noise(draw_wording(intent, wording.template, rng).of(asked), rng)
    return _pair(text_of(a), text_of(b), True, edit, "high", intent.domain)


def _same_low(intent: Intent, split: Split, rng: np.random.Generator) -> Pair | None:
    """Two templates of one class."""
    asked = random_class(intent, rng)
    one, two = two_templates(intent, split, rng)
    a, b = (text_of(noise(draw_wording(intent, t, rng).of(asked), rng)) for t in (one, two))
    return _pair(a, b, True, "keywords" if one.keywords or two.keywords else "reworded", "low", intent.domain)


def _trap(
    choices: Sequence[tuple[Intent, str]], trap: str, split: Split, rng: np.random.Generator, *, minimal: bool = False
) -> Pair | None:
    """Two classes one step apart, in one wording (minimal) or in two templates."""
    if not choices:
        return None
    intent, dimension = pick(rng, choices)
    asked = random_class(intent, rng)
    other = neighbour(asked, dimension, rng)
    if other is None:
        return None
    one, two = two_templates(intent, split, rng)
    here = draw_wording(intent, one, rng)
    there = here if minimal else draw_wording(intent, two, rng)
    a, b = text_of(noise(here.of(asked), rng)), text_of(noise(there.of(other), rng))
    return _pair(a, b, False, trap, "minimal" if minimal else "reworded", intent.domain)


def _aspect(intents: Sequence[Intent], split: Split, rng: np.random.Generator) -> Pair | None:
    """Two intents about one thing."""
    one, two = pick(rng, intents), pick(rng, intents)
    shared = [(x, y) for x, v in one.slots.items() for y, w in two.slots.items() if v is w]
    if one.domain != two.domain or one.name == two.name or not shared:
        return None
    a = random_class(one, rng)
    x, y = pick(rng, shared)
    for _ in range(TRIES):
        b = random_class(two, rng)
        if b.picks[y] == a.picks[x]:
            return _pair(word(a, rng, split), word(b, rng, split), False, ASPECT, "reworded", one.domain)
    return None


def two_templates(intent: Intent, split: Split, rng: np.random.Generator) -> tuple[Template, Template]:
    """Return two wordings of an intent, keyword queries no more often than traffic has them."""
    templates = intent.templates(split)
    sentences = [template for template in templates if not template.keywords]
    # A split of few templates would otherwise show keyword queries in most pairs.
    if len(sentences) > 1 and rng.random() < 0.5:
        templates = tuple(sentences)
    one, two = rng.choice(len(templates), 2, replace=False)
    return templates[one], templates[two]


def _pair(a: str, b: str, same: bool, category: str, style: str, group: str) -> Pair | None:
    """Return the pair when its texts differ by more than case and have the shape that `style` promises."""
    alike = overlap(a, b) >= LOW_OVERLAP
    if a.casefold() == b.casefold() or (style in ("high", "minimal")) != alike:
        return None
    return Pair(a, b, same, category, style, group)


def overlap(a: str, b: str) -> float:
    """Return the Jaccard overlap of two texts' words, 0..1."""
    one, two = (set(re.findall(r"\w+", text.lower())) for text in (a, b))
    return len(one & two) / len(one | two) if one | two else 1.0
