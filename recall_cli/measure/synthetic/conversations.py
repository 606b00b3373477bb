"""Conversations of the text world: the last message alone does not say what is asked.

"How long does that take?" after a question about a refund is not the same question after one about a
transfer. A trap ends in the same message on both sides and differs before it; a should-hit pair repeats
the question in other words, in the same context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from recall_cli.measure.evaluate.pairs import Conversation, Pair
from recall_cli.measure.synthetic.classes import AnswerClass, Intent, neighbour, random_class
from recall_cli.measure.synthetic.edits import noise, text_of
from recall_cli.measure.synthetic.grammar import Template, parse, pick, render
from recall_cli.measure.synthetic.wording import word
from recall_cli.measure.workload import toml

DEFINITION = "text-world-talk.toml"
CATEGORIES = ("context-swap", "same-context", "detail-swap", "context-reworded", "detail-swap", "extra-chatter")
"""In turn, so that traps and should-hit pairs are as many."""
TRIES = 200


@dataclass(frozen=True, slots=True)
class Talks:
    """Follow-up questions by name and split, and small talk that changes no answer."""

    follow: dict[str, dict[str, tuple[Template, ...]]]
    chatter: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1)
def load_talks() -> Talks:
    """Return the follow-up questions and the chatter. Raises InputError."""
    data = toml(DEFINITION)
    follow = {
        name: {split.replace("_", "-"): tuple(map(parse, texts)) for split, texts in entry.items()}
        for name, entry in data["follow"].items()
    }
    return Talks(follow, tuple((user, assistant) for user, assistant in data["chatter"]))


def talk_pairs(intents: Sequence[Intent], split: str, rng: np.random.Generator) -> Iterator[Pair]:
    """Yield pairs of conversations for ever, the categories taking turns; none when no intent has a talk."""
    able = [intent for intent in intents if intent.talk]
    turn = 0
    while able:
        category = CATEGORIES[turn % len(CATEGORIES)]
        turn += 1
        for _ in range(TRIES):
            pair = _pair(category, able, split, rng)
            if pair:
                yield pair
                break


def _pair(category: str, able: Sequence[Intent], split: str, rng: np.random.Generator) -> Pair | None:
    talks = load_talks()
    intent = pick(rng, able)
    assert intent.talk is not None
    asked = random_class(intent, rng)
    follow = pick(rng, intent.talk.ask)
    ways = talks.follow[follow][split]
    opening, last = word(asked, rng, split), _last(pick(rng, ways), rng)
    chatter = pick(rng, talks.chatter) if rng.random() < 0.5 else None
    other, opening_b, last_b, chatter_b = asked, opening, last, chatter
    if category == "same-context":
        last_b = _last(pick(rng, ways), rng)
    elif category == "context-reworded":
        opening_b = word(asked, rng, split)
    elif category == "extra-chatter":
        chatter_b = pick(rng, talks.chatter)
    else:
        found = _elsewhere(category, asked, able, follow, rng)
        if found is None:
            return None
        other, opening_b = found, word(found, rng, split)
    a, b = _talk(asked, opening, last, chatter), _talk(other, opening_b, last_b, chatter_b)
    if a == b:
        return None
    same = category in ("same-context", "context-reworded", "extra-chatter")
    return Pair(a, b, same, category, "reworded" if last != last_b else "minimal", intent.domain)


def _elsewhere(
    category: str, asked: AnswerClass, able: Sequence[Intent], follow: str, rng: np.random.Generator
) -> AnswerClass | None:
    """Return the class the other side talks about: another intent's, or this one with another detail."""
    assert asked.intent.talk is not None
    if category == "detail-swap":
        by = asked.intent.talk.by
        return neighbour(asked, pick(rng, by), rng) if by else None
    others = [i for i in able if i.name != asked.intent.name and i.talk and follow in i.talk.ask]
    near = [i for i in others if i.domain == asked.intent.domain] or others
    return random_class(pick(rng, near), rng) if near else None


def has_answer(asked: AnswerClass) -> bool:
    """Return whether the world has an answer to a question, one that shows all that decides it."""
    talk, intent = asked.intent.talk, asked.intent
    return talk is not None and {*intent.slots, *intent.flips} <= talk.reply.dimensions


def said(asked: AnswerClass) -> str:
    """Return what the assistant answers; the intent must have a talk."""
    assert asked.intent.talk is not None
    reply = asked.intent.talk.reply
    spelled = {name: values.spellings[asked.picks[name]][0] for name, values in asked.intent.slots.items()}
    return text_of(render(reply, spelled, asked.picks, [0.0] * reply.choices))


def follow_up(asked: AnswerClass, rng: np.random.Generator) -> tuple[str, str]:
    """Return a follow-up that makes sense after a question, as (its name, one of its wordings)."""
    assert asked.intent.talk is not None
    name = pick(rng, asked.intent.talk.ask)
    ways = load_talks().follow[name]
    return name, _last(pick(rng, [way for split in ways.values() for way in split]), rng)


def _last(template: Template, rng: np.random.Generator) -> str:
    return text_of(noise(render(template, {}, {}, [float(x) for x in rng.random(template.choices)]), rng))


def _talk(asked: AnswerClass, opening: str, last: str, chatter: tuple[str, str] | None) -> Conversation:
    turns = [("user", opening), ("assistant", said(asked)), ("user", last)]
    if chatter:
        # Before the question: after it, "that" would point at the chatter.
        turns[:0] = [("user", chatter[0]), ("assistant", chatter[1])]
    return tuple({"role": role, "content": content} for role, content in turns)
