"""The policies that `recall eval` sets side by side, and one run of all of them over one stream."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from recall_cli.cache.answers.second_opinion import SecondOpinion, opinion_of
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.prior import shipped
from recall_cli.cache.policy.registry import vetoes_of
from recall_cli.cache.policy.static import DEFAULT_TAU, StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.measure.evaluate import eval_static
from recall_cli.measure.evaluate.replay import Agrees, Stream, Tally, Trace, replay
from recall_cli.types import Evidence, Verdict

STATIC, BEST, ORACLE, NAIVE, ADAPTIVE = "static@0.8", "static@best", "oracle/namespace", "naive/namespace", "adaptive"
GIVEN = "static"
"""What the product does by default: the cutoffs the user gave, under the floor and the evidence's vetoes."""
POLICIES = (STATIC, BEST, ORACLE, NAIVE, ADAPTIVE)
"""STATIC is the bare cutoff that guides name, without the vetoes: it stays to show what it serves wrongly."""
HINDSIGHT = (BEST, ORACLE)
"""Policies that nobody could run: their cutoff is chosen with the whole stream known."""
TEXTS_HINT = "evaluate it on texts: --workload text-world, --classes FILE, --log FILE or --pairs FILE"
NEVER = 2.0
"""A cutoff that no similarity reaches."""
NAIVE_LABELS = 30
"""Labels above a cutoff before the naive quantile believes it."""
NAIVE_EVERY = 10
"""Labels of a namespace between two looks at its quantile."""


class Source(Protocol):
    """Where streams come from: a world, or texts with classes."""

    @property
    def name(self) -> str:
        """The workload's name in results."""

    def stream(self, seed: int) -> Stream:
        """Return the stream of a seed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the learning policies are set and how each stream is ordered."""

    targets: tuple[float, ...] = (0.01,)
    confidence: float = 0.9
    verify_sample: float = 0.05
    window: int = 3_000
    warmup: int = 100
    tau: float = DEFAULT_TAU
    taus: Mapping[str, float] = field(default_factory=dict)
    """Cutoffs of single namespaces, for the policy GIVEN; it serves the others from `tau` on."""
    policies: tuple[str, ...] = POLICIES
    order: str = "time"
    """"time", or "shuffled": the same questions in a random order, without drift or bursts."""
    shuffle_labels: bool = False
    """Answers dealt out at random: a sound policy then serves about nothing."""
    prior: bool = True
    """Whether a policy that sees texts starts from the shipped weights; vectors alone have no evidence to weigh."""
    verify_on_hit: str = "auto"
    """What GIVEN must pass on texts beside its cutoff (`cache.policy.registry.CHECKS`). model: what a policy would
    serve is asked of the local second opinion first. The cutoffs that are swept over a whole stream at once
    (static@..., oracle) stand on the floor and know nothing else."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed gave."""

    seed: int
    namespaces: tuple[str, ...]
    tallies: Mapping[tuple[str, float], Tally]
    """By policy and target."""
    grid: eval_static.Grid


class NaivePolicy:
    """The lowest cutoff of a namespace whose labels above it are wrong at most as often as the target.

    No bound, no pooling: what most would write first. It keeps the promise about every second time.
    """

    name = "naive"
    learns = True
    candidates = 1

    def __init__(self, target: float, verify_sample: float, seed: int) -> None:
        self.target = target
        self.verify_sample = verify_sample
        self._random = np.random.default_rng(seed).random
        self._labels: dict[str, list[tuple[float, float, float]]] = {}
        self._cutoffs: dict[str, float] = {}

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Serve from the namespace's cutoff on; nothing before it has one."""
        cutoff = self._cutoffs.get(namespace, NEVER)
        chance = self._random()
        return Verdict(evidence.similarity >= cutoff, cutoff, chance < self.verify_sample)

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        """Ignore it: what is measured is what people build without a certificate."""

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Keep the label, weighted by how rarely such labels come."""
        labels = self._labels.setdefault(namespace, [])
        served = evidence.similarity >= self._cutoffs.get(namespace, NEVER)
        weight = 1 / self.verify_sample if served else 1.0
        insort(labels, (-evidence.similarity, weight, 0.0 if same else weight))
        if len(labels) >= NAIVE_LABELS and len(labels) % NAIVE_EVERY == 0:
            table = np.array(labels)
            held = np.cumsum(table[:, 2]) <= self.target * np.cumsum(table[:, 1])
            held[: NAIVE_LABELS - 1] = False
            self._cutoffs[namespace] = float(-table[held.nonzero()[0][-1], 0]) if held.any() else NEVER

    def state(self) -> dict[str, Any]:
        """Nothing: it exists for comparison."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Nothing: it exists for comparison."""


def run_seed(source: Source, seed: int, settings: Settings) -> Outcome:
    """Return what every policy did over the stream of one seed: the same stream, the same luck."""
    stream = source.stream(seed)
    if settings.order == "shuffled":
        stream = stream.reordered(np.random.default_rng([seed, 2]).permutation(len(stream)))
    if settings.shuffle_labels:
        stream.with_answers_of(np.random.default_rng([seed, 3]).permutation(len(stream)))
    opinion = _opinion(settings.verify_on_hit)
    if opinion is not None:
        stream.agrees = reader(opinion, stream.prompts)
    trace = Trace(stream)
    luck = np.random.default_rng([seed, 1]).random((len(stream), 2))
    table = eval_static.grid(trace)
    tallies: dict[tuple[str, float], Tally] = {}
    for target in settings.targets:
        for policy in settings.policies:
            tallies[policy, target] = _tally(policy, target, trace, table, luck, seed, settings)
    return Outcome(seed, stream.namespaces, tallies, table)


@cache
def _opinion(name: str) -> SecondOpinion | None:
    """Load it once a process: the seeds share what it has read."""
    return opinion_of(name)


def reader(opinion: SecondOpinion, prompts: Sequence[str] | None) -> Agrees:
    """Return what asks the opinion about two prompts of a stream. Raises UsageError where it has no texts."""
    if prompts is None:
        raise UsageError("a second opinion reads texts, and this workload is made of vectors", hint=TEXTS_HINT)
    texts = prompts
    return lambda i, j: opinion.agrees(texts[i], texts[j])


def _tally(
    policy: str, target: float, trace: Trace, table: eval_static.Grid, luck: Any, seed: int, settings: Settings
) -> Tally:
    if policy == STATIC:
        return eval_static.at(table, eval_static.TAUS.index(DEFAULT_TAU))
    if policy == BEST:
        return eval_static.best(table, target)
    if policy == ORACLE:
        return eval_static.oracle(table, target)
    if policy == GIVEN:
        given = StaticPolicy(settings.tau, settings.taus)
        texts = trace.stream.prompts is not None
        return replay(trace, given, luck, vetoes_of(settings.verify_on_hit, given) if texts else frozenset())
    if policy == NAIVE:
        return replay(trace, NaivePolicy(target, settings.verify_sample, seed), luck)
    return replay(trace, adaptive(target, seed, settings, texts=trace.stream.pair is not None), luck)


def adaptive(target: float, seed: int, settings: Settings, *, texts: bool = False) -> AdaptivePolicy:
    """Return the policy under test.

    :param texts: whether it will see evidence of texts, not of vectors alone.
    """
    return AdaptivePolicy(
        target_false_hit=target,
        confidence=settings.confidence,
        verify_sample=settings.verify_sample,
        window=settings.window,
        warmup=settings.warmup,
        prior=shipped() if settings.prior and texts else None,
        seed=seed,
    )
