"""`recall eval --log`, `--judge` and `--plot` as people use them: a real log, a real model server, a real picture."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from recall_cli.cli.app import main

SUBJECTS = ("password", "invoice", "address", "refund", "badge", "laptop", "visa", "parcel")
QUESTIONS = ("How do I change the {}?", "How can I change my {}?", "Changing the {}, how?", "please change my {}")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    rows = []
    for turn in range(12):
        for number, subject in enumerate(SUBJECTS):
            text = QUESTIONS[(turn + number) % 4].format(subject) + " " * (turn // 8)
            answer = (f"It takes {number + 2} days.", f"The {subject} is ready within {number + 2} days.")[turn % 2]
            body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]}
            rows.append(
                {
                    "timestamp": 1.7e9 + len(rows),
                    "request": body | ({"temperature": 1} if turn == 11 and number == 0 else {}),
                    "response": {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]},
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    return str(path)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """A server of a model that says "different"; yields what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            usage = {"prompt_tokens": 1_000, "completion_tokens": 1}
            reply = json.dumps({"choices": [{"message": {"content": "different"}}], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("RECALL_JUDGE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("RECALL_JUDGE_KEY", "s3cret")
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_table_and_document(log: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    assert main(["eval", "--log", log, "--target", "0.05,0.1", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    for said in ("in time order", "compare-2+", "sampled", "line: no JSON", "not judged", "open"):
        assert said in printed.out
    document = json.loads(out.read_bytes())
    columns = {
        *("workload", "policy", "target", "hit_rate", "hit_rate_second_half", "false_hit_rate", "false_hit_interval"),
        *("error_per_query", "hits", "queries", "runs", "runs_over_target", "testable", "feasible", "audits"),
        *("calls_saved_net", "judged_hits", "unsure_hits", "false_hit_bounds"),
    }
    assert all(columns <= row.keys() for row in document["rows"])
    facts = document["summary"]["workloads"][log]["log"]
    static = next(row for row in document["rows"] if row["policy"] == "static@0.8")
    assert static["queries"] + static["exact_hits"] + facts["excluded"]["sampled"] == 96
    assert facts["skipped"] == {"malformed_json": 1}
    assert {row["runs"] for row in document["rows"]} == {1}


def test_csv_gives_bounds_as_two_columns(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--log", log, "--format", "csv"]) == 0
    header = capsys.readouterr().out.splitlines()[0].split(",")
    assert {"false_hit_bounds_low", "false_hit_bounds_high"} <= set(header)


def test_other_orders_are_named(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--log", log, "--order", "shuffled", "--runs", "3"]) == 0
    printed = capsys.readouterr().out
    assert "3 random orders" in printed
    assert "in time order" not in printed
    assert main(["eval", "--log", log, "--runs", "3"]) == 2
    assert "--order shuffled" in capsys.readouterr().err


def test_beside_a_workload(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--log", log, "-w", "sparse", "--runs", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {(row["workload"], row["runs"]) for row in document["rows"]} == {(log, 1), ("sparse", 1)}


def test_a_judge(log: str, model: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    arguments = ["eval", "--log", log, "--judge", "llm:gpt-4o-mini", "--judge-limit", "5", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert len(model) == 5
    assert {body["model"] for body in model} == {"gpt-4o-mini"}
    document = json.loads(out.read_bytes())
    facts = document["summary"]["workloads"][log]["log"]
    assert facts["judge"]["said"] == {"same": 0, "different": 5, "unsure": 0}
    assert facts["judge"]["input_tokens"] == 5_000
    assert facts["judge"]["usd"] > 0
    assert facts["truth"]["comparator"].endswith("+llm:gpt-4o-mini")
    assert "llm:gpt-4o-mini was asked in 5 calls (limit 5)" in printed.out
    assert "error is not known" in printed.out
    assert "s3cret" not in printed.out + printed.err + out.read_text()
    assert main(["eval", "--log", log, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["summary"]["workloads"][log]["log"]["truth"]
    assert plain["unsure"] > facts["truth"]["unsure"]


def test_a_picture_of_a_log(log: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "eval.SVG"
    assert main(["eval", "--log", log, "--target", "0.05,0.1", "--plot", str(path)]) == 0
    data = path.read_bytes()
    root = ElementTree.fromstring(data)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = " ".join(" ".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ").split())
    assert "the target (5.0 %, 10.0 %)" in text
    assert "requests.jsonl: 1 run" in text
    # The same numbers give the same file.
    assert main(["eval", "--log", log, "--target", "0.05,0.1", "--plot", str(path)]) == 0
    assert path.read_bytes() == data
    assert "static@0.8" in capsys.readouterr().out


def test_a_picture_of_workloads_and_of_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from recall_cli.measure.synthetic.text import pairs

    picture = tmp_path / "eval.svg"
    presets = ["-w", "sparse", "-w", "no-recurrence"]
    assert main(["eval", *presets, "--runs", "1", "--plot", str(picture)]) == 0
    text = picture.read_text()
    assert "sparse: 1 run" in text
    assert "no-recurrence: 1 run" in text
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"a": p.a, "b": p.b, "same": p.same}) for p in pairs(120, 3)))
    assert main(["eval", "--pairs", str(path), "--plot", str(picture), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))["summary"]
    assert f"shipped (AUC {summary['auc']['shipped']:.2f})" in picture.read_text()
    for name in summary["auc"]:
        points = [point for point in summary["curve"] if point["scoring"] == name]
        assert [p["hits"] for p in points] == sorted(p["hits"] for p in points)
        assert points[-1]["hits"] + points[-1]["false_hits"] == summary["pairs"] - summary["other_context"]
    one_label = [json.dumps({"a": p.a, "b": p.b, "same": True}) for p in pairs(40, 3)]
    path.write_text("\n".join(one_label))
    assert main(["eval", "--pairs", str(path), "--plot", str(picture), "--json"]) == 0


def test_a_gate_that_fails_leaves_table_and_picture(
    log: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "eval.svg"
    assert main(["eval", "--log", log, "--min-hit-rate", "0.99", "--plot", str(path)]) == 3
    assert ElementTree.fromstring(path.read_bytes()) is not None
    assert "adaptive" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--log", "nowhere.jsonl"], 4, "nowhere.jsonl"),
        (["--log", "nowhere.jsonl", "--plot", "a.pdf"], 2, ".svg"),
        (["--log", "nowhere.jsonl", "--plot", "nowhere/a.svg"], 2, "--plot"),
        (["--log", "nowhere.jsonl", "--out", "same.svg", "--plot", "same.svg"], 2, "same.svg"),
        (["--log", "nowhere.jsonl", "--judge", "gpt"], 2, "llm:MODEL"),
        (["--log", "nowhere.jsonl", "--judge", "llm:m"], 2, "OPENAI_API_KEY"),
        (["--log", "nowhere.jsonl", "--target", "0.9"], 2, ""),
        (["--judge", "llm:m"], 2, "--log FILE"),
        (["--pairs", "a.csv", "--log", "b.jsonl"], 2, "by itself"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RECALL_JUDGE_URL", "RECALL_JUDGE_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["eval", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) >= 2
    assert "did not expect" not in printed.err
