"""The HTML pages of bench, ann-bench and eval, from the recorded results and from quick runs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cli.app import main
from recall_cli.cli.commands import ann, bench, hub_eval
from recall_cli.cli.commands import eval as evaluation
from recall_cli.cli.render.html import Page, html
from recall_cli.cli.render.svg import WIDTH, Axis, Chart, LineChart, Mark, PointSeries, ScatterChart, StackChart, svg
from recall_cli.measure.result import load
from tests.cli.render.test_html import EVIL, Reader

RESULTS = Path(__file__).resolve().parents[3] / "results"
PAGES = {"bench": bench.PAGE, "ann": ann.PAGE, "eval": evaluation.PAGE, "eval-pairs": evaluation.PAIRS}
PAGES["hub"] = hub_eval.PAGE


def page_of(path: Path) -> Page:
    return next(PAGES[name] for name in sorted(PAGES, key=len, reverse=True) if path.stem.startswith(name))


COMMANDS = {"bench", "ann-bench", "eval", "hub eval"}
RECORDED = [path for path in sorted(RESULTS.glob("*.json")) if load(str(path)).command in COMMANDS]


def inside(chart: Chart) -> None:
    """Every mark lies on the drawing."""
    drawn = ET.fromstring(svg(chart))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    for mark in drawn.iter():
        for name, limit in (("cx", width), ("cy", height), ("x", width), ("y", height), ("x1", width), ("y2", height)):
            assert -0.05 <= float(mark.attrib.get(name, 0)) <= limit + 0.05, (mark.tag, mark.attrib)
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", mark.attrib.get("d", "")):
            assert -0.05 <= float(x) <= width + 0.05
            assert -0.05 <= float(y) <= height + 0.05


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_page_of_a_recorded_result(path: Path) -> None:
    result, page = load(str(path)), page_of(path)
    found = Reader(html(result, page))
    assert found.open == []
    assert not {"script", "img"} & set(found.tags)
    charts = page.charts(result)
    # Pairs of which none is a trap have nothing to be drawn against.
    assert charts or not result.summary.get("curve", True)
    assert found.tags.count("svg") == len(charts)
    for chart in charts:
        assert chart.title in found.text
        inside(chart)
    assert page.lead(result) in found.text
    for warning in result.warnings:
        assert warning.message in found.text


def test_a_bench_page_shows_answers_split_and_spread() -> None:
    result = load(str(RESULTS / "bench.json"))
    answers, split, spread = bench.PAGE.charts(result)
    assert isinstance(answers, StackChart)
    assert isinstance(split, StackChart)
    assert isinstance(spread, LineChart)
    row = result.rows[5]
    assert (row["embedder"], row["entries"]) == ("static", 50_000)
    assert sum(answers.rows[5][1]) == pytest.approx(row["hit_rate"])
    assert answers.rows[5][1][2] == pytest.approx(row["false_hits"] / row["queries"])
    assert split.rows[5][1] == tuple(row["share_us"][part] for part in ("identity", "embed", "search", "rest"))
    assert f"{row['false_hits']:,} of them wrongly" in bench.PAGE.lead(result)
    (at,) = [point.y for point in spread.series[1].points if point.label == "p50"]
    assert at == pytest.approx(row["lookup_us"]["p50"], rel=0.01)


def test_an_unlabelled_bench_claims_no_wrong_answer() -> None:
    result = load(str(RESULTS / "bench.json"))
    for row in result.rows:
        row |= {"right_rate": None, "false_hits": None, "false_hit_rate": None, "false_hit_interval": None}
        row |= {"right_rate_interval": None}
    answers = bench.PAGE.charts(result)[0]
    assert isinstance(answers, StackChart)
    assert [name for name, _ in answers.parts] == ["exact", "near"]
    assert "wrongly" not in bench.PAGE.lead(result)


def test_an_ann_page_names_the_fastest_that_finds_enough() -> None:
    result = load(str(RESULTS / "ann-tune-random.json"))
    (chosen,) = result.summary["chosen"]
    assert f"{chosen['p50_us']:,.0f} us" in ann.PAGE.lead(result)
    (chart,) = ann.PAGE.charts(result)
    assert isinstance(chart, ScatterChart)
    marks = [mark for cloud in chart.clouds for mark in cloud.marks]
    assert sum(mark.hollow for mark in marks) == sum(not row["holds"] for row in result.rows)


def test_an_eval_page_says_whether_the_promise_held() -> None:
    broken, kept = (load(str(RESULTS / f"{name}.json")) for name in ("eval-text", "eval"))
    assert "the promise was broken" in evaluation.PAGE.lead(broken)
    assert "kept its promise on 7 of 7 workloads" in evaluation.PAGE.lead(kept)
    for chart in evaluation.PAGE.charts(broken):
        assert isinstance(chart, ScatterChart)
        assert chart.targets == (0.01, 0.02, 0.05)


def test_a_hub_page_draws_the_weight_where_it_was_fitted() -> None:
    result = load(str(RESULTS / "hub.json"))
    curves = [chart for chart in hub_eval.PAGE.charts(result) if isinstance(chart, ScatterChart)]
    assert len(curves) == sum("fit" in learned for learned in result.summary["hubs"].values())
    for chart, learned in zip(curves, result.summary["hubs"].values(), strict=True):
        assert chart.clouds[1].marks[0].x == learned["fit"]["alpha"]
        assert chart.targets == (learned["fit"]["present_alpha"],)


@given(
    marks=st.lists(st.tuples(st.floats(-1, 3), st.floats(-1, 3), st.booleans()), max_size=12),
    words=st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=30) | st.just(EVIL),
)
def test_planes_are_well_formed_whatever_lies_beyond_their_ends(
    marks: list[tuple[float, float, bool]], words: str
) -> None:
    axis = Axis(words, (0.0, 1.0), (0.0, 0.5, 1.0), lambda value: f"{value:.2f} {words}", lambda value: value**0.5)
    drawn = tuple(Mark(x, y, (x - 1, x + 1), (y, y), words, hollow) for x, y, hollow in marks)
    chart = ScatterChart(
        words, (PointSeries(words, drawn), PointSeries("b", drawn, 1, joined=True)), axis, axis, (0.5,), words
    )
    inside(chart)


@given(st.lists(st.tuples(*[st.floats(0, 1e6)] * 3), min_size=1, max_size=5))
def test_stacks_are_as_long_as_their_sums(rows: list[tuple[float, float, float]]) -> None:
    parts = (("a", 0), ("b", 1), ("c", 2))
    chart = StackChart("t", parts, tuple((f"r{at}", row) for at, row in enumerate(rows)), lambda value: f"{value:.1f}")
    inside(chart)
    widths = [float(mark.attrib["width"]) for mark in ET.fromstring(svg(chart)).iter() if "width" in mark.attrib]
    bars = [sum(widths[3 + 3 * at : 6 + 3 * at]) for at in range(len(rows))]
    longest = max(sum(row) for row in rows)
    for bar, row in zip(bars, rows, strict=True):
        assert bar <= WIDTH
        assert bar == pytest.approx(max(bars) * (sum(row) / (longest or 1)), abs=0.31)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bench", "--lookups", "60", "--entries", "200"], "Where a semantic lookup's time goes"),
        (["ann-bench", "--dims", "16", "--corpus", "300", "--queries", "40", "--lookups", "40"], "16 dims, 300 rows"),
        (["eval", "--workload", "tight", "--runs", "1"], "tight: 1 run"),
    ],
    ids=["bench", "ann-bench", "eval"],
)
def test_a_run_writes_its_page(arguments: list[str], says: str, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    assert main([*arguments, "--report", str(report)]) == 0
    found = Reader(report.read_text(encoding="utf-8"))
    assert found.open == []
    assert says in found.text
