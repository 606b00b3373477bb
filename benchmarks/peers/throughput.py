"""Hits through the proxies: requests a second from 64 callers, microseconds from one, processor time of the server.

The proxies stand side by side and take turns, so that the machine's moods meet all of them. They have one core, the
callers and the providers the other. That a hit was one is seen at the provider, which is not asked: `hits` is that
share. `right` is the share of the stored prompts that were answered by their own answer, asked once before the clock
starts.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.flood import post
from benchmarks.peers.proxies import Proxy, Up, all_up
from benchmarks.peers.upstream import answer_to
from benchmarks.serve import body, load, sentences
from recall_cli import stats

STORED, ROUNDS, SECONDS = 100, 5, 1.5
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.3
LOADS = (("exact", 64), ("exact", 1), ("semantic", 64), ("semantic", 1))
SAMPLED = ("requests_per_s", "p50_us", "cpu_us")


def run(bench: Bench) -> list[Row]:
    """Return a row for each proxy, kind of hit and number of callers."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=bench.stores) as place:
        folder = Path(place)
        texts = sentences(STORED, seed=7)
        bodies = {"exact": folder / "exact", "semantic": folder / "near"}
        bodies["exact"].write_text("\n".join(body(text) for text in texts))
        bodies["semantic"].write_text("\n".join(body(f"{text} please") for text in texts))
        with all_up(bench) as (up, absent):
            rows += [bench.not_run("throughput", proxy, why) for proxy, why in absent.items()]
            for running in up.values():
                for text in texts:
                    post(running.url, body(text))
            right = {proxy: share_right(running, texts) for proxy, running in up.items()}
            rows += [told | {"right": right[proxy]} for proxy, told in timed(bench, up, bodies)]
    return rows


def share_right(up: Up, texts: Sequence[str]) -> float:
    """Return the share of stored prompts that get their own answer."""
    return sum(post(up.url, body(text)).text == answer_to(text) for text in texts) / len(texts)


def timed(bench: Bench, up: Mapping[Proxy, Up], bodies: Mapping[str, Path]) -> list[tuple[Proxy, Row]]:
    """Let the proxies take turns; return each with a row, with the figures of each round."""
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    chance = random.Random(bench.seed)
    seen: dict[tuple[Proxy, str, int], list[dict[str, Any]]] = {}
    for turn in range(1 + (QUICK_ROUNDS if bench.quick else ROUNDS)):
        for tier, callers in LOADS:
            order = [proxy for proxy in up if tier in proxy.tiers]
            chance.shuffle(order)
            for proxy in order:
                one = loaded(up[proxy], bodies[tier], callers, seconds)
                if turn:  # the first round warms
                    seen.setdefault((proxy, tier, callers), []).append(one)
    ours = {key[1:]: rounds for key, rounds in seen.items() if key[0].name == "recall serve"}
    return [(key[0], row(*key, rounds, ours.get(key[1:]))) for key, rounds in seen.items()]


def loaded(up: Up, bodies: Path, callers: int, seconds: float) -> dict[str, Any]:
    """Put one load on a proxy; return what it did with it."""
    calls, busy = up.calls(), up.server.cpu()
    told = load(up.port, bodies, callers, seconds)
    return {
        "n": told["n"],
        "failed": told["n"] - told["statuses"].get("200", 0) + told["errors"],
        "asked": up.calls() - calls,
        "requests_per_s": told["n"] / told["seconds"],
        "p50_us": told["p50_us"],
        "cpu_us": (up.server.cpu() - busy) / max(told["n"], 1) * 1e6,
    }


def row(proxy: Proxy, tier: str, callers: int, rounds: list[dict[str, Any]], ours: list[dict[str, Any]] | None) -> Row:
    """Return one row; `over_recall` is of requests a second, of the same rounds."""
    told: Row = {"workload": "throughput", "arm": proxy.name, "kind": tier, "connections": callers, "ran": True}
    n = sum(one["n"] for one in rounds)
    told |= {"n": n, "failed": sum(one["failed"] for one in rounds)}
    told["hits"] = 1 - sum(one["asked"] for one in rounds) / max(n, 1)
    told |= {name: [round(one[name], 1) for one in rounds] for name in SAMPLED}
    if ours is not None and ours is not rounds:
        both = [[one["requests_per_s"] for one in each] for each in (rounds, ours)]
        ratio, low, high = stats.ratio_interval(*both)
        told["over_recall"] = {"ratio": round(ratio, 5), "interval": [round(low, 5), round(high, 5)]}
    return told
