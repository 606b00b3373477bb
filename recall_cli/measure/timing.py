"""Timing many small calls fairly: arms take turns in every round, so that drift hits them all alike.

Interleaving is what makes a ratio of two arms mean something on a machine that others share.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.types import Progress

BLOCK = 50
"""Calls an arm makes per round: enough to warm its caches, few enough for 40 rounds in 2,000 calls."""

SKETCH_POINTS = 101
"""Quantiles kept of each arm (every percent): the distribution can be drawn again from the file."""


@dataclass(slots=True)
class Arm:
    """One thing to time: `call` on each of `inputs` in turn, from the start again when they run out."""

    name: str
    call: Callable[[Any], object]
    inputs: Sequence[Any]
    before: Callable[[], object] | None = None
    """Run before every call, outside the clock."""
    enter: Callable[[], object] | None = None
    """Run before every round, outside the clock."""
    samples: list[int] = field(default_factory=list)
    """Nanoseconds of every timed call."""
    rounds: list[float] = field(default_factory=list)
    """Median nanoseconds of each round: what paired ratios are made of."""
    cpu: list[float] = field(default_factory=list)
    """Mean nanoseconds of this thread's processor time a call, of each round: what others' work cannot raise."""
    position: int = 0

    def block(self, calls: int) -> tuple[list[int], float]:
        """Make `calls` calls; return the nanoseconds of each, and the mean processor time of one."""
        if self.enter is not None:
            self.enter()
        call, before, inputs, clock = self.call, self.before, self.inputs, perf_counter_ns
        size, position = len(inputs), self.position
        taken = []
        busy = thread_time_ns()
        for i in range(position, position + calls):
            item = inputs[i % size]
            if before is not None:
                before()
            start = clock()
            call(item)
            taken.append(clock() - start)
        busy = thread_time_ns() - busy
        self.position = (position + calls) % size
        return taken, busy / max(calls, 1)


def interleave(
    arms: Sequence[Arm], *, calls: int, warmup: int, seed: int, block: int = BLOCK, progress: Progress | None = None
) -> None:
    """Time `calls` calls of every arm, in rounds of `block`, in a new seeded order each round."""
    for arm in arms:
        # What the warm-up saw is not new any more; the timed calls go on from there.
        arm.block(warmup)
    rounds = math.ceil(calls / block)
    order = list(arms)
    shuffle = random.Random(seed).shuffle
    for done in range(rounds):
        if progress is not None:
            progress(done, rounds, "timing")
        shuffle(order)
        size = min(block, calls - done * block)
        for arm in order:
            taken, busy = arm.block(size)
            arm.samples += taken
            arm.cpu.append(busy)
            arm.rounds.append(float(np.median(taken)))
    if progress is not None:
        progress(rounds, rounds, "timing")


def one_thread() -> Any:
    """Return a context in which BLAS and OpenMP use one thread.

    Their threads spin while they wait, which on busy cores costs more than it gains and makes the
    same search take 50 us or 20 ms; and costs per core are what engines can be compared by.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def timer_floor_ns(calls: int = 2_000) -> float:
    """Return the median nanoseconds that reading the clock twice takes: no call can read shorter."""
    return float(np.median([-(perf_counter_ns() - perf_counter_ns()) for _ in range(calls)]))


def microseconds(arm: Arm) -> dict[str, Any]:
    """Return p50 and p99 in microseconds with their intervals; no p99 from too few samples."""
    us = np.asarray(arm.samples, dtype=np.float64) / 1_000
    summary: dict[str, Any] = {
        "n": len(us),
        "p50": _round(stats.quantile(us, 0.5)),
        "p50_interval": [_round(v) for v in stats.quantile_interval(us, 0.5)],
        "p99": None,
        "p99_interval": None,
    }
    if len(us) >= stats.MIN_SAMPLES_P99:
        summary["p99"] = _round(stats.quantile(us, 0.99))
        summary["p99_interval"] = [_round(v) for v in stats.quantile_interval(us, 0.99)]
    return summary


def sketch(arm: Arm) -> dict[str, Any]:
    """Return what lets a later reader recompute: percentiles of all calls, and the rounds' medians."""
    us = np.asarray(arm.samples, dtype=np.float64) / 1_000
    return {
        "percentiles_us": [_round(v) for v in np.quantile(us, np.linspace(0, 1, SKETCH_POINTS))],
        "round_medians_us": [_round(v / 1_000) for v in arm.rounds],
    }


def ratio(numerator: Arm, denominator: Arm, seed: int = 0) -> dict[str, Any]:
    """Return the ratio of two arms' medians, with its interval over the rounds both ran in."""
    value, low, high = stats.ratio_interval(numerator.rounds, denominator.rounds, seed=seed)
    return {"ratio": round(value, 4), "interval": [round(low, 4), round(high, 4)], "rounds": len(numerator.rounds)}


def difference(one: Arm, other: Arm, seed: int = 0) -> dict[str, Any]:
    """Return by how many microseconds one arm's median is above the other's, with its interval over the rounds."""
    value, low, high = stats.difference_interval(one.rounds, other.rounds, seed=seed)
    return {
        "difference_us": _round(value / 1_000),
        "difference_us_interval": [_round(low / 1_000), _round(high / 1_000)],
    }


def _round(microseconds: float) -> float:
    # The clock ticks in nanoseconds: more digits would be invented.
    return round(float(microseconds), 3)
