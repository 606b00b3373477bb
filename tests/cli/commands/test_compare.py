"""`recall compare` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recall_cli.cli.app import main

BENCH = Path(__file__).resolve().parents[3] / "results" / "bench.json"


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """The recorded bench with every lookup taking twice as long."""
    document = json.loads(BENCH.read_bytes())
    for row in document["rows"]:
        for key in ("p50", "p50_interval") if "lookup_us" in row else ():
            value = row["lookup_us"][key]
            row["lookup_us"][key] = [2 * end for end in value] if isinstance(value, list) else 2 * value
    path = tmp_path / "slower.json"
    path.write_text(json.dumps(document))
    return path


def test_the_same_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(BENCH), str(BENCH), "--fail-on", "regression"]) == 0
    assert "no difference shown" in capsys.readouterr().out


def test_a_regression_ends_with_3(slower: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(BENCH), str(slower)]) == 0
    assert "2.00x [" in capsys.readouterr().out
    assert main(["compare", str(BENCH), str(slower), "--fail-on", "regression"]) == 3
    assert "worse than before: hash-v1, entries=1000: lookup_us.p50" in capsys.readouterr().err
    assert main(["compare", str(slower), str(BENCH), "--fail-on", "regression"]) == 0, "faster is no regression"


def test_the_document(slower: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(BENCH), str(slower), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["verdicts"]["worse"] == 6
    assert document["command"] == "compare"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["nowhere.json", str(BENCH)], 4), ([str(BENCH), str(BENCH.with_name("eval.json"))], 2), ([str(BENCH)], 2)],
)
def test_what_cannot_be_compared(arguments: list[str], code: int) -> None:
    assert main(["compare", *arguments]) == code
