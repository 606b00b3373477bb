"""Two result documents of one command: which values differ, by a test, and which only look as if they did.

Rates, areas and dollars differ when the interval of their difference leaves 0 out; times and ratios when that of
their ratio leaves out a whole band around 1, since two runs of the same code differ too. All p-values of one
comparison are adjusted together: a document holds hundreds of values, and one in twenty would differ by chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from recall_cli import stats
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure.compare_values import Better, Estimate, better, estimates
from recall_cli.measure.result import new_result
from recall_cli.types import Result, Warn

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
