"""The policies that `recall eval` sets side by side, and one run of all of them over one stream.

All static cutoffs are replayed at once, and hindsight says which of them it would have chosen.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from recall_cli.cache.answers.second_opinion import SecondOpinion, opinion_of
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.registry import vetoes_of
from recall_cli.cache.policy.risk_model import shipped
from recall_cli.cache.policy.static import DEFAULT_TAU, StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.measure.evaluate.replay import Agrees, Relation, ReplayCounts, Stream, Trace, replay
from recall_cli.types import Evidence, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TAUS = (*np.round(np.arange(0.30, 0.90, 0.01), 3).tolist(), *np.round(np.arange(0.90, 1.0, 0.005), 3).tolist())
"""The cutoffs that are tried: finer near 1, where most embedders keep their paraphrases."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What each static cutoff did, each with a cache of its own. Cells are as in Tally."""

    hits: Ints
    """Shape (cutoffs, 2 * namespaces)."""
    wrong: Ints
    unsure: Ints
    queries: Ints
    exact: Ints
    """Shape (cutoffs, namespaces)."""


def grid(trace: Trace, taus: tuple[float, ...] = TAUS) -> Grid:
    """Replay every cutoff: the nearest stored question is served when it is close enough, else stored."""
    stream = trace.stream
    spaces, cutoffs = len(stream.namespaces), np.array(taus)[:, None]
    hits = np.zeros((len(taus), 2 * spaces), dtype=np.int64)
    wrong, unsure, queries = np.zeros_like(hits), np.zeros_like(hits), np.zeros_like(hits)
    exact = np.zeros((len(taus), spaces), dtype=np.int64)
    for members in trace.partitions:
        space = trace.space[int(members[0])]
        place = {int(row): i for i, row in enumerate(members)}
        vectors, answers = stream.vectors[members], stream.answer[members]
        held = np.zeros((len(taus), len(members)), dtype=bool)
        for i, row in enumerate(members.tolist()):
            cell = 2 * space + trace.half[row]
            repeated = np.zeros(len(taus), dtype=bool)
            for twin in trace.twins[row]:
                repeated |= held[:, place[twin]]
            similarities = vectors[:i] @ vectors[i]
            near = np.flatnonzero(similarities >= taus[0])
            near = near[np.argsort(-similarities[near], kind="stable")]
            served = np.zeros(len(taus), dtype=bool)
            if len(near):
                stored = held[:, near]
                first = stored.argmax(axis=1)
                close = similarities[near[first]] >= cutoffs[:, 0]
                served = stored[np.arange(len(taus)), first] & close & ~repeated
                for one in np.unique(near[first][served]).tolist():
                    if trace.refusal(row, int(members[one])):
                        served &= near[first] != one
                hits[:, cell] += served
                if stream.same is None:
                    wrong[:, cell] += served & (answers[near[first]] != answers[i])
                else:
                    rights = _judged(stream.same, row, members[near[first]], served)
                    wrong[:, cell] += rights == WRONG
                    unsure[:, cell] += rights == UNSURE
            held[:, i] = ~served & ~repeated
            queries[:, cell] += ~repeated
            exact[:, space] += repeated
    return Grid(hits, wrong, unsure, queries, exact)


RIGHT, WRONG, UNSURE = 0, 1, 2


def _judged(same: Relation, i: int, served_by: Ints, served: NDArray[np.bool_]) -> Ints:
    """Return what each cutoff's hit was; RIGHT where there is none. Each pair is asked for once."""
    rights = np.full(len(served), RIGHT)
    for j in np.unique(served_by[served]).tolist():
        found = same(i, j)
        if not found:
            rights[served & (served_by == j)] = UNSURE if found is None else WRONG
    return rights


def at(table: Grid, choice: int) -> ReplayCounts:
    """Return the tally of one cutoff for all namespaces."""
    return _tally_of(table, np.full(table.exact.shape[1], choice))


def best(table: Grid, target: float) -> ReplayCounts:
    """Return the tally of the cutoff with the most hits that held the target: nobody knows it beforehand."""
    choice = _most(table, slice(None), target)
    return _none(table) if choice is None else at(table, choice)


def oracle(table: Grid, target: float) -> ReplayCounts:
    """Return the same, chosen for each namespace by itself."""
    spaces = table.exact.shape[1]
    chosen = [_most(table, cells, target) for cells in (slice(2 * space, 2 * space + 2) for space in range(spaces))]
    if all(choice is None for choice in chosen):
        return _none(table)
    tally = _tally_of(table, np.array([0 if choice is None else choice for choice in chosen]))
    for space, choice in enumerate(chosen):
        if choice is None:
            # Without a cutoff that holds, everything in it is a miss.
            for cell in (2 * space, 2 * space + 1):
                tally.hits[cell] = tally.wrong[cell] = tally.unsure[cell] = 0
    return tally


def _most(table: Grid, cells: slice, target: float) -> int | None:
    hits, wrong, unsure = (counts[:, cells].sum(axis=1) for counts in (table.hits, table.wrong, table.unsure))
    judged = hits - unsure
    fits = (judged > 0) & (wrong <= target * judged)
    return int(np.where(fits, hits, -1).argmax()) if fits.any() else None


def _tally_of(table: Grid, choices: Ints) -> ReplayCounts:
    cells = np.arange(table.hits.shape[1])
    rows = choices[cells // 2]
    return ReplayCounts(
        queries=table.queries[rows, cells].tolist(),
        hits=table.hits[rows, cells].tolist(),
        wrong=table.wrong[rows, cells].tolist(),
        unsure=table.unsure[rows, cells].tolist(),
        exact=int(table.exact[choices, np.arange(table.exact.shape[1])].sum()),
    )


def _none(table: Grid) -> ReplayCounts:
    """Return the tally of serving nothing semantic: as at the highest cutoff, without its hits."""
    tally = at(table, len(table.hits) - 1)
    tally.hits = [0] * len(tally.hits)
    tally.wrong = [0] * len(tally.wrong)
    tally.unsure = [0] * len(tally.unsure)
    tally.feasible = False
    return tally


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
    tallies: Mapping[tuple[str, float], ReplayCounts]
    """By policy and target."""
    grid: Grid


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
    table = grid(trace)
    tallies: dict[tuple[str, float], ReplayCounts] = {}
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
    policy: str, target: float, trace: Trace, table: Grid, luck: Any, seed: int, settings: Settings
) -> ReplayCounts:
    if policy == STATIC:
        return at(table, TAUS.index(DEFAULT_TAU))
    if policy == BEST:
        return best(table, target)
    if policy == ORACLE:
        return oracle(table, target)
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
