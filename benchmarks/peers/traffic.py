"""How often each arm hits on traffic whose right answers are known, and how many of its hits are wrong.

Every arm is seen at what it is set to by default and, where it has a number to set, at the best one in hindsight: the
most hits with at most 1 % and 5 % of them wrong. Nobody knows that number beforehand, and the row says so. `embedder`
is whose vectors decided: `static` is recall's default, `minilm` the int8 form of the model that sulci embeds with by
default. `how` is "replay" where a rule was replayed over our vectors, and "package" where the peer's own software ran
as well: over the first CHECKED questions, to see whether its hits are the replay's (`follows_replay`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import streams, vcache
from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.client import PeerError
from benchmarks.peers.roster import Arm
from benchmarks.peers.streams import BUDGETS, DELTAS, INTENTS, OPINION, WORLD, Count, Job, Replayed
from benchmarks.peers.venvs import VenvError
from recall_cli.cache.policy.static import DEFAULT_TAU
from recall_cli.measure.evaluate import policies
from recall_cli.measure.evaluate import replay as trace
from recall_cli.measure.timing import one_thread

WORKLOAD = "streams"
RUNS, SLOW_RUNS, SEED = 5, 1, 6_000
"""Streams of each set, and those of them that arms see which run a transformer: milliseconds a prompt."""
CHECKED = 600
"""Questions that each package is asked itself: some take a quarter of an hour for a stream."""
STATIC, MINILM = "static", "minilm"
SETS = (WORLD, INTENTS)


@dataclass(frozen=True, slots=True)
class Set:
    """The streams of one set by one embedder, replayed."""

    name: str
    embedder: str
    jobs: Sequence[Job]
    replayed: Sequence[Replayed]

    def counts(self, arm: str) -> list[Count]:
        """Return what an arm of the replay did, stream by stream, where it took part."""
        return [one.counts[arm] for one in self.replayed if arm in one.counts]

    def best_cutoff(self, budget: float) -> float | None:
        """Return the best static cutoff over all of its streams."""
        return streams.best_cutoff([one.grid for one in self.replayed], budget)

    def row(self, arm: str, counts: Sequence[Count], *, how: str, setting: str, **more: Any) -> Row:
        """Return a row of this set."""
        told = {"workload": WORKLOAD, "arm": arm, "ran": True, "set": self.name, "embedder": self.embedder}
        return told | {"how": how, "setting": setting, "budget": None} | more | streams.rates(counts)


def run(bench: Bench) -> list[Row]:
    """Return a row for each set, embedder, arm and setting."""
    runs, slow = (1, 0) if bench.quick else (RUNS, SLOW_RUNS)
    rows: list[Row] = []
    with one_thread(), tempfile.TemporaryDirectory(dir=bench.stores) as folder:
        for name in SETS:
            for embedder, many in ((STATIC, runs), (MINILM, slow)):
                jobs = [
                    Job(bench.data, name, seed, embedder, embedder == STATIC and seed < SEED + slow,
                        Path(folder) / f"{name}-{seed}.npz" if embedder == MINILM else None)
                    for seed in range(SEED, SEED + many)
                ]  # fmt: skip
                if jobs:
                    done = streams.all_replayed(jobs, min(len(jobs), os.cpu_count() or 1))
                    found = Set(name, embedder, jobs, done)
                    rows += [*default_rows(bench, found), *replayed_rows(found)]
    return rows


def replayed_rows(found: Set) -> Iterator[Row]:
    """Yield the rows of recall's policies, vCache's, and the best static cutoff, whoever sets it."""
    for target in BUDGETS:
        yield found.row("recall adaptive", found.counts(f"adaptive {target:g}"), how="replay", setting="promise",
                        budget=target)  # fmt: skip
    if found.counts(OPINION):
        yield found.row("recall, second opinion", found.counts(OPINION), how="replay", setting="default",
                        threshold=DEFAULT_TAU)  # fmt: skip
    for budget in BUDGETS:
        cutoff = found.best_cutoff(budget)
        yield found.row("any static cutoff", [streams.at_cutoff(one.grid, cutoff) for one in found.replayed],
                        how="replay", setting="hindsight", budget=budget, threshold=cutoff)  # fmt: skip
    by_delta = {delta: found.counts(f"vcache {delta:g}") for delta in DELTAS}
    told = {"how": "replay", "note": "the policy of its paper, written by us"}
    yield found.row("vcache", by_delta[vcache.DEFAULT_DELTA], setting="default", delta=vcache.DEFAULT_DELTA, **told)
    for budget in BUDGETS:
        delta = streams.best_of(by_delta, budget)
        counts = by_delta[delta] if delta is not None else [streams.silent(one) for one in by_delta[DELTAS[0]]]
        yield found.row("vcache", counts, setting="hindsight", budget=budget, delta=delta, **told)


@dataclass(frozen=True, slots=True)
class Static:
    """A package that serves from one cutoff on, whatever scale it tells it on."""

    arm: Arm
    cosine: Callable[[float], float] = float
    """The cosine that a threshold of its own scale stands for."""
    embedders: tuple[str, ...] = (STATIC,)


def arm(package: str, name: str = "", needs: tuple[str, ...] = (), **settings: Any) -> Arm:
    """Return an arm whose process embeds by our default, unless `settings` name another."""
    return Arm(name or package, package, f"adapt_{package}", {"embedder": STATIC, **settings}, needs=needs)


SEMANTIC = arm("litellm", "litellm, redis-semantic", ("redis",), mode="redis-semantic")
PACKAGES = (
    Static(arm("recall")),
    Static(arm("sulci"), embedders=(STATIC, MINILM)),
    Static(arm("redisvl", needs=("redis",)), lambda distance: 1 - distance),
    Static(arm("gptcache"), lambda score: 2 * score - 1),
    Static(SEMANTIC),
)


def default_rows(bench: Bench, found: Set) -> Iterator[Row]:
    """Yield a row for each package at its default cutoff: its rule replayed, and whether the package follows it."""
    first = found.jobs[0]
    asked = streams.of_job(first)
    start = asked.reordered(np.arange(min(CHECKED, len(asked))))
    grid = streams.cutoffs(start)
    for one in PACKAGES:
        if found.embedder not in one.embedders or not bench.asks_for(one.arm.package):
            continue
        opening = one.arm.opening("") | {"embedder": found.embedder}
        if first.vectors is not None:
            opening["vectors"] = str(first.vectors)
        try:
            with bench.opened(one.arm) as (peer, _):
                did, told = streams.driven(peer, start, bench.stores, opening)
        except (PeerError, VenvError) as error:
            yield bench.not_run(WORKLOAD, one.arm, str(error))
            continue
        cutoff = min(policies.TAUS, key=lambda tau: abs(tau - one.cosine(told["threshold"])))
        ours = one.arm.package == "recall"
        if ours:
            counts, expected = found.counts(streams.DEFAULT), Count.of(streams.by_default(trace.Trace(start)))
        else:
            counts = [streams.at_cutoff(replay.grid, cutoff) for replay in found.replayed]
            expected = streams.at_cutoff(grid, cutoff)
        yield found.row(one.arm.name, counts, how="package", setting="default", threshold=told["threshold"],
                        scale=told["scale"], cosine=cutoff, checked=len(start),
                        follows_replay=did == expected)  # fmt: skip
