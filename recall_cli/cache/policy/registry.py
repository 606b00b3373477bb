"""The policies by name, as the command line offers them."""

from __future__ import annotations

from recall_cli.cache.answers.compare import VERSION
from recall_cli.cache.evidence.evidence import VETOES
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.risk_model import shipped
from recall_cli.cache.policy.static import DEFAULT_TAU, ExactPolicy, StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.types import Embedder, Policy


def labels_version(embedder: Embedder) -> str:
    """Return a policy's version: by another embedder or another comparison of answers its old labels are worthless."""
    return f"{embedder.fingerprint[:16]}/{VERSION}"


def default_vetoes(policy: Policy) -> frozenset[str]:
    """Return the checks of the evidence that forbid a hit where nobody said which: all of them under a fixed cutoff.

    A policy that learns weighs the evidence itself.
    """
    return frozenset(VETOES) if isinstance(policy, StaticPolicy) else frozenset()


CHECKS = ("auto", "none", "evidence", "model")
"""What `--verify-on-hit` may name: what is asked of a hit before it is served, beside the floor that always stands."""


def vetoes_of(checks: str, policy: Policy) -> frozenset[str]:
    """Return the checks of the evidence that forbid a hit, as `--verify-on-hit` says.

    Only none takes them from a fixed cutoff: a second opinion (model, llm:MODEL) is asked of what is left.
    """
    if checks == "none":
        return frozenset()
    return frozenset(VETOES) if checks == "evidence" else default_vetoes(policy)


def make_policy(
    name: str,
    *,
    tau: float = DEFAULT_TAU,
    target_false_hit: float = 0.01,
    confidence: float = 0.9,
    verify_sample: float = 0.05,
    version: str = "",
    seed: int = 0,
) -> Policy:
    """Return the policy of a name; of what is given it takes what is its own. Raises UsageError for an unknown one.

    The adaptive one starts from the shipped weights.
    """
    if name == ExactPolicy.name:
        return ExactPolicy()
    if name == StaticPolicy.name:
        return StaticPolicy(tau)
    if name == AdaptivePolicy.name:
        return AdaptivePolicy(
            target_false_hit=target_false_hit,
            confidence=confidence,
            verify_sample=verify_sample,
            prior=shipped(),
            version=version,
            seed=seed,
        )
    raise UsageError(f"there is no policy named {name!r}", hint="choose exact, static or adaptive")
