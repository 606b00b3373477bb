"""README says what the recorded results say, and its commands are the ones CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recall_cli.cli import bench
from recall_cli.cli.render import to_markdown
from recall_cli.measure.result import from_json

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
VIEWS = {"bench": bench.view}
BLOCK = re.compile(r"(<!-- recall:result (\S+) blocks=([\d,]+) -->\n)(.*?)(<!-- /recall:result -->)", re.S)
VALUE = re.compile(r"<!-- (\S+\.json) (\S+) -->([^<]+)<!-- / -->")


def rendered(path: str, blocks: str) -> str:
    result = from_json((ROOT / path).read_bytes())
    chosen = VIEWS[result.command](result)
    return to_markdown([chosen[int(number)] for number in blocks.split(",")])


def test_every_table_is_what_its_result_says(request: pytest.FixtureRequest) -> None:
    text = README.read_text(encoding="utf-8")
    assert BLOCK.search(text), "README shows no result"
    fresh = BLOCK.sub(lambda m: m[1] + rendered(m[2], m[3]) + m[5], text)
    if request.config.getoption("--update-golden"):
        README.write_text(fresh, encoding="utf-8")
        text = fresh
    assert fresh == text, "README is stale: run pytest tests/test_readme.py --update-golden"


def test_both_embedders_stand_in_the_first_table() -> None:
    first = BLOCK.search(README.read_text(encoding="utf-8"))
    assert first is not None
    assert "hash-v1" in first[4]
    assert "static" in first[4]


def test_the_two_commands_are_there_and_name_no_other_place() -> None:
    text = README.read_text(encoding="utf-8")
    for name in ("run", "test"):
        command = re.search(rf"<!-- command:{name} -->\n```bash\n(.*?)\n```", text, re.S)
        assert command is not None
        assert ".venv" in command[1]
        assert "../shared" not in command[1]


def test_results_name_their_machine_and_commit() -> None:
    for path in (ROOT / "results").glob("*.json"):
        result = from_json(path.read_bytes())
        assert result.environment["cpu"]
        assert result.environment["packages"]["numpy"]
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text(encoding="utf-8"))
