"""`recall compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import NONE, Block, Line, table
from recall_cli.types import Result


class FailOn(StrEnum):
    """What ends a comparison with exit code 3."""

    regression = "regression"


FailOnRegression = Annotated[
    FailOn | None, options.option("--fail-on", "Exit 3 when a value got worse, by the test.", "Gate")
]


def compare(
    first: Annotated[str, typer.Argument(metavar="A.json", help="A result document (--out).", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B.json", help="A later one; - is stdin.", show_default=False)],
    fail_on: FailOnRegression = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Tell which values of two results differ, by a test: better, worse, or no difference shown.

    Example: recall compare results/bench.json now.json --fail-on regression
    """
    with Output(format, json, out, inputs=[first, second]) as output:
        from recall_cli.measure import compare as compare_results
        from recall_cli.measure.result import load

        result = compare_results.run(load(first), load(second), names=(first, second))
        output.emit(result, view)
        if fail_on is FailOn.regression:
            compare_results.check(result)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: the values that differ, worst first, and how many do not."""
    verdicts = result.summary["verdicts"]
    order = ("worse", "better", "changed")
    differing = [row for verdict in order for row in result.rows if row["verdict"] == verdict]
    blocks: list[Block] = []
    if differing:
        columns = ("where", "value", "A", "B", "B over A, or B - A", "p", "verdict")
        blocks.append(table(f"recall {result.summary['command']}: what differs", columns, _cells(differing), left=2))
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items() if count)
    blocks.append(Line(f"{len(result.rows)} values in both: {told or 'none'}."))
    for key, name in (("only_in_a", "A"), ("only_in_b", "B")):
        if result.summary[key]:
            blocks.append(Line(f"Only in {name}: {len(result.summary[key])}, as {result.summary[key][0]}."))
    return blocks


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            row["where"] or NONE,
            row["measure"],
            f"{row['a']:,.4g}",
            f"{row['b']:,.4g}",
            _change(row),
            "<0.001" if row["p_adjusted"] < 0.001 else f"{row['p_adjusted']:.3f}",
            row["verdict"],
        )
        for row in rows
    ]


def _change(row: Mapping[str, Any]) -> str:
    low, high = row["change_interval"]
    if row["unit"] == "ratio":
        return f"{row['change']:.2f}x [{low:.2f}, {high:.2f}]"
    return f"{row['change']:+.4f} [{low:+.4f}, {high:+.4f}]"
