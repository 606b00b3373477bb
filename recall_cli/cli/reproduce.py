"""`recall reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.blocks import NONE, Block, Line, table
from recall_cli.cli.compare import FailOn, FailOnRegression
from recall_cli.cli.options import FormatName
from recall_cli.cli.render import Output
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
    fail_on: FailOnRegression = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Run again what README and docs/ quote, with the recorded params, and show every value then and now.

    Example: recall reproduce --quick results/bench.json
    """
    with Output(format, json, out, inputs=results or []) as output:
        from recall_cli.measure import compare_results
        from recall_cli.measure import reproduce as measure

        root = Path(__file__).resolve().parents[2]
        result = measure.run(results or measure.quoted(root), quick=quick, progress=output.progress)
        output.emit(result, view)
        if fail_on is FailOn.regression:
            compare_results.check(result)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: a table a document, then what was not run and why, then how many values agree."""
    blocks: list[Block] = []
    for name, rows in groupby(result.rows, key=lambda row: row["result"]):
        cells = [_cells(row) for row in rows]
        blocks.append(table(name, ("where", "value", "then", "now", "now / then", ""), cells, left=2))
    for name, told in result.summary.items():
        if told["run"]:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in told["verdicts"].items() if count)
            left = f"; {len(told['left_out'])} not measured in a quick run" if told["left_out"] else ""
            blocks.append(Line(f"{name}: {counts or 'nothing to compare'}{left}, in {told['took_s']:,.0f} s."))
        else:
            blocks.append(Line(f"{name}: not run. {told['reason'][0].upper()}{told['reason'][1:]}."))
    return blocks


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    then, now = row["a"], row["b"]
    ratio = f"{now / then:.3f}" if then else NONE
    if row["unit"] == "ratio" and row["change_interval"]:
        low, high = row["change_interval"]
        ratio += f" [{low:.3f}, {high:.3f}]"
    return row["where"] or NONE, row["measure"], f"{then:,.4g}", f"{now:,.4g}", ratio, row["verdict"]
