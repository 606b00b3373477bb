"""What `recall savings` says of the replay: tiers, walls, sweeps, samples."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.cli.commands.savings_view import duration, size_of
from tests.logs.log_writers import openai_call as call

NEW_YEAR = 1_767_225_600


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def printed(capsys: pytest.CaptureFixture[str], log: Path, lines: list[dict[str, Any]], *more: str) -> str:
    log.write_text("\n".join(map(json.dumps, lines)))
    assert main(["savings", str(log), *more]) == 0
    return re.sub(r" {2,}", "  ", capsys.readouterr().out)


def test_what_ignoring_the_walls_would_add(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [call("Where is the museum?", NEW_YEAR + 10 * i, tenant=f"{i // 2}") for i in range(6)]
    out = printed(capsys, log, lines)
    assert re.search(r"^ exact  3  50.0 %  [\d.]+ %  [\d.]+ %  5 $", out, re.MULTILINE)
    assert re.search(r"^ all, at best  3  50.0 %  [\d.]+ %  [\d.]+ %  5 $", out, re.MULTILINE)
    assert "A count of prompts alone would read 5 hits instead of 3" in out
    one = printed(capsys, log, [call("Where is the museum?", NEW_YEAR + 10 * i) for i in range(3)])
    assert "A count of prompts alone" not in one


def test_only_the_tiers_asked_for_are_shown(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [call("a", NEW_YEAR + 10 * i) for i in range(3)]
    out = printed(capsys, log, lines, "--tiers", "exact")
    assert "Answered, of 3 cacheable" in out
    assert "normalised" not in out
    assert "semantic" not in out
    assert "By lifetime of an answer (exact matching)" in out
    assert main(["savings", str(log), "--tiers", "fuzzy"]) == 2
    assert "choose exact, exact,normalised" in capsys.readouterr().err


def test_sweeps(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [call(f"{i % 4}", NEW_YEAR + 600 * i) for i in range(40)]
    out = printed(capsys, log, lines, "--ttl", "45m,2h,inf", "--capacity", "3,1MB,inf", "--tiers", "exact,normalised")
    # Each prompt comes again after 40 minutes; of three entries it is always the fourth that is asked for.
    for row in ("45 min  20  50.0 %  $0.070", "2 h  24  60.0 %  $0.084", "ever  36  90.0 %  $0.126",
                "3  15 B  0  0.0 %  –", "1.0 MB  20 B  36  90.0 %  $0.126", "all  20 B  36  90.0 %  $0.126",
                "1  7  3  42.9 %  15.8 %  75.0 %", "last three  20  20  100.0 %  83.9 %  100.0 %"):  # fmt: skip
        assert f" {row} " in out, row
    untimed = printed(capsys, log, [call("a", None) for _ in range(4)])
    assert "By lifetime" not in untimed
    assert "By sixth of the requests" in untimed


def test_no_sweep_where_nothing_hits(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, log, [call(f"{i}", NEW_YEAR + i) for i in range(3)], "-e", "hash-v1")
    assert "By lifetime" not in out
    assert "By size" not in out


def test_what_rules_make_of_semantic_answers(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ways = ("How do I reset my password?", "How can I reset my password?")
    lines = [
        call(way, NEW_YEAR + 100 * i + 50 * j, f"It takes {3 + i % 2 * j} days.", tenant=f"t{i}")
        for i in range(4)
        for j, way in enumerate(ways)
    ]
    out = printed(capsys, log, lines)
    assert "Of 4 semantic answers, compared by rules with the logged ones, 2 say the same, 2 another thing, 0 " in out
    assert "Share that is wrong: 50.0 % [15.0, 85.0]." in out
    learnt = printed(capsys, log, lines, "--policy", "adaptive", "--target", "0.02")
    assert "Answered by the adaptive policy, of 8 cacheable" in learnt
    # The last answer comes when the log is over.
    assert "learnt from 3 logged answers, for at most 2.0 % wrong, and checked 0 hits" in learnt


def test_what_a_sample_stands_for(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [call("a", NEW_YEAR + 3600 * i + at, tenant=f"t{at}") for i in range(3) for at in range(40)]
    out = printed(capsys, log, lines, "--sample", "0.5", "--tiers", "exact")
    found = re.search(r"Measured: 50.0 % of the namespaces, ([\d.]+) % of the requests. All of them would", out)
    assert found is not None
    assert 20 < float(found.group(1)) < 80


def test_units() -> None:
    assert [size_of(n) for n in (12, 1_200, 1_200_000, 5_000_000_000)] == ["12 B", "1.2 kB", "1.2 MB", "5.0 GB"]
    assert [duration(s) for s in (90, 7200, 172_800)] == ["1.5 minutes", "2.0 hours", "2.0 days"]
