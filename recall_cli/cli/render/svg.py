"""Charts as SVG: bars, lines, stacked bars, and points in a plane with the intervals of both values.

They scale with the page and need no script. Colours are the page's CSS variables, so a chart follows its light or dark
theme. Every mark has a title that a pointer shows, and beside every chart stands a table with the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from recall_cli.cli.render.text import visible

WIDTH = 360
"""Of every drawing, in its own units: about a phone's width, so that its letters are not scaled down there."""
GAP = 8
BAR_HEIGHT, BAR_PITCH = 16, 40
PLOT_HEIGHT = 170
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 34
"""Margins of a plot: room for the numbers of its axes."""
LEGEND_ROW = 18
LETTER = 6.1
"""Width of a letter of the charts' 11-unit type, on average: to keep labels apart."""
MAX_LABEL = 56
OTHER = 4
Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a label, a value, and the ends of its interval."""

    label: str
    value: float
    interval: tuple[float, float] | None = None
    colour: int = 0
    """Which of the theme's series colours; OTHER is grey."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars on one scale that starts at 0."""

    title: str
    bars: tuple[Bar, ...]
    form: Format
    """How a value is written."""
    target: float | None = None
    note: str = ""

    def drawn(self) -> tuple[str, float]:
        """Return the drawing and its height."""
        return _bars(self)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line; y None is a gap."""

    x: float
    y: float | None
    interval: tuple[float, float] | None = None
    label: str = ""
    """What x is called: a time, a size."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line."""

    name: str
    points: tuple[Point, ...]
    colour: int = 0


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over one x, on a scale of y that starts at 0."""

    title: str
    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]
    """(x, what is written there)."""
    form: Format
    """How a value of y is written."""
    target: float | None = None
    note: str = ""

    def drawn(self) -> tuple[str, float]:
        """Return the drawing and its height."""
        return _lines(self)


class Chart(Protocol):
    """What a page can show: `planes` and `stacks` have more kinds."""

    @property
    def title(self) -> str:
        """What it shows."""

    @property
    def note(self) -> str:
        """How to read it."""

    def drawn(self) -> tuple[str, float]:
        """Return the drawing, in units of `WIDTH`, and its height."""


def svg(chart: Chart) -> str:
    """Return a chart as one `<svg>` element."""
    drawn, height = chart.drawn()
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(chart.title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{drawn}</svg>'
    )


def text(value: str) -> str:
    """Return text that is safe as content and as an attribute, whatever log it comes from."""
    # A number and its per cent sign stay in one line.
    return escape(visible(value).replace(" %", "\N{NO-BREAK SPACE}%"), quote=True)


def nice_top(largest: float) -> float:
    """Return the end of a scale: 1, 2, 2.5 or 5 times a power of ten, and not below the largest value.

    The ends are read from decimal text, so that each is the nearest float there is: products of powers lose the
    smallest floats and leave the largest. Above the last such number the largest value is the end itself.
    """
    if not 0 < largest < math.inf:
        return 1.0
    power = math.floor(math.log10(largest))
    # One power lower and one higher: the logarithm is rounded.
    ends = (float(f"{step}e{power + more}") for more in (-1, 0, 1) for step in ("1", "2", "2.5", "5"))
    return next((end for end in ends if largest * (1 - 1e-9) <= end < math.inf), largest)


def _bars(chart: BarChart) -> tuple[str, float]:
    ends = [end for bar in chart.bars for end in (bar.value, *(bar.interval or ()))]
    top = max([*ends, chart.target or 0.0], default=0.0) or 1.0
    written = max((len(_value(bar, chart.form)) for bar in chart.bars), default=0) * LETTER
    room = WIDTH - 2 - GAP - min(written, WIDTH / 2)
    height = len(chart.bars) * BAR_PITCH + 4
    parts = []
    for at, bar in enumerate(chart.bars):
        y = at * BAR_PITCH
        width = max(0.0, bar.value) / top * room
        value = _value(bar, chart.form)
        # Behind the interval's end, so that its line does not run through the figures.
        end = max(width, (bar.interval[1] if bar.interval else 0.0) / top * room)
        place = f'x="0" y="{y + 18}" width="{max(width, 1):.1f}" height="{BAR_HEIGHT}" rx="3"'
        parts.append(
            f"<g><title>{text(f'{bar.label}: {value}')}</title>"
            f'<text x="0" y="{y + 12}" class="ink">{text(clipped(bar.label))}</text>'
            f'<rect {place} class="fill{bar.colour}"/>'
            f"{_whisker(bar, y + 18 + BAR_HEIGHT / 2, top, room)}"
            f'<text x="{end + GAP:.1f}" y="{y + 30}" class="ink2">{text(value)}</text></g>'
        )
    if chart.target is not None:
        x = chart.target / top * room
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{height}" class="target"/>')
    return "".join(parts), height


def _value(bar: Bar, form: Format) -> str:
    if bar.interval is None:
        return form(bar.value)
    return f"{form(bar.value)}  [{form(bar.interval[0])}, {form(bar.interval[1])}]"


def _whisker(bar: Bar, y: float, top: float, room: float) -> str:
    if bar.interval is None:
        return ""
    low, high = (end / top * room for end in bar.interval)  # in this order: room / top of a tiny top is no number
    caps = "".join(f"M{x:.1f} {y - 4:g}v8" for x in (low, high))
    return f'<path d="M{low:.1f} {y:g}H{high:.1f}{caps}" class="whisker"/>'


def _lines(chart: LineChart) -> tuple[str, float]:
    points = [point for series in chart.series for point in series.points]
    ys = [y for p in points if p.y is not None for y in (p.y, *(p.interval or ()))]
    top = nice_top(max([*ys, chart.target or 0.0], default=0.0))
    xs = [point.x for point in points] or [0.0]
    first, span = min(xs), (max(xs) - min(xs)) or 1.0
    names, high = legend([(one.name, one.colour) for one in chart.series])
    floor = high + TOP + PLOT_HEIGHT

    def x(value: float) -> float:
        return LEFT + (value - first) / span * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return floor - value / top * PLOT_HEIGHT

    parts = [
        names,
        *_grid(chart, top, y),
        *_ticks(chart.ticks, x, floor),
    ]
    for series in chart.series:
        colour = series.colour
        for run in _runs(series.points):
            parts.append(_band(run, x, y, colour))
            path = "L".join(f"{x(p.x):.1f} {y(p.y or 0.0):.1f}" for p in run)
            parts.append(f'<path d="M{path}" class="line{colour}"/>')
            parts += [_dot(series.name, p, x(p.x), y(p.y or 0.0), colour, chart.form) for p in run]
    if chart.target is not None:
        at = y(chart.target)
        named = text(f"target {chart.form(chart.target)}")
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="target"/>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{at - 4:.1f}" class="ink2 end">{named}</text>')
    return "".join(parts), floor + BOTTOM


def legend(names: Sequence[tuple[str, int]]) -> tuple[str, float]:
    """Return what each colour stands for, and the height it takes; nothing for a lone one."""
    if len(names) < 2:
        return "", 0.0
    parts = []
    x, y = 0.0, 0
    for name, colour in names:
        width = 33 + len(name) * LETTER
        if x and x + width > WIDTH + GAP:
            x, y = 0.0, y + LEGEND_ROW
        parts.append(f'<rect x="{x:.1f}" y="{y + 3}" width="10" height="10" rx="2" class="fill{colour}"/>')
        parts.append(f'<text x="{x + 15:.1f}" y="{y + 12}" class="ink2">{text(name)}</text>')
        x += width
    return "".join(parts), y + LEGEND_ROW


def _grid(chart: LineChart, top: float, y: Callable[[float], float]) -> Iterator[str]:
    for part in range(5):
        value = top * (part / 4)  # in this order: four times the largest floats are no number
        at = y(value)
        kind = "rule" if part else "axis"
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="{kind}"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="ink2 end">{text(chart.form(value))}</text>'


def _ticks(ticks: Sequence[tuple[float, str]], x: Callable[[float], float], floor: float) -> Iterator[str]:
    free = -1e9
    for value, name in ticks:
        at, half = x(value), len(name) * LETTER / 2
        at = min(max(at, half), WIDTH - half)
        if at - half < free:
            continue
        free = at + half + GAP
        yield f'<text x="{at:.1f}" y="{floor + 18:g}" class="ink2 mid">{text(name)}</text>'


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points in runs without a gap."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if point.y is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def _band(run: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float], colour: int) -> str:
    known = [(point.x, *point.interval) for point in run if point.interval]
    if len(known) < 2:
        return ""
    there = [f"{x(at):.1f} {y(high):.1f}" for at, _, high in known]
    back = [f"{x(at):.1f} {y(low):.1f}" for at, low, _ in reversed(known)]
    return f'<path d="M{"L".join(there + back)}Z" class="band{colour}"/>'


def _dot(name: str, point: Point, x: float, y: float, colour: int, form: Format) -> str:
    value = form(point.y or 0.0)
    if point.interval:
        value += f" [{form(point.interval[0])}, {form(point.interval[1])}]"
    told = text(", ".join(part for part in (point.label, f"{name}: {value}") if part))
    # The circle that answers to a pointer is larger than the one that is seen.
    return (
        f'<g><title>{told}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="touch"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" class="fill{colour}"/></g>'
    )


def clipped(label: str) -> str:
    """Return a label that fits the width."""
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


HEIGHT = 210
RADIUS = 4
EDGE = 4
"""Room behind the last tick's name: types differ in width."""
NAME_ROW = 14
"""Room for the name of an axis."""
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """One point."""

    x: float
    y: float
    x_interval: Ends | None = None
    y_interval: Ends | None = None
    label: str = ""
    """Written beside it where there is room, and shown to a pointer."""
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class PointSeries:
    """Points of one kind: each marked, or all joined to a line."""

    name: str
    marks: tuple[Mark, ...]
    colour: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction: its name, its ends, its ticks and how its values are written."""

    name: str
    ends: Ends
    ticks: tuple[float, ...]
    form: Format
    scale: Callable[[float], float] = float
    """Where a value stands, in any unit: a logarithm, a root."""

    def place(self, value: float) -> float:
        """Return where a value stands between the ends, 0 to 1; what lies beyond is put on the end."""
        low, high = self.scale(self.ends[0]), self.scale(self.ends[1])
        inside = min(max(value, self.ends[0]), self.ends[1])
        return (self.scale(inside) - low) / (high - low)


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """Clouds over two axes."""

    title: str
    clouds: tuple[PointSeries, ...]
    across: Axis
    up: Axis
    targets: tuple[float, ...] = ()
    """Values of the axis across at which a dashed line stands."""
    note: str = ""

    def drawn(self) -> tuple[str, float]:
        """Return the drawing and its height."""
        named, high = legend([(cloud.name, cloud.colour) for cloud in self.clouds])
        top = high + NAME_ROW + TOP
        floor = top + HEIGHT

        def x(value: float) -> float:
            return LEFT + self.across.place(value) * (WIDTH - LEFT - RIGHT)

        def y(value: float) -> float:
            return floor - self.up.place(value) * HEIGHT

        pieces = [named, f'<text x="0" y="{top - TOP + 4:g}" class="ink2">{text(self.up.name)}</text>']
        for value in self.up.ticks:
            at = y(value)
            pieces.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="rule"/>')
            pieces.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="ink2 end">{text(self.up.form(value))}</text>')
        pieces.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}" class="axis"/>')
        pieces += _axis_ticks(self.across, x, floor)
        middle = (LEFT + WIDTH - RIGHT) / 2
        pieces.append(f'<text x="{middle:g}" y="{floor + 34:g}" class="ink2 mid">{text(self.across.name)}</text>')
        for target in self.targets:
            at = x(target)
            pieces.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{floor}" class="target"/>')
        spots = [(x(mark.x), y(mark.y)) for cloud in self.clouds if not cloud.joined for mark in cloud.marks]
        taken = [(at - RADIUS, up - RADIUS, at + RADIUS, up + RADIUS) for at, up in spots]
        for cloud in self.clouds:
            pieces += self._cloud(cloud, x, y, taken)
        return "".join(pieces), floor + BOTTOM + NAME_ROW - 6

    def _cloud(
        self,
        cloud: PointSeries,
        x: Callable[[float], float],
        y: Callable[[float], float],
        taken: list[tuple[float, float, float, float]],
    ) -> Iterator[str]:
        if cloud.joined:
            path = "L".join(f"{x(mark.x):.1f} {y(mark.y):.1f}" for mark in cloud.marks)
            yield f'<path d="M{path}" class="line{cloud.colour}"/>' if path else ""
            return
        for mark in cloud.marks:
            at, up = x(mark.x), y(mark.y)
            told = f"{mark.label or cloud.name}: {self.across.form(mark.x)}, {self.up.form(mark.y)}"
            arms = ""
            if mark.x_interval is not None:
                arms += f"M{x(mark.x_interval[0]):.1f} {up:.1f}H{x(mark.x_interval[1]):.1f}"
            if mark.y_interval is not None:
                arms += f"M{at:.1f} {y(mark.y_interval[0]):.1f}V{y(mark.y_interval[1]):.1f}"
            style = f"line{cloud.colour} hollow" if mark.hollow else f"fill{cloud.colour}"
            drawn = f'<path d="{arms}" class="whisker"/>' if arms else ""
            yield (
                f"<g><title>{text(told)}</title>{drawn}"
                f'<circle cx="{at:.1f}" cy="{up:.1f}" r="9" class="touch"/>'
                f'<circle cx="{at:.1f}" cy="{up:.1f}" r="{RADIUS}" class="{style}"/></g>'
            )
            yield _label(mark.label, at, up, taken)


def _label(label: str, at: float, up: float, taken: list[tuple[float, float, float, float]]) -> str:
    """Return a point's label, to its right or its left, where it covers no other; else nothing."""
    width = len(label) * LETTER
    for left, anchor, place in ((at + 8, "", at + 8), (at - 8 - width, " end", at - 8)):
        box = (left, up - 6, left + width, up + 6)
        free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in taken)
        if label and free and box[0] >= LEFT and box[2] <= WIDTH:
            taken.append(box)
            return f'<text x="{place:.1f}" y="{up + 4:.1f}" class="ink2{anchor}">{text(label)}</text>'
    return ""


def _axis_ticks(axis: Axis, x: Callable[[float], float], floor: float) -> Iterator[str]:
    free = -1e9
    for value in axis.ticks:
        name = axis.form(value)
        at, half = x(value), len(name) * LETTER / 2
        at = min(max(at, half), WIDTH - half - EDGE)
        if at - half >= free:
            free = at + half + 6
            yield f'<text x="{at:.1f}" y="{floor + 18:g}" class="ink2 mid">{text(name)}</text>'


@dataclass(frozen=True, slots=True)
class StackChart:
    """One bar a row, all on one scale that starts at 0."""

    title: str
    parts: tuple[tuple[str, int], ...]
    """Name and colour of each part."""
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """Label and values, in the order of the parts."""
    form: Format
    """How a value is written."""
    note: str = ""
    whole: float | None = None
    """The end of the scale; None: the longest bar, with room for its total behind it."""

    def drawn(self) -> tuple[str, float]:
        """Return the drawing and its height."""
        totals = [sum(values) for _, values in self.rows]
        written = max((len(self.form(total)) for total in totals), default=0) * LETTER
        room = WIDTH - 2 - (0.0 if self.whole else GAP + written)
        top = self.whole or max(totals, default=0.0) or 1.0
        named, high = legend(self.parts)
        bars = [self._bar(high + at * BAR_PITCH, *row, top, room) for at, row in enumerate(self.rows)]
        return named + "".join(bars), high + len(self.rows) * BAR_PITCH + 4

    def _bar(self, y: float, label: str, values: tuple[float, ...], top: float, room: float) -> str:
        pieces = [f'<text x="0" y="{y + 14:g}" class="ink">{text(clipped(label))}</text>']
        x = 0.0
        for (name, colour), value in zip(self.parts, values, strict=True):
            width = max(0.0, value) / top * room  # in this order: room / top of a tiny top is no number
            told = text(f"{label}, {name}: {self.form(value)}")
            place = f'x="{x:.1f}" y="{y + 20:g}" width="{width:.1f}" height="{BAR_HEIGHT}"'
            pieces.append(f'<g><title>{told}</title><rect {place} class="fill{colour}"/></g>')
            x += width
        if self.whole is None:
            pieces.append(f'<text x="{x + GAP:.1f}" y="{y + 32:g}" class="ink2">{text(self.form(sum(values)))}</text>')
        return "".join(pieces)
