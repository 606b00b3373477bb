"""Drawing: nothing is cut, whatever the width."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recall_cli.cli.render import blocks
from recall_cli.cli.render.text import draw, shown_json, to_csv, to_markdown
from recall_cli.types import Result

WIDE = blocks.table(
    "A title that is long enough to be folded by anything that folds titles to the width of their table",
    ("embedder", *(f"column {i}" for i in range(9))),
    [("model2vec:some/long-name", *("1,234,567.89 / 9.1" for _ in range(9))), ("static", *("1.0" for _ in range(9)))],
)
BARS = blocks.Bars("Shares", ("a", "b", "c"), (("one", (1.0, 2.0, 1.0)), ("longer", (0.0, 5.0, 0.0))), "us")


def drawn(width: int, *what: blocks.Block) -> str:
    buffer = io.StringIO()
    draw(what, Console(file=buffer, width=width, highlight=False, markup=False))
    return buffer.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200, 240])
@pytest.mark.parametrize("rows", [1, 2, 4, 6])
@pytest.mark.parametrize("left", [1, 2])
def test_no_cell_is_cut_or_lost_at_any_width(width: int, rows: int, left: int) -> None:
    columns = ("embedder", "entries", *(f"column {i}" for i in range(7)))
    body = [(f"name-{r}", f"{r},000", *(f"{r}{i}7.25 / 17,52{r}.{i}" for i in range(7))) for r in range(rows)]
    lines = drawn(width, blocks.table("A title", columns, body, left)).splitlines()
    text = "\n".join(lines)
    for row in body:
        for cell in row[left:]:
            assert cell in text
    for name in columns[left:]:
        # In a table on its side, a column's name stands in every part that shows some of its numbers.
        assert name in text
    for name in (f"name-{r}" for r in range(rows)):
        assert name in text
    assert "…" not in text
    assert max(map(len, lines)) <= max(width, 45)


def test_every_number_has_its_labels_beside_it_in_a_split_table() -> None:
    columns = ("embedder", *(f"column {i}" for i in range(4)))
    body = [(f"name-{r}", *(f"{r}{i}7.25 / 17,52{r}.{i}" for i in range(4))) for r in range(6)]
    parts = drawn(60, blocks.table("T", columns, body)).split(" embedder ")[1:]
    assert len(parts) > 1
    assert all(f"column {i}" in part for part in parts for i in range(4))


def test_no_digit_is_lost_in_the_wide_table() -> None:
    assert drawn(80, WIDE).count("1,234,567.89 / 9.1") == 9


def test_a_bar_fills_its_width_and_names_its_parts() -> None:
    lines = drawn(80, BARS).splitlines()
    cells = ["".join(c for c in line if c in "█▓▒░") for line in lines[1:3]]
    assert len(cells[0]) == len(cells[1])
    assert cells[0].count("▓") == len(cells[0]) // 2
    assert set(cells[1]) == {"▓"}
    assert "4.0 us: 25 / 50 / 25 %" in lines[1]
    assert lines[-1] == "█ a  ▓ b  ▒ c"


def test_markdown_escapes_what_would_break_a_table() -> None:
    text = to_markdown([blocks.table("T", ("a", "b"), [("x|y", "1")]), blocks.Line("word " * 60), BARS])
    assert "| x\\|y | 1 |" in text
    assert "| --- | ---: |" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "longer ▓" in text


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (blocks.number(None), "–"),
        (blocks.number(1234.56), "1,234.6"),
        (blocks.count(1234567), "1,234,567"),
        (blocks.percent(0.1234), "12.3 %"),
        (blocks.rate(0.5, (0.4, 0.6)), "50.0 % [40.0, 60.0]"),
        (blocks.rate(None, None), "–"),
        (blocks.bare(12.34, (12.0, 12.8), 1), "12.3 [12.0, 12.8]"),
        (blocks.bare(12.34, None, 1), "–"),
    ],
)
def test_cells(made: str, text: str) -> None:
    assert made == text


def test_flatten_keeps_every_value() -> None:
    assert blocks.flatten({"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}) == {"a.b.c": 1, "a.d": [1, 2], "e": None}
    assert blocks.flatten({"rate_interval": [1, 2], "x": {"interval": None}}) == {
        "rate_interval_low": 1,
        "rate_interval_high": 2,
        "x.interval_low": None,
        "x.interval_high": None,
    }


EVIL = "\x1b[31m\x9b2J\u202eevil\u200f"


def test_csv_holds_nothing_that_a_terminal_or_a_spreadsheet_acts_on() -> None:
    rows = [{"name": f"=1+1{EVIL}", "n": -1}, {"name": "+1", "n": 2.5}, {"name": "@a", "n": None}, {"name": "a-b"}]
    text = to_csv(Result("x", {}, {}, "", rows, {}, []))
    assert not set(EVIL) - set("[31m2Jevil") & set(text)
    assert [line.split(",")[0] for line in text.splitlines()[2:]] == ["'+1", "'@a", "a-b"]
    assert "'=1+1" in text
    assert ",-1\n" in text


@given(st.text(alphabet="ab,\"'=+- \n\t") | st.text(alphabet="a\r\n"))
def test_a_text_of_several_lines_comes_back_from_csv(text: str) -> None:
    document = to_csv(Result("x", {}, {}, "", [{"text": text, "n": 1}], {}, []))
    (row,) = csv.DictReader(io.StringIO(document, newline=""))
    lone = re.sub(r"\r(?!\n)", "\N{REPLACEMENT CHARACTER}", text)
    assert row["text"] in (lone, f"'{lone}")
    assert not row["text"].lstrip().startswith(("=", "+", "-", "@"))


def test_json_on_a_terminal_means_the_same_and_acts_on_nothing() -> None:
    document = json.dumps({f"key {EVIL}": [EVIL, "plain é", "\\u202e", 1]}, ensure_ascii=False)
    shown = shown_json(document)
    assert json.loads(shown) == json.loads(document)
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "é" in shown


def test_a_piped_sentence_is_one_line_and_one_on_a_terminal_is_folded() -> None:
    sentence = "word " * 60
    assert drawn(80, blocks.Line(sentence)).splitlines() == [sentence]
    buffer = io.StringIO()
    draw([blocks.Line(sentence)], Console(file=buffer, width=80, force_terminal=True))
    assert max(map(len, buffer.getvalue().splitlines())) <= 80


@pytest.mark.parametrize("width", range(24, 100))
@pytest.mark.parametrize("left", [0, 1])
def test_a_row_of_many_short_numbers_is_whole_on_every_terminal(width: int, left: int) -> None:
    columns = tuple(f"0.{i}" for i in range(11))
    body = [tuple(f"0.4{i:02}" for i in range(11))]
    text = drawn(width, blocks.table("nDCG by weight", columns, body, left))
    assert "…" not in text
    assert all(cell in text for cell in body[0])
    assert max(map(len, text.splitlines()[1:])) <= width


@pytest.mark.parametrize("width", [40, 80])
def test_facts_stand_as_they_are_on_a_narrow_terminal_and_have_no_empty_head(width: int) -> None:
    facts = [("visibility", "public"), ("watched folder", "/srv/" + "a-long-name/" * 8), ("embedder", "static")]
    lines = drawn(width, blocks.table("handbook", ("", ""), facts, left=2)).splitlines()
    assert lines[0] == "handbook"
    assert "─" not in "".join(lines)
    assert [line.split()[0] for line in lines if line.startswith((" visibility", " embedder"))] == [
        "visibility",
        "embedder",
    ]
    assert "".join(line[17:].strip() for line in lines if "a-long" in line) == facts[1][1]
    assert max(map(len, lines)) <= width
