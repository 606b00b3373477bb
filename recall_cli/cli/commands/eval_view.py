"""What `recall eval` shows: policies side by side, what a log's truth rests on, what tells labelled pairs apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from recall_cli.cli.commands import eval_log_view
from recall_cli.cli.render.blocks import NONE, Block, Line, bare, count, number, percent, rate, table
from recall_cli.types import Result


def view(result: Result) -> Sequence[Block]:
    """Return what people see: a table for each workload and target, and what the marks mean."""
    allowed = result.summary["allowed_over"]
    blocks: list[Block] = _overview(result.rows)
    logs = {name: entry["log"] for name, entry in result.summary["workloads"].items() if "log" in entry}
    for workload, log in logs.items():
        blocks += eval_log_view.opening(workload, log)
    for (workload, target), group in groupby(result.rows, key=lambda row: (row["workload"], row["target"])):
        rows = list(group)
        if workload in logs:
            blocks += eval_log_view.policies(_log_title(result, logs[workload], rows), rows, [_name(r) for r in rows])
            continue
        blocks.append(_hits(workload, target, rows))
        blocks.append(_promise(workload, target, rows, allowed))
    if logs:
        blocks.append(Line(eval_log_view.reading(result.params["order"])))
    if len(logs) < len(result.summary["workloads"]):
        blocks.append(Line(READING.format(allowed=percent(allowed, 0))))
    return blocks


def _log_title(result: Result, log: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    runs, order = rows[0]["runs"], result.params["order"]
    how = eval_log_view.ORDERS[log["order"]] if order == "time" else f"{runs} random order{'s' * (runs > 1)}"
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
