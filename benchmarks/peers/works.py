"""The works by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.peers import eviction, flood, latency, streaming, throughput, traffic, traps
from benchmarks.peers.bench import Bench, Row

WORKS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "latency": latency.run,
    "throughput": throughput.run,
    "flood": flood.run,
    "streaming": streaming.run,
    "eviction": eviction.run,
    traffic.WORKLOAD: traffic.run,
    traps.WORKLOAD: traps.run,
}
