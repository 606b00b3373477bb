"""Several workloads in one evaluation, and the limits that make it a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from recall_cli.core.policy import unknown_namespaces
from recall_cli.errors import UsageError
from recall_cli.measure import evaluate
from recall_cli.measure.eval_policies import Settings
from recall_cli.measure.eval_sources import DEFAULT_WORKLOAD, classes, presets
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result


def plans(
    names: Sequence[str],
    files: Sequence[str],
    limits: Mapping[str, int],
    *,
    embedder: str,
    runs: int,
    seed: int,
    settings: Settings,
) -> list[evaluate.Plan]:
    """Return a plan for each named workload and one for all classes files; the default preset when nothing is named."""
    if limits and not files:
        raise UsageError("--limit is of a classes file", hint="name one with --classes")
    sources = presets(names or ([] if files else [DEFAULT_WORKLOAD]), embedder=embedder)
    planned = [evaluate.Plan(source, runs=runs, seed=seed, settings=settings) for source in sources]
    if files:
        source, said = classes(files, limits, embedder=embedder)
        planned.append(evaluate.Plan(source, runs=runs, seed=seed, settings=settings, said=tuple(said)))
    return planned


def run_all(evaluations: Sequence[evaluate.Plan], *, progress: Progress | None = None) -> Result:
    """Evaluate every plan; the rows of all of them in one result, summaries by workload."""
    whole = new_result(
        "eval",
        {"workloads": [p.source.name for p in evaluations], "runs": evaluations[0].runs, "seed": evaluations[0].seed}
        | asdict(evaluations[0].settings),
    )
    whole.summary = {"allowed_over": 1 - evaluations[0].settings.confidence, "workloads": {}}
    known: set[str] = set()
    for number, plan in enumerate(evaluations):

        def report(done: int, total: int, what: str, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(evaluations) * total, what)

        result = evaluate.run(plan, progress=report)
        whole.rows += result.rows
        whole.summary["workloads"][plan.source.name] = result.summary
        whole.warnings += result.warnings
        known |= {entry["namespace"] for entry in result.summary["namespaces"]}
        if any(warning.code == "INTERRUPTED" for warning in result.warnings):
            whole.summary["interrupted"] = True
            break
    whole.warnings += unknown_namespaces(evaluations[0].settings.taus, known)
    return whole


def check(result: Result, *, max_false_hit: float | None, min_hit_rate: float | None) -> None:
    """Raise GateFailed when adaptive is not proved to keep a limit on a workload; KeyboardInterrupt after Ctrl-C."""
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    evaluate.check(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)
