"""What `recall eval` shows: policies side by side, what a log's truth rests on, what tells labelled pairs apart.

The HTML page shows how many hits stand against how many false ones, and whether the promise was kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from recall_cli.cli.commands.savings_view import duration
from recall_cli.cli.render.blocks import NONE, Block, Line, bare, count, number, percent, rate, table
from recall_cli.cli.render.svg import OTHER, Axis, Chart, Mark, PointSeries, ScatterChart
from recall_cli.logs.report import words
from recall_cli.measure.judged import NOT_KNOWN, Judged, at_most, between, point_at_most
from recall_cli.measure.savings.wording import REASONS, usd
from recall_cli.types import Result

ORDERS = {"time": "in time order", "partly time": "in time order as far as known", "file position": "by file position"}


def opening(workload: str, log: Mapping[str, Any]) -> list[Block]:
    """Return what comes before the policies: the log, what was left out, the comparator and the judge."""
    blocks: list[Block] = [Line(_log(workload, log))]
    left_out = [(REASONS.get(reason, reason), count(n)) for reason, n in log["excluded"].items()]
    left_out += [(f"line: {words(reason)}", count(n)) for reason, n in log["skipped"].items()]
    if left_out:
        blocks.append(table("What is left out, and why", ("reason", "requests"), left_out))
    return [*blocks, *map(Line, _truth(log)), Line("")]


def _log(workload: str, log: Mapping[str, Any]) -> str:
    span = "" if log["span_s"] is None else f" over {duration(log['span_s'])}"
    said = (
        f"{workload}: {count(log['requests'])} requests{span}; {count(log['cacheable'])} can be cached, in "
        f"{count(log['partitions'])} partitions that no hit crosses."
    )
    alone = log["exact_only"] + log["no_known_token"]
    if alone:
        said += f" {count(alone)} can only be answered by an equal one."
    repeats = log["exact_repeats"]
    if repeats["n"]:
        other = Judged(repeats["same"], repeats["different"], repeats["unsure"]).said()
        said += (
            f" {count(repeats['n'])} repeat an earlier one letter for letter and are in no rate: their answer is "
            f"another one than the first in {other}, which no cutoff mends."
        )
    return said


def _truth(log: Mapping[str, Any]) -> Iterator[str]:
    truth, errors = log["truth"], log["truth"]["errors"]
    share = rate(truth["unsure_share"], truth["unsure_interval"])
    yield (
        f"Whether two answers say the same is what the comparator says ({truth['comparator']}). Of "
        f"{count(truth['pairs'])} pairs that some cutoff or policy put together: {count(truth['same'])} same, "
        f"{count(truth['different'])} different, "
        f"{count(truth['unsure'])} unsure ({share}), which give no label."
    )
    yield (
        "The rules' own errors, on generated answers: of pairs that say the same "
        f"{rate(errors['false_different_rate'], errors['false_different_interval'], 2)} are called different "
        f"(n {count(errors['false_different_n'])}), of pairs that do not "
        f"{rate(errors['false_same_rate'], errors['false_same_interval'], 2)} the same "
        f"(n {count(errors['false_same_n'])}). Your answers may be harder. A verdict at all is given on "
        f"{percent(errors['label_share_same'], 0)} of the first and {percent(errors['label_share_different'], 0)} of "
        "the others: rates of judged hits lean low, the bounds do not."
    )
    if "judge" in log:
        yield _judge(log["judge"])


def _judge(judge: Mapping[str, Any]) -> str:
    said, spent = judge["said"], "no list price known"
    if judge["usd"] is not None:
        spent = f"{usd(judge['usd'])} by {judge['price_source']['name']} {judge['price_source']['version']}"
    text = (
        f"{judge['name']} was asked in {count(judge['calls'])} calls (limit {count(judge['limit'])}): {said['same']:,} "
        f"same, {said['different']:,} different, {said['unsure']:,} unsure; {count(judge['input_tokens'])} tokens in, "
        f"{count(judge['output_tokens'])} out, {spent}."
    )
    for what, counts in (("Without a verdict", judge["faults"]), ("Not asked for", judge["not_asked"])):
        if counts:
            text += f" {what}: " + ", ".join(f"{reason} {n:,}" for reason, n in counts.items()) + "."
    return text + " Its own error is not known."


def policies(title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Block]:
    """Return the policies over one log: rates of what can be judged, and bounds with the rest all right, all wrong."""
    return [
        table(
            title,
            (
                "policy",
                "hit rate",
                "second half",
                "wrong, of judged hits",
                "not judged",
                "wrong, of all",
                "calls saved",
            ),
            [
                (
                    name,
                    rate(row["hit_rate"], row["hit_rate_interval"]),
                    percent(row["hit_rate_second_half"]),
                    _of_judged(row),
                    f"{row['unsure_hits']:,}/{row['hits']:,}",
                    _of_all(row),
                    count(row["calls_saved_net"]),
                )
                for name, row in zip(names, rows, strict=True)
            ],
        ),
        table(
            f"{title}: was it kept?",
            ("policy", "kept", "wrong, of queries", "testable", "feasible", "checks", "without a label"),
            [
                (
                    name,
                    _kept(row),
                    _bounds(row["error_per_query_bounds"]),
                    f"{row['testable']}/{row['runs']}",
                    f"{row['feasible']}/{row['runs']}" if row["hindsight"] else NONE,
                    number(row["audits"] / row["runs"], 0),
                    number(row["unlabelled"] / row["runs"], 0),
                )
                for name, row in zip(names, rows, strict=True)
            ],
        ),
    ]


def _of_judged(row: Mapping[str, Any]) -> str:
    """Return the rate of the judged hits; none where it would read as "nothing is wrong" and not all were judged."""
    if not row["judged_hits"] or (row["unsure_hits"] and not row["false_hits"]):
        return NONE
    return rate(row["false_hit_rate"], row["false_hit_interval"], 2)


def _bounds(bounds: Sequence[float | None]) -> str:
    low, high = bounds
    return NONE if low is None else between(low, high, 2)


def _of_all(row: Mapping[str, Any]) -> str:
    if not row["hits"]:
        return NONE
    return _bounds(row["false_hit_bounds"]) if row["judged_hits"] else NOT_KNOWN


def _kept(row: Mapping[str, Any]) -> str:
    """Return whether the promise was kept, whatever the unsure hits were; "open" where it hangs on them."""
    least, most = row["runs_over_bounds"]
    runs = row["runs"]
    if not row["hits"]:
        return "no hits"
    if runs > 1:
        return f"{runs - most}/{runs}" if least == most else f"{runs - most} to {runs - least} of {runs}"
    return "yes" if not most else "no" if least else "open"


LOG_READING = (
    "One log is one stream: intervals take its questions for independent, and those of a burst are not. {order} Each "
    "question is answered before the next comes. Wrong is of served semantic hits; a hit whose answers cannot be told "
    "apart is not judged: wrong, of all, runs from none to all of those, and where none was judged wrong there is no "
    "rate beside it. kept: yes or no whatever those were, open where it hangs on them. * chose its cutoff with the "
    "whole stream known: nobody could run it."
)
SHUFFLED = (
    "Runs are random orders of the same questions, which intervals count once: what drifts or comes in bursts is gone."
)
TIMELY = "The run is in the order of the log."


def reading(order: str) -> str:
    """Return how to read the tables."""
    return LOG_READING.format(order=SHUFFLED if order == "shuffled" else TIMELY)


COLOURS = {"static@0.8": 1, "static@best": OTHER, "oracle/namespace": 2, "naive/namespace": 3, "adaptive": 0}
"""Of each policy; one that is not listed is grey."""
SCORINGS = {"similarity": OTHER, "shipped": 0, "cross_fitted": 2}
MIN_HITS = 20
"""Judged hits below which a cutoff's false-hit rate is noise, and no point of the curve."""
TICKS = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1)
LEAST_SHOWN = 0.03
"""The axis of false hits reaches at least here, so that a target is never at its edge."""


def charts(result: Result) -> list[Chart]:
    """Return a chart for each workload."""
    groups = groupby(result.rows, key=lambda row: row["workload"])
    return [_chart(name, list(rows), result.summary["workloads"][name]) for name, rows in groups]


def _chart(name: str, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> ScatterChart:
    drawn = [row for row in rows if row["false_hit_rate"] is not None]
    most = max([LEAST_SHOWN, *(1.25 * at_most(row) for row in drawn), *(1.25 * row["target"] for row in rows)])
    unsure = sum(row.get("unsure_hits", 0) for row in rows)
    across = _false_hits(f"wrong{' at most' if unsure else ''}, of served semantic hits", min(1.0, most))
    curve = tuple(
        Mark(point_at_most(point), point["hit_rate"])
        for point in summary["curve"]
        if point["policy"] == "static" and point["judged_hits"] >= MIN_HITS and point_at_most(point) <= most
    )
    clouds = [PointSeries("every fixed cutoff", curve, OTHER, joined=True)] if len(curve) > 1 else []
    for policy in dict.fromkeys(row["policy"] for row in drawn):
        marks = tuple(_mark(row) for row in drawn if row["policy"] == policy)
        clouds.append(PointSeries(policy, marks, COLOURS.get(policy, OTHER)))
    targets = tuple(dict.fromkeys(row["target"] for row in rows))
    said = ", ".join(percent(target) for target in targets)
    note = (
        f"Dashed: the target ({said}). Hollow: more runs ended over it than the promise allows. Bars: 95 % intervals."
    )
    if unsure:
        note += " Hits that could not be judged are drawn as wrong ones; bars begin where they are all right."
    runs = rows[0]["runs"]
    return ScatterChart(f"{name}: {runs:,} run{'s' * (runs > 1)}", tuple(clouds), across, _hit_rate(), targets, note)


def _mark(row: Mapping[str, Any]) -> Mark:
    x, y = row["false_hit_interval"], row["hit_rate_interval"]
    if row.get("unsure_hits"):
        x = row["false_hit_bounds_interval"]
    ends = (x[0], x[1]), (y[0], y[1])
    # Its colour names it: five labels would cover each other.
    return Mark(at_most(row), row["hit_rate"], *ends, hollow=not row["holds"])


def _hit_rate() -> Axis:
    return Axis("hit rate", (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), _percent)


def _false_hits(name: str, most: float) -> Axis:
    """Return an axis on which a few per cent get room, and none at all has a place too."""
    return Axis(name, (0.0, most), tuple(tick for tick in TICKS if tick <= most), _percent, math.sqrt)


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def lead(result: Result) -> str:
    """Return the sentence to be read first: what adaptive gave at the smallest target, and where it broke."""
    target = min((row["target"] for row in result.rows), default=0.0)
    rows = [row for row in result.rows if row["policy"] == "adaptive" and row["target"] == target]
    if not rows:
        return "No policy that learns was replayed."
    broke = [row["workload"] for row in rows if not row["holds"]]
    kept = f"kept its promise on {len(rows) - len(broke)} of {len(rows)} workloads"
    if len(rows) == 1:
        (row,) = rows
        wrong = rate(row["false_hit_rate"], row["false_hit_interval"], 2)
        if row.get("unsure_hits"):
            judged = row["judged_hits"]
            wrong = Judged(judged - row["false_hits"], row["false_hits"], row["unsure_hits"]).said(2)
            least, worst = row["runs_over_bounds"]
            return (
                f"At a target of {percent(target)} adaptive answered {percent(row['hit_rate'])} of {row['queries']:,} "
                f"queries; of its hits {wrong} were wrong: whether the promise was kept is "
                + ("not known." if least != worst else f"known all the same: {'broken' if least else 'kept'}.")
            )
        return (
            f"At a target of {percent(target)} adaptive answered {percent(row['hit_rate'])} of {row['queries']:,} "
            f"queries; of its hits {wrong} were wrong, and {row['runs_over_target']:,} of {row['runs']:,} runs ended "
            f"over the target: the promise was {'broken' if broke else 'kept'}."
        )
    return f"At a target of {percent(target)} adaptive {kept}" + (
        f"; it broke on {', '.join(broke)}." if broke else "."
    )


def pairs_charts(result: Result) -> list[Chart]:
    """Return how many pairs that should hit are served against how many traps, for each scoring."""
    summary = result.summary
    clouds = tuple(
        PointSeries(
            f"{scoring.replace('_', '-')} (AUC {summary['auc'][scoring]:.2f})",
            (Mark(0.0, 0.0), *(Mark(p["false_hit_share"], p["hit_rate"]) for p in points)),
            SCORINGS.get(scoring, 3),
            joined=True,
        )
        for scoring, points in groupby(summary["curve"], key=lambda point: point["scoring"])
    )
    if not clouds:
        return []
    across = _false_hits("traps served, of all traps", 1.0)
    note = f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps."
    return [ScatterChart("What tells paraphrases from look-alikes", clouds, across, _hit_rate(), note=note)]


def pairs_lead(result: Result) -> str:
    """Return the sentence to be read first."""
    found = [f"{name.replace('_', '-')} {value:.3f}" for name, value in result.summary["auc"].items()]
    return f"The chance that a pair that should hit scores above a trap (AUC): {', '.join(found)}."


def view(result: Result) -> Sequence[Block]:
    """Return what people see: a table for each workload and target, and what the marks mean."""
    allowed = result.summary["allowed_over"]
    blocks: list[Block] = _overview(result.rows)
    logs = {name: entry["log"] for name, entry in result.summary["workloads"].items() if "log" in entry}
    for workload, log in logs.items():
        blocks += opening(workload, log)
    for (workload, target), group in groupby(result.rows, key=lambda row: (row["workload"], row["target"])):
        rows = list(group)
        if workload in logs:
            blocks += policies(_log_title(result, logs[workload], rows), rows, [_name(r) for r in rows])
            continue
        blocks.append(_hits(workload, target, rows))
        blocks.append(_promise(workload, target, rows, allowed))
    if logs:
        blocks.append(Line(reading(result.params["order"])))
    if len(logs) < len(result.summary["workloads"]):
        blocks.append(Line(READING.format(allowed=percent(allowed, 0))))
    return blocks


def _log_title(result: Result, log: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    runs, order = rows[0]["runs"], result.params["order"]
    how = ORDERS[log["order"]] if order == "time" else f"{runs} random order{'s' * (runs > 1)}"
    name, target = rows[0]["workload"], percent(rows[0]["target"])
    return f"{name}, target {target}: {how}, {count(rows[0]['queries'])} queries"


READING = (
    "Rates are of all queries but exact repeats, which are counted apart; wrong is of served semantic hits. * chose "
    "its cutoff with the whole stream known: nobody could run it. A policy keeps its promise when at most {allowed} of "
    "its runs end over the target; a hit rate counts only where the promise is kept."
)


def _name(row: dict[str, Any]) -> str:
    name: str = row["policy"]
    return f"{name} *" if row["hindsight"] else name


def _overview(rows: Sequence[dict[str, Any]]) -> list[Block]:
    """Return how adaptive did on each of several workloads, a table for each target; nothing for one workload."""
    by = {(row["workload"], row["target"], row["policy"]): row for row in rows}
    workloads = list(dict.fromkeys(workload for workload, _, _ in by))
    if len(workloads) < 2:
        return []
    return [
        table(
            f"adaptive at a target of {percent(target)}, by workload",
            ("workload", "hit rate", "best single *", "of oracle's *", "wrong, of hits", "second half", "runs over"),
            [
                _overview_row(by[name, target, "adaptive"], by.get((name, target, "static@best")),
                              by.get((name, target, "oracle/namespace")))
                for name in workloads if (name, target, "adaptive") in by
            ],
        )
        for target in dict.fromkeys(target for _, target, _ in by)
    ]  # fmt: skip


def _overview_row(row: dict[str, Any], best: dict[str, Any] | None, oracle: dict[str, Any] | None) -> tuple[str, ...]:
    late = oracle["hit_rate_second_half"] if oracle else None
    return (
        row["workload"] + ("" if row["holds"] else " ✗"),
        percent(row["hit_rate"]),
        percent(best["hit_rate"]) if best else NONE,
        percent(row["hit_rate_second_half"] / late, 0) if late and row["hit_rate_second_half"] is not None else NONE,
        rate(row["false_hit_rate"], row["false_hit_interval"], 2),
        percent(row["false_hit_rate_second_half"], 2),
        rate(row["runs_over_target"] / row["runs"], row["runs_over_interval"], 0),
    )


def _hits(workload: str, target: float, rows: Sequence[dict[str, Any]]) -> Block:
    return table(
        f"{workload}, target {percent(target)}: {rows[0]['runs']} runs, {count(rows[0]['queries'])} queries",
        ("policy", "hit rate", "second half", "wrong, of hits", "calls saved"),
        [
            (
                _name(row),
                rate(row["hit_rate"], row["hit_rate_interval"]),
                percent(row["hit_rate_second_half"]),
                rate(row["false_hit_rate"], row["false_hit_interval"], 2),
                count(row["calls_saved_net"]),
            )
            for row in rows
        ],
    )


def _promise(workload: str, target: float, rows: Sequence[dict[str, Any]], allowed: float) -> Block:
    return table(
        f"{workload}, target {percent(target)}: was it kept? (at most {percent(allowed, 0)} of runs over)",
        ("policy", "runs over", "wrong, of queries", "testable", "feasible", "checks"),
        [
            (
                _name(row) + ("" if row["holds"] else " ✗"),
                rate(row["runs_over_target"] / row["runs"], row["runs_over_interval"], 0),
                percent(row["error_per_query"], 2),
                f"{row['testable']}/{row['runs']}",
                f"{row['feasible']}/{row['runs']}" if row["hindsight"] else NONE,
                number(row["audits"] / row["runs"], 0),
            )
            for row in rows
        ],
    )


def pairs_view(result: Result) -> Sequence[Block]:
    """Return what people see of a pairs file: the scorings side by side, then what a cutoff serves, by category."""
    summary = result.summary
    shares = list(next(iter(summary["hit_rate_at_false_hit"].values())))
    scorings = [
        (
            name.replace("_", "-"),
            bare(summary["auc"][name], summary["auc_interval"][name], 3),
            *(
                rate(
                    summary["hit_rate_at_false_hit"][name][share],
                    summary["hit_rate_at_false_hit_interval"][name][share],
                )
                for share in shares
            ),
        )
        for name in summary["auc"]
    ]
    caught = [
        (
            "should hit" if row["same"] else "trap",
            row["name"],
            f"{row['served']}/{row['n']}",
            rate(row["rate"], row["rate_interval"]),
        )
        for row in result.rows
    ]
    return [
        table(
            f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps: hit rate while at most this "
            "share of traps is served",
            ("scoring", "AUC", *(f"at {percent(float(share))}" for share in shares)),
            scorings,
        ),
        table(
            f"Served by similarity alone at tau {result.params['tau']:g}",
            ("", "category", "served", "rate"),
            caught,
            left=2,
        ),
        Line(PAIRS_READING.format(other=summary["other_context"])),
    ]


PAIRS_READING = (
    "AUC is the chance that a pair that should hit scores above a trap. shipped: the evidence weights as they come; "
    "cross-fitted: weights fitted to the other pairs of this file. Cutoffs come from the same pairs, so a rate is a "
    "point of the curve, not a promise. {other:,} pairs stand in different contexts and are served by none."
)
