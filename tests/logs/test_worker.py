"""A second process reads as the first would: the same records, counts and errors; and it ends with whoever asked."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from recall_cli.errors import InputError, RecallError, UsageError
from recall_cli.logs import worker
from recall_cli.logs.read import read_logs
from recall_cli.logs.report import ReadReport
from recall_cli.logs.worker import read_ahead
from recall_cli.util import subprocess_worker
from tests.logs.log_writers import CALLS, WRITERS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Let a second process read whatever the size, and hold each that is started."""
    held: list[subprocess.Popen[bytes]] = []

    def start(module: str) -> subprocess.Popen[bytes]:
        held.append(subprocess_worker.start(module))
        return held[-1]

    monkeypatch.setattr(worker, "LARGE_BYTES", 0)
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(worker, "start", start)
    return held


def line(question: str) -> str:
    request = {"model": "gpt-4o", "temperature": 0, "messages": [{"role": "user", "content": question}]}
    answer = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}
    return json.dumps({"ts": 1_790_000_000, "cost": "0.0120", "request": request, "response": answer}) + "\n"


def test_every_format_is_read_as_in_one_process(tmp_path: Path, started: list[Any]) -> None:
    paths: list[str] = []
    for at, writer in enumerate(writer for writers in WRITERS.values() for writer in writers):
        folder = tmp_path / str(at)
        folder.mkdir()
        paths += map(str, writer(CALLS, folder).paths)
    odd = tmp_path / "odd.jsonl"
    odd.write_text(line("a lone \\ud800 surrogate") + "{broken\n" + line("twice") * 2)
    here, there = ReadReport(), ReadReport()
    progress: list[int] = []
    wanted = list(read_logs([*paths, str(odd)], here))
    assert list(read_ahead([*paths, str(odd)], there, on_bytes=progress.append)) == wanted
    assert there == here
    assert here.skipped["malformed_json"]
    assert progress == sorted(progress)
    assert progress[-1] > 0
    assert [reader.returncode is None for reader in started] == [False]


def test_values_that_are_no_json_arrive_too(tmp_path: Path, started: list[Any]) -> None:
    table = tmp_path / "log.parquet"
    rows = {"prompt": ["Where?"], "response": ["Here."], "stop": [Decimal("0.10")]}
    pl.DataFrame(rows).write_parquet(table)
    wanted = list(read_logs([str(table)], ReadReport()))
    assert wanted[0].request["stop"] == Decimal("0.10")
    assert list(read_ahead([str(table)], ReadReport())) == wanted
    assert len(started) == 1


def test_errors_are_those_of_one_process(tmp_path: Path, started: list[Any]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n")
    for error, arguments in ((InputError, {}), (UsageError, {"format": "no such"})):
        with pytest.raises(error) as here:
            list(read_logs([str(log)], ReadReport(), **arguments))
        tally = ReadReport()
        with pytest.raises(error) as there:
            list(read_ahead([str(log)], tally, **arguments))
        assert (str(there.value), there.value.hint) == (str(here.value), here.value.hint)
        assert tally.lines == (error is InputError)
    with pytest.raises(InputError, match="there is no file"):
        list(read_ahead([str(tmp_path / "none")], ReadReport()))
    assert len(started) == 2


def test_whoever_stops_early_leaves_no_process_behind(tmp_path: Path, started: list[Any]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(line("x" * 10_000) * 1_000)
    records = read_ahead([str(log)], ReadReport())
    next(records)
    assert started[0].poll() is None
    records.close()
    assert started[0].returncode is not None


def test_a_killed_reader_is_an_error_not_the_end_of_the_log(tmp_path: Path, started: list[Any]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(line("x" * 10_000) * 1_000)
    records = read_ahead([str(log)], ReadReport())
    next(records)
    started[0].kill()
    with pytest.raises(RecallError, match="was ended"):
        list(records)


def test_small_logs_and_pipes_need_no_second_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(line("Where?"))
    assert worker._alone([str(log)])
    monkeypatch.setattr(worker, "LARGE_BYTES", 0)
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 2)
    assert not worker._alone([str(log)])
    assert worker._alone([str(log), "-"])
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 1)
    assert worker._alone([str(log)])
