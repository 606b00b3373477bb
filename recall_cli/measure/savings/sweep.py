"""How long to keep answers, how many, and what a cache that starts empty hides: walks of the keys over one trace.

Keys only: the nearest neighbours would have to be searched anew for each cell, and what they add does not hang on a
lifetime the way repeats do.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.measure.savings.replay import NO_HIT, Timing, in_chunks
from recall_cli.measure.savings.rows import PICO, Rows
from recall_cli.measure.savings.tiers import NORMALISED, Replayed
from recall_cli.measure.savings.totals import exact_sum
from recall_cli.stats import Z_95, wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.measure.savings.replay import Bools, Floats, Ints

TTLS = "5m,1h,1d,7d,inf"
CAPACITIES = "100,1000,10000,100000,1000000,inf"
SECONDS = {"S": 1.0, "M": 60.0, "H": 3_600.0, "D": 86_400.0, "W": 604_800.0}
BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_NUMBER = re.compile(r"(inf|\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)

VECTOR_BYTES = 4
SIXTHS = 6
STEADY = 3
"""Sixths after which a cache counts as warm: the hit rate of a chat trace of an hour still rises in the first half."""
MOST_ROWS = 1_000_000
"""Calls walked for a capacity. Of more, keys are drawn and the capacity shrunk with them (SHARDS, FAST 2015)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a cache may hold; infinite where nothing is said."""

    ttl_s: float = math.inf
    entries: float = math.inf
    bytes: float = math.inf


NONE = Limit()


def durations(text: str) -> tuple[float, ...]:
    """Return the seconds of a list such as `5m,1h,7d,inf`. Raises UsageError when it is none."""
    return tuple(dict.fromkeys(_amount(part, SECONDS, "durations", "5m,1h,1d,7d,inf") for part in text.split(",")))


def capacities(text: str) -> tuple[Limit, ...]:
    """Return the caps of a list such as `1000,64MB,inf`: entries, or bytes. Raises UsageError when it is none."""
    limits = []
    for part in text.split(","):
        in_bytes = part.strip()[-1:].upper() == "B"
        value = _amount(part, BYTES if in_bytes else {"": 1.0}, "capacities", "1000,10000,64MB,inf")
        limits.append(Limit(bytes=value) if in_bytes else Limit(entries=value))
    return tuple(dict.fromkeys(limits))


def _amount(part: str, units: Mapping[str, float], what: str, example: str) -> float:
    found = _NUMBER.fullmatch(part.strip())
    value = float(found.group(1)) if found else 0.0
    unit = found.group(2).upper() if found else ""
    if value <= 0 or (unit not in units and not math.isinf(value)):
        raise UsageError(f"{part.strip()!r} in the list of {what} is none", hint=f"write it as in {example}")
    return value * units.get(unit, 1.0)


def hits_within(keys: Ints, time: Timing, limit: Limit, sizes: NDArray[np.int64] | None = None) -> Bools:
    """Return which calls a cache of keys would answer that forgets: by age, or the least recently used first.

    As the cache does: an entry's age counts from when it was stored, a hit does not renew it, and an answer larger
    than the whole cache is not kept.

    :param sizes: bytes of each call's entry; needed for a limit in bytes.
    """
    n, keyed = len(keys), int(keys.max()) + 1 if len(keys) else 0
    hit = bytearray(n)
    # Compact, for a log may have as many keys as calls; only the order of use takes Python objects, where it counts.
    there, born, size_of = bytearray(keyed), array("d", bytes(8 * keyed)), array("q", bytes(8 * keyed))
    # Not a dict: finding the first of one from which many were taken passes over all their places.
    order: OrderedDict[int, None] | None = None
    if limit.entries < math.inf or limit.bytes < math.inf:
        order = OrderedDict()
    used = 0
    arrivals = np.empty(n, dtype=np.int32)
    arrivals[time.rank] = np.arange(n, dtype=np.int32)
    stored = np.where(np.isinf(time.ready), time.filled, time.ready)[arrivals]
    size = repeat(0, n) if sizes is None else in_chunks(sizes[arrivals])
    coming = zip(*map(in_chunks, (time.since[arrivals], arrivals, keys[arrivals], stored)), size, strict=True)
    since, new, name, when, large = next(coming, (n, 0, 0, 0.0, 0))
    for at, key, now in zip(range(n), in_chunks(keys), in_chunks(time.filled), strict=True):
        while since <= at:
            if not hit[new] and large <= limit.bytes:
                used += large - size_of[name] * there[name]
                there[name], born[name], size_of[name] = 1, when, large
                if order is not None:
                    order[name] = None
                    order.move_to_end(name)
                    while len(order) > limit.entries or used > limit.bytes:
                        oldest, _ = order.popitem(last=False)
                        there[oldest] = 0
                        used -= size_of[oldest]
            since, new, name, when, large = next(coming, (n, 0, 0, 0.0, 0))
        if not there[key]:
            continue
        if born[key] + limit.ttl_s <= now:
            there[key] = 0
            used -= size_of[key]
            if order is not None:
                del order[key]
            continue
        hit[at] = 1
        if order is not None:
            order.move_to_end(key)
    return np.frombuffer(hit, dtype=np.bool_)


def ttl_sweep(rows: Rows, found: Replayed, ttls: Sequence[float]) -> list[dict[str, Any]]:
    """Return hits and dollars of the keys for each lifetime in seconds; none where the log has no times."""
    time, keys = found.time, _keys(found)
    if not len(time) or np.isnan(time.start).all():
        return []
    # A key that comes once is never a hit, and without a cap it is in nobody's way.
    again = np.flatnonzero(np.bincount(keys)[keys] > 1)
    part, cost, ever = _part(time, again), _cost(rows, found), found.keys_by != NO_HIT
    found_rows = []
    for ttl in ttls:
        limit = Limit(ttl_s=ttl)
        hit = np.flatnonzero(ever) if limit == NONE else again[hits_within(keys[again], part, limit)]
        found_rows.append({"ttl_s": None if math.isinf(ttl) else ttl, **_figures(len(keys), len(hit), cost[hit])})
    return found_rows


def capacity_sweep(rows: Rows, found: Replayed, limits: Sequence[Limit], dim: int) -> list[dict[str, Any]]:
    """Return the miss-ratio curve of the keys under LRU: hits and dollars for each capacity.

    :param dim: dimensions of the vector that each entry is kept with; 0 for none.
    """
    keys, time, cost = _keys(found), found.time, _cost(rows, found)
    size = rows.columns.read("size")[found.row].astype(np.int64) + VECTOR_BYTES * dim
    share = min(1.0, MOST_ROWS / max(1, len(keys)))
    drawn = np.arange(len(keys))
    if share < 1:
        # By what is the same in every run: texts have other keys in each process.
        digest = rows.columns.read("exact")[found.row]
        _, first, key = np.unique(keys, return_index=True, return_inverse=True)
        drawn = np.flatnonzero((digest[first] < share * 2.0**64)[key])
    part = _part(time, drawn)
    _, first = np.unique(keys, return_index=True)
    mean = float(size[first].mean()) if len(first) else 0.0
    table = []
    for limit in limits:
        if len(first) <= limit.entries < math.inf:
            # It holds all there is: the same as no limit.
            continue
        if limit == NONE:
            hit = np.flatnonzero(found.keys_by != NO_HIT)
            figures = _figures(len(keys), len(hit), cost[hit]) | {"sampled_share": 1.0}
        else:
            scaled = Limit(entries=max(1.0, limit.entries * share), bytes=limit.bytes * share)
            hit = drawn[hits_within(keys[drawn], part, scaled, size[drawn])]
            figures = _figures(len(drawn), len(hit), cost[hit]) | {"sampled_share": share}
            figures["usd"] /= share
        held = min(limit.entries, limit.bytes / mean if mean else math.inf, len(first))
        table.append(
            {
                "entries": None if math.isinf(limit.entries) else int(limit.entries),
                "bytes": None if math.isinf(limit.bytes) else int(limit.bytes),
                "held_bytes": int(held * mean),
                **figures,
            }
        )
    return table


def cold_start(rows: Rows, found: Replayed) -> dict[str, Any] | None:
    """Return the hit rate by sixth of the span, and of the sixths in which the cache is warm; None without calls.

    By sixths of the calls where not all of them have a time.
    """
    time, n = found.time, len(found.time)
    if not n:
        return None
    timed = not np.isnan(time.start).any() and time.start[-1] > time.start[0]
    part = np.arange(n) / n
    if timed:
        part = (time.start - time.start[0]) / (time.start[-1] - time.start[0])
    sixth = np.minimum((part * SIXTHS).astype(np.int64), SIXTHS - 1)
    hit, cost = found.served_by != NO_HIT, _cost(rows, found)
    parts = [_window(hit, cost, sixth == at) for at in range(SIXTHS)]
    steady = _window(hit, cost, sixth >= STEADY)
    rate, overall = steady["hit_rate"], float(hit.mean())
    steady["span_s"] = float(time.start[-1] - time.start[0]) * (SIXTHS - STEADY) / SIXTHS if timed else None
    return {
        "by": "time" if timed else "position",
        "sixths": parts,
        "steady": steady,
        "share": max(0.0, 1 - overall / rate) if rate else None,
    }


def _window(hit: Bools, cost: NDArray[np.int64], which: Bools) -> dict[str, Any]:
    at = np.flatnonzero(which)
    taken = at[hit[at]]
    n, hits = len(at), len(taken)
    return _figures(n, hits, cost[taken]) | {"hit_rate_interval": list(wilson(hits, n, Z_95))}


def _figures(n: int, hits: int, cost: NDArray[np.int64]) -> dict[str, Any]:
    return {"n": n, "hits": hits, "hit_rate": hits / n if n else None, "usd": float(exact_sum(cost) / PICO)}


def _keys(found: Replayed) -> Ints:
    return found.normal if NORMALISED in found.tiers else found.key


def _cost(rows: Rows, found: Replayed) -> NDArray[np.int64]:
    cost: NDArray[np.int64] = (rows.columns.read("cost_input") + rows.columns.read("cost_output"))[found.row]
    return cost


def _part(time: Timing, chosen: NDArray[np.int64]) -> Timing:
    """Return the timing of some of the calls, in their order, by positions among themselves."""
    since = np.searchsorted(chosen, time.since[chosen], side="left").astype(np.int32)
    rank = np.empty(len(chosen), dtype=np.int32)
    rank[np.argsort(time.rank[chosen])] = np.arange(len(chosen), dtype=np.int32)
    ready: Floats = time.ready[chosen]
    return Timing(time.start[chosen], time.filled[chosen], ready, since, rank)
