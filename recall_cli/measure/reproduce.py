"""The recorded results run again, with their own params, and compared with what was recorded.

Which documents those are is for README and the pages under docs/ to say: the ones they quote. One that cannot be run
here (its data are not ours to ship, or a benchmark script made it) is named with the reason, never left out.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from recall_cli.errors import InputError
from recall_cli.measure import compare_results
from recall_cli.measure.result import from_json, load, new_result, to_json
from recall_cli.types import Progress, Result, Warn

QUOTED = re.compile(r"<!-- recall:result (\S+) ")
AT_MOST = {"runs": 20, "lookups": 500, "entries": 10_000, "corpus": 10_000}
"""What a quick run measures of each: intervals widen, and rows of larger sizes are left out."""
Run = Callable[[Progress | None], Result]


class Unavailable(Exception):
    """A document that cannot be run again here; the message says why."""


def quoted(root: Path) -> list[str]:
    """Return what README and then the pages under docs/ quote, in their order. Raises InputError where none does."""
    pages = [page for page in (root / "README.md", *sorted(root.glob("docs/*.md"))) if page.is_file()]
    found = [name for page in pages for name in QUOTED.findall(page.read_text(encoding="utf-8"))]
    if not found:
        raise InputError(
            "there is no README with recorded results here",
            hint="name the documents, as in recall reproduce results/bench.json, or run it in a checkout",
        )
    return [str(root / name) for name in dict.fromkeys(found)]


def run(paths: Sequence[str], *, quick: bool = False, progress: Progress | None = None) -> Result:
    """Run each document again; return a row a value: what it was then, what it is now, and the verdict of the test."""
    result = new_result("reproduce", {"results": [Path(path).name for path in paths], "quick": quick})
    for path in paths:
        name, then = Path(path).name, load(path)
        started = time.perf_counter()
        try:
            now = from_json(to_json(_again(then, quick)(progress)))
        except Unavailable as reason:
            result.summary[name] = {"command": then.command, "run": False, "reason": str(reason)}
            continue
        compared = compare_results.run(then, now, names=(name, "now"), apart=tuple(AT_MOST) if quick else ())
        rows = [{"result": name, **row} for row in compared.rows if _is_quoted(row["measure"])]
        result.rows += rows
        result.summary[name] = {
            "command": then.command,
            "run": True,
            "took_s": round(time.perf_counter() - started, 1),
            "verdicts": dict(Counter(row["verdict"] for row in rows)),
            "left_out": compared.summary["only_in_a"] if quick else [],
        }
        result.warnings += [Warn(warn.code, f"{name}: {warn.message}", warn.hint) for warn in compared.warnings]
    return result


def _is_quoted(measure: str) -> bool:
    """Return whether the quoting tables show a value: not those of single namespaces or of pairs of policies."""
    return not measure.startswith("workloads.")


def _again(then: Result, quick: bool) -> Run:
    """Return what runs a document's command with its params. Raises Unavailable."""
    params = {name: _shortened(name, value) if quick else value for name, value in then.params.items()}
    if then.command == "bench":
        return partial(_bench, params)
    if then.command == "ann-bench":
        return partial(_ann, params)
    if then.command == "eval" and "workloads" in params:
        return partial(_eval, params)
    if then.command == "eval":
        raise Unavailable(f"its pairs ({params['pairs']}) are not part of recall: recall eval --pairs FILE")
    if then.command == "hub eval":
        raise Unavailable("the hubs it was measured on are not part of recall: recall hub eval HUB")
    raise Unavailable(f"it was made by {then.command}, which is no command of recall")


def _shortened(name: str, value: Any) -> Any:
    most = AT_MOST.get(name)
    if most is None or value is None:
        return value
    if isinstance(value, list):
        return [size for size in value if size <= most] or [min(value)]
    return min(value, most)


def _known(plan: type[Any], params: dict[str, Any]) -> dict[str, Any]:
    """Return the params that a plan takes: what is added to them when a result is made is no option."""
    names = {field.name for field in fields(plan)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items() if name in names}


def _bench(params: dict[str, Any], progress: Progress | None) -> Result:
    from recall_cli.measure import bench

    _need(filter(None, (params.get("prompts"), params.get("store"))))
    return bench.run(bench.Plan(**_known(bench.Plan, params)), progress=progress)


def _ann(params: dict[str, Any], progress: Progress | None) -> Result:
    from recall_cli.measure import ann_tune
    from recall_cli.measure.ann_data import Clusters
    from recall_cli.measure.ann_plan import KINDS, Plan

    _need(name for name in params["data"] if name not in KINDS)
    plan = Plan(**{**_known(Plan, params), "clusters": Clusters(**params["clusters"])})
    tune = bool(params.get("tune"))
    limit = ann_tune.gate(params.get("min_recall"), params.get("gate") or "near", tune=tune)
    return ann_tune.run(plan, limit, tune=tune, progress=progress, checkpoint=lambda _: None, done=None)


def _eval(params: dict[str, Any], progress: Progress | None) -> Result:
    from recall_cli.measure import eval_gate, worlds
    from recall_cli.measure.eval_policies import Settings
    from recall_cli.measure.eval_sources import TEXT_WORLD

    foreign = [name for name in params["workloads"] if name not in worlds.presets() and name != TEXT_WORLD]
    if foreign:
        raise Unavailable(f"its texts ({', '.join(foreign)}) are not part of recall: recall eval --classes FILE")
    plans = eval_gate.plans(
        params["workloads"],
        (),
        {},
        embedder=params.get("embedder", "static"),
        runs=params["runs"],
        seed=params["seed"],
        settings=Settings(**_known(Settings, params)),
    )
    return eval_gate.run_all(plans, progress=progress)


def _need(files: Iterator[str]) -> None:
    missing = [name for name in files if not Path(name).is_file()]
    if missing:
        raise Unavailable(f"its data ({', '.join(missing)}) are not here: put them into this folder")
