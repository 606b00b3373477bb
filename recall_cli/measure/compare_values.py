"""The values of a result document that a test can compare: estimates with their interval, and samples.

Every document keeps the same habit: an interval stands beside its value under the value's name. So one walk
reads them all, and a new command needs no line here unless its rows go by a new name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any

from recall_cli.measure.savings.verdict import USD_LEVEL
from recall_cli.types import Result

NAMES = (
    "workload",
    "data",
    "set",
    "measure",
    "pairs",
    "budget",
    "budget_of",
    "log",
    "arm",
    "kind",
    "group",
    "provider",
    "model",
    "tenant",
    "embedder",
    "dims",
    "corpus",
    "entries",
    "engine",
    "params",
    "policy",
    "against",
    "target",
    "setting",
    "budget",
    "namespace",
    "connections",
    "hub",
    "leg",
    "scoring",
    "score",
    "same",
    "by",
    "name",
    "ttl",
    "capacity",
    "hit_share",
    "skew",
)
"""What tells rows of one document apart, in the order it is said; everything else in a row was measured."""

KINDS = {"same": bool, "pairs": str}
"""Of what type these are where they name a kind of pair: elsewhere they count pairs."""

UNCOMPARED = ("samples", "params", "p99", "p99_interval")
"""Raw material of what stands in the rows already, and p99: over eight runs of one bench on a shared machine it
spread by 1.2 to 22 times (each p50 by less than 1.07), so two runs cannot tell whose code is slow."""

CROWDED = re.compile("batch")
"""Arms that take all cores they get, so that others' load decides: batches against model2vec's spread by 1.4 on a quiet
machine, and by 5 on a full one."""


class Better(Enum):
    """Which way of a change is the good one."""

    HIGHER = 1
    LOWER = -1
    NEITHER = 0


_DIRECTIONS = tuple(
    (re.compile(pattern), better)
    for pattern, better in (
        # Of the kinds of query only repeats and paraphrases should be served.
        (r"^by_kind\b.*(lookalike|trap:|\bnew\b)", Better.LOWER),
        (r"^by_kind\b", Better.HIGHER),
        (r"hit_rate_at", Better.HIGHER),
        (r"false_|error_per_query|different|unsure", Better.LOWER),
        (r"per_s\b|per_cpu_s\b|speedup", Better.HIGHER),
        (r"_us\b|_s\b|^ratios\.|^over_static\.|cpu_|rss_|_mb\b|bytes", Better.LOWER),
        (
            r"right_rate|recall_at|ndcg|mrr|gain_over|nearest_found|\bauc\b|hit_rate|saved|answers_equal|tiers\..*usd",
            Better.HIGHER,
        ),
    )
)
_TIMED = re.compile(r"_us\b|_s\b|^ratios\.|^over_static\.|speedup|cpu_|rss_|_mb\b|bytes")
_OWN_RATIO = re.compile(r"ratio$|speedup")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One measured value, and what tells how sure it is: a 95 % interval, or the samples themselves."""

    where: str
    measure: str
    value: float
    ends: tuple[float, float] = (math.nan, math.nan)
    samples: tuple[float, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the machine has a part in it (time, memory): compared by ratio, and not across machines."""
        return _TIMED.search(self.measure) is not None

    @property
    def relative(self) -> bool:
        """Whether it was taken against another arm in the same rounds, so that the machine cancels."""
        return _OWN_RATIO.search(self.measure) is not None


def better(command: str, estimate: Estimate) -> Better:
    """Return which way of a change is the good one."""
    if command == "bench" and estimate.measure == "hit_rate":
        return Better.NEITHER  # it counts wrong answers too: right_rate and false_hit_rate say which
    if estimate.measure == "rate" and "same=" in estimate.where:
        return Better.HIGHER if "same=True" in estimate.where else Better.LOWER
    for pattern, way in _DIRECTIONS:
        if pattern.search(estimate.measure):
            return way
    return Better.NEITHER


def estimates(result: Result) -> dict[tuple[str, str], Estimate]:
    """Return all that can be compared of a document, by where it stands and what it is."""
    found = list(_walk(result.summary, "", ""))
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in result.rows:
        rows.setdefault(name(row), []).append(row)
    for where, alike in rows.items():
        if len(alike) == 1:
            found += _walk(alike[0], where, "")
        else:
            found += _rounds(alike, where)
    return {(estimate.where, estimate.measure): estimate for estimate in found}


def numbers(result: Result) -> dict[tuple[str, str], float]:
    """Return every single number of a document's summary and rows, by where it stands and what it is.

    Rows of one name are rounds of one thing, which have no number of their own.
    """
    places = [("", result.summary), *((name(row), row) for row in result.rows)]
    rounds = Counter(where for where, _ in places)
    return {
        (where, measure): value for where, node in places if rounds[where] == 1 for measure, value in _leaves(node, "")
    }


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in NAMES:
            yield f"{prefix}{key}", float(value)


def name(row: Mapping[str, Any]) -> str:
    """Return what tells a row from its neighbours, as people read it."""
    parts = []
    for key in NAMES:
        value = row.get(key)
        if value is None or value == {} or not isinstance(value, KINDS.get(key, object)):
            continue
        if isinstance(value, Mapping):
            parts += [f"{inner}={value[inner]}" for inner in value]
        else:
            parts.append(value if isinstance(value, str) else f"{key}={value}")
    return ", ".join(parts)


def _walk(node: Mapping[str, Any], where: str, prefix: str) -> Iterator[Estimate]:
    for key, value in node.items():
        path = f"{prefix}{key}"
        if key in UNCOMPARED or CROWDED.search(key):
            continue
        if key.endswith("interval"):
            base = _base(node, key)
            if base is not None:
                yield from _pairs(node[base], value, where, f"{prefix}{base}", _level(key))
        elif isinstance(value, Mapping):
            yield from _walk(value, where, f"{path}.")
        elif _is_numbers(value) and _TIMED.search(key):
            yield _sampled(where, path, value)
        elif isinstance(value, list):
            for item in value:
                # Items without a name (points of a curve, slices of time) are another run's only by chance.
                if isinstance(item, Mapping) and (inner := name(item)):
                    yield from _walk(item, f"{where}, {inner}".lstrip(", "), f"{path}.")


def _base(node: Mapping[str, Any], key: str) -> str | None:
    """Return under what name the value of an interval stands: hit_rate, or false_hit_rate for false_hit_interval."""
    stem = key.removesuffix("interval").rstrip("_")
    names = [f"{stem}_rate", stem, stem.replace("_second_half", "_rate_second_half")]
    return next((base for base in (*names, *([] if stem else ["ratio", "rate", "share"])) if base in node), None)


def _pairs(value: Any, interval: Any, where: str, path: str, level: float) -> Iterator[Estimate]:
    """Yield a value with its interval; of two like-shaped mappings each pair."""
    if isinstance(value, Mapping) and isinstance(interval, Mapping):
        for key in value:
            yield from _pairs(value[key], interval.get(key), where, f"{path}.{key}", level)
    elif isinstance(value, (int, float)) and _is_numbers(interval) and len(interval) == 2:
        wide = _TO_95[level]
        low, high = (value - wide * (value - interval[0]), value + wide * (interval[1] - value))
        yield Estimate(where, path, value, (low, high))


_TO_95 = {0.95: 1.0, USD_LEVEL: 1.959963984540054 / 1.6448536269514722}
"""How much wider a 95 % interval is, by the normal quantiles."""


def _level(key: str) -> float:
    return USD_LEVEL if "usd" in key else 0.95


def _rounds(rows: Sequence[Mapping[str, Any]], where: str) -> Iterator[Estimate]:
    """Yield what several rows of one name measured: they are rounds of one thing."""
    for key in rows[0]:
        values = [row.get(key) for row in rows]
        if key not in NAMES and _is_numbers(values) and _TIMED.search(key):
            yield _sampled(where, key, values)


def _is_numbers(values: Any) -> bool:
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    )


def _sampled(where: str, path: str, values: Sequence[Any]) -> Estimate:
    return Estimate(where, path, float(median(values)), samples=tuple(values))
