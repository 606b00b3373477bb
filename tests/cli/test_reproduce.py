"""`recall reproduce`: recorded results run again and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recall_cli.cli.app import main
from recall_cli.errors import InputError
from recall_cli.measure import reproduce
from recall_cli.measure.result import load

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small results of each command that can be run again."""
    folder = tmp_path_factory.mktemp("results")
    small = ["--dims", "16", "--corpus", "300", "--queries", "40", "--lookups", "40", "--ef-search", "16"]
    for name, arguments in {
        "bench": ["bench", "--entries", "200", "--lookups", "60"],
        "ann-bench": ["ann-bench", *small],
        "eval": ["eval", "--workload", "tight", "--runs", "1"],
    }.items():
        assert main([*arguments, "--out", str(folder / f"{name}.json")]) == 0
    return folder


@pytest.mark.parametrize("name", ["bench", "ann-bench", "eval"])
def test_rates_come_out_the_same(name: str, recorded: Path) -> None:
    path = str(recorded / f"{name}.json")
    result = reproduce.run([path])
    told = result.summary[f"{name}.json"]
    assert told["run"]
    assert sum(told["verdicts"].values()) == len(result.rows)
    rates = [row for row in result.rows if row["unit"] == "difference"]
    assert rates
    for row in rates:
        assert row["a"] == row["b"], "what is drawn by chance is drawn by the recorded seed"
        assert row["verdict"] == "no difference shown"


def test_a_number_that_was_never_so_is_found(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((recorded / "bench.json").read_bytes())
    row = next(row for row in document["rows"] if row["embedder"] == "static")
    row |= {"false_hit_rate": 0.01, "false_hit_interval": [0.005, 0.02]}
    boast = tmp_path / "boast.json"
    boast.write_text(json.dumps(document))
    assert main(["reproduce", str(boast), "--fail-on", "regression"]) == 3
    said = capsys.readouterr()
    assert "static, entries=200: false_hit_rate" in said.err
    assert "now / then" in said.out


def test_what_cannot_be_run_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("serve", "eval-pairs-fow-cache-dev", "eval-real", "hub", "savings-scale")
    assert main(["reproduce", *(str(ROOT / "results" / f"{name}.json") for name in names)]) == 0
    said = capsys.readouterr().out
    for name in names:
        assert f"{name}.json: not run." in said
    assert "benchmarks/serve" in said
    assert "fow-pairs.jsonl" in said


def test_data_of_ones_own_are_looked_for_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    then = load(str(ROOT / "results" / "ann-bench-real.json"))
    with pytest.raises(reproduce.Unavailable, match=r"real-sentences\.txt"):
        reproduce._again(then, True)(None)


def test_a_quick_run_is_smaller_and_of_the_same_kind() -> None:
    given = {"runs": 200, "lookups": None, "entries": [1_000, 10_000, 50_000], "corpus": [50_000], "tau": 0.8}
    shortened = {name: reproduce._shortened(name, value) for name, value in given.items()}
    assert shortened == {"runs": 20, "lookups": None, "entries": [1_000, 10_000], "corpus": [50_000], "tau": 0.8}


def test_readmes_documents_are_the_ones_it_quotes(tmp_path: Path) -> None:
    found = reproduce.quoted(ROOT)
    assert str(ROOT / "results" / "bench.json") in found
    assert len(found) == len(set(found))
    assert all(Path(path).is_file() for path in found)
    with pytest.raises(InputError, match="no README"):
        reproduce.quoted(tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_result_can_be_run_or_says_why_not(path: Path) -> None:
    then = load(str(path))
    if then.command in ("bench", "ann-bench") or "workloads" in then.params:
        assert callable(reproduce._again(then, True))
    else:
        with pytest.raises(reproduce.Unavailable, match=r"\w+ recall"):
            reproduce._again(then, True)
