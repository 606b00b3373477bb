"""The works by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.peers import latency, traffic, traps
from benchmarks.peers.bench import Bench, Row

WORKS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "latency": latency.run,
    traffic.WORKLOAD: traffic.run,
    traps.WORKLOAD: traps.run,
}
