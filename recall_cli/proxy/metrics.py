"""What is counted while serving: plain numbers, written by the hot path in a fraction of a microsecond.

`prometheus-client` only words them: its own counters take a lock and 1-2 us each, several times a request.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from recall_cli.stats import wilson
from recall_cli.types import Completion, Outcome
from recall_cli.util.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

REASONS = 200
"""Distinct (provider, outcome, reason) counted apart: they are ours, and a bound costs nothing."""


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By provider, outcome and reason."""
        self.latency = {name: Histogram() for name in ("embed", "search", "exact", "store", "upstream", "hit", "total")}
        self.stored = 0
        self.not_stored: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        """Work given up because too much of it waited, or because it failed."""
        self.faults: Counter[str] = Counter()
        self.labels: Counter[tuple[str, str]] = Counter()
        """By where the label came from (audit, shadow, miss) and verdict."""
        self.joined = 0
        self.passed = 0
        self.saved_input = self.saved_output = 0
        self.saved_usd = 0.0
        self.unpriced = 0
        self.in_flight: Callable[[], int] = int
        self.held: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.store_works = True
        self.is_stand_in = False
        """Answers are kept in memory because the store could not be opened."""
        self.beside: list[Collector] = []
        """Other numbers of the same process, worded with these."""
        self._owed: dict[int, tuple[str, Completion, int]] = {}
        self.cost: Callable[[str, Completion], float | None] = lambda provider, completion: None
        """Returns the dollars that the call of a stored answer would cost now; None: nobody knows its price."""
        self._lock = threading.Lock()

    @property
    def store_ok(self) -> bool:
        """Whether answers are kept as they should be."""
        return self.store_works and not self.is_stand_in

    def decided(self, provider: str, outcome: str, reason: str) -> None:
        """Count one decision."""
        key = (provider, outcome, reason)
        if key not in self.requests and len(self.requests) >= REASONS:
            key = (provider, outcome, "other")
        self.requests[key] += 1

    def saved(self, provider: str, entry: int, completion: Completion) -> None:
        """Count what a hit saved; dollars are looked up later, off the hot path."""
        usage = completion.usage
        self.saved_input += usage.input
        self.saved_output += usage.output
        owed = self._owed.get(entry)
        self._owed[entry] = (provider, completion, 1 if owed is None else owed[2] + 1)

    def price(self) -> None:
        """Turn the hits since the last call into dollars. Call it from a thread: the table takes a while to load."""
        with self._lock:
            owed, self._owed = self._owed, {}
            for provider, completion, hits in owed.values():
                cost = self.cost(provider, completion)
                if cost is None:
                    self.unpriced += hits
                else:
                    self.saved_usd += hits * cost

    def count(self, *outcomes: Outcome) -> int:
        """Return the number of decisions with one of these outcomes."""
        return sum(n for (_, outcome, _), n in self.requests.items() if outcome in outcomes)

    def false_hits(self) -> tuple[int, int, tuple[float, float] | None]:
        """Return (wrong, checked, 95 % interval of the rate) of the semantic hits whose label is known."""
        wrong = sum(self.labels[source, "different"] for source in ("audit", "shadow"))
        n = wrong + sum(self.labels[source, "same"] for source in ("audit", "shadow"))
        return wrong, n, wilson(wrong, n) if n else None

    def unsure_hits(self) -> int:
        """Return how many semantic hits were compared with a fresh answer, and nobody could tell."""
        return sum(self.labels[source, "unsure"] for source in ("audit", "shadow"))

    def false_hit_bounds(self) -> tuple[float | None, float | None, tuple[float, float] | None]:
        """Return the share of wrong semantic hits if none and if all of the unsure ones are, and the 95 % ends of both.

        None where nothing could be judged.
        """
        wrong, n, _ = self.false_hits()
        unsure = self.unsure_hits()
        if not n:
            return None, None, None
        every = n + unsure
        ends = wilson(wrong, every)[0], wilson(wrong + unsure, every)[1]
        return wrong / every, (wrong + unsure) / every, ends

    def summary(self) -> dict[str, Any]:
        """Return the numbers that people look at, JSON-ready."""
        hits = {str(kind): self.count(kind) for kind in (Outcome.EXACT, Outcome.SEMANTIC, Outcome.SHADOW)}
        requests = sum(self.requests.values())
        cacheable = requests - self.count(Outcome.BYPASS)
        wrong, checked, interval = self.false_hits()
        low, high, ends = self.false_hit_bounds()
        entries, size = self.held()
        return {
            "up_s": time.monotonic() - self.started,
            "requests": requests,
            "cacheable": cacheable,
            "passed": self.passed,
            "hits": hits,
            "hit_rate": (hits["EXACT"] + hits["SEMANTIC"]) / cacheable if cacheable else None,
            "hit_rate_interval": wilson(hits["EXACT"] + hits["SEMANTIC"], cacheable) if cacheable else None,
            "reasons": {f"{provider} {o} {r}".strip(): n for (provider, o, r), n in self.requests.most_common()},
            "joined": self.joined,
            "stored": self.stored,
            "not_stored": dict(self.not_stored),
            "dropped": dict(self.dropped),
            "faults": dict(self.faults),
            "labels": {f"{source} {verdict}": n for (source, verdict), n in self.labels.items()},
            "false_hits": {
                "wrong": wrong,
                "n": checked,
                "interval": interval,
                "unsure": self.unsure_hits(),
                "low": low,
                "high": high,
                "bounds_interval": ends,
            },
            "saved": {
                "input_tokens": self.saved_input,
                "output_tokens": self.saved_output,
                "usd": self.saved_usd,
                "hits_without_price": self.unpriced,
            },
            "entries": entries,
            "bytes": size,
            "store_ok": self.store_ok,
        }

    def exposition(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        for collector in (self, *self.beside):
            registry.register(collector)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, as prometheus-client wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        def counter(name: str, help: str, labels: tuple[str, ...], rows: dict[Any, float]) -> CounterMetricFamily:
            family = CounterMetricFamily(f"recall_{name}", help, labels=labels)
            for key, value in rows.items():
                family.add_metric(list(map(str, key if isinstance(key, tuple) else (key,))) if labels else [], value)
            return family

        def gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"recall_{name}", help, value=value)

        requests: dict[Any, float] = dict(self.requests)
        yield counter("requests", "Requests to cached routes.", ("provider", "outcome", "reason"), requests)
        waits = HistogramMetricFamily("recall_latency_seconds", "Time by step.", labels=["step"])
        for name, histogram in self.latency.items():
            waits.add_metric([name], histogram.buckets(), histogram.sum)
        yield waits
        yield counter("stored", "Answers stored.", (), {"": self.stored})
        yield counter("not_stored", "Answers not stored, by reason.", ("reason",), dict(self.not_stored))
        yield counter("dropped", "Work given up, by kind.", ("kind",), dict(self.dropped))
        yield counter("faults", "Faults of the cache or the upstream, by kind.", ("kind",), dict(self.faults))
        yield counter("labels", "Fresh answers compared with stored ones.", ("source", "verdict"), dict(self.labels))
        yield counter("joined", "Requests that shared a call already under way.", (), {"": self.joined})
        yield counter("passed", "Requests to routes that are passed through.", (), {"": self.passed})
        saved: dict[Any, float] = {"input": self.saved_input, "output": self.saved_output}
        yield counter("saved_tokens", "Tokens that hits did not cost.", ("direction",), saved)
        yield counter("saved_usd", "Dollars that hits did not cost, at list prices.", (), {"": self.saved_usd})
        yield counter("unpriced_hits", "Hits whose model has no price.", (), {"": self.unpriced})
        wrong, n, _ = self.false_hits()
        unsure = self.unsure_hits()
        low, high, ends = self.false_hit_bounds()
        yield gauge("false_hit_checked", "Semantic hits with a label.", n)
        yield gauge("false_hit_unsure", "Checked semantic hits that nobody could judge.", unsure)
        if low is not None and high is not None and ends is not None:
            if wrong or not unsure:
                # Without a wrong one it would say "none", and the unsure ones may all be wrong.
                yield gauge("false_hit_rate", "Share of wrong ones among the labelled semantic hits.", wrong / n)
            yield gauge("false_hit_least", "Share of wrong ones if all unsure ones are right.", low)
            yield gauge("false_hit_most", "Share of wrong ones if all unsure ones are wrong.", high)
            yield gauge("false_hit_rate_low", "Lower 95 % end of the least share.", ends[0])
            yield gauge("false_hit_rate_high", "Upper 95 % end of the largest share.", ends[1])
        entries, size = self.held()
        yield gauge("entries", "Entries kept.", entries)
        yield gauge("bytes", "Bytes of bodies, prompts and vectors.", size)
        yield gauge("in_flight", "Calls to the upstream under way.", self.in_flight())
        yield gauge("store_up", "1 while the store works.", float(self.store_ok))
