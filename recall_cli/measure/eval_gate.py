"""Several workloads in one evaluation, and the limits that make it a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from recall_cli.core.embed import make_embedder
from recall_cli.errors import GateFailed
from recall_cli.measure import evaluate, worlds
from recall_cli.measure.eval_policies import ADAPTIVE, Settings, Source
from recall_cli.measure.pairs import load_classes
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result

DEFAULT_WORKLOAD = "mixed"


def plans(
    names: Sequence[str], classes: str | None, *, embedder: str, runs: int, seed: int, settings: Settings
) -> list[evaluate.Plan]:
    """Return a plan for each workload: presets by name ("all" is every one), and the user's classes file."""
    sources: list[Source] = []
    for name in names or ([] if classes else [DEFAULT_WORKLOAD]):
        sources += list(worlds.presets().values()) if name == "all" else [worlds.preset(name)]
    if classes:
        sources.append(classes_source(classes, embedder))
    return [evaluate.Plan(source, runs=runs, seed=seed, settings=settings) for source in sources]


def classes_source(path: str, embedder: str) -> Source:
    """Return the stream source of a file of texts with answer classes."""
    items = load_classes(path).items
    texts = [item.text for item in items]
    return worlds.Classes(
        name=path,
        texts=tuple(texts),
        classes=tuple(item.answer_class for item in items),
        namespaces=tuple(item.namespace for item in items),
        vectors=make_embedder(embedder).embed_many(texts),
    )


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
    """Raise GateFailed when adaptive misses a limit on any workload; KeyboardInterrupt after Ctrl-C.

    The limit on false hits is on the upper end of the interval, the one on hits on the rate itself.
    """
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    for row in result.rows:
        if row["policy"] != ADAPTIVE:
            continue
        where = f"{row['workload']} at target {row['target']:g}"
        if max_false_hit is not None and row["hits"] and row["false_hit_interval"][1] > max_false_hit:
            raise GateFailed(
                f"{where}: the false-hit rate may be {row['false_hit_interval'][1]:.4f}, over {max_false_hit:g}",
                hint="aim lower with --target, or run more seeds for a narrower interval",
            )
        if min_hit_rate is not None and (row["hit_rate"] or 0.0) < min_hit_rate:
            raise GateFailed(
                f"{where}: the hit rate is {row['hit_rate'] or 0.0:.4f}, under {min_hit_rate:g}",
                hint="allow more with --target, or accept fewer hits",
            )
