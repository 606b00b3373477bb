"""How results that no command makes from its params alone are made again: by a checkout's scripts, on given data.

`results/recipes.toml` names for each document the steps that a person would type, and the minutes that they take.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from recall_cli.errors import InputError
from recall_cli.measure.result import load
from recall_cli.types import Result

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
