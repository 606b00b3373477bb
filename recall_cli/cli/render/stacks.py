"""Stacked bars as SVG: how each whole splits into the same parts."""

from __future__ import annotations

from dataclasses import dataclass

from recall_cli.cli.render.svg import BAR_HEIGHT, BAR_PITCH, GAP, LETTER, WIDTH, Format, clipped, legend, text


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
