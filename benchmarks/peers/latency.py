"""What a hit costs a program that holds the cache: microseconds, exact and semantic, arms taking turns in rounds.

A call is a whole lookup, from the text to the stored answer: with the embedder, where it takes one. The stores lie
where `Bench.stores` says. Answers are checked: `right` is the share of the timed calls that returned the stored answer.
`cpu_us` is processor time, of a peer's server too where it asks one, and `cpu_over_recall` its ratio: on a machine with
other work a peer of two processes waits for its turn at each call, which is not its own slowness.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.client import Peer
from benchmarks.peers.roster import Arm
from benchmarks.serve import sentences
from recall_cli import stats
from recall_cli.measure import timing

OURS = "recall"
ENTRIES, QUICK_ENTRIES = (1_000, 10_000), (50,)
CALLS, QUICK_CALLS, BLOCK = 1_000, 20, 25
MOST_S = 6.0
"""An arm that has taken so long sits out the rounds that follow: the slow ones would be the whole run."""


def run(bench: Bench) -> list[Row]:
    """Return a row for each arm, kind of hit and number of entries."""
    rows: list[Row] = []
    for entries in QUICK_ENTRIES if bench.quick else ENTRIES:
        texts = sentences(entries, seed=1)
        answers = [f"answer {number}" for number in range(entries)]
        arms = [arm for arm in bench.arms if entries <= arm.most_entries]
        with bench.all_opened(arms, rows, "latency") as running:
            for peer, _ in running.values():
                peer.ask("fill", prompts=texts, answers=answers)
            for tier in ("exact", "semantic"):
                peers = {arm: peer for arm, (peer, _) in running.items() if tier in arm.tiers}
                asked = [
                    (text if tier == "exact" else f"{text} please", said)
                    for text, said in zip(texts, answers, strict=True)
                ]
                rows += timed(bench, peers, tier, entries, asked)
    return rows


def timed(
    bench: Bench, peers: Mapping[Arm, Peer], tier: str, entries: int, asked: Sequence[tuple[str, str]]
) -> list[Row]:
    """Let the arms take turns, in a new seeded order each round; return their rows."""
    chance = random.Random(bench.seed)
    clocks = {arm: timing.Arm(arm.name, len, ()) for arm in peers}
    right, served_s = dict.fromkeys(peers, 0), dict.fromkeys(peers, 0.0)
    calls = QUICK_CALLS if bench.quick else CALLS
    block = min(BLOCK, calls)
    for turn in range(calls // block + 1):
        part = chance.sample(asked, block)
        order = [arm for arm in peers if sum(clocks[arm].samples) < MOST_S * 1e9]
        chance.shuffle(order)
        for arm in order:
            served = peers[arm].served_s()
            seen = peers[arm].ask("get", prompts=[text for text, _ in part])
            if not turn:
                continue  # what the first round pays for (imports, first pages) is not a lookup's cost
            right[arm] += sum(answer == said for answer, (_, said) in zip(seen["answers"], part, strict=True))
            clocks[arm].samples += seen["ns"]
            clocks[arm].cpu.append(seen["cpu_ns"] / block)
            served_s[arm] += peers[arm].served_s() - served
            clocks[arm].rounds.append(sorted(seen["ns"])[block // 2])
    for arm, clock in clocks.items():
        # A server's clock ticks in 10 ms, many calls each: only its sum tells something.
        share = served_s[arm] * 1e9 / max(len(clock.samples), 1)
        clock.cpu = [one + share for one in clock.cpu]
    ours = next((clock for arm, clock in clocks.items() if arm.name == OURS), None)
    return [row(arm, tier, entries, clocks[arm], ours, right[arm]) for arm in peers]


def row(arm: Arm, tier: str, entries: int, clock: timing.Arm, ours: timing.Arm | None, right: int) -> Row:
    """Return one arm's row; `over_recall` is by how much it takes longer, over the rounds that both ran in."""
    told: dict[str, Any] = {"workload": "latency", "arm": arm.name, "kind": tier, "entries": entries, "ran": True}
    told |= {"n": len(clock.samples), "right": right / len(clock.samples), "lookup_us": timing.microseconds(clock)}
    told["cpu_us"] = round(sum(clock.cpu) / len(clock.cpu) / 1e3, 1)
    if ours is not None and ours is not clock:
        rounds = len(clock.rounds)
        for name, theirs, own in (("over_recall", clock.rounds, ours.rounds), ("cpu_over_recall", clock.cpu, ours.cpu)):
            ratio, low, high = stats.ratio_interval(theirs, own[:rounds])
            told[name] = {"ratio": round(ratio, 4), "interval": [round(low, 4), round(high, 4)], "rounds": rounds}
    return told
