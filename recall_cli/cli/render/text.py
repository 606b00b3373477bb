"""Blocks as text: on a terminal, as Markdown, rows as CSV. No digit is ever cut to fit."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from recall_cli.cli.render.blocks import Bars, Block, Line, Table, flatten
from recall_cli.types import Result

if TYPE_CHECKING:
    from rich.console import Console

MARKDOWN_WIDTH = 118
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal or a Markdown reader acts on instead of showing."""

STRING_CONTROLS = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Those that JSON allows inside a string as they are."""
FORMULA_STARTS = ("=", "+", "-", "@")
"""A spreadsheet runs a cell that begins so; an apostrophe before it makes it text."""

CSV_BLANKS = ("\r\n", "\n", "\t")
CSV_BLANK = re.compile(f"({'|'.join(CSV_BLANKS)})")
"""Controls that CSV holds inside quotes."""

NARROWEST_NAME = 12
"""Columns below which folding a name further makes it unreadable."""

BAR_WIDTH = 36
BAR_STYLES = ("cyan", "magenta", "yellow", "green")
BAR_CELLS = "█▓▒░"
"""One shade a part, so that the bar reads without colour too."""


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
            # Piped, a sentence stays one line, so that grep finds the whole of it.
            on.print(block.text, soft_wrap=not on.is_terminal)


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
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a cell that neither a terminal nor a spreadsheet acts on: texts of a log are anybody's."""
    if not isinstance(value, str):
        return value
    # A line end or a tab inside a quoted cell is text: a passage must come out of it as it went in.
    text = "".join(part if part in CSV_BLANKS else visible(part) for part in CSV_BLANK.split(value))
    return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text


def shown_json(document: str) -> str:
    """Return a JSON document that means the same and holds no character that a terminal acts on."""
    return STRING_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def cleaned(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks with the control characters of logged names made visible: they may not move the cursor."""
    clean: list[Block] = []
    for block in blocks:
        if isinstance(block, Table):
            rows = tuple(tuple(visible(cell) for cell in row) for row in block.rows)
            clean.append(replace(block, title=visible(block.title), rows=rows))
        elif isinstance(block, Line):
            clean.append(Line(visible(block.text)))
        else:
            clean.append(replace(block, rows=tuple((visible(label), values) for label, values in block.rows)))
    return clean


def visible(text: str) -> str:
    """Return text with control and direction-changing characters replaced by a mark."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _draw_table(block: Table, on: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # Not the table's own title: rich folds that to the table's width.
    on.print(Text(block.title, style="bold"))
    if block.left == len(block.columns):
        # Names alone, as facts with their values are: those may be folded, so that it fits as it stands.
        block = _folded(block, on.width)
    elif _natural_width(block) > on.width:
        # Too many columns for this terminal: stand it on its side rather than cut a digit.
        block = _transposed(block, on.width)
    for part in _split(block, on.width):
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(part.columns))
        for position, name in enumerate(part.columns):
            is_name = position < part.left
            # Numbers never wrap. Where even one column does not fit, the line runs over: a cut digit is a lie.
            drawn.add_column(name, justify="left" if is_name else "right", no_wrap=True)
        for row in part.rows:
            drawn.add_row(*row)
        with _as_wide_as(on, _natural_width(part)):
            on.print(drawn, no_wrap=True, overflow="ignore", crop=False)


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
    """Return the width rich needs to draw the table with nothing folded: three columns between two, one at each end."""
    cells = zip(block.columns, *block.rows, strict=True)
    return sum(max(_cell_width(cell) for cell in column) + 3 for column in cells) - 1


def _cell_width(cell: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for line in cell.split("\n"))


def _transposed(block: Table, width: int) -> Table:
    """Return the table with rows as columns; the names of a row become the head of its column.

    A name too long to stand beside the labels is folded: names may be, numbers never are.
    """
    corner = " / ".join(block.columns[: block.left])
    labels = max(_cell_width(name) for name in (corner, *block.columns[block.left :]))
    room = max(NARROWEST_NAME, width - labels - 5)
    heads = ["\n".join(line for name in row[: block.left] for line in textwrap.wrap(name, room)) for row in block.rows]
    body = [
        (name, *(row[position] for row in block.rows))
        for position, name in enumerate(block.columns)
        if position >= block.left
    ]
    return Table(block.title, (corner, *heads), tuple(body))


def _folded(block: Table, width: int) -> Table:
    """Return a table of names with its last column folded to what the others leave of the width."""
    before = _natural_width(_columns(block, range(len(block.columns) - 1)))
    room = max(NARROWEST_NAME, width - before - 3)

    def fold(cell: str) -> str:
        return "\n".join(textwrap.wrap(cell, room)) if _cell_width(cell) > room else cell

    rows = [(*row[:-1], fold(row[-1])) for row in block.rows]
    return Table(block.title, block.columns, tuple(rows), block.left)


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


@contextmanager
def _as_wide_as(on: Console, width: int) -> Iterator[None]:
    """Let the console run over its width where even one column does not fit: rich would cut the cells."""
    before = on.width
    on.width = max(before, width)
    try:
        yield
    finally:
        on.width = before
