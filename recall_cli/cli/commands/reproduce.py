"""`recall reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.commands.compare import FailOn, FailOnRegression
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import NONE, Block, Line, table
from recall_cli.types import Result


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

    Example: recall reproduce --quick results/bench.json
    """
    with Output(format, json, out, inputs=results or []) as output:
        from recall_cli.measure import compare
        from recall_cli.measure.training import reproduce as measure

        paths = results or measure.quoted(measure.checkout())
        result = measure.run(paths, quick=quick, data=data, only_plan=plan, progress=output.progress)
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
