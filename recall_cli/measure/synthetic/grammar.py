"""Templates of the text world: what is written down once and read in many wordings.

    "How do I [change|switch] from {from} to {to}?"         [a|b]        free: either word, the answer is the same
    "Is {drug} <neg:safe|unsafe> with {food}?"              <name:a|b>   deciding: the class says which, never chance
    "I moved to {city}. ~ Which form do I need?"            x ~ y        sentences that may stand in either order
    "What does a seat cost ^ on {plan}?"                    x ^ y        "On Team, what does a seat cost?" as well
    "# change {from} to {to}"                               leading #    a keyword query, not a sentence

A slot in braces is deciding too; its value has one or more spellings, of which any will do. Free and
deciding parts may hold one another. Rendering keeps deciding text apart from the rest, so that a typo
can be put into the rest alone: a typo in "isn't" or in "15" may change what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """Return one of the choices, each as likely as the others; there must be one."""
    return choices[int(rng.integers(len(choices)))]


SPECIAL = re.compile(r"[\[\]<>{}|]|<\w+:")
OWN = re.compile(r"I('|\b)")
"""A first word that keeps its capital inside a sentence."""
ARTICLE = re.compile(r"(?<!\w)([Aa])n? $")
VOWEL = re.compile(
    r"(?!e[uw]|us\b|uk\b|uni|use|one\b)[aeiou]|8|1[18]\b|(?-i:[FHLMNRSX](?=[A-Z]{2}|-?\d))", re.IGNORECASE
)
"""What is said with a vowel first, letter names among it: an hour is not, an MRI is."""
FLIP_START = re.compile(r"<(\w+):")
SLOT = re.compile(r"\{(\w+)\}")

Segment = tuple[str, bool]
"""A piece of text, and whether it decides the answer."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Text as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A deciding value, by the name of its dimension."""

    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives in one place: free ones have a number (which draw picks), deciding ones a name."""

    name: str
    number: int
    branches: tuple[tuple[Node, ...], ...]


Node = Literal | Slot | Choice


@dataclass(frozen=True, slots=True)
class Template:
    """One wording of an intent."""

    source: str
    keywords: bool
    sentences: tuple[tuple[Node, ...], ...]
    """More than one when they may change places; of a fronted template, the two parts of its sentence."""
    fronted: str
    """The mark that ends a sentence whose second part may come first, "" when it may not."""
    choices: int
    """How many draws `render` takes."""

    @property
    def dimensions(self) -> frozenset[str]:
        """Names of the slots and flips that every reading of the template shows."""
        return frozenset().union(*(_shown(sentence) for sentence in self.sentences))


def parse(source: str) -> Template:
    """Return the template of a line of the definition. Raises ValueError when brackets do not match."""
    keywords = source.startswith("#")
    counter = iter(range(1000))
    text, fronted = source.lstrip("# "), ""
    if " ^ " in text:
        text, fronted = text[:-1], text[-1]
        if " ~ " in text or fronted not in ".?!":
            raise ValueError(f"one sentence with its final mark can have its end in front, not {source!r}")
    sentences = tuple(_parse_all(part.strip(), counter) for part in re.split(" [~^] ", text))
    return Template(source, keywords, sentences, fronted, next(counter))


def _parse_all(text: str, counter: Iterator[int]) -> tuple[Node, ...]:
    nodes, rest = _parse(text, counter, nested=False)
    if rest:
        raise ValueError(f"unmatched bracket before {rest!r} in {text!r}")
    return nodes


def _parse(text: str, counter: Iterator[int], *, nested: bool) -> tuple[tuple[Node, ...], str]:
    """Return the nodes up to a separator or closing bracket (when nested), and what is left."""
    nodes: list[Node] = []
    while text:
        mark = SPECIAL.search(text)
        if mark is None or (nested and mark.group() in "|]>"):
            end = len(text) if mark is None else mark.start()
            nodes += [Literal(text[:end])] if end else []
            return tuple(nodes), text[end:]
        if mark.start():
            nodes.append(Literal(text[: mark.start()]))
            text = text[mark.start() :]
        if slot := SLOT.match(text):
            nodes.append(Slot(slot.group(1)))
            text = text[slot.end() :]
        elif text[0] == "[":
            choice, text = _branches("", text[1:], "]", counter)
            nodes.append(choice)
        elif flip := FLIP_START.match(text):
            choice, text = _branches(flip.group(1), text[flip.end() :], ">", counter)
            nodes.append(choice)
        else:
            raise ValueError(f"stray {text[0]!r} at {text!r}")
    return tuple(nodes), ""


def _branches(name: str, text: str, close: str, counter: Iterator[int]) -> tuple[Choice, str]:
    number = -1 if name else next(counter)
    branches = []
    while True:
        nodes, text = _parse(text, counter, nested=True)
        branches.append(nodes)
        if not text or text[0] not in ("|", close):
            raise ValueError(f"a bracket is not closed by {close!r} before {text!r}")
        separator, text = text[0], text[1:]
        if separator == close:
            return Choice(name, number, tuple(branches)), text


def _shown(nodes: Sequence[Node]) -> frozenset[str]:
    """Names that every reading of the nodes shows: all of a sequence, what is common to all branches."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Slot):
            found.add(node.name)
        elif isinstance(node, Choice):
            found |= frozenset.intersection(*map(_shown, node.branches)) | ({node.name} if node.name else set())
    return frozenset(found)


def flip_sizes(template: Template) -> dict[str, set[int]]:
    """Return, by name, how many branches the template's deciding choices have."""
    sizes: dict[str, set[int]] = {}

    def walk(nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Choice):
                if node.name:
                    sizes.setdefault(node.name, set()).add(len(node.branches))
                for branch in node.branches:
                    walk(branch)

    for sentence in template.sentences:
        walk(sentence)
    return sizes


def render(
    template: Template, spelled: Mapping[str, str], flips: Mapping[str, int], draws: Sequence[float], order: float = 0.0
) -> list[Segment]:
    """Return the text of one reading, cut into deciding and other segments.

    :param spelled: the spelling of each slot's value, by name.
    :param flips: which branch each deciding choice takes, by name.
    :param draws: one number in [0, 1) a free choice; equal draws give equal words, which is how a minimal
        trap differs from its twin in nothing else.
    :param order: below 0.5 sentences and parts stand as written, else the other way round.
    """
    parts: list[list[Segment]] = []
    for sentence in template.sentences:
        parts.append([])
        _render(sentence, spelled, flips, draws, parts[-1], deciding=False)
    turned = order >= 0.5 and len(parts) > 1
    between = " "
    if turned:
        parts = parts[::-1]
    if turned and template.fronted:
        between = ", "
        parts = [_recased(parts[0], str.upper), _recased(parts[1], str.lower)]
    out = parts[0]
    for part in parts[1:]:
        out = [*out, (between, False), *part]
    out += [(template.fronted, False)] if template.fronted else []
    return [_with_article(out, number) for number in range(len(out))]


def _recased(segments: list[Segment], case: Callable[[str], str]) -> list[Segment]:
    """Return a part with its first letter in another case, unless it belongs to a value or to "I"."""
    text, deciding = segments[0]
    if deciding or OWN.match(text):
        return segments
    return [(case(text[:1]) + text[1:], deciding), *segments[1:]]


def _with_article(segments: Sequence[Segment], number: int) -> Segment:
    """Return a segment with its final article fitted to the value that follows."""
    text, deciding = segments[number]
    article = ARTICLE.search(text)
    if article is None or number + 1 == len(segments) or not segments[number + 1][1]:
        return text, deciding
    fitted = article.group(1) + ("n " if VOWEL.match(segments[number + 1][0]) else " ")
    return text[: article.start()] + fitted, deciding


def _render(
    nodes: Sequence[Node],
    spelled: Mapping[str, str],
    flips: Mapping[str, int],
    draws: Sequence[float],
    out: list[Segment],
    *,
    deciding: bool,
) -> None:
    for node in nodes:
        if isinstance(node, Literal):
            out.append((node.text, deciding))
        elif isinstance(node, Slot):
            out.append((spelled[node.name], True))
        elif node.name:
            _render(node.branches[flips[node.name]], spelled, flips, draws, out, deciding=True)
        else:
            branch = node.branches[int(draws[node.number] * len(node.branches))]
            _render(branch, spelled, flips, draws, out, deciding=deciding)
