"""A log, walked in time order: which calls would a cache have had the answer to by then.

Keys first. Of all calls with one key, a call is answered by whichever earlier one had its answer ready first; so one
sort settles a tier of keys, however long the log. `measure.savings.semantic_replay` does the nearest neighbours, call
by call.

Calls of the same instant: most logs cut their times to a step (a second, a day). A call shorter than the step was
over before the next stamp, so it serves those that stand behind it in the file; a call as long as the step or longer
was still under way and serves none of them. The first is an upper bound, and `leaning` counts what rests on it; of
the second, `tied` counts the repeats that would be hits if the stamps were no start times after all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int32]
    Bools = NDArray[np.bool_]

CHUNK = 65_536
NO_VECTOR = -1
NO_HIT = -1
STEPS = (86_400.0, 3_600.0, 900.0, 60.0, 1.0)
"""Seconds to which logs cut their times; 900 is a day or an hour in a zone that is off by quarters of an hour."""
FINEST = 1e-3
"""The step of all other logs: nobody needs to know the order within a millisecond."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When calls started and when their answers could first be served, in the order of the replay."""

    start: Floats
    """Seconds since the epoch; NaN where the log says nothing."""
    filled: Floats
    """The same without gaps: a call without a time stands behind the one before it. Never falls."""
    ready: Floats
    """When the answer is there; -inf where no time is known."""
    since: Ints
    """The first position whose call it can serve."""
    rank: Ints
    """In the order in which answers arrive: of two with one key, the lower becomes the entry."""

    def __len__(self) -> int:
        return len(self.start)


def in_chunks(column: NDArray[Any]) -> Iterator[Any]:
    """Yield the values of a column as Python numbers, which are some 30 bytes each: a chunk of them at a time."""
    # No generator of our own: resuming one for each number takes longer than all else that is done with it.
    return chain.from_iterable(column[start : start + CHUNK].tolist() for start in range(0, len(column), CHUNK))


def median_latency(start: Floats, end: Floats) -> float | None:
    """Return the median seconds a call took, over those that say; None when none does.

    Not the mean: a single mistaken duration would decide over all calls that say none.
    """
    took = end - start
    took = took[~np.isnan(took)]
    return float(np.median(took)) if len(took) else None


def time_step(start: Floats) -> float:
    """Return the step to which most of the times are cut; FINEST when to none."""
    known = start[~np.isnan(start)]
    return next((step for step in STEPS if len(known) and 2 * np.sum(known % step == 0) > len(known)), FINEST)


def time_order(start: Floats) -> NDArray[np.int64]:
    """Return positions by start time, then as given; one without a time stays behind the one before it."""
    return np.argsort(_filled(start), kind="stable")


def timing(start: Floats, end: Floats, *, latency: float = 0.0, step: float = 0.0) -> Timing:
    """Return when each call's answer could be served, from calls in the order of the replay.

    A call without a time is taken to start after all that came before it.

    :param latency: how long a call took that does not say.
    :param step: to which times are cut; 0 lets no call serve another of its instant, whatever it took.
    """
    n = len(start)
    filled = _filled(start)
    took = np.where(np.isnan(end), latency, end - start)
    ready = np.maximum(start + took, np.nextafter(start, np.inf))
    if step:
        short = took < np.where(start % step == 0, step, FINEST)
        ready[short] = start[short]
    unknown = np.isnan(start)
    ready[unknown] = -np.inf
    turns = np.arange(n, dtype=np.int32)
    since = np.maximum(np.searchsorted(filled, ready, side="left"), turns + 1).astype(np.int32)
    if unknown.any():
        # The next call without a time finds everything ended that came before it.
        ahead = np.minimum.accumulate(np.where(unknown, turns, n)[::-1])[::-1]
        since = np.minimum(since, np.append(ahead[1:], n).astype(np.int32))
    rank = np.empty(n, dtype=np.int32)
    rank[np.lexsort((ready, since))] = turns
    return Timing(start, filled, ready, since, rank)


def _filled(start: Floats) -> Floats:
    unknown = np.isnan(start)
    if not unknown.any():
        return start
    last = np.maximum.accumulate(np.where(unknown, -1, np.arange(len(start))))
    filled: Floats = np.where(last < 0, -np.inf, start[last])
    return filled


def served_by_key(keys: Ints, time: Timing) -> Ints:
    """Return, for each call, the position of the earlier one of its key that a cache would serve; NOBODY for none.

    A call is answered only by one that had ended when it started. A hit stores nothing: the cache serves what it has.
    That needs no bookkeeping here: what a hit would have stored is ready later than what served it.
    """
    n = len(keys)
    served = np.full(n, NO_HIT, dtype=np.int32)
    if n < 2:
        return served
    by_key = np.argsort(keys, kind="stable")
    fresh = np.empty(n, dtype=bool)
    fresh[0] = True
    np.not_equal(keys[by_key[1:]], keys[by_key[:-1]], out=fresh[1:])
    # One running minimum over all keys: each key's ranks lie below all of those before it.
    ranks = time.rank[by_key] - np.cumsum(fresh) * n
    np.minimum.accumulate(ranks, out=ranks)
    ranks[1:] = ranks[:-1]
    ranks %= n
    arrival = np.empty(n, dtype=np.int32)
    arrival[time.rank] = np.arange(n, dtype=np.int32)
    first = arrival[ranks]
    hit = ~fresh & (time.since[first] <= by_key)
    served[by_key[hit]] = first[hit]
    return served


def leaning(time: Timing, end: Floats, *served: Ints) -> int:
    """Return how many hits are served by a call of the same step: no time says that it was over first."""
    leans = np.zeros(len(time), dtype=bool)
    for by in served:
        at = np.flatnonzero(by != NO_HIT)
        source = by[at]
        # NaN compares false: where no time is known nothing leans on one.
        leans[at] |= (time.start[source] == time.start[at]) | (end[source] > time.start[at])
    return int(leans.sum())


def tied(keys: Ints, time: Timing, hit: Bools) -> int:
    """Return how many misses repeat a call of the same instant."""
    by_key = np.lexsort((np.arange(len(keys)), time.start, keys))
    ordered, start = keys[by_key], time.start[by_key]
    repeats = (ordered[1:] == ordered[:-1]) & (start[1:] == start[:-1])
    return int(np.sum(repeats & ~hit[by_key[1:]]))
