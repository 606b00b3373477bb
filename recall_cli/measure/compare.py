"""Two result documents of one command: which values differ, by a test, and which only look as if they did.

Rates, areas and dollars differ when the interval of their difference leaves 0 out; times and ratios when that of
their ratio leaves out a whole band around 1, since two runs of the same code differ too. All p-values of one
comparison are adjusted together: a document holds hundreds of values, and one in twenty would differ by chance.

Every document keeps the same habit: an interval stands beside its value under the value's name. So one walk
reads them all, and a new command needs no line here unless its rows go by a new name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from statistics import median
from typing import Any

from recall_cli import stats
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure.result import new_result
from recall_cli.measure.savings.verdict import USD_LEVEL
from recall_cli.types import Result, Warn

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


ALPHA = 0.05
"""Of all values of one comparison together."""
BAND, BUSY_BAND = 1.10, 1.50
"""Times and ratios within this factor are called equal, since two runs of the same code differ too: over eight runs of
one bench the p50s spread by up to 1.07. The second is for times of which one was taken with more work than cores: with
four times as much, p50s of one code were up to 1.44 from those of a quiet machine. Ratios of a run keep the first."""
MIN_ROUNDS = 5
"""Fewer rounds a side cannot show a difference by their ranks, whatever they say."""

DATA = ("logs", "log")
"""Params that name what was read: another log is a reason to compare, another setting is not."""
MACHINE = ("system", "machine", "cpu", "cores", "usable_cores")
SOFTWARE = ("release", "python", "packages", "blas", "threads")


class Verdict(StrEnum):
    """What may be said of two values."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"
    """Different, and neither way is the good one."""
    SAME = "no difference shown"
    UNTESTED = "not tested"
    """Too few rounds, or a time of another machine."""


def run(a: Result, b: Result, *, names: tuple[str, str] = ("A", "B"), apart: Collection[str] = ()) -> Result:
    """Return a row for every value that both documents hold, with the test's verdict.

    Raises UsageError when the two are not of one command and its params.

    :param apart: params that may differ, since they say how much was measured and not what.
    """
    _check_alike(a, b, names, {*DATA, *apart})
    result = new_result("compare", {"a": names[0], "b": names[1], "alpha": ALPHA, "band": [BAND, BUSY_BAND]})
    old, new = estimates(a), estimates(b)
    one_machine = all(a.environment.get(key) == b.environment.get(key) for key in MACHINE)
    busy = _load(a) > 1 or _load(b) > 1
    for key, value in old.items():
        if key not in new:
            continue
        band = BUSY_BAND if busy and not value.relative else BAND
        testable = one_machine or value.relative or not value.timed
        result.rows.append(_row(key, value, new[key], testable, band))
    _judge(result.rows, {key: better(a.command, value) for key, value in old.items()})
    counts = Counter(row["verdict"] for row in result.rows)
    result.summary = {
        "command": a.command,
        "started_at": [a.started_at, b.started_at],
        "commits": [a.environment.get("commit"), b.environment.get("commit")],
        "verdicts": {verdict.value: counts[verdict.value] for verdict in Verdict},
        "only_in_a": sorted({_name(*key) for key in old.keys() - new.keys()}),
        "only_in_b": sorted({_name(*key) for key in new.keys() - old.keys()}),
    }
    result.warnings = [*_environments(a, b, one_machine), *_params(a, b), *_emptiness(result)]
    return result


def check(result: Result) -> None:
    """Raise GateFailed when a value got worse."""
    worse = [_name(row["where"], row["measure"]) for row in result.rows if row["verdict"] == Verdict.WORSE]
    if worse:
        more = f" and {len(worse) - 3} more" if len(worse) > 3 else ""
        raise GateFailed(
            f"worse than before: {'; '.join(worse[:3])}{more}", hint="look at the table above, or at --out's rows"
        )


def _check_alike(a: Result, b: Result, names: tuple[str, str], apart: Collection[str]) -> None:
    if a.command != b.command:
        raise UsageError(
            f"{names[0]} is of recall {a.command}, {names[1]} of recall {b.command}", hint="compare two of one command"
        )
    unlike = [key for key in a.params if key in b.params and key not in apart and a.params[key] != b.params[key]]
    if unlike:
        told = ", ".join(f"{key} ({a.params[key]} against {b.params[key]})" for key in unlike)
        raise UsageError(
            f"the two did not measure the same: {told}", hint="run the command again with the options of the first"
        )


def _row(key: tuple[str, str], a: Estimate, b: Estimate, testable: bool, band: float) -> dict[str, Any]:
    """Return one comparison: the change with its interval, as a ratio or a difference, and the bare p-value."""
    unit = "ratio" if a.timed or a.relative else "difference"
    row: dict[str, Any] = {"where": key[0], "measure": key[1], "a": a.value, "b": b.value, "unit": unit}
    row |= {"change": None, "change_interval": None, "p": None}
    if not testable:
        return row
    if a.samples or b.samples:
        return row | _by_samples(a.samples, b.samples, band)
    if unit == "difference":
        change, low, high = stats.independent_difference(a.value, a.ends, b.value, b.ends)
        return row | {"change": change, "change_interval": [low, high], "p": stats.p_beyond(change, low, high)}
    if min(a.ends[0], b.ends[0]) <= 0:
        return row  # a time that may be none has no ratio
    log = math.log
    ends = [(log(one.ends[0]), log(one.ends[1])) for one in (a, b)]
    change, low, high = stats.independent_difference(log(a.value), ends[0], log(b.value), ends[1])
    p = stats.p_beyond(change, low, high, math.log(band))
    return row | {"change": math.exp(change), "change_interval": [math.exp(low), math.exp(high)], "p": p}


def _by_samples(a: Sequence[float], b: Sequence[float], band: float) -> dict[str, Any]:
    """Return the ratio of the medians of two lists of rounds, and whether ranks tell it from the band around 1."""
    if min(len(a), len(b)) < MIN_ROUNDS or min(*a, *b) <= 0:
        return {}
    ratio, low, high = stats.median_ratio(b, a)
    # The ratio inside the band that is nearest to what was seen is what the rounds must contradict.
    nearest = min(max(ratio, 1 / band), band)
    p = 1.0 if nearest == ratio else stats.rank_sum([value * nearest for value in a], b)
    return {"change": ratio, "change_interval": [low, high], "p": p}


def _judge(rows: Sequence[dict[str, Any]], ways: Mapping[tuple[str, str], Better]) -> None:
    """Adjust the p-values of all rows together and give each its verdict."""
    tested = [row for row in rows if row["p"] is not None]
    for row, adjusted in zip(tested, stats.holm([row["p"] for row in tested]), strict=True):
        row["p_adjusted"] = adjusted
    for row in rows:
        row["verdict"] = _verdict(row, ways[row["where"], row["measure"]]).value


def _verdict(row: Mapping[str, Any], way: Better) -> Verdict:
    if row["p"] is None:
        return Verdict.UNTESTED
    if row["p_adjusted"] > ALPHA:
        return Verdict.SAME
    if way is Better.NEITHER:
        return Verdict.CHANGED
    return Verdict.BETTER if (row["b"] > row["a"]) == (way is Better.HIGHER) else Verdict.WORSE


def _name(where: str, measure: str) -> str:
    return f"{where}: {measure}" if where else measure


def _environments(a: Result, b: Result, one_machine: bool) -> list[Warn]:
    """Return what in the two environments speaks against comparing them."""
    told = [
        text for key in (*MACHINE, *SOFTWARE) for text in _unlike(key, a.environment.get(key), b.environment.get(key))
    ]
    warnings = []
    if told and not one_machine:
        hint = "run both on one machine; ratios taken within one run are compared all the same"
        warnings.append(Warn("OTHER_MACHINE", f"times are not compared: {'; '.join(told)}", hint))
    elif told:
        hint = "a difference may be theirs and not the code's"
        warnings.append(Warn("OTHER_ENVIRONMENT", f"the environments differ: {'; '.join(told)}", hint))
    for name, result in (("first", a), ("second", b)):
        if _load(result) > 1:
            load, cores = result.environment["load_1m"], result.environment["usable_cores"]
            message = (
                f"the {name} was measured under load ({load:g} on {cores} cores): only large differences of times count"
            )
            warnings.append(Warn("BUSY_MACHINE", message, "measure again when the machine is quiet"))
    return warnings


def _load(result: Result) -> float:
    """Return the work for each core while a result was measured, as far as it says."""
    load, cores = result.environment.get("load_1m"), result.environment.get("usable_cores")
    return load / cores if load is not None and cores else 0.0


def _unlike(key: str, a: Any, b: Any) -> list[str]:
    """Return what differs below one key of the environment, each as a few words."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return [text for inner in {**a, **b} for text in _unlike(inner, a.get(inner), b.get(inner))]
    return [] if a == b else [f"{key} {a or 'none'} against {b or 'none'}"]


def _params(a: Result, b: Result) -> list[Warn]:
    """Return which params only one of them has, and which data differ."""
    warnings = []
    alone = sorted(a.params.keys() ^ b.params.keys())
    if alone:
        message = f"only one of the two says {', '.join(alone)}: an older recall had no such option"
        warnings.append(Warn("OLDER_PARAMS", message, "make sure that both ran with what it stands for"))
    told = [key for key in DATA if key in a.params and key in b.params and a.params[key] != b.params[key]]
    if told:
        message = f"the two read other data ({', '.join(told)}): a difference is the data's too"
        warnings.append(Warn("OTHER_DATA", message))
    return warnings


def _emptiness(result: Result) -> list[Warn]:
    if any(row["p"] is not None for row in result.rows):
        return []
    hint = f"a test needs an interval beside a value, or {MIN_ROUNDS} rounds of it in each document"
    return [Warn("NOTHING_TESTED", "no value of these documents can be tested", hint)]
