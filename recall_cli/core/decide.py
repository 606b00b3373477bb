"""The decision on one candidate, the same for every caller: the policy, then the floor, then the vetoes.

Texts are looked at only where the policy would serve, so that a miss does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable

from recall_cli.core.evidence import vetoes
from recall_cli.core.floor import Floor
from recall_cli.core.policies import default_vetoes
from recall_cli.core.policy import serves_by_meaning
from recall_cli.core.witness import Witness
from recall_cli.types import Completion, Decision, Embedder, Evidence, Lookup, Outcome, Policy, Request, Vector


class Gate:
    """What a candidate must pass that the policy would serve.

    :param forbidding: names of the checks that forbid a hit by themselves; None: those of the policy.
    """

    def __init__(self, embedder: Embedder, policy: Policy, forbidding: frozenset[str] | None = None) -> None:
        self.policy = policy
        self.floor = Floor(embedder)
        self.vetoes = default_vetoes(policy) if forbidding is None else forbidding
        self.by_meaning = serves_by_meaning(policy)
        """Whether anything may be served by meaning; else nothing is embedded."""
        self.weighs_texts = policy.candidates > 1
        """Whether the policy itself looks at the texts of every candidate."""

    def refusal(self, text: str, stored: str, evidence: Evidence) -> str:
        """Return the reason of the miss where the stored text's answer may not serve, "" where it may."""
        reason = self.floor.refusal(text, stored, evidence)
        if reason or not self.vetoes:
            return reason
        veto = vetoes(evidence, self.vetoes)
        return "" if veto is None else f"veto_{veto}"

    def judge(
        self,
        request: Request,
        vector: Vector,
        id: int,
        evidence: Evidence,
        witness: Witness,
        use: Callable[[int], Completion | None],
    ) -> Lookup | None:
        """Decide on the nearest entry; None when it was to be served, but `use` finds it gone.

        :param witness: knows the stored texts.
        """
        similarity = evidence.similarity
        verdict = self.policy.decide(request.namespace, evidence)
        if not verdict.serve:
            decision = Decision(Outcome.MISS, similarity, verdict.cutoff, id, "below_cutoff")
            return Lookup(decision, vector=vector, evidence=evidence)
        if not self.weighs_texts:
            evidence = witness.evidence(request.text, [id], [similarity])
        reason = self.refusal(request.text, witness.text(id), evidence)
        if reason:
            decision = Decision(Outcome.MISS, similarity, verdict.cutoff, id, reason)
            # What the floor refuses is never served: a label of it would say nothing of what is.
            weighed = evidence if reason.startswith("veto_") else None
            return Lookup(decision, vector=vector, evidence=weighed)
        completion = use(id)
        if completion is None:
            return None
        decision = Decision(Outcome.SEMANTIC, similarity, verdict.cutoff, id)
        return Lookup(decision, completion, vector, evidence, verdict.audit)
