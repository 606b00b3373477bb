"""`recall eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from recall_cli.cli import eval_views, options
from recall_cli.cli.options import FormatName
from recall_cli.cli.picture import Picture
from recall_cli.cli.render import Output, View
from recall_cli.errors import UsageError
from recall_cli.types import Result

STREAM, POLICY, GATE = "What is replayed", "Policies", "Gate"


def evaluate(
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            envvar="RECALL_WORKLOAD",
            help="A preset (an unknown name lists them), text-world or all. Repeatable.",
            rich_help_panel=STREAM,
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
    log: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_LOG",
            metavar="FILE",
            help="A request log, as recall savings reads it; its answers are compared to tell right from wrong.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    allow_sampled: options.AllowSampled = False,
    judge: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_JUDGE",
            metavar="llm:MODEL",
            help="Asks a model where the comparison of a log's answers is unsure. Address: RECALL_JUDGE_URL or "
            "OPENAI_BASE_URL; key: RECALL_JUDGE_KEY or OPENAI_API_KEY.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    judge_limit: Annotated[
        int,
        typer.Option(
            envvar="RECALL_JUDGE_LIMIT", metavar="N", help="Calls of the judge at most.", rich_help_panel=STREAM
        ),
    ] = 200,
    tau: options.Tau = 0.8,
    tau_for: options.TauFor = None,
    embedder: options.Embedder = "static",
    order: Annotated[
        str,
        typer.Option(
            envvar="RECALL_ORDER", metavar="time|shuffled", rich_help_panel=STREAM, help="Of a stream's questions."
        ),
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
    runs: Annotated[
        int | None,
        typer.Option(
            envvar="RECALL_RUNS",
            help="Seeds to run: 50 by default; 1 of a log, more of it only --order shuffled.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(envvar="RECALL_SEED", min=0, max=2**31, help="The first seed.", rich_help_panel=STREAM)
    ] = 1_000,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            envvar="RECALL_TARGET",
            metavar="RATE[,RATE]",
            help="False-hit rates that the policies aim at.",
            rich_help_panel=POLICY,
        ),
    ] = "0.01",
    confidence: Annotated[
        float,
        typer.Option(
            envvar="RECALL_CONFIDENCE",
            metavar="0..1",
            help="Of the promise that adaptive makes.",
            rich_help_panel=POLICY,
        ),
    ] = 0.9,
    verify_sample: Annotated[
        float,
        typer.Option(
            envvar="RECALL_VERIFY_SAMPLE",
            metavar="0..1",
            help="Share of adaptive's hits that it checks.",
            rich_help_panel=POLICY,
        ),
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
    plot: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_PLOT",
            metavar="FILE",
            help="Also draw hit rate against false-hit rate to this .svg or .png (extra: report).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Replay streams with known answers through each policy: hits at a promised false-hit rate, and whether it held.

    Example: recall eval --workload mixed --target 0.01,0.05 --runs 50

    Your own traffic: recall eval --log requests.jsonl --plot eval.svg
    """
    _one_kind(pairs=pairs, streams=[*(workloads or []), *(classes or []), *filter(None, [log])])
    if judge and not log:
        raise UsageError("--judge decides on answers of a log, and there is none", hint="name one with --log FILE")
    inputs = [*(classes or []), pairs or "", "/dev/stdin" if log == "-" else log or ""]
    with Output(format, json, out, inputs=inputs) as output:
        picture = Picture(plot, inputs=inputs, out=out) if plot else None
        if pairs:
            from recall_cli.measure import pairs_report

            result = pairs_report.run(pairs, embedder=embedder, tau=tau, seed=seed)
            _show(result, output, eval_views.pairs_view, picture)
            return
        from recall_cli.measure import eval_gate
        from recall_cli.measure.eval_policies import GIVEN, POLICIES, Settings

        taus = options.cutoffs(tau_for)
        plans = eval_gate.plans(
            workloads or [],
            classes or [],
            options.limits(limit),
            eval_gate.Log(log, allow_sampled, judge, judge_limit) if log else None,
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
            progress=output.progress,
        )
        result = eval_gate.run_all(plans, progress=output.progress)
        _show(result, output, eval_views.view, picture)
        eval_gate.check(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)


def _one_kind(*, pairs: str | None, streams: Sequence[str]) -> None:
    if pairs and streams:
        raise UsageError(
            f"--pairs is measured by itself, without {streams[0]}", hint="run recall eval once for each of them"
        )


def _show(result: Result, output: Output, view: View, picture: Picture | None) -> None:
    try:
        output.emit(result, view)
    finally:
        # A reader of the table that left early (head) does not cost the picture.
        if picture is not None:
            picture.draw(result)
