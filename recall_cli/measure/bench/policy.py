"""The policy of a bench: a taught one, and what its decisions cost over a static cutoff's in the same rounds.

A policy that has learned nothing serves nothing semantic and would be cheap to ask. So it is taught first, by
a stream of generated questions with known answers (`measure.synthetic.text`) replayed through it; what it then
answers to the bench's own prompts is not answered by heart. A second opinion is asked of labelled queries and the
entries that tempt them: what it costs and what it refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.answers.second_opinion import SecondOpinion, opinion_of
from recall_cli.cache.cache import Cache
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.registry import make_policy
from recall_cli.cache.policy.risk_bound import NOTHING
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.errors import UsageError
from recall_cli.measure.bench.rows import Case
from recall_cli.measure.evaluate.replay import Trace, replay
from recall_cli.measure.evaluate.streams import Classes
from recall_cli.measure.prompts import Kind, Query, Workload
from recall_cli.measure.synthetic import text as textworld
from recall_cli.measure.timing import Arm, difference, microseconds, ratio
from recall_cli.types import Embedder, Ids, Index, Policy, Request, Vector, Warn

CALLS = 1_000
WARMUP = 20


def prepared(work: Workload, name: str) -> Callable[[], dict[str, Any]] | None:
    """Return what measures an opinion; None when none is asked.

    Raises UsageError or EmbedderError for one that cannot be asked: before anything is timed.
    """
    opinion = opinion_of(name)
    if opinion is None:
        return None
    asked = work.compared()
    if not asked:
        raise UsageError("a second opinion is measured on labelled prompts, and these have no labels")
    return partial(_measured, asked, name, opinion)


def _measured(asked: Sequence[tuple[Query, str]], name: str, opinion: SecondOpinion) -> dict[str, Any]:
    """Return microseconds of an opinion and the share it agrees to, by kind of query.

    The stored text was read before, as a popular entry's was; the new one never.
    """
    agreed: Counter[Kind] = Counter()
    for query, entry in asked:
        agreed[query.kind] += opinion.agrees(query.text, entry)
    # A mark the query did not end in makes it a new text to the opinion, and hardly another length.
    turns = range(-(-CALLS // len(asked)) + 1)
    fresh = [(f"{query.text} .{turn}", entry) for turn in turns for query, entry in asked]
    arm = Arm("opinion", lambda pair: opinion.agrees(*pair), fresh)
    arm.block(WARMUP)
    arm.samples += arm.block(CALLS)[0]
    return {
        "name": name,
        "us": microseconds(arm),
        "agrees": {
            str(kind): {"agreed": agreed[kind], "n": n, "rate": agreed[kind] / n,
                        "rate_interval": list(stats.wilson(agreed[kind], n))}
            for kind, n in Counter(query.kind for query, _ in asked).items()
        },
    }  # fmt: skip


STATIC, ADAPTIVE = "static", "adaptive"

LESSON_QUESTIONS = 7_000
"""As many as one run of `recall eval` asks: enough for the policy to serve at 1 %."""

DECISION_PARTS = ("policy", "decide", "nearest", "search", "lookup")
"""What is timed for both policies, each part with what it rests on.

policy: a verdict on evidence that is there; decide: evidence and verdict; nearest: the index; search: decide and
nearest with the cache around them; lookup: all, with identity and embedding.
"""


@dataclass(slots=True)
class Teacher:
    """Makes the policies of one bench, each knowing what its embedder's lesson taught."""

    kind: str
    tau: float
    target: float
    seed: int
    lessons: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By embedder: what was asked in the lesson, and what came of it."""
    _states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def policy(self) -> Policy:
        """Return an untaught policy. Raises UsageError for a cutoff or a target that cannot be."""
        return make_policy(self.kind, tau=self.tau, target_false_hit=self.target, seed=self.seed)

    def teach(self, policy: Policy, embedder: Embedder) -> None:
        """Give the policy what its embedder's lesson taught; a static one learns nothing."""
        if not policy.learns:
            return
        if embedder.name not in self._states:
            self._states[embedder.name] = self._lesson(embedder)
        policy.load(self._states[embedder.name])

    def _lesson(self, embedder: Embedder) -> dict[str, Any]:
        pupil = self.policy()
        assert isinstance(pupil, AdaptivePolicy)
        items = textworld.stream(LESSON_QUESTIONS, self.seed)
        stream = Classes.of("text-world", items, embedder).stream(self.seed)
        tally = replay(Trace(stream), pupil, np.random.default_rng([self.seed, 1]).random((len(stream), 2)))
        self.lessons[embedder.name] = {
            "workload": stream.name,
            "queries": sum(tally.queries),
            "labels": pupil.labels,
            "hits": sum(tally.hits),
            "false_hits": sum(tally.wrong),
            "serves": pupil.theta > NOTHING,
        }
        return pupil.state()


def decision_arms(
    cache: Cache, tau: float, make_index: Callable[[int], Index], requests: Sequence[Request], vectors: Vector
) -> dict[str, Arm]:
    """Return the arms that time a decision, for the cache's policy and, as "static_...", for a static cutoff.

    The static ones run on a second cache that holds the same entries.

    :param requests: one partition's, none of them stored; `vectors` are theirs, shape (n, dim).
    """
    static = Cache(embedder=cache.embedder, policy=StaticPolicy(tau), store=cache.store, make_index=make_index)
    arms: dict[str, Arm] = {}
    for prefix, each in (("", cache), ("static_", static)):
        arms |= {f"{prefix}{name}": arm for name, arm in _arms(each, prefix, requests, vectors).items()}
    # The cache's own search and whole lookup are arms of every bench.
    return {name: arm for name, arm in arms.items() if name not in ("search", "lookup")}


def _arms(cache: Cache, prefix: str, requests: Sequence[Request], vectors: Vector) -> dict[str, Arm]:
    index = cache.index_of(requests[0].partition)
    assert index is not None  # the bench has filled it
    policy, weigh, k = cache.policy, cache.weigh, cache.policy.candidates
    found = [(request, *index.search(vector, k)) for request, vector in zip(requests, vectors, strict=True)]

    def decide(asked: tuple[Request, Ids, Vector]) -> object:
        request, ids, similarities = asked
        return policy.decide(request.namespace, weigh(request.text, ids, similarities))

    texts = [(request.text, request.namespace) for request in requests]
    weighed = [(request.namespace, weigh(request.text, ids, near)) for request, ids, near in found]
    return {
        "policy": Arm(f"{prefix}policy", lambda asked: policy.decide(*asked), weighed),
        "decide": Arm(f"{prefix}decide", decide, found),
        "nearest": Arm(f"{prefix}nearest", lambda vector: index.search(vector, k), list(vectors)),
        "search": Arm(f"{prefix}search", lambda pair: cache.match(*pair), list(zip(requests, vectors, strict=True))),
        "lookup": Arm(f"{prefix}lookup", lambda text: cache.get(text_request(*text)), texts),
    }


def over_static(case: Case, seed: int) -> dict[str, Any]:
    """Return what each part costs over the static cutoff's, paired by rounds; nothing when that was not timed."""
    if "static_decide" not in case.arms:
        return {}
    pairs = {part: (case.arms[part], case.arms[f"static_{part}"]) for part in DECISION_PARTS}
    return {"over_static": {part: ratio(*arms, seed) | difference(*arms, seed) for part, arms in pairs.items()}}


def lesson_warnings(teacher: Teacher) -> list[Warn]:
    """Return a warning for each embedder under which the policy learned to serve nothing."""
    return [
        Warn(
            "COLD",
            f"with {name} the policy learned to serve nothing semantic at a target of {100 * teacher.target:g} %",
            "its decisions are timed all the same; allow more with --target-false-hit, or take another embedder",
        )
        for name, lesson in teacher.lessons.items()
        if not lesson["serves"]
    ]
