"""`recall eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from recall_cli.cli import options
from recall_cli.cli.commands import eval_view
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.html import Page
from recall_cli.cli.render.matplotlib import Picture
from recall_cli.errors import UsageError
from recall_cli.types import Result

PAGE = Page("Whether a policy keeps its promise, and what it answers", eval_view.lead, eval_view.view, eval_view.charts)
PAIRS = Page(
    "What tells paraphrases from look-alikes", eval_view.pairs_lead, eval_view.pairs_view, eval_view.pairs_charts
)
STREAM, POLICY, GATE = "What is replayed", "Policies", "Gate"


def evaluate(
    workloads: Annotated[
        list[str] | None,
        options.option(
            "--workload", "A preset (an unknown name lists them), text-world or all. Repeatable.", STREAM, short="-w"
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        options.option(
            "--classes",
            "Texts with answer classes (text, class[, namespace]). Repeatable: one stream of all.",
            STREAM,
            "FILE",
        ),
    ] = None,
    limit: Annotated[
        str,
        options.option(
            "--limit", "Texts drawn from each namespace of the classes for a run.", STREAM, "N[,NAMESPACE=N]"
        ),
    ] = "",
    pairs: Annotated[
        str | None,
        options.option(
            "--pairs", "Labelled pairs (a, b, same) instead: what tells paraphrases from look-alikes.", STREAM, "FILE"
        ),
    ] = None,
    log: Annotated[
        str | None,
        options.option(
            "--log",
            "A request log, as recall savings reads it; its answers are compared to tell right from wrong.",
            STREAM,
            "FILE",
        ),
    ] = None,
    allow_sampled: options.AllowSampled = False,
    judge: Annotated[
        str | None,
        options.option(
            "--judge",
            "Asks a model where the comparison of a log's answers is unsure. Address: RECALL_JUDGE_URL or "
            "OPENAI_BASE_URL; key: RECALL_JUDGE_KEY or OPENAI_API_KEY.",
            STREAM,
            "llm:MODEL",
        ),
    ] = None,
    judge_limit: Annotated[
        int,
        options.option("--judge-limit", "Calls of the judge at most.", STREAM, "N"),
    ] = 200,
    tau: options.Tau = 0.8,
    tau_for: options.TauFor = None,
    embedder: options.Embedder = "static",
    order: Annotated[
        str,
        options.option("--order", "Of a stream's questions.", STREAM, "time|shuffled"),
    ] = "time",
    shuffle_labels: Annotated[
        bool,
        options.option(
            "--shuffle-labels", "Deal the answers out at random: a sound policy then serves about nothing.", STREAM
        ),
    ] = False,
    runs: Annotated[
        int | None,
        options.option("--runs", "Seeds to run: 50 by default; 1 of a log, more of it only --order shuffled.", STREAM),
    ] = None,
    seed: Annotated[int, options.option("--seed", "The first seed.", STREAM, min=0, max=2**31)] = 1_000,
    target: Annotated[
        str,
        options.option("--target", "False-hit rates that the policies aim at.", POLICY, "RATE[,RATE]"),
    ] = "0.01",
    confidence: Annotated[
        float,
        options.option("--confidence", "Of the promise that adaptive makes.", POLICY, "0..1"),
    ] = 0.9,
    verify_sample: Annotated[
        float,
        options.option("--verify-sample", "Share of adaptive's hits that it checks.", POLICY, "0..1"),
    ] = 0.05,
    verify_on_hit: Annotated[
        str,
        options.option(
            "--verify-on-hit",
            "What the row static must pass on texts beside its cutoff: evidence, none, or model (extra: verify), "
            "a second opinion that adaptive is asked for too.",
            POLICY,
        ),
    ] = "auto",
    max_false_hit: Annotated[
        float | None,
        options.option("--max-false-hit", "Exit 3 if adaptive's is above.", GATE),
    ] = None,
    min_hit_rate: Annotated[
        float | None,
        options.option("--min-hit-rate", "Exit 3 if adaptive's is below.", GATE),
    ] = None,
    plot: Annotated[
        str | None,
        options.option(
            "--plot",
            "Also draw hit rate against false-hit rate to this .svg.",
            options.OUTPUT,
            "FILE",
        ),
    ] = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
    report: options.Report = None,
) -> None:
    """Replay streams with known answers through each policy: hits at a promised false-hit rate, and whether it held.

    Example: recall eval --workload mixed --target 0.01,0.05 --runs 50

    Your own traffic: recall eval --log requests.jsonl --plot eval.svg
    """
    _one_kind(pairs=pairs, streams=[*(workloads or []), *(classes or []), *filter(None, [log])])
    if judge and not log:
        raise UsageError("--judge decides on answers of a log, and there is none", hint="name one with --log FILE")
    inputs = [*(classes or []), pairs or "", "/dev/stdin" if log == "-" else log or ""]
    with Output(format, json, out, report=report, inputs=inputs) as output:
        picture = Picture(plot, inputs=inputs, out=out) if plot else None
        if pairs:
            from recall_cli.measure.evaluate import pairs_report

            result = pairs_report.run(pairs, embedder=embedder, tau=tau, verify_on_hit=verify_on_hit, seed=seed)
            _show(result, output, PAIRS, picture)
            return
        from recall_cli.measure.evaluate import evaluate as eval_gate
        from recall_cli.measure.evaluate.policies import GIVEN, POLICIES, Settings

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
                order=order,
                shuffle_labels=shuffle_labels,
                tau=tau,
                taus=taus,
                policies=(*POLICIES, GIVEN),
                verify_on_hit=verify_on_hit,
            ),
            progress=output.progress,
        )
        result = eval_gate.run_all(plans, progress=output.progress)
        _show(result, output, PAGE, picture)
        eval_gate.check_gate(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)


def _one_kind(*, pairs: str | None, streams: Sequence[str]) -> None:
    if pairs and streams:
        raise UsageError(
            f"--pairs is measured by itself, without {streams[0]}", hint="run recall eval once for each of them"
        )


def _show(result: Result, output: Output, page: Page, picture: Picture | None) -> None:
    try:
        output.emit(result, page.blocks, page)
    finally:
        # A reader of the table that left early (head) does not cost the picture.
        if picture is not None:
            picture.draw(result, page.charts)
