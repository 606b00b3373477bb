"""The rules of the house: who may import whom, no circle of files, how deep folders go, how long modules are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "recall_cli"
FILES = sorted(PACKAGE.rglob("*.py"))
DEPTH = 3
"""Folders inside the package, at most."""
LONGEST, SHORTEST = 600, 60
"""Lines of a module that needs no reason."""

# A package may import those to the right of it, itself, and nothing else of ours.
BASE = {"types", "errors", "stats", ""}
ALLOWED = {
    "cli": {"cli", "measure", "proxy", "hub", "logs", "postgres", "cache", "util"} | BASE,
    "measure": {"measure", "hub", "logs", "postgres", "cache", "util"} | BASE,
    "proxy": {"proxy", "hub", "logs", "postgres", "cache", "util"} | BASE,
    "hub": {"hub", "logs", "postgres", "cache", "util"} | BASE,
    "logs": {"logs", "cache", "util"} | BASE,
    "postgres": {"postgres", "cache", "util"} | BASE,
    "cache": {"cache", "util"} | BASE,
    "util": {"util"} | BASE,
    "stats": {""},
    "types": {""},
    "errors": {""},
    "__main__": {"cli"},
    # Programs that hold a cache themselves stand beside the command line; they measure nothing.
    "adapters": {"adapters", "proxy", "logs", "postgres", "cache", "util"} | BASE,
    # The package offers what programs use, each loaded when it is named.
    "": {"adapters", "cache"} | BASE,
}

REASONS = {
    # One file a format and one a command: short ones are as they should be.
    "recall_cli/logs/formats/": "a log format",
    "recall_cli/cli/commands/": "a command",
    # Longer than 600 lines.
    "recall_cli/cache/evidence/lexicon.py": "mostly tables of words",
    # Shorter than 60 lines.
    "recall_cli/__main__.py": "`python -m recall_cli`",
    "recall_cli/measure/embedder/rivals.py": "the one place that loads another package's embedder",
}
"""Modules that are longer or shorter than the others, or the folders of such, and why."""


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


MODULES = {module_of(path) for path in FILES}


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Every module of ours that the file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    assert not any(name.partition(".")[0] in ("training", "tests", "benchmarks") for name in found), path
    return frozenset(name for name in found if name.split(".")[0] == "recall_cli")


def test_arrows_run_down_only() -> None:
    wrong = {
        f"{module_of(path)} -> {name}"
        for path in FILES
        for name in imports_of(path)
        if floor_of(name) not in ALLOWED[floor_of(module_of(path))]
    }
    assert not wrong


def test_no_import_goes_in_a_circle() -> None:
    graph: dict[str, frozenset[str]] = {module_of(p): imports_of(p) - {module_of(p)} for p in FILES}
    # What the package offers it imports when a program names it, long after the version that modules take from it.
    graph["recall_cli"] = frozenset()
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module in done:
            return
        for name in graph.get(module, ()):
            walk(name, (*trail, module))
        done.add(module)

    for module in graph:
        walk(module, ())


def test_folders_are_at_most_three_deep() -> None:
    assert not [path for path in FILES if len(path.relative_to(PACKAGE).parts) > DEPTH + 1]


def test_a_module_is_as_long_as_its_idea() -> None:
    """A module of unusual length has a reason, or two modules that import it where it is short."""
    importers = Counter(name for path in FILES for name in imports_of(path) - {module_of(path)})
    wrong, needed = [], set()
    for path in FILES:
        name, lines = path.relative_to(PACKAGE.parent).as_posix(), len(path.read_text(encoding="utf-8").splitlines())
        if path.name == "__init__.py" or SHORTEST <= lines <= LONGEST:
            continue
        if lines < SHORTEST and importers[module_of(path)] >= 2:
            continue
        reason = next((key for key in REASONS if name.startswith(key)), None)
        needed.add(reason)
        if reason is None:
            wrong.append(f"{name}: {lines} lines")
    assert not wrong, "give it a reason in REASONS, or another shape"
    assert set(REASONS) == needed, "a reason that no module needs any more"


def loaded_by(*arguments: str) -> set[str]:
    """Modules loaded by one run of the command, in a process of its own."""
    code = (
        "import sys\nfrom recall_cli.cli.app import main\n"
        f"assert main({list(arguments)!r}) == 0\nprint('\\n'.join(['=='] + sorted(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(out.stdout.partition("==\n")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("bench", "--help"),
        ("savings", "--help"),
        ("serve", "--help"),
        ("hub", "query", "--help"),
        ("--version",),
    ],
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    heavy = {"numpy", "polars", "model2vec", "faiss", "hnswlib", "tokenizers", "matplotlib", "aiohttp", "genai_prices",
             "uvicorn", "starlette", "uvloop", "prometheus_client", "tantivy", "selectolax", "yaml", "mcp"}  # fmt: skip
    assert not heavy & loaded_by(*arguments)
