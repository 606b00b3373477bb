"""The recorded results run again, with their own params, and compared with what was recorded.

README and the pages under docs/ say which documents those are: the ones they quote. What a command makes of its params
alone is made in this process; the rest by its recipe: `results/recipes.toml` names for each document the steps that a
person would type, and the minutes that they take. A document that cannot be run here is named with the reason, never
left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

import recall_cli
from recall_cli.cli import options
from recall_cli.cli.commands.compare import FailOn, FailOnRegression
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import NONE, Block, Line, table
from recall_cli.errors import InputError, RecallError
from recall_cli.measure import compare
from recall_cli.measure.compare import numbers
from recall_cli.measure.result import from_json, load, new_result, to_json
from recall_cli.types import Progress, Result, Warn
from training import program

FILE = "recipes.toml"
PROGRAMS = {"recall": (sys.executable, "-m", "recall_cli"), "python": (sys.executable,)}
LAY_OUT = "python -m benchmarks.evaluation_sets {data} {sets}"
TEST_INSTALL = ".venv/bin/pip install --quiet -e '.[test]'"
"""What README says to install for its tests, which is what the scripts under benchmarks/ need too."""
SAID_CHARS = 200
"""Of what a failed step said."""


class Unavailable(Exception):
    """A document that cannot be run again here; the message says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one document is made again."""

    minutes: float | None = None
    """About, on the machine that recorded it; None: nobody has timed it."""
    steps: tuple[str, ...] = ()
    """Command lines: {out} is the new document, {data} the folder of the public evaluation data."""
    sets: bool = False
    """Whether the steps are run in a folder of evaluation sets, as `benchmarks/evaluation_sets.py` lays them out."""
    quick: str = ""
    """Arguments behind every step that make a quick run smaller."""
    reason: str = ""
    """Why it cannot be made again, where it has no steps."""


def recipes(folder: Path) -> dict[str, Recipe]:
    """Return the recipes beside recorded results by the documents' names; none where there is no such file.

    Raises InputError for a file that is not one of recipes.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: Recipe(**table | {"steps": tuple(table.get("steps", ()))}) for name, table in tables.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} holds no recipes: {error}", hint="take it from the repository again") from error


class Scripts:
    """Runs recipes with a checkout's modules; the evaluation sets are laid out once, when they are first asked for."""

    def __init__(self, root: Path, data: Path | None, work: Path) -> None:
        """Take the checkout, the folder of the evaluation data if there is one, and a folder to work in."""
        self._root, self._data, self._work = root, data, work

    def missing(self, recipe: Recipe) -> str:
        """Return why a recipe cannot be run here, empty when it can."""
        if not recipe.steps:
            return recipe.reason
        if self._data is None and (recipe.sets or any("{data}" in step for step in recipe.steps)):
            return "it was measured on public data that are not ours to ship: name their folder with --data"
        return ""

    def run(self, recipe: Recipe, *, quick: bool) -> Result:
        """Return the document of a recipe that nothing is missing for. Raises Unavailable when a step fails."""
        sets = self._work / "sets"
        if recipe.sets and not sets.exists():
            self._step(LAY_OUT, self._work, {"data": str(self._data), "sets": str(sets)})
        with TemporaryDirectory(dir=self._work) as folder:
            places = {"out": str(Path(folder) / "new.json"), "data": str(self._data)}
            for step in recipe.steps:
                self._step(f"{step} {recipe.quick}" if quick else step, sets if recipe.sets else Path(folder), places)
            return load(places["out"])

    def _step(self, step: str, folder: Path, places: Mapping[str, str]) -> None:
        program, *arguments = (word.format_map(places) for word in shlex.split(step))
        paths = os.pathsep.join(filter(None, (str(self._root), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [*PROGRAMS[program], *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            said = _said(done.stderr)
            if said.startswith("ModuleNotFoundError"):
                raise Unavailable(f"it needs packages that are not installed ({said}): {TEST_INSTALL}")
            raise Unavailable(f"{step} ended with exit code {done.returncode}: {said}")


def _said(stderr: str) -> str:
    """Return what a failed step said last: one of recall's own errors with its next step, or the last line."""
    *before, last = [line for line in stderr.splitlines() if line.strip()] or [""]
    if before and last.startswith("  ") and before[-1].startswith("error:"):
        last = f"{before[-1]} ({last.strip()})"
    return last.strip()[-SAID_CHARS:]


NAMED = re.compile(r"results/[\w-]+\.json")
PACKAGE = Path(recall_cli.__file__).resolve().parent
PARTS = ("README.md", f"results/{FILE}", "recall_cli/__init__.py")
"""What a clone of the repository holds, and neither an installed package nor another project's folder does."""
AT_MOST = {"runs": 20, "lookups": 500, "entries": 10_000, "corpus": 10_000}
"""What a quick run measures of each: intervals widen, and rows of larger sizes are left out."""
Run = Callable[[Progress | None], Result]


def checkout() -> Path:
    """Return the clone of recall's repository that holds the recorded results. Raises InputError when there is none.

    It is where this package lies, or, when that was installed as a copy, the folder one is in or one above it.
    """
    here = Path.cwd()
    for folder in (PACKAGE.parent, here, *here.parents):
        if all((folder / part).is_file() for part in PARTS):
            return folder
    raise InputError(
        "there is no README with recorded results here",
        hint="go to the clone of the repository that recall was installed from, and run there: python -m "
        "training.reproduce "
        "--quick; or name the documents: python -m training.reproduce results/bench.json",
    )


def quoted(root: Path) -> list[str]:
    """Return the documents that README, the docs and the model's page name, in order."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md")), root / "recall_cli" / "model" / "MODEL.md"]
    named = (name for page in pages if page.is_file() for name in NAMED.findall(page.read_text(encoding="utf-8")))
    return [str(root / name) for name in dict.fromkeys(named) if (root / name).is_file()]


def run(
    paths: Sequence[str],
    *,
    quick: bool = False,
    data: Path | None = None,
    only_plan: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run each document again; return a row a value: what it was then, what it is now, and the verdict of the test.

    :param data: the folder of the public evaluation sets; without it what was measured on them is not run.
    :param only_plan: run nothing, and say for each document whether it would be run, and for how long.
    """
    names = [Path(path).name for path in paths]
    result = new_result("reproduce", {"results": names, "quick": quick, "data": data is not None, "plan": only_plan})
    with TemporaryDirectory(prefix="recall-") as work:
        for number, path in enumerate(paths):
            place = Path(path).resolve()
            recipe = recipes(place.parent).get(place.stem, Recipe())
            scripts = Scripts(place.parent.parent, data and data.resolve(), Path(work))
            then, started = load(path), time.perf_counter()
            told: dict[str, Any] = {"command": then.command, "run": True, "minutes": recipe.minutes}
            result.summary[place.name] = told
            if progress:
                about = f", about {recipe.minutes:g} minutes in full" if recipe.minutes else ""
                progress(number, len(paths), f"{place.name}{about}")
            try:
                again = _by_recipe(recipe, scripts, quick) if recipe.steps or recipe.reason else _again(then, quick)
                if not only_plan:
                    rows, more = _compared(then, again(progress), place.name, quick, scripted=bool(recipe.steps))
                    result.rows += rows
                    result.warnings += more.pop("warnings")
                    told |= {"took_s": round(time.perf_counter() - started, 1), **more}
            except Unavailable as reason:
                told |= {"run": False, "reason": str(reason)}
            except RecallError as error:
                # An extra that is not installed, a disk that is full: the other documents are run all the same.
                told |= {"run": False, "reason": f"{error}: {error.hint}" if error.hint else str(error)}
    return result


def _compared(
    then: Result, now: Result, name: str, quick: bool, *, scripted: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of one document, and what the summary and the warnings say of it.

    A script's numbers have no interval, mostly: they are shown side by side and no test is made of them.
    """
    now = from_json(to_json(now))
    apart = (*AT_MOST, *(then.params if scripted else ())) if quick or scripted else ()
    compared = compare.run(then, now, names=(name, "now"), apart=apart)
    rows = [{"result": name, **row} for row in compared.rows if _is_quoted(row["measure"])]
    if scripted:
        shown = {(row["where"], row["measure"]) for row in rows}
        old, new = numbers(then), numbers(now)
        rows += [_untested(name, key, old[key], new[key]) for key in old if key in new and key not in shown]
    told = {
        "verdicts": dict(Counter(row["verdict"] for row in rows)),
        "left_out": compared.summary["only_in_a"] if quick or scripted else [],
        "warnings": [Warn(warn.code, f"{name}: {warn.message}", warn.hint) for warn in compared.warnings],
    }
    return rows, told


def _untested(name: str, key: tuple[str, str], then: float, now: float) -> dict[str, Any]:
    """Return the row of a number without an interval: only an equal one can be judged."""
    verdict = compare.Verdict.SAME if then == now else compare.Verdict.UNTESTED
    return {
        "result": name,
        "where": key[0],
        "measure": key[1],
        "a": then,
        "b": now,
        "unit": "ratio",
        "change": None,
        "change_interval": None,
        "p": None,
        "verdict": verdict.value,
    }


def _is_quoted(measure: str) -> bool:
    """Return whether the quoting tables show a value: not those of single namespaces or of pairs of policies."""
    return not measure.startswith("workloads.")


def _by_recipe(recipe: Recipe, scripts: Scripts, quick: bool) -> Run:
    """Return what runs a document's recipe. Raises Unavailable."""
    if reason := scripts.missing(recipe):
        raise Unavailable(reason)
    return lambda _: scripts.run(recipe, quick=quick)


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
    from recall_cli.measure.bench import bench

    _need(filter(None, (params.get("prompts"), params.get("store"))))
    return bench.run(bench.BenchPlan(**_known(bench.BenchPlan, params)), progress=progress)


def _ann(params: dict[str, Any], progress: Progress | None) -> Result:
    from recall_cli.measure.ann import tune as ann_tune
    from recall_cli.measure.ann.data import Clusters
    from recall_cli.measure.ann.plan import KINDS, AnnPlan

    _need(name for name in params["data"] if name not in KINDS)
    plan = AnnPlan(**{**_known(AnnPlan, params), "clusters": Clusters(**params["clusters"])})
    tune = bool(params.get("tune"))
    limit = ann_tune.gate(params.get("min_recall"), params.get("gate") or "near", tune=tune)
    return ann_tune.run(plan, limit, tune=tune, progress=progress, checkpoint=lambda _: None, done=None)


def _eval(params: dict[str, Any], progress: Progress | None) -> Result:
    from recall_cli.measure.evaluate import evaluate
    from recall_cli.measure.evaluate.policies import Settings
    from recall_cli.measure.evaluate.sources import TEXT_WORLD
    from recall_cli.measure.synthetic import vectors

    foreign = [name for name in params["workloads"] if name not in vectors.presets() and name != TEXT_WORLD]
    if foreign:
        raise Unavailable(f"its texts ({', '.join(foreign)}) are not part of recall: recall eval --classes FILE")
    plans = evaluate.plans(
        params["workloads"],
        (),
        {},
        embedder=params.get("embedder", "static"),
        runs=params["runs"],
        seed=params["seed"],
        settings=Settings(**_known(Settings, params)),
    )
    return evaluate.run_all(plans, progress=progress)


def _need(files: Iterator[str]) -> None:
    missing = [name for name in files if not Path(name).is_file()]
    if missing:
        raise Unavailable(f"its data ({', '.join(missing)}) are not here: put them into this folder")


def reproduce(
    results: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RESULT.json]...", help="Documents to run again; those that README and docs/ quote by default."
        ),
    ] = None,
    quick: Annotated[
        bool,
        options.option("--quick", "At most 20 runs, 500 lookups and 10,000 rows: minutes instead of hours.", "Size"),
    ] = False,
    data: Annotated[
        Path | None,
        options.option("--data", "Folder of the public evaluation sets that some were measured on.", "Data", "DIR"),
    ] = None,
    plan: Annotated[
        bool, options.option("--plan", "Run nothing: say what would be run, and for how many minutes.", "Size")
    ] = False,
    fail_on: FailOnRegression = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Run again what README and docs/ quote, with the recorded params, and show every value then and now.

    Example: python -m training.reproduce --quick results/bench.json
    """
    with Output(format, json, out, inputs=results or []) as output:
        from recall_cli.measure import compare

        paths = results or quoted(checkout())
        result = run(paths, quick=quick, data=data, only_plan=plan, progress=output.progress)
        output.emit(result, view)
        if fail_on is FailOn.regression:
            compare.check(result)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: a table a document, then each document with its minutes, or why it was not run."""
    blocks: list[Block] = []
    for name, rows in groupby(result.rows, key=lambda row: row["result"]):
        cells = [_cells(row) for row in rows]
        blocks.append(table(name, ("where", "value", "then", "now", "now / then", ""), cells, left=2))
    ran = [(name, told) for name, told in result.summary.items() if told["run"]]
    if ran:
        title = "What would be run" if result.params["plan"] else "What was run"
        lines = [(name, told["command"], *_minutes(told), _agreement(told)) for name, told in ran]
        blocks.append(table(title, ("document", "made by", "minutes in full", "took", "verdicts"), lines, left=2))
        minutes = [told["minutes"] for _, told in ran]
        blocks.append(Line(f"In full they take about {sum(filter(None, minutes)):,.0f} minutes."))
    for name, told in result.summary.items():
        if not told["run"]:
            blocks.append(Line(f"{name}: not run. {told['reason'][0].upper()}{told['reason'][1:]}."))
    return blocks


def _minutes(told: Mapping[str, Any]) -> tuple[str, str]:
    """Return the minutes that a document takes, and those that it took now."""
    full = NONE if told["minutes"] is None else f"{told['minutes']:g}"
    return full, f"{told['took_s'] / 60:.1f}" if "took_s" in told else NONE


def _agreement(told: Mapping[str, Any]) -> str:
    """Return how many values agree, and how many were not measured."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in told.get("verdicts", {}).items() if count)
    left = f"; {len(told['left_out'])} not measured" if told.get("left_out") else ""
    return f"{counts}{left}" or NONE


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    then, now = row["a"], row["b"]
    ratio = f"{now / then:.3f}" if then else NONE
    if row["unit"] == "ratio" and row["change_interval"]:
        low, high = row["change_interval"]
        ratio += f" [{low:.3f}, {high:.3f}]"
    return row["where"] or NONE, row["measure"], f"{then:,.5g}", f"{now:,.5g}", ratio, row["verdict"]


if __name__ == "__main__":
    sys.exit(program.run(reproduce, name="python -m training.reproduce"))
