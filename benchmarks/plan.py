"""One billion entries and 100,000 requests a second, on paper: what each part would carry.

    python benchmarks/plan.py --out results/plan.json

What a request and an entry cost is taken from recall's own recorded results; how much of the traffic finds its
partition in a replica's memory is simulated with the class that decides it (`postgres.replica_cache.Held`), at a
thousandth of the entries. The traffic is supposed, not measured: a share of hits and a skew of partitions are named
beside each row.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recall_cli.measure.result import OutFile, load, new_result, to_json
from recall_cli.postgres.replica_cache import Held

ENTRIES, REQUESTS_PER_S = 1_000_000_000, 100_000
SCALE = 1_000
"""The simulation has this many times fewer entries and partitions; a replica's memory shrinks with them."""
PARTITION_ROWS = 200
"""Entries of a partition on average; a few are far larger, most far smaller."""
REPLICA_BYTES = 64 << 30
"""Memory for entries in one replica."""
BUSY = 0.6
"""Share of a core or a database that may be planned with: the rest is for peaks and upkeep."""
ROOT = Path(__file__).resolve().parents[1]


def held_share(replicas: int, skew: float, rows: int, routed: bool, requests: int = 60_000) -> float:
    """Return the share of requests whose partition is in memory where they arrive, after a warm-up as long.

    :param rows: entries that one replica holds, at the simulation's scale.
    :param routed: every request for a partition goes to the same replica; else to any.
    """
    random = np.random.default_rng(0)
    partitions = ENTRIES // SCALE // PARTITION_ROWS
    popularity = np.arange(1, partitions + 1, dtype=float) ** -skew
    sizes = np.maximum(1, random.pareto(1.5, partitions) * PARTITION_ROWS / 2).astype(int)
    if routed:  # one replica sees all requests for its part of the partitions; else a part of all requests
        popularity[random.integers(0, replicas, partitions) > 0] = 0.0
    asked = random.choice(partitions, 2 * requests, p=popularity / popularity.sum())
    held, hits = Held(rows, 1), 0
    for number, partition in enumerate(asked.tolist()):
        key = partition.to_bytes(4, "big")
        if held.use(key):
            hits += number >= len(asked) // 2
        elif sizes[partition] <= held.most_rows:
            held.begin(key)
            for id in range(sizes[partition]):
                held.add(key, id)
            held.complete(key)
            while (surplus := held.surplus()) is not None:
                held.give_up(surplus)
    return hits / (len(asked) - len(asked) // 2)


def inputs() -> dict[str, float]:
    """Return what was measured: seconds of a core, entries a second, bytes."""
    serve, shared = (load(str(ROOT / "results" / name)) for name in ("serve.json", "postgres.json"))
    arms = {(row["arm"], row["partition_rows"]): row for row in shared.rows}
    small = min(rows for _, rows in arms)
    entries = shared.summary["entries"]
    return {
        "hit_cpu_us": serve.summary["exact@100000 c=64"]["cpu_us"],
        "miss_cpu_us": serve.summary["stored miss c=64"]["cpu_us"],
        "cold_ms": arms["semantic, from the database", small]["us"]["p50"] / 1e3,
        "stored_per_s": entries / shared.summary["store_s"]["shared"],
        "bytes_per_entry_in_memory": shared.summary["held"]["bytes_per_entry"],
        "bytes_per_entry_on_disk": shared.summary["database_bytes"] / entries,
    }


def plan(measured: dict[str, float], hit_share: float, skew: float) -> dict[str, Any]:
    """Return what it takes at one share of hits and one skew of partitions."""
    hits, misses = REQUESTS_PER_S * hit_share, REQUESTS_PER_S * (1 - hit_share)
    cores = (hits * measured["hit_cpu_us"] + misses * measured["miss_cpu_us"]) / 1e6 / BUSY
    replicas = int(np.ceil(cores))
    rows = int(REPLICA_BYTES / measured["bytes_per_entry_in_memory"] / SCALE)
    local = {str(routed): held_share(replicas, skew, rows, routed) for routed in (False, True)}
    cold = REQUESTS_PER_S * (1 - local["True"])
    return {
        "hit_share": hit_share,
        "skew": skew,
        "replicas": replicas,
        "held_share_any_replica": round(local["False"], 3),
        "held_share_routed": round(local["True"], 3),
        "cold_lookups_per_s": round(cold),
        "database_cores_for_lookups": int(np.ceil(cold * measured["cold_ms"] / 1e3 / BUSY)),
        "databases_for_writes": int(np.ceil(misses / measured["stored_per_s"] / BUSY)),
        "bytes_in_memory_all": round(ENTRIES * measured["bytes_per_entry_in_memory"]),
        "bytes_on_disk": round(ENTRIES * measured["bytes_per_entry_on_disk"]),
    }


def main() -> None:
    """Run, and write the result document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    out = OutFile(parser.parse_args().out)
    measured = inputs()
    supposed = {"entries": ENTRIES, "requests_per_s": REQUESTS_PER_S, "partition_rows": PARTITION_ROWS,
                "replica_bytes": REPLICA_BYTES, "busy": BUSY}  # fmt: skip
    result = new_result("benchmarks/plan", {**supposed, "scale": SCALE})
    result.rows = [plan(measured, hits, skew) for hits in (0.3, 0.6) for skew in (0.8, 1.1)]
    result.summary = {"measured": measured}
    out.write(to_json(result))
    print(json.dumps([result.summary, *result.rows], indent=2))


if __name__ == "__main__":
    main()
