"""`recall ann-bench` as people and scripts use it."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from recall_cli.cli.app import main
from recall_cli.cli.commands.ann import view
from recall_cli.measure.ann.ann_bench import COLUMNS
from recall_cli.measure.result import from_json

RESULTS = Path(__file__).resolve().parents[3] / "results"

QUICK = ["ann-bench", "--dims", "16", "--corpus", "300", "--queries", "40", "--lookups", "20", "--ef-search", "16"]


def test_table_and_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "ann.json"
    assert main([*QUICK, "--data", "random", "--data", "clustered", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "random, 16 dims: what is found" in printed
    assert "clustered, 16 dims: what it costs" in printed
    assert "40 fresh queries" in printed
    document = json.loads(out.read_bytes())
    assert [(row["data"], row["engine"]) for row in document["rows"]] == [
        (data, engine) for data in ("random", "clustered") for engine in ("exact", "scan", "hnsw")
    ]


def test_tune_prints_the_flag_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--tune", "--engines", "scan", "--min-recall", "0.9"]) == 0
    printed = capsys.readouterr().out
    assert "--index scan:" in printed


def test_a_gate_that_fails_prints_the_table_first(capsys: pytest.CaptureFixture[str]) -> None:
    bad = [
        "--dims",
        "64",
        "--corpus",
        "2000",
        "--engines",
        "hnsw",
        "--M",
        "2",
        "--ef-construction",
        "4",
        "--ef-search",
        "2",
    ]
    assert main([*QUICK, *bad, "--min-recall", "0.95", "--gate", "all"]) == 3
    printed = capsys.readouterr()
    assert "✗" in printed.out
    assert "do not hold" in printed.err
    assert "--tune" in printed.err


def test_where_exact_search_is_faster_the_choice_says_so() -> None:
    from recall_cli.cli.commands.ann import view
    from recall_cli.measure.result import new_result

    cell = {"data": "random", "dims": 16, "corpus": 300, "index": "scan:refine=48", "p50_us": 9.0, "exact_p50_us": 5.0}
    result = new_result("ann-bench", {"tau": 0.8})
    for exact, said in ((5.0, True), (20.0, False)):
        result.summary = {"min_recall": 0.98, "gate": "near", "chosen": [cell | {"exact_p50_us": exact}]}
        text = " ".join(getattr(block, "text", "") for block in view(result))
        assert "--index scan:refine=48" in text
        assert ("Exact search is faster here" in text) is said


def test_tuning_in_vain_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    bad = ["--dims", "64", "--engines", " hnsw ", "--M", "2", "--ef-search", "2"]
    assert main([*QUICK, *bad, "--corpus", "2000", "--ef-construction", "4", "--tune", "--gate", "all"]) == 3
    printed = capsys.readouterr()
    assert "no setting holds." in printed.out
    assert "no setting holds a recall@1 of 0.98" in printed.err


def test_lists_and_tuning_are_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--M", "32", "--ef-search", "64,160", "--refine", "48", "--codes", "0,16"]
    assert main([*QUICK, *given, "--tune", "--min-recall", "0.9", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["engine"], row["params"].get("m"), row["params"].get("ef_search")) for row in rows] == [
        ("exact", None, None),
        ("scan", None, None),
        ("scan", 16, None),
        ("hnsw", None, 64),
        ("hnsw", None, 160),
    ]


def test_many_neighbours_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--top-k", "10", "--engines", "scan"]) == 0
    assert "scan k10" in capsys.readouterr().out


def test_what_a_log_leaves_out_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": ""}]}
    lines = [
        json.dumps({"request": {**body, "messages": [{"role": "user", "content": f"clean my {n} ovens"}]}})
        for n in range(40)
    ]
    data = gzip.compress("\n".join([*lines, "{half a li"]).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["ann-bench", "--data", "-", "--corpus", "20", "--engines", "exact", "--lookups", "20"]) == 0
    printed = capsys.readouterr()
    assert "malformed_json 1" in printed.err
    assert "-, 256 dims" in printed.out


@pytest.mark.parametrize("name", ["ann-bench", "ann-bench-real", "ann-topk", "ann-tune-random"])
def test_recorded_results_are_still_drawn(name: str) -> None:
    recorded = from_json((RESULTS / f"{name}.json").read_bytes())
    blocks = view(recorded)
    assert len(blocks) >= 3 * len({(row["data"], row["dims"]) for row in recorded.rows})
    assert all(COLUMNS.keys() <= row.keys() for row in recorded.rows)


def test_resume_takes_finished_cells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "ann.json")
    assert main([*QUICK, "--out", out, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["rows"]
    assert main([*QUICK, "--out", out, "--json", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == first


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--dims", "many"], 2),
        (["--corpus", "0"], 2),
        (["--engines", "faiss"], 2),
        (["--near", "0.9"], 2),
        (["--near", "0.9,0.8"], 2),
        (["--min-recall", "1"], 2),
        (["--gate", "some", "--min-recall", "0.9"], 2),
        (["--gate", "some"], 2),
        (["--tau", "1.5"], 2),
        (["--tune", "--top-k", "1,10"], 2),
        (["--data", "random", "--data", "random"], 2),
        (["--corpus", "100000000000"], 2),
        (["--resume"], 2),
        (["--M", "1"], 2),
        (["--cluster-cosine", "1"], 2),
        (["--data", "nowhere.npy"], 4),
        (["--data", "nowhere.txt"], 4),
    ],
)
def test_mistakes_are_a_sentence_and_a_next_step(
    extra: list[str], code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, *extra]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) >= 2
    assert "did not expect" not in printed.err


@pytest.mark.parametrize("spec", ["exact", "scan:m=128,refine=64", "hnsw:M=8,ef_search=64", "auto:scan_at=200"])
def test_bench_takes_every_index(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "-e", "static", "--entries", "400", "--lookups", "20", "--index", spec, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["index"].startswith(spec)
    low, high = row["nearest_found_interval"]
    assert low <= row["nearest_found_rate"] <= high
    if spec == "exact":
        assert row["nearest_found_rate"] == 1


@pytest.mark.parametrize("spec", ["flat", "hnsw:M=many", "hnsw:L=3", "scan:m=0", "hnsw:M=1"])
def test_an_index_that_cannot_be_made(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--index", spec]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 2
