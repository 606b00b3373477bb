"""The semantic tier, call by call: the nearest neighbour among what the cache holds by then, and what answers teach.

Nothing is served across a wall: there is an index for each partition, as in the cache itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.decision import SECOND_OPINION, Choice, decide, learn
from recall_cli.cache.entries import EntryHistory
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.policy.static import cosine
from recall_cli.measure.savings.replay import CHUNK, NO_HIT, NO_VECTOR, Timing
from recall_cli.types import Evidence, Index, Policy, Progress, Vector

if TYPE_CHECKING:
    from recall_cli.measure.savings.replay import Floats, Ints

PROGRESS_EVERY = 1000

SameAnswer = Callable[[int, int], bool | None]
"""(call, earlier call) -> whether their logged answers say the same; None when nobody can tell."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What the whole cache (keys and neighbours) serves; a column each, in the order of the replay."""

    served_by: Ints
    """Position of the earlier call whose answer is served; NOBODY for a miss."""
    similarity: Floats
    """Cosine of the neighbour served; NaN where the key was found."""
    audits: int = 0
    """Hits that a policy which learns had checked: each costs a call."""
    labels: int = 0
    unsure: int = 0
    """Answers that were compared and could not be judged."""
    asked: int = 0
    """Hits that a second opinion was asked about, and `refused` those that it did not let stand."""
    refused: int = 0
    opinion_cpu_s: float = 0.0
    """Processor time of the second opinions."""


@dataclass(slots=True)
class Calls:
    """What the walk needs of the calls, in the order of the replay."""

    time: Timing
    key: Ints
    """Equal for calls that one entry serves without a neighbour."""
    partition: Ints
    text: Ints
    """Row of the text's vector; NO_TEXT when only an equal request may hit."""
    vectors: Vector
    namespace: Ints | None = None
    names: Sequence[str] = ()
    read: Callable[[int], str] | None = None
    """Returns a call's text: for policies that look at more than the similarity."""
    refusal: Callable[[int, int], str] | None = None
    """Of (call, earlier call): why the cache would not serve what the policy would, "" where it does."""
    agrees: Callable[[int, int], bool] | None = None
    """A second opinion on (call, earlier call) before a hit is served."""
    same: SameAnswer | None = None
    """Where the labels come from, for policies that learn."""


@dataclass(slots=True)
class _Decided:
    """A decision whose call has not ended yet."""

    candidate: int
    choice: Choice


@dataclass(slots=True)
class _Cache:
    calls: Calls
    policy: Policy
    entries: list[int]
    known: list[bool]
    crowded: list[bool]
    """Whether a partition holds two different keys: without, its index could serve nobody."""
    indexes: dict[int, Index] = field(default_factory=dict)
    witness: EntryHistory | None = None
    decided: dict[int, _Decided] = field(default_factory=dict)
    audits: int = 0
    labels: int = 0
    unsure: int = 0
    opinions: int = 0
    refused: int = 0
    opinion_cpu_s: float = 0.0

    def search(self, at: int) -> tuple[int, float] | None:
        """Return the neighbour that is served to a call, and remember the decision for its label."""
        text = int(self.calls.text[at])
        if text == NO_VECTOR or not self.known[text]:
            return None
        index = self.indexes.get(int(self.calls.partition[at]))
        if index is None:
            return None
        ids, similarities = index.search(self.calls.vectors[text], self.policy.candidates)
        if not len(ids):
            return None
        candidate = int(ids[0])
        evidence = self._evidence(at, ids.tolist(), [cosine(s) for s in similarities.tolist()])
        choice = decide(
            self.policy,
            self._space(at),
            evidence,
            lambda: (evidence, "" if self.calls.refusal is None else self.calls.refusal(at, candidate)),
            None if self.calls.agrees is None else lambda: self._agrees(at, candidate),
        )
        self.refused += choice.reason == SECOND_OPINION
        if self.policy.learns and (choice.audit or not choice.serve):
            self.decided[at] = _Decided(candidate, choice)
        return (candidate, evidence.similarity) if choice.serve else None

    def arrive(self, at: int, missed: bool) -> None:
        """Take in the answer of a call: learn from it, and keep it unless what served it stands."""
        decided = self.decided.pop(at, None)
        group = None
        if decided is not None and decided.choice.evidence is not None and self.calls.same is not None:
            candidate, choice = decided.candidate, decided.choice
            same = self.calls.same(at, candidate)
            learned = learn(self.policy, self._space(at), choice.evidence, served=choice.serve, same=same)
            self.audits += choice.serve
            self.labels += learned.counts
            self.unsure += same is None
            if same is not None and self.witness is not None:
                self.witness.judge(candidate, same=same)
            group = candidate if same else None
            missed = learned.stores
        if missed:
            self._put(at, group)

    def _agrees(self, at: int, candidate: int) -> bool:
        """Ask the second opinion, and count what that took."""
        assert self.calls.agrees is not None
        self.opinions += 1
        before = process_time()
        agreed = self.calls.agrees(at, candidate)
        self.opinion_cpu_s += process_time() - before
        return agreed

    def _put(self, at: int, like: int | None) -> None:
        key, text = int(self.calls.key[at]), int(self.calls.text[at])
        if self.entries[key] != NO_HIT:
            # Two equal calls were under way at once; the first to end is the entry.
            return
        self.entries[key] = at
        if self.witness is not None and like is not None:
            self.witness.join(at, self.witness.group(like))
        if text == NO_VECTOR or not self.known[text]:
            return
        partition = int(self.calls.partition[at])
        if not self.crowded[partition]:
            return
        index = self.indexes.get(partition)
        if index is None:
            index = self.indexes[partition] = AutoIndex(self.calls.vectors.shape[1])
        index.add(np.array([at], dtype=np.int64), self.calls.vectors[text : text + 1])

    def _evidence(self, at: int, ids: list[int], similarities: list[float]) -> Evidence:
        if self.witness is None or self.calls.read is None:
            return Evidence(similarities[0])
        return self.witness.evidence(self.calls.read(at), ids, similarities)

    def _space(self, at: int) -> str:
        return self.calls.names[self.calls.namespace[at]] if self.calls.namespace is not None else ""


def walk(calls: Calls, policy: Policy, *, progress: Progress | None = None) -> Walked:
    """Return what a cache of keys and nearest neighbours serves, under a policy that learns from answers as they come.

    A call is answered only by one that had ended when it started. A hit stores nothing, unless it was audited and
    the fresh answer turned out to be another.
    """
    time, n = calls.time, len(calls.time)
    served = np.full(n, NO_HIT, dtype=np.int32)
    similarity = np.full(n, np.nan)
    keys = int(calls.key.max()) + 1 if n else 0
    witness = EntryHistory(calls.read) if calls.read is not None and policy.candidates > 1 else None
    known = np.any(calls.vectors, axis=1).tolist()
    cache = _Cache(calls, policy, [NO_HIT] * keys, known, _crowded(calls), witness=witness)
    arrivals = np.empty(n, dtype=np.int32)
    arrivals[time.rank] = np.arange(n, dtype=np.int32)
    since = time.since[arrivals]
    arrived = 0
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        due = np.searchsorted(since, np.arange(start, stop), side="right").tolist()
        for at, key, until in zip(range(start, stop), calls.key[start:stop].tolist(), due, strict=True):
            if progress is not None and at % PROGRESS_EVERY == 0:
                progress(at, n, "replaying")
            if until > arrived:
                for turn in arrivals[arrived:until].tolist():
                    cache.arrive(turn, served[turn] == NO_HIT)
                arrived = until
            entry = cache.entries[key]
            if entry != NO_HIT:
                served[at] = entry
                continue
            found = cache.search(at)
            if found is not None:
                served[at], similarity[at] = found
    return Walked(
        served,
        similarity,
        cache.audits,
        cache.labels,
        cache.unsure,
        cache.opinions,
        cache.refused,
        cache.opinion_cpu_s,
    )


def _crowded(calls: Calls) -> list[bool]:
    """Return, of each partition, whether it holds more than one key: most of an agent's hold its one prompt alone."""
    if not len(calls.key):
        return []
    pairs = np.unique(calls.partition.astype(np.int64) << 32 | calls.key)
    crowded: list[bool] = (np.bincount(pairs >> 32) > 1).tolist()
    return crowded
