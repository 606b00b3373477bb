"""`recall eval`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.blocks import NONE, Block, Line, bare, count, number, percent, rate, table
from recall_cli.cli.options import FormatName
from recall_cli.cli.render import Output
from recall_cli.types import Result

STREAM, POLICY, GATE = "What is replayed", "Policies", "Gate"


def evaluate(
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload", "-w", envvar="RECALL_WORKLOAD", help="A preset, or all. Repeatable.", rich_help_panel=STREAM
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            envvar="RECALL_CLASSES",
            metavar="FILE",
            help="Texts with answer classes (text, class[, namespace]). Repeatable: one stream of all.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    limit: Annotated[
        str,
        typer.Option(
            envvar="RECALL_LIMIT",
            metavar="N[,NAMESPACE=N]",
            help="Texts drawn from each namespace of the classes for a run.",
            rich_help_panel=STREAM,
        ),
    ] = "",
    pairs: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_PAIRS",
            metavar="FILE",
            help="Labelled pairs (a, b, same) instead: what tells paraphrases from look-alikes.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    tau: options.Tau = 0.8,
    tau_for: options.TauFor = None,
    embedder: options.Embedder = "static",
    order: Annotated[
        str, typer.Option(envvar="RECALL_ORDER", metavar="time|shuffled", rich_help_panel=STREAM, help="Order.")
    ] = "time",
    shuffle_labels: Annotated[
        bool,
        typer.Option(
            "--shuffle-labels",
            envvar="RECALL_SHUFFLE_LABELS",
            help="Deal the answers out at random: a sound policy then serves about nothing.",
            rich_help_panel=STREAM,
        ),
    ] = False,
    runs: Annotated[int, typer.Option(envvar="RECALL_RUNS", help="Seeds to run.", rich_help_panel=STREAM)] = 50,
    seed: Annotated[
        int, typer.Option(envvar="RECALL_SEED", min=0, max=2**31, help="The first seed.", rich_help_panel=STREAM)
    ] = 1_000,
    target: Annotated[
        str,
        typer.Option(
            "--target", envvar="RECALL_TARGET", metavar="RATE[,RATE]", help="False-hit rates.", rich_help_panel=POLICY
        ),
    ] = "0.01",
    confidence: Annotated[
        float, typer.Option(envvar="RECALL_CONFIDENCE", help="Of the promise.", rich_help_panel=POLICY)
    ] = 0.9,
    verify_sample: Annotated[
        float, typer.Option(envvar="RECALL_VERIFY_SAMPLE", help="Share of hits checked.", rich_help_panel=POLICY)
    ] = 0.05,
    certificate: Annotated[
        str,
        typer.Option(
            envvar="RECALL_CERTIFICATE",
            metavar="bayes|betting",
            help="Bound. betting has no window: its promise breaks when answers change over time (drift preset at "
            "1 %, seeds 1000-1039: 1.9 % of the second half's hits wrong, 6 of 40 runs over).",
            rich_help_panel=POLICY,
        ),
    ] = "bayes",
    max_false_hit: Annotated[
        float | None,
        typer.Option(envvar="RECALL_MAX_FALSE_HIT", help="Exit 3 if adaptive's is above.", rich_help_panel=GATE),
    ] = None,
    min_hit_rate: Annotated[
        float | None,
        typer.Option(envvar="RECALL_MIN_HIT_RATE", help="Exit 3 if adaptive's is below.", rich_help_panel=GATE),
    ] = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Replay streams with known answers through each policy: hits at a promised false-hit rate, and whether it held.

    Example: recall eval --workload mixed --target 0.01,0.05 --runs 50
    """
    with Output(format, json, out, inputs=[*(classes or []), pairs or ""]) as output:
        if pairs:
            from recall_cli.measure import pairs_report

            output.emit(pairs_report.run(pairs, embedder=embedder, tau=tau, seed=seed), pairs_view)
            return
        from recall_cli.measure import eval_gate
        from recall_cli.measure.eval_policies import GIVEN, POLICIES, Settings

        taus = options.cutoffs(tau_for)
        plans = eval_gate.plans(
            workloads or [],
            classes or [],
            options.limits(limit),
            embedder=embedder,
            runs=runs,
            seed=seed,
            settings=Settings(
                targets=options.rates(target),
                confidence=confidence,
                verify_sample=verify_sample,
                certificate=certificate,
                order=order,
                shuffle_labels=shuffle_labels,
                tau=tau,
                taus=taus,
                policies=(*POLICIES, GIVEN) if taus else POLICIES,
            ),
        )
        result = eval_gate.run_all(plans, progress=output.progress)
        output.emit(result, view)
        eval_gate.check(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: a table for each workload and target, and what the marks mean."""
    allowed = result.summary["allowed_over"]
    blocks: list[Block] = []
    for (workload, target), group in groupby(result.rows, key=lambda row: (row["workload"], row["target"])):
        rows = list(group)
        blocks.append(_hits(workload, target, rows))
        blocks.append(_promise(workload, target, rows, allowed))
    blocks.append(Line(READING.format(allowed=percent(allowed, 0))))
    return blocks


READING = (
    "Rates are of all queries but exact repeats, which are counted apart; wrong is of served semantic hits. * chose "
    "its cutoff with the whole stream known: nobody could run it. A policy keeps its promise when at most {allowed} of "
    "its runs end over the target; a hit rate counts only where the promise is kept."
)


def _name(row: dict[str, Any]) -> str:
    name: str = row["policy"]
    return f"{name} *" if row["hindsight"] else name


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
