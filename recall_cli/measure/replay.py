"""A log, walked in time order: which calls would a cache have had the answer to by then.

Two caches are walked at once. One holds exact keys alone; the other also serves the nearest neighbour.
What the second answers beyond the first is the semantic tier's own worth, and all of its risk.

Calls of the same instant: most logs cut their times to a step (a second, a day). A call shorter than the step was
over before the next stamp, so it serves those that stand behind it in the file; a call as long as the step or longer
was still under way and serves none of them. The first is an upper bound, and `leaning` counts what rests on it; of
the second, `tied` counts the repeats that would be hits if the stamps were no start times after all.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recall_cli.core.auto import AutoIndex
from recall_cli.core.policy import StaticPolicy, cosine
from recall_cli.types import Evidence, Index, Policy, Progress, Vector

PROGRESS_EVERY = 1000
NO_TEXT = -1
STEPS = (86_400.0, 3_600.0, 900.0, 60.0, 1.0)
"""Seconds to which logs cut their times; 900 is a day or an hour in a zone that is off by quarters of an hour."""
FINEST = 1e-3
"""The step of all other logs: nobody needs to know the order within a millisecond."""


@dataclass(slots=True)
class Call:
    """One cacheable call, reduced to what the walk needs."""

    identity: bytes
    partition: bytes
    text: int
    """Row of the text's vector; NO_TEXT when only an equal request may hit."""
    start: float | None
    end: float | None
    answer: bytes = b""
    """Digest of the normalised answer; empty when the log has none."""
    line: int = 0
    """Of the log, the first being 1."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A call that a cache would have answered."""

    exact_by: int | None
    """Position of the earlier call that exact keys alone would have served; None when they would not have hit."""
    served_by: int
    """Position of the earlier call whose answer the semantic cache serves."""
    similarity: float | None = None
    """Cosine of the neighbour served; None when the semantic cache, too, found the exact key."""

    @property
    def exact(self) -> bool:
        """True when exact keys alone would have answered it."""
        return self.exact_by is not None


def median_latency(calls: Sequence[Call]) -> float | None:
    """Return the median seconds a call took, over those that say; None when none does.

    Not the mean: a single mistaken duration would decide over all calls that say none.
    """
    took = [call.end - call.start for call in calls if call.start is not None and call.end is not None]
    return statistics.median(took) if took else None


def time_step(starts: Sequence[float | None]) -> float:
    """Return the step to which most of the times are cut; FINEST when to none."""
    known = [start for start in starts if start is not None]
    return next((step for step in STEPS if known and 2 * sum(s % step == 0 for s in known) > len(known)), FINEST)


def time_order(starts: Sequence[float | None]) -> list[int]:
    """Return positions by start time, then as given; one without a time stays behind the one before it."""
    known: list[float] = []
    last = -math.inf
    for start in starts:
        last = last if start is None else start
        known.append(last)
    return sorted(range(len(known)), key=known.__getitem__)


def replay(
    calls: Sequence[Call],
    vectors: Vector,
    policy: Policy,
    *,
    latency: float = 0.0,
    step: float = 0.0,
    progress: Progress | None = None,
) -> list[Hit | None]:
    """Return for each call (in the order given) the hit it would have been, or None.

    A call is answered only by one that had ended when it started. A hit stores nothing: the cache
    serves what it has. A call without a time is taken to start after all that came before it.

    :param vectors: rows are found by `Call.text`; a zero row means nothing is known of the text.
    :param latency: how long a call took that does not say.
    :param step: to which times are cut; 0 lets no call serve another of its instant, whatever it took.
    """
    hits: list[Hit | None] = [None] * len(calls)
    exact, semantic = _ExactTier(), _SemanticTier(vectors, policy)
    pending: list[tuple[float, int, int, bool, bool]] = []
    for turn, at in enumerate(time_order([call.start for call in calls])):
        if progress is not None and turn % PROGRESS_EVERY == 0:
            progress(turn, len(calls), "replaying")
        call = calls[at]
        while pending and (call.start is None or pending[0][0] <= call.start):
            _, _, done, to_exact, to_semantic = heapq.heappop(pending)
            if to_exact:
                exact.put(calls[done], done)
            if to_semantic:
                semantic.put(calls[done], done)
        known = exact.get(call)
        found = semantic.get(call)
        if found is not None:
            hits[at] = Hit(known, found[0], found[1])
        elif known is not None:
            # The neighbour that once kept this key out of the semantic cache now rounds to below the cutoff.
            hits[at] = Hit(known, known)
        if known is None or found is None:
            ready = -math.inf if call.start is None else _ready(call.start, call.end, latency, step)
            heapq.heappush(pending, (ready, turn, at, known is None, found is None))
    return hits


def replay_exact(calls: Sequence[Call], *, latency: float = 0.0, step: float = 0.0) -> list[bool]:
    """Return for each call whether a cache of exact keys alone would have answered it; no vector is needed."""
    bare = [replace(call, text=NO_TEXT) for call in calls]
    hits = replay(bare, np.empty((0, 1), dtype=np.float32), StaticPolicy(), latency=latency, step=step)
    return [hit is not None for hit in hits]


def leaning(calls: Sequence[Call], hits: Sequence[Hit | None]) -> int:
    """Return how many hits are served by a call of the same step: no time says that it was over first."""
    return sum(
        any(at is not None and _leans(calls[at], call) for at in (hit.served_by, hit.exact_by))
        for call, hit in zip(calls, hits, strict=True)
        if hit is not None
    )


def _leans(source: Call, call: Call) -> bool:
    if source.start is None or call.start is None:
        return False
    return source.start == call.start or (source.end is not None and source.end > call.start)


def tied(calls: Sequence[Call], hits: Sequence[Hit | None]) -> int:
    """Return how many misses repeat a call of the same instant."""
    seen: set[tuple[bytes, float]] = set()
    count = 0
    for call, hit in zip(calls, hits, strict=True):
        if call.start is not None:
            key = (call.identity, call.start)
            count += hit is None and key in seen
            seen.add(key)
    return count


def _ready(start: float, end: float | None, latency: float, step: float) -> float:
    """Return when an answer can first be served."""
    took = latency if end is None else end - start
    if step and took < (step if start % step == 0 else FINEST):
        return start
    return max(start + took, math.nextafter(start, math.inf))


class _ExactTier:
    """A cache of exact keys alone."""

    def __init__(self) -> None:
        self._entries: dict[bytes, int] = {}

    def get(self, call: Call) -> int | None:
        return self._entries.get(call.identity)

    def put(self, call: Call, at: int) -> None:
        self._entries.setdefault(call.identity, at)


class _SemanticTier:
    """A cache of exact keys and, within a partition, nearest neighbours."""

    def __init__(self, vectors: Vector, policy: Policy) -> None:
        self._vectors = vectors
        self._policy = policy
        self._known: list[bool] = np.any(vectors, axis=1).tolist()
        self._entries: dict[bytes, int] = {}
        self._indexes: dict[bytes, Index] = {}

    def get(self, call: Call) -> tuple[int, float | None] | None:
        at = self._entries.get(call.identity)
        if at is not None:
            return at, None
        index = self._indexes.get(call.partition)
        if index is None or not self._searchable(call):
            return None
        ids, similarities = index.search(self._vectors[call.text], 1)
        if not len(ids):
            return None
        similarity = cosine(float(similarities[0]))
        serve = self._policy.decide("", Evidence(similarity)).serve
        return (int(ids[0]), similarity) if serve else None

    def put(self, call: Call, at: int) -> None:
        if call.identity in self._entries:
            # Two equal calls were under way at once; the first to end is the entry.
            return
        self._entries[call.identity] = at
        if self._searchable(call):
            index = self._indexes.get(call.partition)
            if index is None:
                index = self._indexes[call.partition] = AutoIndex(self._vectors.shape[1])
            index.add(np.array([at], dtype=np.int64), self._vectors[call.text : call.text + 1])

    def _searchable(self, call: Call) -> bool:
        return call.text != NO_TEXT and self._known[call.text]
