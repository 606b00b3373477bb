"""From an answer class to a text: a template, the draws that read it, and the edits of traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recall_cli.measure.synthetic.classes import AnswerClass, Intent
from recall_cli.measure.synthetic.edits import noise, text_of
from recall_cli.measure.synthetic.grammar import Segment, Template, pick, render

USUAL = 1.7
"""Above 1 the first spelling of a value is the usual one: of two, it stands in two texts of three."""


@dataclass(slots=True)
class Wording:
    """The draws behind one text: the same draws for another class give a text that differs in nothing else."""

    template: Template
    draws: list[float]
    spelling: dict[str, float]
    order: float

    def of(self, asked: AnswerClass) -> list[Segment]:
        """Return the class in this wording."""
        spelled = {}
        for name, values in asked.intent.slots.items():
            ways = values.spellings[asked.picks[name]]
            spelled[name] = ways[int(self.spelling[name] ** USUAL * len(ways))]
        return render(self.template, spelled, asked.picks, self.draws, self.order)


def draw_wording(intent: Intent, template: Template, rng: np.random.Generator) -> Wording:
    """Return a random reading of a template."""
    draws = [float(x) for x in rng.random(template.choices)]
    spelling = {name: float(rng.random()) for name in intent.slots}
    return Wording(template, draws, spelling, float(rng.random()))


def word(asked: AnswerClass, rng: np.random.Generator, split: str | None = None) -> str:
    """Return the class in one of its wordings, edited as traffic edits."""
    templates = asked.intent.templates(split)
    template = pick(rng, templates)
    return text_of(noise(draw_wording(asked.intent, template, rng).of(asked), rng))
