"""One stream of questions, and every policy's cache replayed over it.

Which earlier questions are nearest does not depend on a policy; which of them are in its cache does.
So the neighbours are computed once, and a replay walks down each question's list to the first ones
that its cache holds. Where the list ends too early, the rest is searched: the replay is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from recall_cli.cache.decision import VETO, decide, learn
from recall_cli.cache.evidence.evidence import history, vetoes
from recall_cli.cache.policy.static import cosine
from recall_cli.measure.evaluate.floors import TextEvidence, floor_of
from recall_cli.types import Evidence, Policy, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

T = TypeVar("T")

DEPTH = 64
"""Neighbours kept of each question: a longer list spares searches and costs memory."""
BLOCK_CELLS = 4_000_000
"""Similarities computed at a time: 16 MB, whatever the length of the stream."""

PairEvidence = Callable[[int, int], Evidence]
"""(question, earlier question) -> what their texts tell; similarity, margin and history are not its business."""
Relation = Callable[[int, int], bool | None]
"""(question, earlier question) -> whether one answer serves both; None: nobody can tell. It need not be transitive."""
Agrees = Callable[[int, int], bool]
"""(question, stored question) -> whether a second opinion lets the hit stand."""
NO_EVIDENCE = Evidence(0.0)
"""What may be claimed of two vectors without texts."""


@dataclass(slots=True)
class Stream:
    """Questions in the order they are asked, with the truth about their answers."""

    name: str
    namespaces: tuple[str, ...]
    namespace: Ints
    """Of each question, an index into `namespaces`; a cutoff is learned for each."""
    vectors: Vector
    answer: Ints
    """Equal means that one stored answer serves both, unless `same` says what does."""
    text: Ints
    """Equal means the same text: a repeat is an exact hit and no policy's business."""
    false_alarm: float = 0.0
    """How often the comparator calls two equal answers different."""
    missed: float = 0.0
    """How often it calls two different answers equal."""
    pair: PairEvidence | None = None
    wall: Ints | None = None
    """Of each question, the partition beyond which no cache looks, inside one namespace; None: the namespace."""
    same: Relation | None = None
    """Where answers have no classes but are compared two by two: the truth, in place of `answer`."""
    prompts: Sequence[str] | None = None
    """The texts, where there are any: what a second opinion reads."""
    embedder: str | None = None
    """Whose vectors they are: it tells which of the prompts it has read."""
    agrees: Agrees | None = None
    """A second opinion of (question, candidate) before a hit is served."""

    def __len__(self) -> int:
        return len(self.answer)

    def partitions(self) -> list[Ints]:
        """Return the questions of each partition, in the order they are asked."""
        walls = self.namespace if self.wall is None else self.wall
        order = np.argsort(walls, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(walls[order])) + 1) if len(order) else []

    def reordered(self, order: Ints) -> Stream:
        """Return the same questions in another order."""
        return Stream(
            self.name,
            self.namespaces,
            self.namespace[order],
            self.vectors[order],
            self.answer[order],
            self.text[order],
            self.false_alarm,
            self.missed,
            None if self.pair is None else Reordered(self.pair, order),
            None if self.wall is None else self.wall[order],
            None if self.same is None else Reordered(self.same, order),
            None if self.prompts is None else [self.prompts[i] for i in order.tolist()],
            self.embedder,
        )

    def with_answers_of(self, order: Ints) -> None:
        """Give each question the answer of another: what is learned from such a stream is learned from nothing."""
        self.answer = self.answer[order]
        if self.same is not None:
            self.same = Reordered(self.same, order)


@dataclass(frozen=True, slots=True)
class Reordered(Generic[T]):
    """What is known of two questions of a stream that was put in another order."""

    of: Callable[[int, int], T]
    order: Ints

    def __call__(self, i: int, j: int) -> T:
        """Return what is known of the questions now at these positions."""
        return self.of(int(self.order[i]), int(self.order[j]))


@dataclass(slots=True)
class ReplayCounts:
    """What one policy did over one stream; by namespace and half, index 2 * namespace + half."""

    queries: list[int]
    hits: list[int]
    wrong: list[int]
    unsure: list[int]
    """Hits of which nobody can tell whether they are wrong; they are not among `wrong`."""
    exact: int = 0
    audits: int = 0
    reasks: int = 0
    unlabelled: int = 0
    """Misses and audits that gave no label, since nobody could tell."""
    feasible: bool = True
    first_hit_label: int | None = None
    """Labels that were needed before the first hit; None when there was no hit."""
    labels_needed: int | None = None
    """Right labels still missing at the end; 0 when it serves, None when unknown or no number would do."""
    cutoffs: dict[str, float] = field(default_factory=dict)


class Trace:
    """The nearest earlier questions of each question, best first."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        n = len(stream)
        self.rows: list[list[int]] = [[] for _ in range(n)]
        self.similarities: list[list[float]] = [[] for _ in range(n)]
        self.complete = [True] * n
        """Whether the list holds all earlier questions of the partition."""
        self.half = (np.arange(n) >= n // 2).astype(int).tolist()
        self.space: list[int] = stream.namespace.tolist()
        self.answer: list[int] = stream.answer.tolist()
        self.twins = _twins(stream)
        self.partitions = stream.partitions()
        self.partition = [0] * n
        self._pairs: dict[tuple[int, int], Evidence] = {}
        self._refusals: dict[tuple[int, int], str] = {}
        self._texts: TextEvidence | None = None
        self.read: list[bool] = np.any(stream.vectors, axis=1).tolist()
        """Whether a question has a vector: one that was not read may be matched by identity alone."""
        for number, members in enumerate(self.partitions):
            for row in members.tolist():
                self.partition[row] = number
            self._neighbours(members)

    def _neighbours(self, members: Ints) -> None:
        vectors = self.stream.vectors[members]
        step = max(1, BLOCK_CELLS // max(1, len(members)))
        for start in range(0, len(members), step):
            stop = min(start + step, len(members))
            block = vectors[start:stop] @ vectors[:stop].T
            block[np.arange(stop) >= np.arange(start, stop)[:, None]] = -2.0
            depth = min(DEPTH, stop)
            top = np.argpartition(block, stop - depth, axis=1)[:, stop - depth :]
            values = np.take_along_axis(block, top, axis=1)
            order = np.argsort(-values, axis=1)
            top, values = np.take_along_axis(top, order, 1), np.take_along_axis(values, order, 1)
            ids = members[top].tolist()
            for i, near, similar in zip(range(start, stop), ids, values.tolist(), strict=True):
                row, earlier = int(members[i]), min(i, depth)
                self.rows[row], self.similarities[row] = near[:earlier], similar[:earlier]
                self.complete[row] = i <= depth

    def pair(self, i: int, j: int) -> Evidence:
        """Return the evidence of two texts, computed once for all policies."""
        if self.stream.pair is None:
            return NO_EVIDENCE
        found = self._pairs.get((i, j))
        if found is None:
            found = self._pairs[i, j] = self.stream.pair(i, j)
        return found

    def weighed(self, i: int, j: int) -> Evidence:
        """Return the evidence of two texts, also where no policy is shown it."""
        if self.stream.pair is None and self._texts is None and self.stream.prompts is not None:
            self._texts = TextEvidence(self.stream.prompts)
        return self.pair(i, j) if self._texts is None else self._texts(i, j)

    def check(self, i: int, j: int, evidence: Evidence, forbidding: frozenset[str]) -> tuple[Evidence, str]:
        """Return what `decide` asks of a check."""
        reason = self.refusal(i, j)
        if not reason and forbidding:
            veto = vetoes(self.weighed(i, j), forbidding)
            reason = "" if veto is None else VETO + veto
        return evidence, reason

    def refusal(self, i: int, j: int) -> str:
        """Return why the floor keeps an earlier question's answer from a question, "" where it does not."""
        prompts = self.stream.prompts
        if prompts is None or self.stream.embedder is None:
            return ""
        found = self._refusals.get((i, j))
        if found is None:
            floor = floor_of(self.stream.embedder)
            found = self._refusals[i, j] = floor.refusal(prompts[i], prompts[j], self.weighed(i, j))
        return found


def _twins(stream: Stream) -> list[list[int]]:
    """Return, for each question, the earlier ones of the same text in its namespace."""
    seen: dict[tuple[int, int], list[int]] = {}
    twins: list[list[int]] = []
    for i, key in enumerate(zip(stream.namespace.tolist(), stream.text.tolist(), strict=True)):
        same = seen.setdefault(key, [])
        twins.append(list(same))
        same.append(i)
    return twins


class CacheReplay:
    """The cache of one policy over a trace: what it holds, and the nearest of it."""

    def __init__(self, trace: Trace) -> None:
        n = len(trace.stream)
        self.trace = trace
        self.held = bytearray(n)
        self.group = list(range(n))
        self.labels = [0] * n
        self.wrong = [0] * n
        self._members: list[list[int]] = [[] for _ in trace.partitions]

    def insert(self, i: int, group: int) -> None:
        """Store the answer of a question under its answer group."""
        self.held[i] = 1
        self.group[i] = group
        self._members[self.trace.partition[i]].append(i)

    def candidate(self, i: int, k: int) -> tuple[int, float, float] | None:
        """Return (nearest, its similarity, margin to the best of another group), None when the cache is empty.

        As a cache does that asks its index for k (see `cache.evidence.evidence.margin`): when all are of one group,
        the margin is to the last of them, and 0 when there is only one.
        """
        trace, held, group = self.trace, self.held, self.group
        best, first, last, seen = -1, 0.0, 0.0, 0
        for row, similarity in zip(trace.rows[i], trace.similarities[i], strict=True):
            if held[row]:
                seen += 1
                last = similarity
                if best < 0:
                    best, first = row, similarity
                    if k == 1:
                        return best, first, 0.0
                elif group[row] != group[best] or seen == k:
                    return best, first, first - last
        if not trace.complete[i] and len(self._members[trace.partition[i]]) > seen:
            return self._search(i, k)
        return (best, first, first - last) if best >= 0 else None

    def _search(self, i: int, k: int) -> tuple[int, float, float]:
        """Search the whole cache, for the few questions whose list held too little of it."""
        members = np.array(self._members[self.trace.partition[i]])
        vectors = self.trace.stream.vectors
        similarities = vectors[members] @ vectors[i]
        top = np.argsort(-similarities, kind="stable")[:k].tolist()
        best, first = int(members[top[0]]), float(similarities[top[0]])
        other = next((place for place in top if self.group[members[place]] != self.group[best]), top[-1])
        return best, first, first - float(similarities[other])


def replay(
    trace: Trace, policy: Policy, luck: NDArray[np.float64], forbidding: frozenset[str] = frozenset()
) -> ReplayCounts:
    """Run a policy over the stream, strictly in time order: decide, then learn.

    It sees labels of misses and of audited hits alone. A miss is stored, and so is the fresh answer of an
    audit that showed another one. An audit that says "different" asks once more and stands only if that
    says so too. Where nobody can tell there is no label: a miss is stored, a hit stands (see `Cache.learn`).

    What the floor refuses is a miss that teaches nothing, as in the cache.

    :param luck: uniform numbers, shape (n, 2): the comparator's errors, the same for every policy.
    :param forbidding: the checks of the evidence that make a miss of a hit (`cache.evidence.evidence.VETOES`).
    """
    stream, cache = trace.stream, CacheReplay(trace)
    cells = 2 * len(stream.namespaces)
    tally = ReplayCounts([0] * cells, [0] * cells, [0] * cells, [0] * cells)
    noise = (stream.missed, stream.false_alarm)
    draws: list[list[float]] = luck.tolist()
    answer, same_of, labels = trace.answer, stream.same, 0
    for i, namespace in enumerate(trace.space):
        if trace.twins[i] and any(cache.held[j] for j in trace.twins[i]):
            tally.exact += 1
            continue
        cell = 2 * namespace + trace.half[i]
        tally.queries[cell] += 1
        found = cache.candidate(i, policy.candidates) if trace.read[i] else None
        if found is None:
            cache.insert(i, i)
            continue
        j, similarity, margin = found
        evidence = copy(trace.pair(i, j) if policy.candidates > 1 else NO_EVIDENCE)
        evidence.similarity, evidence.margin = cosine(similarity), margin
        evidence.history = history(cache.labels[j], cache.wrong[j])
        name = stream.namespaces[namespace]
        opinion = None if stream.agrees is None else partial(stream.agrees, i, j)
        choice = decide(policy, name, evidence, partial(trace.check, i, j, evidence, forbidding), opinion)
        right = answer[i] == answer[j] if same_of is None else same_of(i, j)
        if choice.serve:
            tally.hits[cell] += 1
            tally.wrong[cell] += right is False
            tally.unsure[cell] += right is None
            if tally.first_hit_label is None:
                tally.first_hit_label = labels
            if not choice.audit:
                continue
            tally.audits += 1
        if choice.evidence is None:
            cache.insert(i, i)
            continue
        same = right
        if right is not None:
            same = right != (draws[i][0] < noise[right])
            if choice.serve and not same:
                tally.reasks += 1
                same = right != (draws[i][1] < noise[right])
        learned = learn(policy, name, choice.evidence, served=choice.serve, same=same)
        if learned.counts:
            labels += 1
            cache.labels[j] += 1
            cache.wrong[j] += not same
        else:
            tally.unlabelled += 1
        if learned.stores:
            cache.insert(i, cache.group[j] if same else i)
    needed: Any = getattr(policy, "labels_needed", None)
    tally.labels_needed = needed() if needed is not None else None
    cutoffs: Any = getattr(policy, "cutoffs", None)
    tally.cutoffs = cutoffs() if cutoffs is not None else {}
    return tally
