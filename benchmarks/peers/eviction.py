"""Repeats that a full cache loses: a Zipf stream over more keys than it may hold.

A repeat is a request whose text was asked before. It is lost when the peer answers nothing. `lru_lost_rate` is what a
plain least-recently-used memory of the same size loses on the same stream: what is beyond that is the peer's doing,
what is below it its better choice. The texts are far apart, so that an answer of another key is wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.client import Peer
from benchmarks.peers.roster import Arm
from benchmarks.serve import sentences
from recall_cli import stats

CAPACITY, KEYS, REQUESTS = 200, 800, 3_000
QUICK_REQUESTS = 60
SKEW = 1.0
"""The exponent of Zipf's law; traffic of chat assistants is reported around it."""

UNBOUNDED = "it has no limit of entries: they go by their time to live, or when the server or the disk is full"


def run(bench: Bench) -> list[Row]:
    """Return a row for each arm; one that has no limit of entries says so."""
    rows: list[Row] = []
    keys = zipf(KEYS, QUICK_REQUESTS if bench.quick else REQUESTS, bench.seed)
    texts = sentences(KEYS, seed=2)
    for arm in bench.arms:
        if not arm.bounded:
            rows.append(bench.not_run("eviction", arm, UNBOUNDED))
            continue
        # One after the other: nothing is timed here.
        with bench.all_opened([arm], rows, "eviction", CAPACITY) as running:
            for peer, _ in running.values():
                rows.append(replayed(arm, peer, texts, keys))
    return rows


def zipf(keys: int, requests: int, seed: int) -> list[int]:
    """Return which key each request asks for."""
    weights = 1 / np.arange(1, keys + 1) ** SKEW
    drawn = np.random.default_rng(seed).choice(keys, size=requests, p=weights / weights.sum())
    return [int(key) for key in drawn]


def replayed(arm: Arm, peer: Peer, texts: Sequence[str], keys: Sequence[int]) -> Row:
    """Let the peer answer the stream, storing what it misses; return what it lost and what it got wrong."""
    answers = [f"answer {key}" for key in keys]
    served = peer.ask("stream", prompts=[texts[key] for key in keys], answers=answers)["answers"]
    repeats = [at for at, again in enumerate(repeated(keys)) if again]
    lost = sum(served[at] is None for at in repeats)
    wrong = sum(found is not None and found != said for found, said in zip(served, answers, strict=True))
    beyond = lru_lost(keys, CAPACITY)
    lru = sum(beyond[at] for at in repeats)
    return {
        "workload": "eviction",
        "arm": arm.name,
        "ran": True,
        "capacity": CAPACITY,
        "keys": KEYS,
        "requests": len(keys),
        "repeats": len(repeats),
        "lost_rate": lost / len(repeats),
        "lost_interval": list(stats.wilson(lost, len(repeats))),
        "lru_lost_rate": lru / len(repeats),
        "wrong": wrong,
    }


def repeated(keys: Sequence[Hashable]) -> list[bool]:
    """Return for each request whether its key was asked before."""
    seen: set[Hashable] = set()
    again = []
    for key in keys:
        again.append(key in seen)
        seen.add(key)
    return again


def lru_lost(keys: Sequence[Hashable], capacity: int) -> list[bool]:
    """Return for each request whether a least-recently-used memory does not have it."""
    held: OrderedDict[Hashable, None] = OrderedDict()
    lost = []
    for key in keys:
        lost.append(key not in held)
        held[key] = None
        held.move_to_end(key)
        if len(held) > capacity:
            held.popitem(last=False)
    return lost
