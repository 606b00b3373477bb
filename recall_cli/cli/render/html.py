"""A result as one HTML page: no script, no request to anywhere, readable offline, on a phone and on paper.

It holds the blocks that the terminal shows, the command's charts, its warnings, settings and machine. Whatever comes
from a log is escaped; and the page forbids itself scripts, so that even a mistake here could not run one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from recall_cli import __version__
from recall_cli.cli.render.blocks import NONE, Bars, Block, Line, Table, flatten
from recall_cli.cli.render.svg import Bar, BarChart, Chart, svg, text
from recall_cli.types import Result, Warn

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
LONG_TABLE = 20
"""Rows from which on a table is folded away until it is asked for."""
WIDE = 62
"""Letters of a row from which on a table stands alone in its line."""

STYLE = """
:root{color-scheme:light dark;--page:#f7f7f5;--card:#fff;--ink:#0b0b0b;--ink2:#52514e;--rule:#e1e0d9;--axis:#c3c2b7;
--c0:#2a78d6;--c1:#eb6834;--c2:#1baf7a;--c3:#eda100;--warn:#b4530a;--warnbg:#fff6e8}
@media (prefers-color-scheme:dark){:root{--page:#0d0d0d;--card:#1a1a19;--ink:#fff;--ink2:#c3c2b7;--rule:#2c2c2a;
--axis:#52514e;--c0:#3987e5;--c1:#d95926;--c2:#199e70;--c3:#c98500;--warn:#f0b35a;--warnbg:#241c10}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 48px}
header p{margin:0;color:var(--ink2);font-size:14px;overflow-wrap:anywhere}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}h3{font-size:15px;margin:0 0 10px;font-weight:600}
.lead{font-size:19px;line-height:1.45;margin:18px 0;padding:16px 18px;background:var(--card);border-radius:10px;
border-left:5px solid var(--c0);overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px}
figure,.card{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px;min-width:0}
figcaption,.note{color:var(--ink2);font-size:13px;margin:8px 0 0}
svg{display:block;width:100%;max-width:520px;height:auto;font:11px system-ui,-apple-system,"Segoe UI",sans-serif}
.ink{fill:var(--ink)}.ink2{fill:var(--ink2)}.end{text-anchor:end}.mid{text-anchor:middle}.touch{fill:transparent}
.rule{stroke:var(--rule)}.axis{stroke:var(--axis)}
.target{stroke:var(--ink2);stroke-dasharray:5 4;stroke-width:1.5}.whisker{stroke:var(--ink);stroke-width:1.3;fill:none}
.fill0{fill:var(--c0)}.fill1{fill:var(--c1)}.fill2{fill:var(--c2)}.fill3{fill:var(--c3)}.fill4{fill:var(--axis)}
.line0,.line1,.line2,.line3,.line4{fill:none;stroke-width:2;stroke-linejoin:round}
.line0{stroke:var(--c0)}.line1{stroke:var(--c1)}.line2{stroke:var(--c2)}.line3{stroke:var(--c3)}
.line4{stroke:var(--axis)}.hollow{fill:var(--card)}
.band0,.band1,.band2,.band3{opacity:.16}.band0{fill:var(--c0)}.band1{fill:var(--c1)}.band2{fill:var(--c2)}.band3{fill:var(--c3)}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px;
align-items:start;margin:16px 0}.wide{grid-column:1/-1}.tables+.tables{margin-top:0}
.scroll{overflow-x:auto;margin:0 -16px;padding:0 16px;background:linear-gradient(90deg,var(--card) 30%,transparent),
linear-gradient(-90deg,var(--card) 30%,transparent) 100% 0,linear-gradient(90deg,var(--axis),transparent),
linear-gradient(-90deg,var(--axis),transparent) 100% 0;background-repeat:no-repeat;
background-size:48px 100%,48px 100%,10px 100%,10px 100%;background-attachment:local,local,scroll,scroll}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;min-width:min(100%,340px)}
th,td{padding:5px 0 5px 18px;text-align:right;white-space:nowrap;vertical-align:top;border-bottom:1px solid var(--rule)}
thead th{color:var(--ink2);font-weight:500;vertical-align:bottom}tbody th{font-weight:400}
.name{text-align:left;white-space:pre-wrap;min-width:96px;max-width:520px;overflow-wrap:anywhere;padding-left:0}
tbody tr:last-child>*{border-bottom:0}
.fact{margin:12px 0}
details summary{cursor:pointer;font-weight:600;font-size:15px}details[open] summary{margin-bottom:10px}
.text{margin:16px 0}.text p{margin:6px 0;overflow-wrap:anywhere}
.warnings{padding:0;margin:0;list-style:none}
.warnings li{background:var(--warnbg);border-left:4px solid var(--warn);padding:9px 14px;border-radius:6px;margin:8px 0;
overflow-wrap:anywhere}.warnings small{display:block;color:var(--ink2);font-size:13.5px}
footer{color:var(--ink2);font-size:13px;margin-top:36px}
@media (max-width:520px){table{font-size:13px;min-width:0}th,td{padding-left:11px}.name{min-width:84px;padding-left:0}
.lead{font-size:17px}}
@media print{body{background:#fff}figure,.card{break-inside:avoid}}
"""


@dataclass(frozen=True, slots=True)
class Page:
    """How a command fills the page: each part from its result."""

    title: str
    lead: Callable[[Result], str]
    """The sentence to be read first."""
    blocks: Callable[[Result], Sequence[Block]]
    """What follows the charts, the lead left out."""
    charts: Callable[[Result], Sequence[Chart]] = lambda _: ()


def html(result: Result, page: Page) -> str:
    """Return the whole page."""
    charts = "".join(map(_figure, page.charts(result)))
    parts = [
        f"<header><h1>{text(page.title)}</h1><p>recall {text(__version__)}, {text(result.started_at)}</p></header>",
        f'<p class="lead">{text(page.lead(result))}</p>',
        f'<div class="charts">{charts}</div>' if charts else "",
        *_blocks(page.blocks(result)),
        _warnings(result.warnings),
        _facts("Settings", result.params),
        _facts("Where it was measured", result.environment),
        f"<footer>Made by recall {text(__version__)}. This page holds no script and loads nothing.</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><title>{text(page.title)}</title><style>{STYLE}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _figure(chart: Chart) -> str:
    note = f"<figcaption>{text(chart.note)}</figcaption>" if chart.note else ""
    return f"<figure><h3>{text(chart.title)}</h3>{svg(chart)}{note}</figure>"


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield blocks as cards, side by side where there is room, and the sentences between them."""
    for is_line, run in groupby(blocks, lambda block: isinstance(block, Line)):
        if is_line:
            said = "".join(f"<p>{text(block.text)}</p>" for block in run if isinstance(block, Line) and block.text)
            yield f'<section class="text">{said}</section>'
        else:
            drawn = (
                _stacked(block) if isinstance(block, Bars) else _table(block)
                for block in run
                if not isinstance(block, Line)
            )
            yield f'<div class="tables">{"".join(drawn)}</div>'


def _table(block: Table) -> str:
    head = "".join(f'<th scope="col"{_class(at, block)}>{text(name)}</th>' for at, name in enumerate(block.columns))
    rows = "".join(f"<tr>{''.join(_cell(at, cell, block) for at, cell in enumerate(row))}</tr>" for row in block.rows)
    drawn = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    wide = (
        " wide"
        if sum(max(map(len, cells)) + 3 for cells in zip(block.columns, *block.rows, strict=True)) > WIDE
        else ""
    )
    if len(block.rows) > LONG_TABLE:
        title = f"{text(block.title)} ({len(block.rows)} rows)"
        return f'<details class="card{wide}"><summary>{title}</summary>{drawn}</details>'
    return f'<section class="card{wide}"><h3>{text(block.title)}</h3>{drawn}</section>'


def _cell(at: int, cell: str, block: Table) -> str:
    if at < block.left:
        return f'<th scope="row" class="name">{text(cell)}</th>'
    return f"<td>{text(cell)}</td>"


def _class(at: int, block: Table) -> str:
    return ' class="name"' if at < block.left else ""


def _stacked(block: Bars) -> str:
    """Return stacked bars as a chart of their totals and a table of their parts."""
    totals = BarChart(
        block.title,
        tuple(Bar(label, sum(values)) for label, values in block.rows),
        lambda value: f"{value:,.1f} {block.unit}",
    )
    rows = tuple((label, *(f"{value:,.1f}" for value in values)) for label, values in block.rows)
    return _figure(totals) + _table(Table(f"{block.title}, {block.unit}", ("", *block.parts), rows))


def _warnings(warnings: Sequence[Warn]) -> str:
    if not warnings:
        return ""
    items = "".join(
        f"<li>{text(warn.message)}{f'<small>{text(warn.hint)}</small>' if warn.hint else ''}</li>" for warn in warnings
    )
    return f'<h2>What to know beside the figures</h2><ul class="warnings">{items}</ul>'


def _facts(title: str, facts: Mapping[str, Any]) -> str:
    rows = tuple(
        (name, NONE if value in (None, "", [], {}) else str(value)) for name, value in flatten(dict(facts)).items()
    )
    drawn = "".join(
        f'<tr><th scope="row" class="name">{text(k)}</th><td class="name">{text(v)}</td></tr>' for k, v in rows
    )
    return (
        f'<details class="card fact"><summary>{text(title)}</summary>'
        f'<div class="scroll"><table><tbody>{drawn}</tbody></table></div></details>'
    )
