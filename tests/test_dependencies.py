"""docs/dependencies.md says what was measured, of all that is asked for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dependencies import canonical, declared
from recall_cli.measure.result import load
from recall_cli.types import Result

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "pyproject.toml"
PAGE = ROOT / "docs" / "dependencies.md"
BLOCK = re.compile(r"(<!-- recall:dependencies -->\n).*?(<!-- /recall:dependencies -->)", re.S)
HEAD = ("package", "extra", "for", "licence", "MB", "brings", "MB with it", "CPU s")
MB = 1e6


@pytest.fixture(scope="module")
def recorded() -> Result:
    return load(str(ROOT / "results" / "dependencies.json"))


def line(row: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """One package of the table."""
    cells = (
        row["package"],
        "" if row["group"] == "recall" else row["group"],
        reasons[row["requirement"]],
        row["licence"],
        f"{row['bytes'] / MB:.1f}",
        f"{len(row['brings'])}",
        f"{(row['bytes'] + row['brings_bytes']) / MB:.1f}",
        f"{row['install_cpu_s']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def table(result: Result) -> str:
    """The lines of the page."""
    summary = result.summary
    reasons = {requirement: reason for _, requirement, reason in declared(PROJECT.read_text(encoding="utf-8"))}
    return "\n".join(
        [
            f"| {' | '.join(HEAD)} |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
            *(line(row, reasons) for row in result.rows),
            "",
            f"recall itself: a wheel of {summary['wheel_bytes'] / MB:.1f} MB, a source archive of"
            f" {summary['sdist_bytes'] / MB:.1f} MB, {summary['installed_bytes'] / MB:.1f} MB installed.",
            f"`pip install .` brings {summary['packages']} packages of {summary['packages_bytes'] / MB:.0f} MB in all,"
            f" in {summary['install_s']:.0f} s, {summary['install_cpu_s']:.0f} of them CPU.",
            "",
        ]
    )


def test_the_page_says_what_was_measured(recorded: Result, request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    fresh = BLOCK.sub(lambda found: found[1] + table(recorded) + found[2], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(fresh, encoding="utf-8")
        text = fresh
    assert BLOCK.search(text)
    assert fresh == text, "docs/dependencies.md is stale: run pytest tests/test_dependencies.py --update-golden"


def test_everything_that_everybody_gets_was_measured(recorded: Result) -> None:
    text = PROJECT.read_text(encoding="utf-8")
    asked = {canonical(name) for name in tomllib.loads(text)["project"]["dependencies"]}
    measured = {canonical(row["requirement"]) for row in recorded.rows if row["group"] == "recall"}
    assert measured == asked, "run benchmarks/dependencies.py --out results/dependencies.json"


def test_every_dependency_has_its_reason() -> None:
    for _, requirement, reason in declared(PROJECT.read_text(encoding="utf-8")):
        assert reason, f"{requirement}: a dependency has its reason beside it"
