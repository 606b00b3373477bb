"""The decision on one candidate, the same for every caller: the policy, then the floor, then the vetoes.

Texts are looked at only where the policy would serve, so that a miss does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable

from recall_cli.cache.entries import Witness
from recall_cli.cache.evidence.evidence import vetoes
from recall_cli.cache.evidence.floor import Floor
from recall_cli.cache.policy.registry import default_vetoes
from recall_cli.cache.policy.static import serves_by_meaning
from recall_cli.types import Completion, Decision, Embedder, Evidence, Lookup, Outcome, Policy, Request, Vector

PAIRS_KEPT = 4_096
"""Pairs whose evidence is kept: a paraphrase that is served is never stored, and comes again."""


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
        self._pairs: dict[tuple[str, int], tuple[Evidence, str]] = {}

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
        # An id is never given twice, so a pair of texts goes by it.
        weighed, reason = self._pairs.get((request.text, id)) or self._weigh(request.text, id, evidence, witness)
        if not self.weighs_texts:
            evidence = weighed
        if reason:
            decision = Decision(Outcome.MISS, similarity, verdict.cutoff, id, reason)
            # What the floor refuses is never served: a label of it would say nothing of what is.
            return Lookup(decision, vector=vector, evidence=evidence if reason.startswith("veto_") else None)
        completion = use(id)
        if completion is None:
            return None
        decision = Decision(Outcome.SEMANTIC, similarity, verdict.cutoff, id)
        return Lookup(decision, completion, vector, evidence, verdict.audit)

    def _weigh(self, text: str, id: int, evidence: Evidence, witness: Witness) -> tuple[Evidence, str]:
        if not self.weighs_texts:
            evidence = witness.evidence(text, [id], [evidence.similarity])
        found = evidence, self.refusal(text, witness.text(id), evidence)
        if len(self._pairs) >= PAIRS_KEPT:
            # A new dict, not clear(): another thread may be reading the old one.
            self._pairs = {}
        self._pairs[text, id] = found
        return found
