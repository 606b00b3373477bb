"""Points in a plane as SVG: two measured values against each other, with the intervals of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recall_cli.cli.render.svg import BOTTOM, LEFT, LETTER, RIGHT, TOP, WIDTH, Format, legend, text

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
class Cloud:
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
class PlaneChart:
    """Clouds over two axes."""

    title: str
    clouds: tuple[Cloud, ...]
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
        pieces += _ticks(self.across, x, floor)
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
        cloud: Cloud,
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


def _ticks(axis: Axis, x: Callable[[float], float], floor: float) -> Iterator[str]:
    free = -1e9
    for value in axis.ticks:
        name = axis.form(value)
        at, half = x(value), len(name) * LETTER / 2
        at = min(max(at, half), WIDTH - half - EDGE)
        if at - half >= free:
            free = at + half + 6
            yield f'<text x="{at:.1f}" y="{floor + 18:g}" class="ink2 mid">{text(name)}</text>'
