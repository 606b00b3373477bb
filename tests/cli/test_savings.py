"""`recall savings` as people meet it: tables, formats, exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.cli.blocks import Line, Table
from recall_cli.cli.savings import REASONS, view
from recall_cli.measure.savings import Plan, run

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
    assert "4 requests over 0.5 minutes, replayed in time order; 3 can be cached." in out
    assert "33.3 %" in out
    assert "1,234,567" in out
    assert REASONS["sampled"] in out
    assert LONG_MODEL + " (no known price)" in out
    assert "openai input tokens read as inclusive of cached ones (4 requests)" in out
    assert out.rstrip().splitlines()[-1].startswith("Not enough data: 3 of 4 requests")
    assert "warning: nothing" not in out
    assert "--allow-sampled" in err


def test_no_digit_is_lost(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from recall_cli.cli import render

    monkeypatch.setattr(render, "PIPED_WIDTH", 80)
    assert main(["savings", str(log), "--embedder", "hash-v1"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    # Folded names keep every letter.
    assert "2,469,134" in out


def test_json_is_the_whole_document(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    assert main(["savings", str(log), "--embedder", "hash-v1", "--allow-sampled", "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_bytes())
    assert document["command"] == "savings"
    assert document["params"] == {
        "log": str(log), "tau": 0.8, "embedder": "hash-v1", "allow_sampled": True, "seed": 0,
    }  # fmt: skip
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
    blocks = view(run(Plan(str(log), embedder="hash-v1")))
    assert [type(block) for block in blocks] == [Line, Table, Table, Table, Line, Line, Line]
    assert isinstance(blocks[-1], Line)
    assert blocks[-1].text.startswith("Not enough data")
    everything = view(run(Plan(str(log), embedder="hash-v1", allow_sampled=True)))
    assert sum(isinstance(block, Table) for block in everything) == 2


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


def test_a_distance_for_a_similarity(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savings", str(log), "--tau", "1.2"]) == 2
    assert "distance" in capsys.readouterr().err
