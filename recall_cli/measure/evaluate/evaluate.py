"""`recall eval`: whether a policy keeps its promise, and how many hits it gives for it.

Every seed is one stream in time order; every policy has its own cache over the same stream. The seeds run
on all processors; what was finished counts when the run is interrupted. One evaluation may hold several workloads, a
log among them, and limits that make it a gate.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any

from recall_cli.cache.answers.llm_judge import LIMIT, make_judge
from recall_cli.cache.policy.static import StaticPolicy, unknown_namespaces
from recall_cli.errors import GateFailed, RecallError, UsageError
from recall_cli.measure.evaluate import from_log
from recall_cli.measure.evaluate.policies import (
    ADAPTIVE,
    GIVEN,
    POLICIES,
    Outcome,
    Settings,
    Source,
    adaptive,
    run_seed,
)
from recall_cli.measure.evaluate.rows import allowed_over, by_namespace, comparisons, curve, row
from recall_cli.measure.evaluate.sources import DEFAULT_WORKLOAD, classes, presets
from recall_cli.measure.evaluate.streams import TextWorld
from recall_cli.measure.result import new_result
from recall_cli.measure.timing import one_thread
from recall_cli.types import Progress, Result, Warn

TUNING_SEEDS = range(10)
"""Constants of the policy were chosen on these; figures to publish come from others, such as 1000-1199."""
ORDERS = ("time", "shuffled")


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """What to evaluate."""

    source: Source
    runs: int = 50
    seed: int = 1_000
    """The first seed; the runs take the next ones."""
    settings: Settings = field(default_factory=Settings)
    processes: int | None = None
    """None: one a processor. 1 runs here, without other processes."""
    said: tuple[Warn, ...] = ()
    """What reading the source had to say."""
    one_stream: bool = False
    """Whether every run asks the same questions, so that more of them say more about the order alone."""

    def __post_init__(self) -> None:
        """Refuse what cannot be evaluated before anything runs."""
        StaticPolicy(self.settings.tau, self.settings.taus)  # refuses cutoffs that are none
        unknown = set(self.settings.policies) - {*POLICIES, GIVEN}
        if unknown:
            raise UsageError(f"there is no policy named {min(unknown)!r}", hint=f"choose from {', '.join(POLICIES)}")
        if self.runs < 1 or self.seed < 0:
            raise UsageError("--runs must be at least 1 and --seed at least 0", hint="50 runs are the default")
        if self.settings.order not in ORDERS:
            raise UsageError(f"there is no order named {self.settings.order!r}", hint="choose time or shuffled")
        if not self.settings.targets or not all(0 < target < 1 for target in self.settings.targets):
            raise UsageError("--target takes rates between 0 and 1", hint="0.01,0.05 means 1 % and 5 %")

    def check(self) -> None:
        """Refuse an impossible promise, before anything is read and not in another process."""
        if ADAPTIVE in self.settings.policies:
            for target in self.settings.targets:
                adaptive(target, 0, self.settings)


def run(plan: EvalPlan, *, progress: Progress | None = None) -> Result:
    """Evaluate and return a row for each policy and target.

    Ctrl-C, or a process that dies, ends the run early: the finished seeds are reported, with a warning.
    """
    plan.check()
    result = new_result(
        "eval",
        {"workload": plan.source.name, "runs": plan.runs, "seed": plan.seed} | asdict(plan.settings),
    )
    outcomes: list[Outcome] = []
    stopped: Warn | None = None
    try:
        for outcome in _outcomes(plan):
            outcomes.append(outcome)
            if progress is not None:
                progress(len(outcomes), plan.runs, f"{plan.source.name}: {plan.runs} streams")
    except KeyboardInterrupt:
        if not outcomes:
            raise
        stopped = Warn("INTERRUPTED", "stopped by Ctrl-C")
    except BrokenProcessPool:
        if not outcomes:
            raise RecallError(
                "a process of the evaluation was killed, most likely for want of memory",
                hint="run with fewer processes, or on fewer questions",
            ) from None
        stopped = Warn("PROCESS_LOST", "a process of the evaluation was killed, most likely for want of memory")
    outcomes.sort(key=lambda outcome: outcome.seed)
    report(result, plan, outcomes)
    if stopped is not None:
        what = f"{stopped.message}: the rows rest on {len(outcomes)} of {plan.runs} runs"
        result.warnings.append(Warn(stopped.code, what, "run again for the rest, from the next --seed"))
    return result


def report(result: Result, plan: EvalPlan, outcomes: Sequence[Outcome]) -> None:
    """Fill in rows, summary and warnings."""
    settings = plan.settings
    compared: list[dict[str, Any]] = []
    for target in settings.targets:
        rows = [
            row(plan.source.name, policy, target, outcomes, settings.confidence, one_stream=plan.one_stream)
            for policy in settings.policies
        ]
        compared += comparisons(target, outcomes, rows)
        result.rows += rows
    result.summary = {
        "seeds": [outcome.seed for outcome in outcomes],
        "allowed_over": allowed_over(settings.confidence),
        "comparisons": compared,
        "namespaces": [
            entry
            for target in settings.targets
            for policy in settings.policies
            for entry in by_namespace(target, policy, outcomes, one_stream=plan.one_stream)
        ],
        "curve": curve(outcomes, result.rows),
    }
    result.warnings += [*plan.said, *_warnings(plan, result.rows)]


def check(
    result: Result, *, max_false_hit: float | None = None, min_hit_rate: float | None = None, policy: str = ADAPTIVE
) -> None:
    """Raise GateFailed unless every row of the policy is proved to keep both limits: by its interval's far end."""
    for entry in result.rows:
        if entry["policy"] != policy:
            continue
        at = f"{policy} on {entry['workload']} at a target of {100 * entry['target']:g} %"
        # A hit that nobody can judge may be wrong: what is proved is proved with all of them against it.
        worst, least = entry["false_hit_bounds_interval"][1], entry["hit_rate_interval"][0]
        unsure = f", {entry['unsure_hits']:,} of them not judged" if entry["unsure_hits"] else ""
        # Who serves nothing serves nothing wrong; the other limit is there to catch it.
        if max_false_hit is not None and entry["hits"] and worst > max_false_hit:
            raise GateFailed(
                f"{at}: up to {100 * worst:.2f} % of its hits may be wrong{unsure}, "
                f"the limit is {100 * max_false_hit:g} %",
                hint="let a model judge more of them (--judge llm:MODEL --judge-limit N), or aim lower with --target"
                if unsure
                else "aim lower with --target; or more --runs, if the interval is merely wide",
            )
        if min_hit_rate is not None and least < min_hit_rate:
            raise GateFailed(
                f"{at}: it may hit as little as {100 * least:.1f} %, the limit is {100 * min_hit_rate:g} %",
                hint="allow a higher --target; or more --runs, if the interval is merely wide",
            )


def _warnings(plan: EvalPlan, rows: Sequence[dict[str, Any]]) -> list[Warn]:
    found = []
    for entry in rows:
        if entry["policy"] != ADAPTIVE:
            continue
        target = f"{100 * entry['target']:g} %"
        if not entry["holds"]:
            found.append(
                Warn(
                    "TARGET_NOT_HELD",
                    f"adaptive was over {target} in {entry['runs_over_target']} of {entry['runs']} runs",
                    "aim lower with --target, or raise --confidence",
                )
            )
        if entry["testable"] < entry["runs"]:
            found.append(
                Warn(
                    "NOT_TESTABLE",
                    f"{entry['runs'] - entry['testable']} of {entry['runs']} runs have too few hits to show that "
                    f"{target} holds: with under {5 / entry['target']:,.0f} a single wrong hit decides",
                    "evaluate on more questions, or at a higher target",
                )
            )
        if entry["runs_cold"]:
            more = entry["labels_needed"]
            found.append(
                Warn(
                    "COLD",
                    f"at {target} adaptive never served anything in {entry['runs_cold']} of {entry['runs']} runs",
                    "no number of labels would change it: right and wrong candidates look alike"
                    if more is None
                    else f"about {more:,.0f} more right labels near the top would change it",
                )
            )
    if set(TUNING_SEEDS) & set(range(plan.seed, plan.seed + plan.runs)):
        found.append(
            Warn(
                "TUNING_SEEDS",
                "seeds 0-9 are those the policy's constants were chosen on",
                "publish figures from other seeds: --seed 1000",
            )
        )
    return found


_job: tuple[Source, Settings] | None = None
"""What a worker process works on: sent once, not with every seed."""


def _start_worker(source: Source, settings: Settings) -> None:
    global _job
    # A parent that is killed shuts no pool down: without this its workers would wait for it for ever.
    Thread(target=_end_with_parent, daemon=True).start()
    # Ctrl-C reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _job = source, settings


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(seed: int) -> Outcome:
    assert _job is not None
    with one_thread():
        return run_seed(_job[0], seed, _job[1])


def _outcomes(plan: EvalPlan) -> Iterator[Outcome]:
    """Yield the outcomes as they finish."""
    seeds = range(plan.seed, plan.seed + plan.runs)
    processes = min(plan.processes or os.cpu_count() or 1, plan.runs)
    if processes == 1:
        with one_thread():
            for seed in seeds:
                yield run_seed(plan.source, seed, plan.settings)
        return
    # Spawned, not forked: the parent may hold threads (the progress display), which a fork would cut in half.
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(plan.source, plan.settings),
    )
    try:
        waiting: set[Future[Outcome]] = {pool.submit(_work, seed) for seed in seeds}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
) -> list[EvalPlan]:
    """Return a plan for each named workload, one for all classes files, one for a log; else the default preset.

    A log is one stream: in time order it is run once, shuffled as often as `runs` says (once by default).
    """
    if limits and not files:
        raise UsageError("--limit is of a classes file", hint="name one with --classes")
    logged = None if log is None else _logged(log, embedder, runs, seed, settings, progress)
    sources = presets(names or ([] if files or log else [DEFAULT_WORKLOAD]), embedder=embedder)
    many = RUNS if runs is None else runs
    planned = [EvalPlan(source, runs=many, seed=seed, settings=settings) for source in sources]
    if files:
        source, said = classes(files, limits, embedder=embedder)
        planned.append(EvalPlan(source, runs=many, seed=seed, settings=settings, said=tuple(said)))
    return planned if logged is None else [*planned, logged]


def _logged(
    log: Log, embedder: str, runs: int | None, seed: int, settings: Settings, progress: Progress | None
) -> EvalPlan:
    if settings.order == "time" and (runs or 1) > 1:
        raise UsageError(
            f"a log in time order is one stream: --runs {runs} would replay the same one {runs} times",
            hint="leave --runs out, or add --order shuffled for as many random orders",
        )
    judge = None if log.judge is None else make_judge(log.judge, limit=log.judge_limit)
    # Proves the settings before a long log is read.
    EvalPlan(TextWorld(), runs=1 if runs is None else runs, seed=seed, settings=settings).check()
    source = from_log.load(log.path, embedder=embedder, allow_sampled=log.allow_sampled, judge=judge, progress=progress)
    # One process: all runs share what the comparator has said, and the judge its limit.
    return EvalPlan(
        source, runs=1 if runs is None else runs, seed=seed, settings=settings, processes=1, one_stream=True
    )


def run_all(evaluations: Sequence[EvalPlan], *, progress: Progress | None = None) -> Result:
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

        result = run(plan, progress=report)
        whole.rows += result.rows
        whole.summary["workloads"][plan.source.name] = result.summary
        whole.warnings += result.warnings
        known |= {entry["namespace"] for entry in result.summary["namespaces"]}
        if isinstance(plan.source, from_log.LoggedStream):
            whole.params |= plan.source.params()
            facts = result.summary["log"] = from_log.facts(plan.source)
            whole.warnings += from_log.warnings(plan.source, facts)
        if any(warning.code == "INTERRUPTED" for warning in result.warnings):
            whole.summary["interrupted"] = True
            break
    whole.warnings += unknown_namespaces(evaluations[0].settings.taus, known)
    return whole


def check_gate(result: Result, *, max_false_hit: float | None, min_hit_rate: float | None) -> None:
    """Raise GateFailed when adaptive is not proved to keep a limit on a workload; KeyboardInterrupt after Ctrl-C."""
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    check(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)
