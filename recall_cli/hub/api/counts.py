"""What is counted while a hub is served. No hub's name is in it: the numbers are open to more people than the hubs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recall_cli.util.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class HubCounts:
    """The numbers of all hubs of one server; worded for Prometheus by whoever shows its own."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By operation and status."""
        self.latency: dict[str, Histogram] = {}
        """By operation."""
        self.results: Counter[str] = Counter()
        """Where answers came from: cache, joined (another's computation) or computed."""
        self.reranks: Counter[str] = Counter()
        """How reranking ended: ok, or why not."""

    def finished(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[operation, status] += 1
        histogram = self.latency.get(operation)
        if histogram is None:
            histogram = self.latency[operation] = Histogram()
        histogram.add(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, as prometheus-client wants them."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("recall_hub_requests", "Requests to hubs.", labels=["operation", "status"])
        for (operation, status), n in self.requests.items():
            requests.add_metric([operation, str(status)], n)
        yield requests
        waits = HistogramMetricFamily("recall_hub_latency_seconds", "Time by operation.", labels=["operation"])
        for operation, histogram in self.latency.items():
            waits.add_metric([operation], histogram.buckets(), histogram.sum)
        yield waits
        for name, help, counts in (
            ("results", "Answers by where they came from.", self.results),
            ("reranks", "Reranker calls by how they ended.", self.reranks),
        ):
            family = CounterMetricFamily(f"recall_hub_{name}", help, labels=["kind"])
            for kind, n in counts.items():
                family.add_metric([kind], n)
            yield family
