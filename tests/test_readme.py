"""README and docs/ say what the recorded results say, and README's commands are the ones CI runs."""

from __future__ import annotations

import json
import re
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from typer.main import get_command

from benchmarks import first_steps, serve_view
from benchmarks.peers import view as peers
from recall_cli.cli.app import app, main
from recall_cli.cli.commands import ann, bench, hub_eval, savings
from recall_cli.cli.commands import eval_view as evaluation
from recall_cli.cli.render.text import to_markdown
from recall_cli.measure.result import from_json
from recall_cli.measure.synthetic.sample_log import Kind, log_lines
from recall_cli.types import Result

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
VIEWS = {
    "bench": bench.view,
    "ann-bench": ann.view,
    "eval": evaluation.view,
    "hub eval": hub_eval.view,
    "savings": savings.view,
    "benchmarks/peers": peers.view,
    "benchmarks/first_steps": first_steps.view,
    "benchmarks/serve": serve_view.view,
}
RECORDED = re.compile(
    r"(<!-- recall:result (\S+) blocks=([\d,]+)(?: entries=(\d+))? -->\n)(.*?)(<!-- /recall:result -->)", re.S
)
RUN = re.compile(r"(<!-- recall:run (.+?) blocks=([\d,-]+) -->\n)(.*?)(<!-- /recall:run -->)", re.S)
"""What a command says of a log that `recall sample-log` makes: it runs while this test does."""
LOGS: dict[str, tuple[Kind, int]] = {"traffic.jsonl": ("help-desk", 2_000), "summaries.jsonl": ("summaries", 500)}
QUOTING = [
    page
    for page in (README, *sorted((ROOT / "docs").glob("*.md")))
    if re.search("<!-- recall:(result|run) ", page.read_text(encoding="utf-8"))
]


def rendered(path: str, blocks: str, entries: str | None) -> str:
    result = from_json((ROOT / path).read_bytes())
    if entries:
        # The same answers at every size need not be read three times.
        result.rows = [row for row in result.rows if row.get("entries") in (int(entries), None)]
        for name in ("by_kind", "cutoff_alone"):
            of = result.summary[name]
            result.summary[name] = {case: of[case] for case in of if case.endswith(f"@{entries}")}
    return shown(result, blocks)


def shown(result: Result, blocks: str) -> str:
    chosen = VIEWS[result.command](result)
    return to_markdown([chosen[int(number)] for number in blocks.split(",")])


@lru_cache
def run(command: str) -> Result:
    """The document of a command that reads one of the sample logs."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = command.split()
        for word in words:
            if word in LOGS:
                kind, n = LOGS[word]
                Path(word).write_bytes(b"".join(log_lines(kind, n, 0)))
        assert main([*words, "--out", "out.json"]) == 0
        return from_json(Path("out.json").read_bytes())


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_every_table_is_what_its_result_says(page: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    fresh = RECORDED.sub(lambda m: m[1] + rendered(m[2], m[3], m[4]) + m[6], text)
    fresh = RUN.sub(lambda m: m[1] + shown(run(m[2]), m[3]) + m[5], fresh)
    if request.config.getoption("--update-golden"):
        page.write_text(fresh, encoding="utf-8")
        text = fresh
    assert fresh == text, f"{page.name} is stale: run pytest tests/test_readme.py --update-golden"


def test_both_embedders_stand_in_the_first_table() -> None:
    first = RECORDED.search(README.read_text(encoding="utf-8"))
    assert first is not None
    assert "hash-v1" in first[5]
    assert "static" in first[5]


def test_the_two_commands_are_there_and_name_no_other_place() -> None:
    text = README.read_text(encoding="utf-8")
    for name in ("run", "test"):
        command = re.search(rf"<!-- command:{name} -->\n```bash\n(.*?)\n```", text, re.S)
        assert command is not None
        assert ".venv" in command[1]
        assert "../shared" not in command[1]


def test_the_log_lines_of_the_page_are_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "savings.md"
    (lines,) = re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (tmp_path / "log.jsonl").write_text(lines)
    assert main(["savings", str(tmp_path / "log.jsonl"), "--json", "-e", "hash-v1"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["requests"], summary["cacheable"]) == (2, 2)
    assert summary["spend_usd"] > 0


def test_every_command_in_readme_and_in_messages_exists() -> None:
    commands = set(get_command(app).commands)
    sources = [README, *(ROOT / "recall_cli").rglob("*.py")]
    for path in sources:
        for name in re.findall(r"`recall ([a-z][a-z-]+)|recall (?:--debug )?([a-z-]+) (?:--|STORE)", path.read_text()):
            assert (name[0] or name[1]) in commands, f"{path.name} names recall {name[0] or name[1]}"


def test_results_name_their_machine_and_commit() -> None:
    for path in (ROOT / "results").glob("*.json"):
        result = from_json(path.read_bytes())
        assert result.environment["cpu"]
        assert result.environment["packages"]["numpy"]
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text(encoding="utf-8"))
