"""Answer classes of the text world: an intent with everything that decides its answer filled in.

Two classes one step apart (another number, a "not" more, from and to exchanged) are what a trap is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from recall_cli.errors import REINSTALL, InputError
from recall_cli.measure.synthetic.grammar import Template, flip_sizes, parse, pick
from recall_cli.measure.workload import toml

DEFINITION = "text-world.toml"
SWAP = "role"
"""The trap of two values that change places."""


@dataclass(frozen=True, slots=True)
class Values:
    """What a slot may hold: values, each in one or more spellings, and the trap that another value is."""

    trap: str
    spellings: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Talk:
    """How a conversation about an intent goes on."""

    reply: Template
    by: tuple[str, ...]
    """Dimensions on which the answer to the follow-up depends, so that another value makes another answer."""
    ask: tuple[str, ...]
    """Names of the follow-up questions that make sense."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing to ask, its deciding dimensions and its wordings."""

    name: str
    domain: str
    slots: Mapping[str, Values]
    flips: Mapping[str, tuple[str, int]]
    """Trap and number of branches of each deciding choice."""
    swap: tuple[str, ...]
    """Two slots of one set that may change places: another question, from the same words."""
    ordered: tuple[str, ...]
    """Two slots of one set that keep the set's order, because a flip says which way round they stand."""
    train: tuple[Template, ...]
    held_out: tuple[Template, ...]
    talk: Talk | None = None

    @property
    def size(self) -> int:
        """Number of combinations, those included that `possible` refuses."""
        values = math.prod(len(v.spellings) for v in self.slots.values())
        return values * math.prod(n for _, n in self.flips.values())

    @property
    def moves(self) -> list[tuple[str, str]]:
        """Return (trap, dimension) of each way to step to a neighbouring class; the swap has no dimension."""
        found = [(values.trap, name) for name, values in self.slots.items()]
        found += [(trap, name) for name, (trap, _) in self.flips.items()]
        return [*found, (SWAP, "")] if self.swap else found

    def templates(self, split: str | None) -> tuple[Template, ...]:
        """Return the wordings of a split, "train" or "held-out"; None is both."""
        return {"train": self.train, "held-out": self.held_out, None: self.train + self.held_out}[split]


@dataclass(frozen=True, slots=True)
class AnswerClass:
    """An intent with its dimensions filled in; equal classes deserve equal answers."""

    intent: Intent = field(compare=False, repr=False)
    label: str
    picks: Mapping[str, int] = field(compare=False, repr=False)
    """Index of the value or branch, by dimension."""

    def __hash__(self) -> int:
        return hash(self.label)


def make_class(intent: Intent, picks: Mapping[str, int]) -> AnswerClass:
    """Return the class of an intent with these picks; its label names them."""
    parts = [f"{name}={intent.slots[name].spellings[i][0]}" for name, i in picks.items() if name in intent.slots]
    parts += [f"{name}={i}" for name, i in picks.items() if name in intent.flips]
    return AnswerClass(intent, f"{intent.domain}/{intent.name}?" + "&".join(parts), dict(picks))


def random_class(intent: Intent, rng: np.random.Generator) -> AnswerClass:
    """Return a class of the intent, each combination that is possible equally likely."""
    while True:
        picks = {name: int(rng.integers(len(values.spellings))) for name, values in intent.slots.items()}
        picks |= {name: int(rng.integers(n)) for name, (_, n) in intent.flips.items()}
        if possible(intent, picks):
            return make_class(intent, picks)


def possible(intent: Intent, picks: Mapping[str, int]) -> bool:
    """Return whether the picks make a question: two slots of one set differ, ordered ones stand in order."""
    taken = [(id(values), picks[name]) for name, values in intent.slots.items()]
    if len(set(taken)) < len(taken):
        return False
    return not intent.ordered or picks[intent.ordered[0]] < picks[intent.ordered[1]]


def neighbour(here: AnswerClass, dimension: str, rng: np.random.Generator) -> AnswerClass | None:
    """Return a class that differs in one dimension ("" exchanges the swapped slots), None when none does."""
    intent, picks = here.intent, dict(here.picks)
    if not dimension:
        one, two = intent.swap
        picks[one], picks[two] = picks[two], picks[one]
        return make_class(intent, picks)
    known = intent.slots.get(dimension)
    n = len(known.spellings) if known else intent.flips[dimension][1]
    others = [p for p in ({**picks, dimension: i} for i in range(n) if i != picks[dimension]) if possible(intent, p)]
    return make_class(intent, pick(rng, others)) if others else None


def near_keys(here: AnswerClass) -> Iterator[str]:
    """Yield keys that two classes share exactly when they are the same class or one step apart."""
    for _, dimension in here.intent.moves:
        picks: dict[str, Any] = dict(here.picks)
        if dimension:
            picks[dimension] = "*"
        else:
            one, two = here.intent.swap
            picks |= {one: "*".join(map(str, sorted((picks[one], picks[two])))), two: "swapped"}
        yield f"{here.intent.domain}/{here.intent.name}/{sorted(picks.items())}"


@lru_cache(maxsize=1)
def load() -> tuple[Intent, ...]:
    """Return all intents of the definition files. Raises InputError when one is missing or wrong."""
    found: list[Intent] = []
    shared = toml(DEFINITION)
    for name in shared["domains"]:
        data = toml(f"text-world-{name}.toml")
        sets = {k: _values(v) for k, v in {**shared["slots"], **data.get("slots", {})}.items()}
        try:
            found += [_intent(name, entry, sets) for entry in data["intent"]]
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"text-world-{name}.toml is wrong: {error!r}", hint=REINSTALL) from error
    return tuple(found)


def _values(entry: Mapping[str, Any]) -> Values:
    return Values(entry["trap"], tuple(tuple(value.split("|")) for value in entry["values"]))


def _intent(domain: str, entry: Mapping[str, Any], sets: Mapping[str, Values]) -> Intent:
    slots = {name: sets[of] for name, of in entry.get("slots", {}).items()}
    train, held_out = (tuple(map(parse, entry[split])) for split in ("train", "held_out"))
    flips: dict[str, tuple[str, int]] = {}
    for name, trap in entry.get("flips", {}).items():
        sizes = set().union(*(flip_sizes(t).get(name, {0}) for t in train + held_out))
        if len(sizes) > 1:
            raise ValueError(f"{entry['id']}: {name} has {sizes} branches")
        flips[name] = (trap, sizes.pop())
    for template in train + held_out:
        # A template that leaves one out would be a wording of two classes at once.
        if template.dimensions != {*slots, *flips}:
            raise ValueError(f"{entry['id']}: {template.source!r} shows {sorted(template.dimensions)}")
    talk = entry.get("talk")
    return Intent(
        entry["id"],
        domain,
        slots,
        flips,
        tuple(entry.get("swap", ())),
        tuple(entry.get("ordered", ())),
        train,
        held_out,
        Talk(parse(talk["reply"]), tuple(talk["by"]), tuple(talk["ask"])) if talk else None,
    )
