"""One decision: whether the nearest candidate is served, and what its label changes. No store, no clock, no I/O.

All that serve an answer, or count the answers that would be served, call `decide` and `learn`: the cache (and with it
the proxy and the transports), the replay of `recall savings` and the replay of `recall eval`. They differ in where
candidates, texts and fresh answers come from, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recall_cli.cache.entries import EntryHistory
from recall_cli.cache.evidence.evidence import vetoes
from recall_cli.cache.evidence.floor import Floor
from recall_cli.cache.policy.registry import default_vetoes
from recall_cli.cache.policy.static import serves_by_meaning
from recall_cli.types import Decision, Embedder, Evidence, Lookup, Outcome, Policy

PAIRS_KEPT = 4_096
"""Pairs of texts whose check is remembered: a paraphrase that is served is never stored, and comes again."""

BELOW_CUTOFF = "below_cutoff"
"""The reason of a miss whose candidate the policy does not serve."""
SECOND_OPINION = "second_opinion"
"""The reason of a miss that a second opinion made of a hit."""
VETO = "veto_"
"""How the reason of a miss begins that a veto made of a hit; the name of the check follows."""

Check = Callable[[], tuple[Evidence, str]]
"""Reads both texts; returns the evidence that a label goes back with, and why the candidate may not be served or ""."""


@dataclass(slots=True)
class Choice:
    """What was decided about the nearest candidate of one request."""

    serve: bool
    cutoff: float
    evidence: Evidence | None
    """What a label goes back with; None where the candidate would never be served, so that its label tells nothing."""
    reason: str = ""
    """Why it is not served."""
    audit: bool = False
    """It is served, and the policy wants its answer compared with a fresh one."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a fresh answer changes."""

    counts: bool
    """The label counts in the candidate's own record too."""
    stores: bool
    """The fresh answer becomes an entry: of the candidate's answer group where both say the same."""


def decide(
    policy: Policy, namespace: str, evidence: Evidence, check: Check, agrees: Callable[[], bool] | None = None
) -> Choice:
    """Decide on the nearest candidate: the policy, the floor, the vetoes, then a second opinion.

    :param evidence: of the candidate, as far as the policy looks at it.
    :param check: called only where the policy would serve, so that a miss does not pay for it.
    :param agrees: a second opinion that can be had at once. One that must be waited for turns the hit into a miss
        with `as_miss`.
    """
    verdict = policy.decide(namespace, evidence)
    if not verdict.serve:
        return Choice(False, verdict.cutoff, evidence, BELOW_CUTOFF)
    evidence, reason = check()
    if reason:
        return Choice(False, verdict.cutoff, evidence if reason.startswith(VETO) else None, reason)
    if agrees is not None and not agrees():
        return Choice(False, verdict.cutoff, evidence, SECOND_OPINION)
    return Choice(True, verdict.cutoff, evidence, "", verdict.audit)


def as_miss(hit: Lookup, reason: str) -> Lookup:
    """Return a hit that may not be served as a miss. Its evidence stays: the fresh answer labels the candidate."""
    decision = hit.decision
    miss = Decision(Outcome.MISS, decision.similarity, decision.cutoff, decision.entry, reason)
    return Lookup(miss, None, hit.vector, hit.evidence)


def learn(policy: Policy, namespace: str, evidence: Evidence | None, *, served: bool, same: bool | None) -> Learned:
    """Take in a fresh answer to a request whose candidate was decided on; return what else it changes.

    :param evidence: that of the `Choice`; None: there was no candidate, or its label tells nothing.
    :param served: the candidate's answer was served, and the fresh one is an audit of it.
    :param same: the fresh answer says what the candidate's does; None: nobody can tell. That is no label, and it
        counts against a namespace where it is most of what is found.
    """
    counts = evidence is not None and same is not None
    if evidence is not None:
        if same is None:
            policy.unsure(namespace, evidence)
        else:
            policy.observe(namespace, evidence, same=same)
    # Where an audit did not find the stored answer wrong, that answer stands.
    return Learned(counts, stores=not served or same is False)


class HitChecks:
    """What a candidate must pass, whatever the policy, before its answer is served by meaning.

    :param forbidding: names of the checks of the evidence that forbid a hit by themselves; None: the policy's own.
    """

    def __init__(self, embedder: Embedder, policy: Policy, forbidding: frozenset[str] | None = None) -> None:
        self.floor = Floor(embedder)
        self.vetoes = default_vetoes(policy) if forbidding is None else forbidding
        self.by_meaning = serves_by_meaning(policy)
        """Whether anything may be served by meaning; else nothing is embedded."""
        self.weighs_texts = policy.candidates > 1
        """Whether the policy itself looks at the texts of every candidate."""
        self._pairs: dict[tuple[str, int], tuple[Evidence, str]] = {}

    def refusal(self, text: str, stored: str, evidence: Evidence) -> str:
        """Return the reason of the miss where the stored text's answer may not serve, "" where it may."""
        reason = self.floor.refusal(text, stored, evidence)
        if reason or not self.vetoes:
            return reason
        veto = vetoes(evidence, self.vetoes)
        return "" if veto is None else VETO + veto

    def check(self, text: str, id: int, evidence: Evidence, witness: EntryHistory) -> tuple[Evidence, str]:
        """Return what `decide` asks of a check; computed once for a pair of texts, since no id is given twice.

        :param evidence: what the policy was shown.
        :param witness: knows the stored texts.
        """
        known = self._pairs.get((text, id))
        if known is None:
            pair = evidence if self.weighs_texts else witness.evidence(text, [id], [evidence.similarity])
            known = pair, self.refusal(text, witness.text(id), pair)
            if len(self._pairs) >= PAIRS_KEPT:
                # A new dict, not clear(): another thread may be reading the old one.
                self._pairs = {}
            self._pairs[text, id] = known
        # What the policy was shown carries the number of its decision.
        return (evidence, known[1]) if self.weighs_texts else known
