"""`python -m training.reproduce`: recorded results run again and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import evaluation_sets
from recall_cli.cli.app import main
from recall_cli.errors import InputError, UsageError, extra_hint
from recall_cli.measure.result import load, new_result, to_json
from training import program, reproduce
from training.reproduce import Unavailable, recipes

ROOT = Path(__file__).resolve().parents[2]


def command(arguments: list[str]) -> int:
    return program.run(reproduce.reproduce, arguments)


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
    assert command([str(boast), "--fail-on", "regression"]) == 3
    said = capsys.readouterr()
    assert "static, entries=200: false_hit_rate" in said.err
    assert "now / then" in said.out


def test_what_cannot_be_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("eval-pairs-fow-cache-dev", "eval-real", "hub", "ann-bench-real")
    assert command([*(str(ROOT / "results" / f"{name}.json") for name in names)]) == 0
    said = capsys.readouterr().out
    for name in names:
        assert f"{name}.json: not run." in said
    assert "--data" in said
    assert "benchmarks/collect_text.py" in said


def test_an_installed_recall_finds_the_clone_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README installs a copy: the package does not lie beside the results then."""
    monkeypatch.setattr(reproduce, "PACKAGE", tmp_path / "site-packages" / "recall_cli")
    for here in (ROOT, ROOT / "docs"):
        monkeypatch.chdir(here)
        assert reproduce.checkout() == ROOT
        assert command(["--quick", "--plan"]) == 0
        assert "bench.json" in capsys.readouterr().out


def test_where_there_is_no_clone_the_way_to_it_is_said_in_readmes_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "PACKAGE", tmp_path / "site-packages" / "recall_cli")
    (tmp_path / "README.md").write_text("another project, with results/bench.json")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert command(["--quick"]) == 4
    said = capsys.readouterr().err
    assert "Traceback" not in said
    there = re.search(r"run there: (.*?);", said)
    assert there
    assert f"`{there[1]}`" in (ROOT / "README.md").read_text()


def test_packages_that_are_missing_are_named_with_readmes_command(checkout: Path) -> None:
    (checkout.parents[1] / "made.py").write_text("import a_package_that_nobody_has")
    recipe(checkout, 'steps = ["python -m made --out {out}"]')
    (told,) = reproduce.run([str(checkout)]).summary.values()
    assert not told["run"]
    assert "No module named 'a_package_that_nobody_has'" in told["reason"]
    command = told["reason"].rpartition("): ")[2]
    assert command in (ROOT / "README.md").read_text()


def test_an_error_of_one_document_leaves_the_others_to_run(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise UsageError("a tokenizer is not installed", hint=extra_hint("fast"))

    monkeypatch.setattr(reproduce, "_bench", fail)
    assert command([str(recorded / "bench.json"), str(recorded / "ann-bench.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "bench.json: not run. A tokenizer is not installed: pip install '.[fast]'" in said
    assert "no difference shown" in said


def test_a_step_of_recall_that_fails_says_what_to_do(checkout: Path) -> None:
    recipe(checkout, 'steps = ["recall eval --pairs no-such-file.jsonl --out {out}"]')
    (told,) = reproduce.run([str(checkout)]).summary.values()
    assert "ended with exit code 4: error: " in told["reason"]
    assert told["reason"].endswith(")")


SCRIPT = """
import argparse, shutil
parser = argparse.ArgumentParser()
for name in ("--out", "--data", "--times"):
    parser.add_argument(name)
given = parser.parse_args()
assert given.times != "0", "no time at all"
text = open("SOURCE", encoding="utf-8").read().replace('"calls_per_s": 10', f'"calls_per_s": {given.times or 10}')
open(given.out, "w", encoding="utf-8").write(text)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a result that a script makes, and its recipe."""
    made = new_result("benchmarks/made", {"n": 3})
    made.summary = {"calls_per_s": 10, "of": {"n": 3}, "rate": 0.5, "rate_interval": [0.4, 0.6]}
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "made.json"
    path.write_bytes(to_json(made))
    (tmp_path / "made.py").write_text(SCRIPT.replace("SOURCE", str(path)))
    return path


def recipe(checkout: Path, text: str) -> None:
    (checkout.parent / "recipes.toml").write_text(f"[made]\nminutes = 2\n{text}\n")


def test_a_scripts_numbers_stand_beside_the_recorded_ones(checkout: Path) -> None:
    recipe(checkout, 'steps = ["python -m made --out {out}"]\nquick = "--times 5"')
    (told,) = (full := reproduce.run([str(checkout)])).summary.values()
    assert told["run"]
    assert {row["verdict"] for row in full.rows} == {"no difference shown"}
    assert {row["measure"] for row in full.rows} == {"calls_per_s", "of.n", "rate"}
    quick = {row["measure"]: row for row in reproduce.run([str(checkout)], quick=True).rows}
    assert (quick["calls_per_s"]["a"], quick["calls_per_s"]["b"]) == (10, 5)
    assert quick["calls_per_s"]["verdict"] == "not tested", "without an interval nobody knows what 5 for 10 means"
    assert quick["rate"]["change_interval"], "what has an interval is tested, whoever made it"


def test_a_plan_runs_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe(checkout, 'steps = ["python -m made --times 0 --out {out}"]')
    assert command(["--plan", str(checkout), str(ROOT / "results" / "bench.json")]) == 0
    said = capsys.readouterr().out
    assert "made.json" in said
    assert "bench.json" in said
    assert "In full they take about 3 minutes." in said


def test_a_script_that_fails_or_lacks_its_data_is_named(checkout: Path, tmp_path: Path) -> None:
    for text, data, reason in (
        ('steps = ["python -m made --times 0 --out {out}"]', None, "exit code 1: AssertionError: no time at all"),
        ('steps = ["python -m made --data {data} --out {out}"]', None, "name their folder with --data"),
        ('sets = true\nsteps = ["python -m made --out {out}"]', None, "name their folder with --data"),
        ('sets = true\nsteps = ["python -m made --out {out}"]', tmp_path, "benchmarks.evaluation_sets"),
        ('reason = "it was a dream"', tmp_path, "it was a dream"),
    ):
        recipe(checkout, text)
        (told,) = reproduce.run([str(checkout)], data=data).summary.values()
        assert not told["run"]
        assert reason in told["reason"]
    recipe(checkout, 'stpes = ["python -m made"]')
    with pytest.raises(InputError, match="stpes"):
        reproduce.run([str(checkout)])


@pytest.mark.shared
def test_the_public_sets_are_laid_out_as_they_were_recorded(shared_data: Path, tmp_path: Path) -> None:
    """All that a recipe names is there, under names that are in the recorded params."""
    evaluation_sets.lay_out(shared_data, tmp_path / "sets")
    for name, known in recipes(ROOT / "results").items():
        for word in (word for step in known.steps for word in step.format(out="", data=shared_data).split()):
            if known.sets and (word.endswith((".jsonl", ".csv")) or "/" in word):
                assert (tmp_path / "sets" / word).exists(), f"{name}: {word}"
    (pairs,) = (tmp_path / "sets").glob("fow-pairs.jsonl")
    assert load(str(ROOT / "results" / "eval-pairs-fow-cache-dev.json")).params["pairs"] == pairs.name


def test_data_of_ones_own_are_looked_for_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    then = load(str(ROOT / "results" / "ann-bench-real.json"))
    with pytest.raises(Unavailable, match=r"real-sentences\.txt"):
        reproduce._again(then, True)(None)


def test_a_quick_run_is_smaller_and_of_the_same_kind() -> None:
    given = {"runs": 200, "lookups": None, "entries": [1_000, 10_000, 50_000], "corpus": [50_000], "tau": 0.8}
    shortened = {name: reproduce._shortened(name, value) for name, value in given.items()}
    assert shortened == {"runs": 20, "lookups": None, "entries": [1_000, 10_000], "corpus": [50_000], "tau": 0.8}


def test_every_document_that_the_pages_name_is_run_or_says_why_not() -> None:
    found = reproduce.quoted(ROOT)
    assert len(found) == len(set(found))
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "recall_cli" / "model" / "MODEL.md"):
        for name in re.findall(r"results/([\w-]+\.json)", page.read_text(encoding="utf-8")):
            assert str(ROOT / "results" / name) in found, f"{page.name} quotes {name}, which is not there"


def test_every_recipe_is_of_a_document_and_of_modules_that_are_there() -> None:
    for name, known in recipes(ROOT / "results").items():
        assert (ROOT / "results" / f"{name}.json").is_file(), name
        for step in known.steps:
            program, *words = step.split()
            if program == "python":
                assert words[0] == "-m", step
                place = ROOT / words[1].replace(".", "/")
                assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), step
            else:
                assert program == "recall", step
        assert not known.steps or "{out}" in known.steps[-1], name


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_result_can_be_run_or_says_why_not(path: Path) -> None:
    (told,) = reproduce.run([str(path)], data=ROOT, only_plan=True).summary.values()
    assert told["run"] or told["reason"]
    if load(str(path)).command in ("bench", "ann-bench", "eval", "hub eval"):
        assert told["run"] or path.stem == "ann-bench-real"
