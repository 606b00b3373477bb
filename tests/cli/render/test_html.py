"""The HTML page: whole, self-contained, and deaf to whatever a log holds."""

from __future__ import annotations

import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recall_cli.cli.app import main
from recall_cli.cli.render.blocks import Bars, Line, table
from recall_cli.cli.render.html import LONG_TABLE, Page, html
from recall_cli.cli.render.svg import Bar, BarChart, LineChart, Point, Series, nice_top, svg
from recall_cli.types import Result, Warn

EVIL = '</title></svg><script>alert("x")</script><img src=x onerror=alert(1)>&\'"'
SMALLEST, LARGEST = math.ulp(0.0), sys.float_info.max
VOID = {"meta", "br", "img", "circle", "line", "path", "rect"}


class Reader(HTMLParser):
    """Collects tags, attributes and text; notes tags that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words).replace("\N{NO-BREAK SPACE}", " ")


def charts(words: str) -> list[BarChart | LineChart]:
    points = tuple(Point(float(x), None if x == 3 else x / 10, (0.0, 1.0), words) for x in range(6))
    bars = (Bar(words, 3.0, (2.0, 4.0)), Bar("none", 0.0))
    return [
        BarChart(words, bars, lambda value: f"{value:.1f} {words}", target=2.0, note=words),
        LineChart(words, (Series(words, points), Series("b", points, 1)), ((0.0, words), (5.0, "end")),
                  lambda value: f"{100 * value:.0f} %", target=0.4, note=words),
    ]  # fmt: skip


def page_of(words: str, *, rows: int = 2) -> str:
    result = Result("savings", {words: words, "list": [words]}, {"cpu": words}, "2026-01-01T00:00:00+00:00")
    result.warnings = [Warn("code", words, words), Warn("code", "no hint")]
    blocks = [
        Line(words),
        Line(""),
        table(words, (words, "n"), [(words, "1")] * rows),
        Bars(words, (words, "other"), ((words, (1.0, 2.0)),), words),
        Line("last"),
    ]
    return html(result, Page(words, lambda _: words, lambda _: blocks, lambda _: charts(words)))


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40) | st.just(EVIL))
def test_nothing_from_a_log_becomes_markup(words: str) -> None:
    """The same tags and attributes whatever the words are, and each tag closed in its place."""
    evil, plain = Reader(page_of(words)), Reader(page_of("w" * len(words)))
    assert evil.tags == plain.tags
    assert [name for name, _ in evil.attributes] == [name for name, _ in plain.attributes]
    assert evil.open == plain.open == []
    assert not {"script", "img", "iframe", "link", "object"} & set(evil.tags)


def test_the_words_are_still_read() -> None:
    assert EVIL in Reader(page_of(EVIL)).text
    assert "\N{REPLACEMENT CHARACTER}[2J" in page_of("\x1b[2J")


def test_the_page_loads_nothing_and_forbids_scripts() -> None:
    page = page_of("words")
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not re.search(r"url\(|@import|\bsrc=|\bhref=|\son\w+=", page)
    assert "prefers-color-scheme:dark" in page
    assert "width=device-width" in page


def test_every_part_is_there() -> None:
    text = Reader(page_of("words")).text
    for part in ("What to know beside the figures", "no hint", "Settings", "Where it was measured", "last"):
        assert part in text
    assert "<details" in page_of("words", rows=LONG_TABLE + 1)


@given(st.lists(st.floats(0, 1e9) | st.floats(0, LARGEST), min_size=1, max_size=5))
@example([SMALLEST])
@example([LARGEST])
@example([SMALLEST, LARGEST])
def test_charts_are_well_formed_and_stay_inside(values: list[float]) -> None:
    known = [(value, (value / 2, min(value * 2, LARGEST))) for value in values]
    bars = BarChart("t", tuple(Bar("b", *one) for one in known), lambda v: f"{v:,.3g}")
    points = tuple(Point(float(x), *one) for x, one in enumerate(known))
    line = LineChart("t", (Series("s", points),), ((0.0, "a"),), lambda v: f"{v:,.3g}")
    for chart in (bars, line):
        assert not re.search("nan|inf", svg(chart))
        drawn = ET.fromstring(svg(chart))
        _, _, width, height = map(float, drawn.attrib["viewBox"].split())
        for mark in drawn.iter():
            for name, limit in (("cx", width), ("cy", height), ("x", width), ("y", height), ("width", width)):
                assert 0 <= float(mark.attrib.get(name, 0)) <= limit


def test_a_gap_parts_a_line() -> None:
    points = tuple(Point(float(x), None if x == 2 else 0.5) for x in range(5))
    chart = LineChart("t", (Series("s", points),), (), str)
    assert svg(chart).count('class="line0"') == 2


@pytest.mark.parametrize(
    ("largest", "top"), [(0.0, 1.0), (0.03, 0.05), (0.87, 1.0), (1.0, 1.0), (1.01, 2.0), (23.0, 25.0), (999.0, 1000.0)]
)
def test_scales_end_in_a_round_number(largest: float, top: float) -> None:
    assert nice_top(largest) == pytest.approx(top)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(SMALLEST)
@example(sys.float_info.min)
@example(LARGEST)
@example(-0.0)
def test_every_finite_number_has_a_scale_that_holds_it(largest: float) -> None:
    top = nice_top(largest)
    assert 0 < top < math.inf
    if largest <= 0:
        assert top == 1.0
        return
    assert top >= largest * (1 - 1e-9)
    # The next shorter scale would be at least half as long, where floats are dense enough to say so.
    assert top <= max(largest * 2.000001, SMALLEST * 10)
    if largest < 1e308:
        digits = f"{top:.1e}".partition("e")[0]
        assert digits in ("1.0", "2.0", "2.5", "5.0") or top < sys.float_info.min


@given(st.floats(0, LARGEST), st.floats(0, LARGEST))
def test_a_larger_number_has_no_shorter_scale(one: float, other: float) -> None:
    if min(one, other) > 0:
        assert nice_top(min(one, other)) <= nice_top(max(one, other))


def line(text: str, at: int, **more: object) -> str:
    request = {"model": EVIL, "temperature": 0, "messages": [{"role": "user", "content": text}]}
    response = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 10}}  # fmt: skip
    return json.dumps(
        {"timestamp": 1_767_225_600 + at, "latency_ms": 5, "request": request, "response": response, **more}
    )


def test_a_savings_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, report = tmp_path / "log.jsonl", tmp_path / "r.html"
    lines = [line(EVIL if i % 2 else f"{i} {EVIL}", 40_000 * i, user_id=EVIL if i % 3 else "b") for i in range(240)]
    log.write_text("\n".join(lines))
    more = ["-e", "hash-v1", "--price", f"{EVIL}=1,2", "--report", str(report)]
    assert main(["savings", str(log), *more, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    page = report.read_text()
    found = Reader(page)
    assert found.open == []
    assert not {"script", "img"} & set(found.tags)
    assert found.tags.count("svg") == 4
    assert EVIL in found.text
    assert document["summary"]["verdict"] in found.text
    for warning in document["warnings"]:
        assert warning["message"] in found.text
    for title in (
        "Saved by tier",
        "Where the spend goes",
        "Hit rate over time",
        "Miss ratio",
        "By tenant",
        "By hour of the day (UTC)",
    ):
        assert title in found.text
    assert main(["savings", str(log), *more, "--no-text"]) == 0
    hidden = Reader(report.read_text()).text
    # The name of the model and of the tenant are still there, the prompts are not.
    assert f"1 {EVIL}" not in hidden
    assert "line 2" in hidden


@pytest.mark.parametrize(
    ("report", "says"), [("log.jsonl", "the file that is read"), ("no/r.html", "cannot be written"), (".", "a folder")]
)
def test_a_report_is_proved_writable_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str, says: str
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(line("a", 0))
    assert main(["savings", str(log), "-e", "hash-v1", "--report", str(tmp_path / report)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "--report" in err
    assert log.read_text() == line("a", 0)
