"""Serve or not: the static cutoff. Similarity is cosine; higher is closer, everywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from recall_cli.errors import UsageError
from recall_cli.types import Evidence, Verdict

DEFAULT_TAU = 0.8
"""The cutoff most guides name. Not a recommendation: `recall bench` shows what it serves wrongly."""


ROUNDING = 1e-6
"""float32 dot products of equal unit vectors miss 1 by up to this much."""


def cosine(similarity: float) -> float:
    """Return a computed similarity as a policy sees it: what is 1 but for rounding is 1.

    Without this, tau = 1 would serve what is identical only when the rounding happens to fall well.
    """
    return 1.0 if similarity > 1.0 - ROUNDING else similarity


def check_tau(tau: float) -> float:
    """Return tau when it is a similarity in 0..1. Raises UsageError otherwise."""
    if not math.isfinite(tau) or not 0.0 <= tau <= 1.0:
        raise UsageError(
            f"the cutoff tau must be a similarity between 0 and 1, not {tau!r}",
            hint="tau is cosine similarity: 1 serves only identical meaning, 0 serves anything. "
            "If you have a cosine distance d, pass 1 - d.",
        )
    return tau


class StaticPolicy:
    """One cutoff for all namespaces: serve when similarity >= tau."""

    name = "static"
    learns = False
    candidates = 1

    def __init__(self, tau: float = DEFAULT_TAU) -> None:
        self.tau = check_tau(tau)

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Return whether the similarity reaches tau."""
        tau = self.tau
        return Verdict(evidence.similarity >= tau, tau)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Ignore the label: a static cutoff does not learn."""

    def state(self) -> dict[str, Any]:
        """Return the cutoff."""
        return {"policy": self.name, "tau": self.tau}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the cutoff of a saved state."""
        self.tau = check_tau(float(state["tau"]))
