"""Several workloads in one evaluation, and the limits that make it a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from recall_cli.core.embed import make_embedder
from recall_cli.measure import evaluate, worlds
from recall_cli.measure.eval_policies import Settings, Source
from recall_cli.measure.eval_texts import Classes, TextWorld
from recall_cli.measure.pairs import load_classes
from recall_cli.measure.prompts import standard_input
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result

DEFAULT_WORKLOAD = "mixed"
TEXT_WORLD = "text-world"


def plans(
    names: Sequence[str], classes: str | None, *, embedder: str, runs: int, seed: int, settings: Settings
) -> list[evaluate.Plan]:
    """Return a plan for each workload: presets by name ("all" is every one), text-world, the user's classes file."""
    sources: list[Source] = []
    for name in names or ([] if classes else [DEFAULT_WORKLOAD]):
        if name == TEXT_WORLD:
            sources.append(TextWorld(embedder=embedder))
        else:
            sources += list(worlds.presets().values()) if name == "all" else [worlds.preset(name)]
    if classes:
        items = load_classes(classes, standard_input()).items
        sources.append(Classes.of(classes, items, make_embedder(embedder)))
    return [evaluate.Plan(source, runs=runs, seed=seed, settings=settings) for source in sources]


def run_all(evaluations: Sequence[evaluate.Plan], *, progress: Progress | None = None) -> Result:
    """Evaluate every plan; the rows of all of them in one result, summaries by workload."""
    whole = new_result(
        "eval",
        {"workloads": [p.source.name for p in evaluations], "runs": evaluations[0].runs, "seed": evaluations[0].seed}
        | asdict(evaluations[0].settings),
    )
    whole.summary = {"allowed_over": 1 - evaluations[0].settings.confidence, "workloads": {}}
    for number, plan in enumerate(evaluations):

        def report(done: int, total: int, what: str, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(evaluations) * total, what)

        result = evaluate.run(plan, progress=report)
        whole.rows += result.rows
        whole.summary["workloads"][plan.source.name] = result.summary
        whole.warnings += result.warnings
        if any(warning.code == "INTERRUPTED" for warning in result.warnings):
            whole.summary["interrupted"] = True
            break
    return whole


def check(result: Result, *, max_false_hit: float | None, min_hit_rate: float | None) -> None:
    """Raise GateFailed when adaptive is not proved to keep a limit on a workload; KeyboardInterrupt after Ctrl-C."""
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    evaluate.check(result, max_false_hit=max_false_hit, min_hit_rate=min_hit_rate)
