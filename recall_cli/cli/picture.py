"""`recall eval --plot`: how many hits at how many false ones, drawn from the numbers of the result document.

False hits run along a square-root axis: targets of a few per cent get room, and none at all has a place too.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recall_cli.errors import UsageError
from recall_cli.measure.judged import at_most, point_at_most
from recall_cli.types import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
DPI = 150
MIN_HITS = 20
"""Judged hits below which a cutoff's false-hit rate is noise, and no point of the curve."""
MARKED = (0.6, 0.7, 0.8, 0.9, 0.95)
"""Cutoffs that are named on the curve."""
TICKS = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1)
TICK_GAP = 0.07
"""Share of the axis that two ticks keep between them: the words below them must not touch."""
NARROW = 6.4
"""Inches of a picture of one panel."""
MOST_LEFT = 0.03
"""The axis reaches at least here, so that a target is never at its edge."""

# Okabe and Ito (2008): told apart by everybody, in print too.
STYLES = {
    "static@0.8": ("#D55E00", "s", "static at 0.8"),
    "static@best": ("#999999", "D", "best cutoff, in hindsight"),
    "oracle/namespace": ("#666666", "^", "best a namespace, in hindsight"),
    "naive/namespace": ("#E69F00", "v", "naive quantile"),
    "adaptive": ("#0072B2", "o", "adaptive"),
}
SCORINGS = {
    "similarity": ("#666666", "similarity alone"),
    "shipped": ("#0072B2", "shipped evidence weights"),
    "cross_fitted": ("#009E73", "cross-fitted weights"),
}
DODGE = {"similarity": 0.92, "shipped": 1.0, "cross_fitted": 1.08}
TARGET = "#CC3311"
WRONG = "wrong, of served semantic hits"
WRONG_AT_MOST = "wrong at most, of served semantic hits"


class Picture:
    """One picture of a result: everything that could stop it is found before the long run."""

    def __init__(self, path: str, *, inputs: Sequence[str] = (), out: str | None = None) -> None:
        """Prove that the picture can be drawn and written. Raises UsageError.

        :param inputs: files that the run reads, and `out` the one that it writes besides: not to be replaced.
        """
        from recall_cli.measure.result import OutFile

        self.kind = Path(path).suffix.lower()
        if self.kind not in SUFFIXES:
            raise UsageError(f"--plot {path!r} is no picture recall can draw", hint="end its name in .svg or .png")
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise UsageError(
                "--plot needs matplotlib, which is not installed", hint="pip install 'recall-cli[report]'"
            ) from None
        if out and os.path.realpath(out) == os.path.realpath(path):
            raise UsageError(f"--out and --plot both name {path}", hint="give the picture a name of its own")
        self._file = OutFile(path, inputs=inputs, option="--plot")

    def draw(self, result: Result) -> None:
        """Draw the result of streams or of pairs and replace the file."""
        from matplotlib import rc_context

        # Text stays text, and the same numbers give the same file.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "recall", "font.size": 9}):
            figure = _pairs(result) if "auc" in result.summary else _streams(result)
            buffer = io.BytesIO()
            metadata = {"Date": None} if self.kind == ".svg" else {}
            figure.savefig(buffer, format=self.kind[1:], dpi=DPI, metadata=metadata)
        self._file.write(buffer.getvalue())


def _streams(result: Result) -> Figure:
    """Return a panel for each workload."""
    groups = [(name, list(rows)) for name, rows in groupby(result.rows, key=lambda row: row["workload"])]
    columns = min(len(groups), 3)
    lines = -(-len(groups) // columns)
    figure, panels = _figure(columns, lines)
    for panel, (name, rows) in zip(panels, groups, strict=False):
        _panel(panel, name, rows, result.summary["workloads"][name])
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    _legend(figure, panels[0], "hollow: the promise was not kept")
    return figure


def _panel(panel: Axes, name: str, rows: Sequence[dict[str, Any]], summary: dict[str, Any]) -> None:
    curve = [
        (point_at_most(point), point["hit_rate"], point["setting"])
        for point in summary["curve"]
        if point["policy"] == "static" and point["judged_hits"] >= MIN_HITS
    ]
    if curve:
        panel.plot(*zip(*[point[:2] for point in curve], strict=True), color="#BBBBBB", lw=1.8, zorder=1,
                   label="every static cutoff")  # fmt: skip
    for x, y, tau in curve:
        if tau in MARKED:
            panel.plot([x], [y], "|", color="#777777", ms=7, zorder=1)
            panel.annotate(f"{tau:g}", (x, y), (7, -4), textcoords="offset points", color="#777777", fontsize=7)
    drawn = [row for row in rows if row["false_hit_rate"] is not None]
    # What does not depend on the target is one point, however many targets there are.
    for policy, (color, marker, label) in STYLES.items():
        points = [row for row in drawn if row["policy"] == policy]
        if policy == "static@0.8":
            points = points[:1]
        if points:
            _points(panel, points, color, marker, label)
    for target in dict.fromkeys(row["target"] for row in rows):
        panel.axvline(target, color=TARGET, lw=0.9, ls=(0, (4, 3)), zorder=0.6)
        panel.annotate(f"target {_percent(target)}", (target, 1), (3, -3), xycoords=("data", "axes fraction"),
                       textcoords="offset points", color=TARGET, fontsize=7, rotation=90, va="top")  # fmt: skip
    order = f", {summary['log']['order']} order" if "log" in summary else ""
    runs, queries = rows[0]["runs"], rows[0]["queries"]
    _axes(panel, [at_most(row) for row in drawn] + [row["target"] for row in rows])
    panel.set_title(f"{Path(name).name}: {runs:,} run{'s' * (runs > 1)}, {queries:,} queries{order}", fontsize=9)
    panel.set_xlabel(
        "\n".join([WRONG_AT_MOST if any(row.get("unsure_hits") for row in rows) else WRONG, *_silent(rows)])
    )
    panel.set_ylabel("hit rate")
    inside = [y for x, y, _ in curve if x <= panel.get_xlim()[1]] + [row["hit_rate_interval"][1] for row in drawn]
    panel.set_ylim(0, min(1.0, 1.15 * max([0.1, *inside])))


def _silent(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each target at which a policy has no point, since it served nothing that could be judged."""
    lines = []
    for target, group in groupby(rows, key=lambda row: row["target"]):
        names = [STYLES[row["policy"]][2] for row in group if row["false_hit_rate"] is None and row["policy"] in STYLES]
        if names:
            lines.append(f"no point at {_percent(target)}: {', '.join(names)}")
    return lines


def _points(panel: Axes, rows: Sequence[dict[str, Any]], color: str, marker: str, label: str) -> None:
    """Draw a policy's targets, with the intervals of both rates; hollow where the promise was not kept."""
    ends = [row["false_hit_bounds_interval" if row.get("unsure_hits") else "false_hit_interval"] for row in rows]
    x, y = [at_most(row) for row in rows], [row["hit_rate"] for row in rows]
    panel.errorbar(
        x, y, xerr=_arms(x, ends),
        yerr=_arms(y, [row["hit_rate_interval"] for row in rows]), color=color, lw=0, elinewidth=1.1, zorder=3,
        clip_on=False,
    )  # fmt: skip
    if len(rows) > 1:
        panel.plot(x, y, color=color, lw=0.8, alpha=0.6, zorder=2)
    for place, row in enumerate(rows):
        panel.plot(x[place], y[place], marker, color=color, ms=6.5, mec=color, mew=1.3, zorder=4, clip_on=False,
                   mfc=color if row["holds"] else "white", label="_" + label if place else label)  # fmt: skip


def _pairs(result: Result) -> Figure:
    """Return the curve of each scoring, with the intervals at the shares of traps that people ask for."""
    summary = result.summary
    figure, panels = _figure(1, 1)
    panel = panels[0]
    for name, (color, label) in SCORINGS.items():
        points = [point for point in summary["curve"] if point["scoring"] == name]
        if not points:
            continue
        auc = summary["auc"][name]
        x, y = [0.0, *(p["false_hit_share"] for p in points)], [0.0, *(p["hit_rate"] for p in points)]
        panel.plot(x, y, color=color, lw=1.6, drawstyle="steps-post", label=f"{label} (AUC {auc:.2f})")
        shares = summary["hit_rate_at_false_hit"][name]
        known = [(float(s), rate, summary["hit_rate_at_false_hit_interval"][name][s]) for s, rate in shares.items()]
        known = [point for point in known if point[1] is not None and point[2] is not None]
        # Side by side: at one share the bars of two scorings would cover each other.
        x, y = [share * DODGE[name] for share, _, _ in known], [rate for _, rate, _ in known]
        arms = _arms(y, [interval for _, _, interval in known])
        panel.errorbar(x, y, yerr=arms, color=color, fmt="o", ms=4, elinewidth=1.1, clip_on=False, zorder=3)
    for share in next(iter(summary["hit_rate_at_false_hit"].values())):
        panel.axvline(float(share), color=TARGET, lw=0.7, ls=(0, (4, 3)), zorder=0.6)
    _axes(panel, [1.0])
    panel.set_title(f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps", fontsize=9)
    panel.set_xlabel("traps served, of all traps")
    panel.set_ylabel("pairs served, of those that should hit")
    panel.set_ylim(0, 1)
    _legend(figure, panel)
    return figure


def _figure(columns: int, lines: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    width = NARROW if columns == 1 else 4.4 * columns
    figure = Figure(figsize=(width, 4.4 * lines + 0.4), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    return figure, list(grid.flat)


def _axes(panel: Axes, seen: Sequence[float]) -> None:
    """Give the axis of false hits its root scale, from none to a little beyond the most that was seen."""
    right = min(1.0, max(MOST_LEFT, 1.25 * max(seen, default=0)))
    panel.set_xscale("function", functions=(_root, _square))
    panel.set_xlim(0, right)
    ticks = [0.0]
    for tick in TICKS:
        if tick <= right and _root(tick) - _root(ticks[-1]) >= TICK_GAP * _root(right):
            ticks.append(tick)
    panel.set_xticks(ticks, [_percent(tick) for tick in ticks])
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panel.grid(color="#EEEEEE", lw=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _root(values: Any) -> Any:
    import numpy as np

    # matplotlib asks beyond the axis too, where there is no root.
    return np.sqrt(np.maximum(values, 0))


def _square(values: Any) -> Any:
    return values**2


def _arms(values: Sequence[float], intervals: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lengths of error bars: below, above."""
    return [
        [max(0.0, value - low) for value, (low, _) in zip(values, intervals, strict=True)],
        [max(0.0, high - value) for value, (_, high) in zip(values, intervals, strict=True)],
    ]


def _percent(rate: float) -> str:
    return f"{100 * rate:g} %"


def _legend(figure: Figure, panel: Axes, title: str = "") -> None:
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        columns = 3 if figure.get_figwidth() > NARROW else 2
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8,
            title=title or None, title_fontsize=8,
        )  # fmt: skip
