"""Drawing: results on stdout, everything else (progress, notes, warnings, errors) on stderr."""

from __future__ import annotations

import csv
import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Self

from recall_cli.cli.blocks import Bars, Block, Line, Table, flatten
from recall_cli.cli.options import FormatName
from recall_cli.errors import UsageError
from recall_cli.types import Result, Warn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

PIPED_WIDTH = 240
"""Columns when stdout is no terminal: rich would assume 80 and cut digits to an ellipsis."""

MARKDOWN_WIDTH = 118
BAR_WIDTH = 36
BAR_STYLES = ("cyan", "magenta", "yellow", "green")
BAR_CELLS = "█▓▒░"
"""One shade a part, so that the bar reads without colour too."""

View = Callable[[Result], Sequence[Block]]


class Output:
    """One command's output: opens `--out` first, draws progress, then prints the result.

    Used as a context manager, so that an interrupted run leaves no drawn progress bar.
    """

    def __init__(self, format: FormatName, json: bool, out: str | None) -> None:
        from recall_cli.measure.result import OutFile

        if json and format not in (FormatName.table, FormatName.json):
            raise UsageError(f"--json and --format {format.value} ask for two things", hint="give one of them")
        self.format = FormatName.json if json else format
        self._out = OutFile(out) if out else None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop_bar()

    def progress(self, done: int, total: int, what: str) -> None:
        """Draw how far the run is, with the time left, on a terminal only."""
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total, description=what)

    def checkpoint(self, result: Result) -> None:
        """Write what is finished to `--out`, so that an interruption loses only what was under way."""
        from recall_cli.measure.result import to_json

        if self._out is not None:
            self._out.write(to_json(result))

    def earlier(self) -> Result | None:
        """Return the result that `--out` holds from an earlier run, None when there is none."""
        from recall_cli.measure.result import from_json

        if self._out is None:
            raise UsageError("--resume needs the file of the earlier run", hint="name it with --out")
        return from_json(self._out.path.read_bytes()) if self._out.path.is_file() else None

    def emit(self, result: Result, view: View) -> None:
        """Print the result in the chosen format and write `--out`."""
        from recall_cli.measure.result import to_json

        self._stop_bar()
        data = to_json(result)
        if self._out is not None:
            self._out.write(data)
        if self.format is FormatName.json:
            sys.stdout.write(data.decode())
        elif self.format is FormatName.csv:
            sys.stdout.write(to_csv(result))
        elif self.format is FormatName.markdown:
            sys.stdout.write(to_markdown(view(result)))
        else:
            draw(view(result), console())
        sys.stdout.flush()
        warn(result.warnings)

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr: as wide as the terminal, or wide enough to lose nothing."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def draw(blocks: Sequence[Block], on: Console) -> None:
    """Draw blocks on a console."""
    for position, block in enumerate(blocks):
        if position and not isinstance(block, Line):
            on.print()
        if isinstance(block, Table):
            _draw_table(block, on)
        elif isinstance(block, Bars):
            _draw_bars(block, on)
        else:
            on.print(block.text)


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown: what README holds."""
    parts = []
    for block in blocks:
        if isinstance(block, Table):
            rule = [*["---"] * block.left, *["---:"] * (len(block.columns) - block.left)]
            rows = [block.columns, tuple(rule), *(tuple(c.replace("|", "\\|") for c in row) for row in block.rows)]
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            parts.append(f"**{block.title}**\n\n" + "\n".join(lines) + "\n")
        elif isinstance(block, Bars):
            legend = _legend(block)
            lines = [
                f"{label.ljust(_label_width(block))} {_bar(values)} {_bar_text(values, block.unit)}"
                for label, values in block.rows
            ]
            parts.append(f"**{block.title}** ({legend})\n\n```text\n" + "\n".join(lines) + "\n```\n")
        else:
            parts.append(textwrap.fill(block.text, MARKDOWN_WIDTH) + "\n")
    return "\n".join(parts)


def to_csv(result: Result) -> str:
    """Return the rows alone as CSV, nested values under dotted names, intervals as two columns."""
    rows = [flatten(row) for row in result.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def warn(warnings: Sequence[Warn]) -> None:
    """Print warnings with what would help, on stderr."""
    for warning in warnings:
        note(f"warning: {warning.message}", warning.hint)


def note(message: str, hint: str = "") -> None:
    """Print a sentence and, indented below it, a next step, on stderr."""
    print(message, file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)


def _draw_table(block: Table, on: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # Not the table's own title: rich folds that to the table's width.
    on.print(Text(block.title, style="bold"))
    if _natural_width(block) > on.width:
        # Too many columns for this terminal: stand it on its side rather than cut a digit.
        block = _transposed(block)
    for part in _split(block, on.width):
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for position, name in enumerate(part.columns):
            is_name = position < part.left
            # Numbers never wrap. Where even one column does not fit, the line runs over: a cut digit is a lie.
            drawn.add_column(name, justify="left" if is_name else "right", no_wrap=True)
        for row in part.rows:
            drawn.add_row(*row)
        on.print(drawn, width=max(on.width, _natural_width(part)), no_wrap=True, overflow="ignore", crop=False)


def _split(block: Table, width: int) -> list[Table]:
    """Return the table in as many parts as it takes to fit, side by side, the names repeated in each."""
    parts: list[Table] = []
    names = range(block.left)
    chosen: list[int] = []
    for position in range(block.left, len(block.columns)):
        if chosen and _natural_width(_columns(block, [*names, *chosen, position])) > width:
            parts.append(_columns(block, [*names, *chosen]))
            chosen = []
        chosen.append(position)
    return [*parts, _columns(block, [*names, *chosen])]


def _columns(block: Table, positions: Sequence[int]) -> Table:
    return Table(
        block.title,
        tuple(block.columns[p] for p in positions),
        tuple(tuple(row[p] for p in positions) for row in block.rows),
        block.left,
    )


def _natural_width(block: Table) -> int:
    """Return the width rich needs to draw the table with nothing folded: two spaces a column, and one."""
    cells = zip(block.columns, *block.rows, strict=True)
    return 1 + sum(max(_cell_width(cell) for cell in column) + 2 for column in cells)


def _cell_width(cell: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for line in cell.split("\n"))


def _transposed(block: Table) -> Table:
    """Return the table with rows as columns; the names of a row become the head of its column."""
    heads = ["\n".join(row[: block.left]) for row in block.rows]
    body = [
        (name, *(row[position] for row in block.rows))
        for position, name in enumerate(block.columns)
        if position >= block.left
    ]
    return Table(block.title, (" / ".join(block.columns[: block.left]), *heads), tuple(body))


def _draw_bars(block: Bars, on: Console) -> None:
    from rich.text import Text

    on.print(Text(block.title, style="bold"))
    for label, values in block.rows:
        line = Text(f"{label.ljust(_label_width(block))} ")
        for part, cells in enumerate(_cells(values)):
            line.append(BAR_CELLS[part % len(BAR_CELLS)] * cells, style=BAR_STYLES[part % len(BAR_STYLES)])
        line.append(f" {_bar_text(values, block.unit)}")
        on.print(line)
    on.print(_legend(block))


def _bar_text(values: Sequence[float], unit: str) -> str:
    total = sum(values)
    return f"{total:,.1f} {unit}: {' / '.join(f'{100 * value / total:.0f}' for value in values)} %"


def _cells(values: Sequence[float]) -> list[int]:
    """Return the cells of each part; the ends are rounded, not the parts, so that they add up."""
    total, ends, upto = sum(values), [0], 0.0
    for value in values:
        upto += value
        ends.append(round(BAR_WIDTH * upto / total))
    return [b - a for a, b in pairwise(ends)]


def _bar(values: Sequence[float]) -> str:
    return "".join(BAR_CELLS[i % len(BAR_CELLS)] * cell for i, cell in enumerate(_cells(values)))


def _legend(block: Bars) -> str:
    return "  ".join(f"{BAR_CELLS[i % len(BAR_CELLS)]} {part}" for i, part in enumerate(block.parts))


def _label_width(block: Bars) -> int:
    return max(len(label) for label, _ in block.rows)
