"""How often a caller may ask: a token bucket for each caller of each hub."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachetools import LRUCache

from recall_cli.hub.api.errors import Refusal

PER_S = 20.0
"""Requests a second that a caller may make of a hub for long."""
BURST_S = 2.0
"""Seconds' worth of requests that may come at once."""

CALLERS = 100_000
"""Callers remembered; the longest silent is forgotten first, and has a full bucket again by then."""


class Rate:
    """The buckets. Belongs to one thread."""

    def __init__(self, per_s: float = PER_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Fill every bucket.

        :param per_s: requests a second; 0 sets no limit.
        """
        self._per_s = per_s
        self._most = max(1.0, per_s * BURST_S)
        self._clock = clock
        self._buckets: LRUCache[tuple[str, str], tuple[float, float]] = LRUCache(CALLERS)
        """What is left, and when that was."""

    def take(self, caller: str, hub: str) -> None:
        """Count one request. Raises Refusal (429) when the bucket is empty."""
        if not self._per_s:
            return
        now = self._clock()
        left, at = self._buckets.get((caller, hub), (self._most, now))
        left = min(self._most, left + (now - at) * self._per_s)
        if left < 1.0:
            wait = (1.0 - left) / self._per_s
            raise Refusal(429, "rate_limited", f"more than {self._per_s:g} requests a second", retry_s=wait)
        self._buckets[caller, hub] = (left - 1.0, now)
