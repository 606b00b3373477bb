"""Serve or not: the static cutoffs. Similarity is cosine; higher is closer, everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from recall_cli.errors import UsageError
from recall_cli.types import Evidence, Policy, Verdict, Warn

DEFAULT_TAU = 0.8
"""The cutoff most guides name. Not a recommendation: `recall bench` shows what it serves wrongly."""

EXACT_ONLY = 1.0
"""The cutoff from which only equal requests are served."""

NAMES_SHOWN = 12
"""Namespaces that a warning lists: a log may have thousands."""

ROUNDING = 1e-6
"""float32 dot products of equal unit vectors miss 1 by up to this much."""

SURELY_BELOW_ONE = 0.99
"""Up to here no similarity is a rounded 1: when the best is one of these, none needs a look."""


def cosine(similarity: float) -> float:
    """Return a computed similarity as a policy sees it: what is 1 but for rounding is 1.

    Without this, what is identical would seem to be less only because the rounding fell so.
    """
    return 1.0 if similarity > 1.0 - ROUNDING else similarity


def cosines(similarities: list[float]) -> list[float]:
    """Return similarities, best first, as a policy sees them."""
    if similarities[0] <= SURELY_BELOW_ONE:
        return similarities
    return [cosine(similarity) for similarity in similarities]


def check_tau(tau: float) -> float:
    """Return tau when it is a similarity in 0..1. Raises UsageError otherwise."""
    if not math.isfinite(tau) or not 0.0 <= tau <= 1.0:
        raise UsageError(
            f"the cutoff tau must be a similarity between 0 and 1, not {tau!r}",
            hint="tau is cosine similarity: 1 serves equal requests alone, 0 serves anything. "
            "If you have a cosine distance d, pass 1 - d.",
        )
    return tau


class ExactPolicy:
    """Serve nothing by meaning: only an equal request is a hit, and nothing needs to be embedded."""

    name = "exact"
    learns = False
    candidates = 1

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Return a no."""
        return Verdict(False, EXACT_ONLY)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Ignore the label."""

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        """Ignore what could not be judged."""

    def state(self) -> dict[str, Any]:
        """Return its name."""
        return {"policy": self.name}

    def load(self, state: Mapping[str, Any]) -> None:
        """Do nothing: there is no state."""


def serves_by_meaning(policy: Policy) -> bool:
    """Return whether a policy may ever serve a semantic hit; where none may, no text needs to be embedded."""
    if isinstance(policy, StaticPolicy):
        return min([policy.tau, *policy.taus.values()]) < EXACT_ONLY
    return not isinstance(policy, ExactPolicy)


class StaticPolicy:
    """Serve when similarity >= tau: one cutoff for all namespaces but those that have their own.

    A cutoff of 1 serves nothing by meaning: two texts whose vectors are equal need not say the same.

    :param taus: cutoffs by namespace.
    """

    name = "static"
    learns = False
    candidates = 1

    def __init__(self, tau: float = DEFAULT_TAU, taus: Mapping[str, float] | None = None) -> None:
        self.tau = check_tau(tau)
        self.taus = {namespace: check_tau(own) for namespace, own in (taus or {}).items()}

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Return whether the similarity reaches the namespace's cutoff."""
        tau = self.taus.get(namespace, self.tau)
        return Verdict(tau <= evidence.similarity and tau < EXACT_ONLY, tau)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Ignore the label: a static cutoff does not learn."""

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        """Ignore it: a static cutoff does not learn."""

    def state(self) -> dict[str, Any]:
        """Return the cutoffs."""
        return {"policy": self.name, "tau": self.tau, "taus": dict(self.taus)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the cutoffs of a saved state."""
        self.tau = check_tau(float(state["tau"]))
        self.taus = {str(name): check_tau(float(own)) for name, own in state.get("taus", {}).items()}


def unknown_namespaces(taus: Mapping[str, float], known: Iterable[str]) -> list[Warn]:
    """Return a warning for cutoffs of namespaces that nothing was asked in, naming those there are."""
    there = sorted(set(known))
    missing = sorted(set(taus) - set(there))
    if not missing:
        return []
    names = ", ".join(there[:NAMES_SHOWN]) + (f" and {len(there) - NAMES_SHOWN:,} more" * (len(there) > NAMES_SHOWN))
    return [
        Warn(
            "UNKNOWN_NAMESPACE",
            f"--tau-for names {', '.join(missing)}, which is no namespace here: that cutoff decided nothing",
            f"the namespaces here are: {names or 'none'}",
        )
    ]
