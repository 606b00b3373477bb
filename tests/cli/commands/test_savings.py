"""`recall savings` as people meet it: tables, formats, exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.cli.commands.savings import savings, view
from recall_cli.cli.render.blocks import Line, Table
from recall_cli.measure.savings.savings import SavingsPlan, run
from recall_cli.measure.savings.wording import REASONS

LONG_MODEL = "anthropic/claude-a-model-with-a-name-that-does-not-fit-beside-numbers"


def pair(text: str, at: int, model: str = "gpt-4o", temperature: float | None = 0) -> dict[str, Any]:
    usage = {"prompt_tokens": 1_234_567, "completion_tokens": 100}
    return {
        "timestamp": 1_767_225_600 + at,
        "latency_ms": 500,
        "request": {"model": model, "temperature": temperature, "messages": [{"role": "user", "content": text}]},
        "response": {
            "model": model,
            "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}],
            "usage": usage,
        },
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    pairs = [pair("a", 0), pair("a", 10), pair("b", 20, LONG_MODEL), pair("b", 30, LONG_MODEL, None)]
    path.write_text("\n".join(map(json.dumps, pairs)))
    return path


def test_the_table(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savings", str(log), "--embedder", "hash-v1"]) == 0
    out, err = capsys.readouterr()
    assert "4 requests over 0.5 minutes, replayed in time order; 3 can be cached. Spent: $6.17 on the 2 with " in out
    assert "33.3 %" in out
    assert "1,234,567" in out
    assert REASONS["sampled"] in out
    assert re.search(rf"{LONG_MODEL} +2 +0 +– +–", out)
    how = "How input tokens were read (inclusive: cached ones are counted in): openai inclusive (4 requests)."
    assert how in out.splitlines()
    assert "full input price" not in out
    assert out.rstrip().splitlines()[-1].startswith("Not enough data: 3 of 4 requests")
    assert "warning: nothing" not in out
    assert "--allow-sampled" in err


def test_no_digit_is_lost(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from recall_cli.cli import output

    monkeypatch.setattr(output, "PIPED_WIDTH", 80)
    assert main(["savings", str(log), "--embedder", "hash-v1"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    # Sentences stay whole for grep; it is tables that must fit.
    assert max(len(line) for line in out.splitlines() if line.startswith(" ")) <= 80
    # Folded names keep every letter.
    assert "2,469,134" in out


ANSWERS = ("Click forgot.", "Call us.", "Write to us.")


def semantic_pairs(n: int, **more: Any) -> list[dict[str, Any]]:
    """Return paraphrases with varying answers: one question, asked four ways."""
    ways = ("How do I reset my password?", "How can I reset my password?", "how do i reset my password", "new {}")
    pairs = []
    for i in range(n):
        one = pair(ways[i % 4].format(i), 4000 * i, **more)
        one["response"]["choices"][0]["message"]["content"] = ANSWERS[i % 3]
        pairs.append(one)
    return pairs


def printed(capsys: pytest.CaptureFixture[str], path: Path, pairs: list[dict[str, Any]], *more: str) -> str:
    path.write_text("\n".join(map(json.dumps, pairs)))
    assert main(["savings", str(path), *more]) == 0
    return capsys.readouterr().out


def cells(out: str, label: str, title: str = "") -> list[str]:
    """Return the cells of the first row with this label, in the table of this title."""
    row = next(line for line in out[out.index(title) :].splitlines() if line.strip().startswith(label))
    return re.split(r" {2,}", row.strip())[1:]


ANSWERED, EQUAL, WORTH, SAVED = "Answered", "Its answers", "Tokens and dollars", "Dollars saved"
ROWS = ("exact", "+ normalised", "+ semantic", "all, at best")


def test_rows_say_of_what_and_how_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, tmp_path / "log", semantic_pairs(40))
    assert "Dollars saved; low, high: 90 % interval" in out
    hits = [int(cells(out, name, ANSWERED)[0]) for name in ROWS]
    assert sum(hits[:3]) == hits[3]
    assert min(hits) > 0
    assert "at tau 0.8, of 40 cacheable; low, high: 95 % interval" in out
    summary = run(SavingsPlan([str(tmp_path / "log")])).summary
    for name, tier, n in zip(ROWS, ("exact", "normalised", "semantic"), hits, strict=False):
        equal = summary["tiers"][tier]["answers_equal"]
        assert equal["n"] == n
        assert cells(out, name, EQUAL)[:3] == [f"{n}", f"{equal['equal']}", f"{100 * equal['share']:.1f} %"]
    assert re.search(r"\d+ requests that exact matching answers as logged get another stored answer", out)
    assert "Saved $" not in out
    assert cells(out, "exact", SAVED)[-1].endswith("%")


def test_nothing_saved_is_a_dash_and_not_zero_dollars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unique = [pair(f"{i}", 10 * i) for i in range(3)]
    out = printed(capsys, tmp_path / "log", unique, "-e", "hash-v1")
    for name in ROWS:
        assert cells(out, name, WORTH)[2:] == ["–"] * 2
        assert cells(out, name, SAVED) == ["–"] * 4
    assert "$0.00" not in out
    unpriced = [pair("a", 10 * i, "my-llm") for i in range(3)]
    out = printed(capsys, tmp_path / "log", unpriced, "-e", "hash-v1")
    assert cells(out, "exact", ANSWERED)[0] == "2"
    assert cells(out, "exact", WORTH)[2:] == ["–"] * 2
    assert cells(out, "exact", SAVED) == ["–"] * 4
    assert "$0" not in out
    assert "Spent" not in out
    assert "genai-prices" not in out


def test_no_table_of_dashes_when_nothing_can_be_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unset = [pair("a", 10 * i, temperature=None) for i in range(3)]
    out = printed(capsys, tmp_path / "log", unset, "-e", "hash-v1")
    assert ANSWERED not in out
    assert "By lifetime" not in out
    assert "3 requests over 0.3 minutes, replayed in time order; 0 can be cached. Spent: $9.26." in out
    assert cells(out, REASONS["sampled"]) == ["3", "$9.26"]
    assert out.rstrip().endswith("with --allow-sampled exact matching alone would save 66.7 % of the spend.")


def test_decimals_are_those_of_the_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [pair("a", 10 * i) for i in range(3)]
    for one in small:
        one["response"]["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
    out = printed(capsys, tmp_path / "log", small, "-e", "hash-v1")
    # $0.00025 in and $0.0001 out, twice.
    assert cells(out, "exact", WORTH)[2:] == ["$0.00050", "$0.00020"]
    assert cells(out, "exact", SAVED)[0] == "$0.00070"
    big = [pair("a", 10 * i) for i in range(3)]
    assert cells(printed(capsys, tmp_path / "log", big, "-e", "hash-v1"), "exact", SAVED)[0] == "$6.17"


def test_what_cached_input_does_to_the_sum_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached = [pair("a", 10 * i) for i in range(3)]
    for one in cached:
        one["response"]["usage"]["prompt_tokens_details"] = {"cached_tokens": 1_000_000}
    out = printed(capsys, tmp_path / "log", cached, "-e", "hash-v1")
    assert "at the full input price the $3.67 of all tiers would read $6.17." in out


def test_the_tables_fit_80_columns(
    tmp_path: Path,
) -> None:
    """As tables, not stood on their side: four models with names as long as vendors make them."""
    models = (
        "gpt-4o-mini-2024-07-18",
        "claude-3-5-sonnet-20241022",
        "azure/gpt-4o-2024-08-06",
        "our-own-llama-3.3-70b",
    )
    pairs = [one for model in models for one in semantic_pairs(400, model=model)]
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, pairs)))
    result = run(SavingsPlan([str(path)]))
    # Figures of a larger log than a test should replay.
    result.summary["cacheable"] = 456_789
    for tier in result.summary["tiers"].values():
        tier |= {"hits": 345_678, "input_tokens": 1_234_567_890, "output_tokens": 123_456_789, "usd": 12_345.67}
    for name in ("exact", "normalised", "semantic"):
        result.summary["tiers"][name]["answers_equal"] |= {"n": 345_678, "equal": 312_345}
    tables = [block for block in view(result) if isinstance(block, Table)]
    assert len(tables) >= 9
    for block in tables:
        widths = [max(map(len, column)) for column in zip(block.columns, *block.rows, strict=True)]
        # Rich puts three columns between two, and one at either end.
        assert sum(widths) + 3 * (len(widths) - 1) + 2 <= 80, block.title
        assert len(block.title) <= 80


HOSTILE = "x\x1b]0;owned\x07\n\x1b[2J\x9b31m\u202e"


@pytest.mark.parametrize("format", ["table", "markdown", "csv", "json"])
def test_names_from_a_log_do_not_reach_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    path = tmp_path / "log\x1b[2J"
    pairs = [{**pair("a", 10 * i, HOSTILE), "team": HOSTILE, "provider": HOSTILE} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, pairs)))
    assert main(["savings", str(path), "-e", "hash-v1", "--format", format]) == 0
    assert main(["savings", str(path) + HOSTILE]) == 4
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert "owned" in out
    assert "owned" in err


def test_help_shows_a_line_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doc = savings.__doc__ or ""
    example = "".join(re.findall(r"^ *([{\"].*)$", doc, re.MULTILINE))
    path = tmp_path / "log"
    path.write_text(example)
    assert main(["savings", str(path), "-e", "hash-v1", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["cacheable"], summary["priced_requests"], summary["order"]) == (1, 1, "time")
    assert main(["savings", "--help"]) == 0
    shown = capsys.readouterr().out
    assert re.sub(r"\s", "", example) in re.sub(r"\s", "", shown)
    assert "Example: recall savings" in shown


def test_json_is_the_whole_document(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    assert main(["savings", str(log), "--embedder", "hash-v1", "--allow-sampled", "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_bytes())
    assert document["command"] == "savings"
    params = {
        "tau": 0.8, "embedder": "hash-v1", "allow_sampled": True,
        "tiers": "exact,normalised,semantic", "policy": "static", "target": 0.01, "confidence": 0.9,
        "verify_sample": 0.05, "ttl": "5m,1h,1d,7d,inf", "capacity": "100,1000,10000,100000,1000000,inf",
        "sample": 1.0, "seed": 0,
    }  # fmt: skip
    assert document["params"] == document["params"] | params | {"logs": [str(log)]}
    exact = document["summary"]["tiers"]["exact"]
    assert (exact["hits"], exact["n"], exact["usd"]) == (1, 4, 3.0874175)
    assert [w["code"] for w in document["warnings"]] == ["sampled_included", "short_span", "unknown_models"]


def test_csv_has_a_row_a_model(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savings", str(log), "--embedder", "hash-v1", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["model"], row["requests"], row["spend_usd"]) for row in rows] == [
        ("gpt-4o", "2", "6.174835"),
        (LONG_MODEL, "2", ""),
    ]


def test_the_view_ends_in_the_verdict(log: Path) -> None:
    blocks = view(run(SavingsPlan([str(log)], embedder="hash-v1")))
    assert [type(block) for block in blocks[:11]] == [Line, *[Table] * 10]
    assert isinstance(blocks[-1], Line)
    assert blocks[-1].text.startswith("Not enough data")
    everything = view(run(SavingsPlan([str(log)], embedder="hash-v1", allow_sampled=True)))
    assert "What no cache may answer, and why" not in [b.title for b in everything if isinstance(b, Table)]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "holds no line"), (b"\0\1", "binary"), (b"hello", "none of the 1 lines"), (None, "there is no file")],
)
def test_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str
) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    assert main(["savings", str(path), "--embedder", "hash-v1"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 2
    assert main(["savings", str(tmp_path)]) == 4


def test_out_over_the_log_is_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = log.read_bytes()
    assert main(["savings", str(log), "--embedder", "hash-v1", "--out", str(log)]) == 2
    assert "the file that is read" in capsys.readouterr().err
    with log.open("rb") as file:
        command = [sys.executable, "-m", "recall_cli", "savings", "-", "-e", "hash-v1", "--out", str(log)]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert log.read_bytes() == before


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["savings", "-", "--embedder", "hash-v1"]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "error: standard input is closed",
        "  pipe the log in, or name a file",
    ]


def test_a_log_whose_name_is_no_utf8(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(os.fsencode(log.parent) + b"/b\xff.jsonl")
    os.rename(log, odd)
    assert main(["savings", odd, "--embedder", "hash-v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"]["logs"][0].endswith("/b?.jsonl")
    assert main(["savings", odd + "\udcff"]) == 4
    assert "b\\udcff.jsonl" in capsys.readouterr().err


def test_no_odd_line_ends_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd: list[dict[str, Any]] = [
        {**pair("a", 0), "response": 'data: {"choices": 5}\n\ndata: [DONE]\n\n'},
        {**pair("a", 0), "response": [{"choices": True}]},
        {**pair("a", 0), "status": "1" * 5000},
        {**pair("a", 0), "tenant": "\ud800", "provider": "\ud800"},
        pair("a", 0, "m\ud800"),
        pair("\ud83d", 0),
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, [pair("a", 0), *odd, pair("a", 50)])))
    assert main(["savings", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["requests"] == 8
    assert "m\\ud800" in [row["model"] for row in document["rows"]]
    for shown in ("table", "csv", "markdown"):
        assert main(["savings", str(path), "--format", shown]) == 0


def test_pairs_to_check_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = pair("How would I reset my password?", 500_000)
    more["response"]["choices"][0]["message"]["content"] = ANSWERS[1]
    out = printed(
        capsys, tmp_path / "log", [*semantic_pairs(60), more], "--tau", "0.5", "--out", str(tmp_path / "out.json")
    )
    pairs = json.loads((tmp_path / "out.json").read_bytes())["summary"]["to_check"]
    assert 1 < len(pairs) <= 20
    assert set(pairs[0]) == {"line", "served_from_line", "similarity"}
    assert f"{len(pairs)} pairs of requests whose semantic answer differs from the logged one, to check by hand" in out
    assert "line numbers are in the document (--out FILE)" in out
    exact = [pair("a", 10 * i) for i in range(3)]
    assert "to check" not in printed(capsys, tmp_path / "log", exact)


def test_a_distance_for_a_similarity(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savings", str(log), "--tau", "1.2"]) == 2
    assert "distance" in capsys.readouterr().err


def test_logs_of_several_formats_and_named_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "when,ask,reply,model,temperature\n"
        "2026-03-01T10:00:00Z,how do I mend a chair,with glue,gpt-4o,0\n"
        "2026-03-01T11:00:00Z,how do I mend a chair,with glue,gpt-4o,0\n"
    )
    columns = [f"--field={name}" for name in ("ts=when", "prompt=ask", "answer=reply")]
    run_quick = ["savings", str(tmp_path), "--tiers", "exact", "--json"]
    assert main([*run_quick, *columns]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["formats"], summary["tiers"]["exact"]["hits"]) == ({"plain": 2}, 1)
    assert main(["savings", str(tmp_path / "a.csv"), "--tiers", "exact", *columns]) == 0
    assert "Read as: plain (2 requests)" in capsys.readouterr().out
    for wrong in (["--field", "prompt"], ["--field", "colour=ask"], ["--log-format", "harr"]):
        assert main([*run_quick, *wrong]) == 2
        assert len(capsys.readouterr().err.splitlines()) >= 2
