"""The arrows of the house, walked: who may import whom, no circles, no module too long."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "recall_cli"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400

# A floor may import the floors to the right of it, its own floor, and nothing else of ours.
BASE = {"types", "errors", "stats", ""}
ALLOWED = {
    "cli": {"cli", "measure", "server", "hub", "logs", "engine", "core"} | BASE,
    "measure": {"measure", "hub", "logs", "engine", "core"} | BASE,
    "server": {"server", "hub", "logs", "engine", "core"} | BASE,
    "hub": {"hub", "logs", "engine", "core"} | BASE,
    "logs": {"logs", "core"} | BASE,
    "engine": {"engine", "core"} | BASE,
    "core": {"core"} | BASE,
    "stats": {""},
    "types": {""},
    "errors": {""},
    "__main__": {"cli"},
    # Programs that hold a cache themselves stand beside the command line; they measure nothing.
    "adapters": {"adapters", "server", "logs", "engine", "core"} | BASE,
    # The package offers what programs use, each loaded when it is named.
    "": {"adapters", "core"} | BASE,
}


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
    return frozenset(name for name in found if name.split(".")[0] == "recall_cli")


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_arrows_run_down_only(path: Path) -> None:
    floor = floor_of(module_of(path))
    wrong = {name for name in imports_of(path) if floor_of(name) not in ALLOWED[floor]}
    assert not wrong, f"{module_of(path)} imports {sorted(wrong)}"


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


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_folders_are_one_level_deep() -> None:
    assert all(len(path.relative_to(PACKAGE).parts) <= 2 for path in FILES)


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
    heavy = {"numpy", "polars", "model2vec", "faiss", "hnswlib", "tokenizers", "aiohttp", "genai_prices",
             "uvicorn", "starlette", "uvloop", "prometheus_client", "tantivy", "selectolax", "yaml", "mcp"}  # fmt: skip
    assert not heavy & loaded_by(*arguments)
