"""What a fit learns from the text world: one question in three wordings, and a trap in two of them.

A trap keeps the wording and changes what decides the answer, so within one group nothing but meaning tells the
two apart. Kinds of traps take turns: in the world itself names alone would be half of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from itertools import count

import numpy as np

from recall_cli.measure.synthetic.chance import pick
from recall_cli.measure.synthetic.classes import SWAP, AnswerClass, Intent, load, neighbour, random_class
from recall_cli.measure.synthetic.edits import noise, text_of
from recall_cli.measure.synthetic.text import Split, two_templates
from recall_cli.measure.synthetic.wording import Wording, draw_wording


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
    for intent in load():
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
