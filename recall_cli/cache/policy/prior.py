"""Where an error probability starts before a namespace has labels of its own: weights learned on several sets.

They say how much each piece of evidence counts, not how often a cache is wrong: the level depends on
the traffic, so a policy serves nothing on their word alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from recall_cli.errors import RecallError
from recall_cli.types import Evidence

FEATURES = "evidence-1"
"""Names the meaning of the evidence fields: other weights or labels than those made with it are void."""

REACH = 1.02
"""Closeness is -ln(REACH - similarity): the last hundredths below 1 separate the most, and 1 stays finite."""

FAR, NEAR = 0.3, 0.7
"""Similarities between which the checks come to count: see `row`."""

FIELDS = (
    "closeness",
    "margin",
    "overlap",
    "length_ratio",
    "numbers",
    "negation",
    "roles",
    "detail",
    "names",
    "history",
)
"""What the weights stand for, in order: closeness is of the similarity, the rest are fields of `Evidence`."""

CHECKS = slice(FIELDS.index("numbers"), FIELDS.index("names") + 1)
"""The fields that count only between texts that are near."""

SIGNS = {
    "closeness": -1,
    "margin": -1,
    "overlap": -1,
    "length_ratio": -1,
    "numbers": 1,
    "negation": 1,
    "roles": 1,
    "detail": 1,
    "names": 1,
    "history": 1,
}
"""More alike is never more likely wrong, a mismatch never less: no set may teach otherwise."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Logit of P(wrong) = level + the sum of weights times evidence; linear in the fields from NEAR on."""

    level: float
    weights: tuple[float, ...]
    """In the order of FIELDS."""
    version: str

    def logit(self, evidence: Evidence) -> float:
        """Return the logit of the probability that this candidate's answer is wrong."""
        return self.level + sum([w * x for w, x in zip(self.weights, row(evidence), strict=True)])

    def named(self) -> dict[str, float]:
        """Return the weights by field."""
        return dict(zip(FIELDS, self.weights, strict=True))


def closeness(similarity: float) -> float:
    """Return the similarity on the scale on which P(wrong) is about a straight logit."""
    gap = REACH - similarity
    return -math.log(gap if gap > 0.02 else 0.02)


def sureness(similarity: float) -> float:
    """Return how far the checks count as they are, 0..1; for the rest they count as failed (see `row`)."""
    sure = (similarity - FAR) / (NEAR - FAR)
    return 0.0 if sure < 0.0 else 1.0 if sure > 1.0 else sure


def row(evidence: Evidence) -> tuple[float, ...]:
    """Return the evidence as numbers in the order of FIELDS.

    Between texts that are far apart anyway, a number or a negation in one of them says nothing: below
    FAR every check counts as failed, from NEAR on it counts as it is. So no pair is held to be safer for
    having less to compare, and more similarity never raises the risk.
    """
    similarity = evidence.similarity
    if similarity >= NEAR:
        # As below, without the arithmetic: this stands in every decision, and most candidates are near.
        return (
            closeness(similarity),
            evidence.margin,
            evidence.overlap,
            evidence.length_ratio,
            evidence.numbers,
            evidence.negation,
            evidence.roles,
            evidence.detail,
            evidence.names,
            evidence.history,
        )
    sure = sureness(similarity)
    unsure = 1.0 - sure
    return (
        closeness(similarity),
        evidence.margin,
        evidence.overlap,
        evidence.length_ratio,
        unsure + sure * evidence.numbers,
        unsure + sure * evidence.negation,
        unsure + sure * evidence.roles,
        unsure + sure * evidence.detail,
        unsure + sure * evidence.names,
        evidence.history,
    )


@cache
def shipped() -> Prior:
    """Return the weights that come with the package."""
    import json

    return read(json.loads((files("recall_cli.cache.policy") / "prior-weights.json").read_text(encoding="utf-8")))


def read(document: Mapping[str, Any]) -> Prior:
    """Return the weights in a decoded file. Raises RecallError when it was made for other evidence or breaks a sign."""
    if document.get("features") != FEATURES:
        raise RecallError(
            f"these weights are for {document.get('features')!r}, not for {FEATURES!r}",
            hint="learn them again: python -m recall_cli.measure.evaluate.evidence_fit",
        )
    weights = {name: float(document["weights"][name]) for name in FIELDS}
    wrong = [name for name, weight in weights.items() if weight * SIGNS[name] < 0 or not math.isfinite(weight)]
    if wrong:
        raise RecallError(f"the weight of {wrong[0]} has the wrong sign", hint="learn the weights again")
    return Prior(float(document["level"]), tuple(weights.values()), str(document["version"]))
