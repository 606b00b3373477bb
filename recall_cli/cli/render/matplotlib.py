"""`recall eval --plot FILE.svg`: the charts of the HTML page, one below the other, as a picture of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from recall_cli.cli.render.html import STYLE
from recall_cli.cli.render.svg import WIDTH, Chart, text
from recall_cli.errors import UsageError
from recall_cli.types import Result

SUFFIX = ".svg"
SCALE = 2
"""Pixels a unit of a chart: a chart is made for the width of a phone."""
MARGIN, TITLE_ROW, NOTE_ROW = 16, 24, 16
NOTE_LETTERS = 62
"""Letters of a note's line: as many as fit the width of a chart."""


class Picture:
    """One picture of a result. Everything that could stop it is found before the long run."""

    def __init__(self, path: str, *, inputs: Sequence[str] = (), out: str | None = None) -> None:
        """Prove that the picture can be written. Raises UsageError.

        :param inputs: files that the run reads, and `out` the one that it writes besides: not to be replaced.
        """
        from recall_cli.measure.result import OutFile

        if Path(path).suffix.lower() != SUFFIX:
            raise UsageError(
                f"--plot draws SVG, and {path!r} is not named so", hint="end its name in .svg; a browser opens it"
            )
        if out and os.path.realpath(out) == os.path.realpath(path):
            raise UsageError(f"--out and --plot both name {path}", hint="give the picture a name of its own")
        self._file = OutFile(path, inputs=inputs, option="--plot")

    def draw(self, result: Result, charts: Callable[[Result], Sequence[Chart]]) -> None:
        """Draw the charts of a result and replace the file. The same numbers give the same file."""
        self._file.write(picture(charts(result)).encode())


def picture(charts: Sequence[Chart]) -> str:
    """Return charts as one SVG document that needs nothing beside it: no page, script or font."""
    parts = []
    y = float(MARGIN)
    for chart in charts:
        drawing, height = chart.drawn()
        parts.append(f'<text x="0" y="{y + 14:g}" class="ink" font-weight="600">{text(chart.title)}</text>')
        y += TITLE_ROW
        parts.append(f'<g transform="translate(0 {y:g})">{drawing}</g>')
        y += height
        for line in _lines(chart.note):
            parts.append(f'<text x="0" y="{y + 12:g}" class="ink2">{text(line)}</text>')
            y += NOTE_ROW
        y += MARGIN
    width, height = WIDTH + 2 * MARGIN, y
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} 0 {width} {height:g}" '
        f'width="{SCALE * width}" height="{SCALE * height:g}" role="img" '
        f'font-size="11" font-family="system-ui, sans-serif"><style>{_style()}</style>'
        f'<rect x="{-MARGIN}" width="{width}" height="{height:g}" fill="var(--card)"/>{"".join(parts)}</svg>\n'
    )


def _style() -> str:
    """Return the page's style, which colours the charts, without the rule that fits a chart into a page."""
    return "\n".join(line for line in STYLE.splitlines() if not line.startswith(("svg{", "body{", "*{")))


def _lines(note: str) -> list[str]:
    """Return a note in lines that fit the width."""
    from textwrap import wrap

    return wrap(note, NOTE_LETTERS)
