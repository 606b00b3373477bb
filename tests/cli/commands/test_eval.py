"""`recall eval` as people and CI use it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from recall_cli.cli.app import main

QUICK = ["eval", "--workload", "sparse", "--runs", "2"]


def test_table_and_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    assert main([*QUICK, "--target", "0.02,0.05", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "sparse, target 2.0 %" in printed
    assert "static@best *" in printed
    document = json.loads(out.read_bytes())
    columns = {
        *("workload", "policy", "target", "hit_rate", "hit_rate_second_half", "false_hit_rate", "false_hit_interval"),
        *("error_per_query", "hits", "queries", "runs", "runs_over_target", "testable", "feasible", "audits"),
        "calls_saved_net",
    }
    assert all(columns <= row.keys() for row in document["rows"])
    assert {(row["policy"], row["target"]) for row in document["rows"]} >= {("adaptive", 0.02), ("static@0.8", 0.05)}


def test_several_workloads_get_an_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "-w", "sparse", "-w", "no-recurrence", "--runs", "1", "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    overview = printed[: printed.index("sparse, target")]
    assert "by workload" in overview
    assert [line.split("|")[1].strip(" ✗") for line in overview.splitlines() if line.startswith("| ")][2:] == [
        "sparse",
        "no-recurrence",
    ]


def test_your_own_classes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "class"])
        for thing in ("oven", "car", "sofa", "roof"):
            for form in ("how do I clean the {}", "how can I clean my {}", "cleaning the {}", "best way to clean a {}"):
                writer.writerow([form.format(thing), thing])
    assert main(["eval", "--classes", str(path), "--runs", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["workload"] for row in document["rows"]} == {str(path)}
    assert next(row for row in document["rows"] if row["policy"] == "static@0.8")["hits"] > 0


def test_several_classes_files_make_one_stream(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("kitchen", "garage"):
        rows = [f"how do I {verb} the {thing} of the {name},{thing}" for verb in ("clean", "mend", "find", "sell")
                for thing in ("door", "lamp", "key")]  # fmt: skip
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,class", *rows, ",nothing", *rows[:1]]))
    files = [f for name in ("kitchen", "garage") for f in ("--classes", str(tmp_path / f"{name}.csv"))]
    assert main(["eval", *files, "--limit", "5,garage=2", "--runs", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {entry["namespace"] for w in document["summary"]["workloads"].values() for entry in w["namespaces"]} == {
        "kitchen",
        "garage",
    }
    row = document["rows"][0]
    assert row["queries"] + row["exact_hits"] == 7
    left_out = [w["message"] for w in document["warnings"] if w["code"] == "ROWS_LEFT_OUT"]
    assert len(left_out) == 2
    assert "kitchen.csv" in left_out[0]
    assert main(["eval", *files, "--limit", "attic=2", "--runs", "1"]) == 2
    assert "garage, kitchen" in capsys.readouterr().err


def test_shuffled_labels_serve_about_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--workload", "tight", "--runs", "1", "--json", "--shuffle-labels"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(row for row in document["rows"] if row["policy"] == "adaptive")["hit_rate"] < 0.001


def test_the_gate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--min-hit-rate", "0.999"]) == 3
    printed = capsys.readouterr()
    assert "adaptive" in printed.out  # the table comes first
    assert "it may hit as little as" in printed.err


def test_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from recall_cli.measure.synthetic.text import pairs

    path = tmp_path / "pairs.jsonl"
    rows = [{"a": p.a, "b": p.b, "same": p.same, "category": p.category} for p in pairs(120, 3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["eval", "--pairs", str(path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert set(summary["auc"]) == {"similarity", "shipped", "cross_fitted"}
    assert {"0.01", "0.05"} <= summary["hit_rate_at_false_hit"]["shipped"].keys()
    assert main(["eval", "--pairs", str(path)]) == 0
    assert "cross-fitted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--workload", "mixt"], 2),
        (["--target", "0"], 2),
        (["--target", "1 %"], 2),
        (["--confidence", "1.5"], 2),
        (["--runs", "0"], 2),
        (["--order", "random"], 2),
        (["--limit", "5"], 2),
        (["--limit", "x=y", "--classes", __file__], 2),
        (["--tau-for", "topic"], 2),
        (["--tau-for", "topic=2"], 2),
        (["--classes", "nowhere.csv"], 4),
        (["--pairs", "nowhere.csv"], 4),
        (["--pairs", __file__], 4),
    ],
)
def test_mistakes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--runs", "1", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) >= 2
    assert "did not expect" not in printed.err


def test_cutoffs_of_single_namespaces_are_a_policy_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert "static" in {row["policy"] for row in plain["rows"]}
    names = [entry["namespace"] for entry in plain["summary"]["workloads"]["sparse"]["namespaces"]]

    assert main([*QUICK, "--json", "--tau-for", f"{names[0]}=1", "--tau-for", "nowhere=0.5"]) == 0
    document = json.loads(capsys.readouterr().out)
    by_policy = {row["policy"]: row for row in document["rows"]}
    # All but one namespace have 0.8.
    assert 0 < by_policy["static"]["hits"] < by_policy["static@0.8"]["hits"]
    own = {
        entry["namespace"]: entry["hits"]
        for entry in document["summary"]["workloads"]["sparse"]["namespaces"]
        if entry["policy"] == "static"
    }
    assert own[names[0]] == 0
    unknown = [warning for warning in document["warnings"] if warning["code"] == "UNKNOWN_NAMESPACE"]
    assert len(unknown) == 1
    assert "nowhere" in unknown[0]["message"]
    assert names[0] in unknown[0]["hint"]
