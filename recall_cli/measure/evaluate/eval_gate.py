"""Several workloads in one evaluation, a log among them, and the limits that make it a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from recall_cli.cache.answers.llm_judge import LIMIT, make_judge
from recall_cli.cache.policy.static import unknown_namespaces
from recall_cli.errors import UsageError
from recall_cli.measure.evaluate import eval_log_report, evaluate, from_log
from recall_cli.measure.evaluate.policies import Settings
from recall_cli.measure.evaluate.rows import allowed_over
from recall_cli.measure.evaluate.sources import DEFAULT_WORKLOAD, classes, presets
from recall_cli.measure.evaluate.streams import TextWorld
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result

RUNS = 50
"""Streams of a workload that makes a new one for each seed."""


@dataclass(frozen=True, slots=True)
class Log:
    """A request log to replay, and who decides where the comparator's rules do not."""

    path: str
    allow_sampled: bool = False
    judge: str | None = None
    judge_limit: int = LIMIT


def plans(
    names: Sequence[str],
    files: Sequence[str],
    limits: Mapping[str, int],
    log: Log | None = None,
    *,
    embedder: str,
    runs: int | None = None,
    seed: int,
    settings: Settings,
    progress: Progress | None = None,
) -> list[evaluate.Plan]:
    """Return a plan for each named workload, one for all classes files, one for a log; else the default preset.

    A log is one stream: in time order it is run once, shuffled as often as `runs` says (once by default).
    """
    if limits and not files:
        raise UsageError("--limit is of a classes file", hint="name one with --classes")
    logged = None if log is None else _logged(log, embedder, runs, seed, settings, progress)
    sources = presets(names or ([] if files or log else [DEFAULT_WORKLOAD]), embedder=embedder)
    many = RUNS if runs is None else runs
    planned = [evaluate.Plan(source, runs=many, seed=seed, settings=settings) for source in sources]
    if files:
        source, said = classes(files, limits, embedder=embedder)
        planned.append(evaluate.Plan(source, runs=many, seed=seed, settings=settings, said=tuple(said)))
    return planned if logged is None else [*planned, logged]


def _logged(
    log: Log, embedder: str, runs: int | None, seed: int, settings: Settings, progress: Progress | None
) -> evaluate.Plan:
    if settings.order == "time" and (runs or 1) > 1:
        raise UsageError(
            f"a log in time order is one stream: --runs {runs} would replay the same one {runs} times",
            hint="leave --runs out, or add --order shuffled for as many random orders",
        )
    judge = None if log.judge is None else make_judge(log.judge, limit=log.judge_limit)
    # Proves the settings before a long log is read.
    evaluate.Plan(TextWorld(), runs=1 if runs is None else runs, seed=seed, settings=settings).check()
    source = from_log.load(log.path, embedder=embedder, allow_sampled=log.allow_sampled, judge=judge, progress=progress)
    # One process: all runs share what the comparator has said, and the judge its limit.
    return evaluate.Plan(
        source, runs=1 if runs is None else runs, seed=seed, settings=settings, processes=1, one_stream=True
    )


def run_all(evaluations: Sequence[evaluate.Plan], *, progress: Progress | None = None) -> Result:
    """Evaluate every plan; the rows of all of them in one result, summaries by workload."""
    whole = new_result(
        "eval",
        {"workloads": [p.source.name for p in evaluations], "runs": evaluations[0].runs, "seed": evaluations[0].seed}
        | asdict(evaluations[0].settings),
    )
    streams = sum(plan.runs for plan in evaluations)
    whole.summary = {"allowed_over": allowed_over(evaluations[0].settings.confidence), "workloads": {}}
    known: set[str] = set()
    for number, plan in enumerate(evaluations):
        before = sum(earlier.runs for earlier in evaluations[:number])

        def report(done: int, total: int, what: str, before: int = before) -> None:
            if progress is not None:
                progress(before + done, streams, what)

        result = evaluate.run(plan, progress=report)
        whole.rows += result.rows
        whole.summary["workloads"][plan.source.name] = result.summary
        whole.warnings += result.warnings
        known |= {entry["namespace"] for entry in result.summary["namespaces"]}
        if isinstance(plan.source, from_log.LoggedStream):
            whole.params |= plan.source.params()
            facts = result.summary["log"] = eval_log_report.facts(plan.source)
            whole.warnings += eval_log_report.warnings(plan.source, facts)
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
