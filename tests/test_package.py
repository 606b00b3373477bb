"""What users get: the wheel and the source archive, made of what git holds, and their types."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from benchmarks.dependencies import canonical
from recall_cli import __version__
from recall_cli.errors import REINSTALL, extra_hint

ROOT = Path(__file__).resolve().parents[1]
NAME = f"recall_cli-{__version__}"
FOR_DEVELOPERS = {".ci/run"}
"""What git holds and the source archive does not."""

PROGRAM = """
import sys
from pathlib import Path

import recall_cli
from recall_cli import Completion, open_cache, text_request
from recall_cli.measure.workload import bundled

assert Path(recall_cli.__file__).parent.parent == Path(sys.argv[1]), recall_cli.__file__
assert bundled().queries
cache = open_cache("answers.db")
asked = text_request("How do I reset my password?")
cache.put(asked, Completion(b"By the link."), cache.get(asked).vector)
print(cache.get(text_request("how can I reset my password")).decision.outcome)
cache.close()
"""

TYPED_PROGRAM = '''
"""What a user writes, as strict type checkers read it."""

from typing import assert_type

import httpx

from recall_cli import AsyncCachedTransport, CachedTransport, Completion, open_cache, text_request
from recall_cli.cache.cache import Cache
from recall_cli.types import Lookup, Outcome, Request

cache = open_cache("answers.db", tau=0.9)
assert_type(cache, Cache)
request = text_request("How do I reset my password?")
assert_type(request, Request)
found = cache.get(request)
assert_type(found, Lookup)
assert_type(found.completion, Completion | None)
assert_type(found.decision.outcome, Outcome)
if found.completion is None:
    cache.put(request, Completion(b"By the link."), found.vector)
httpx.Client(transport=CachedTransport(cache))
httpx.AsyncClient(transport=AsyncCachedTransport(cache))
open_cache(3)  # type: ignore[arg-type]  # were the names of no known type, this would be an ignore for nothing
'''


WITH_OTHERS = {
    "httpx", "httpx2",  # the clients of whoever gives us to one
    "psycopg_pool",  # psycopg[pool]
    "pydantic",  # mcp's own words
    "tiktoken",  # used where it is there
}  # fmt: skip
"""Modules of packages that are rightly not asked for."""


def imported() -> set[str]:
    """The top modules that the package imports, inside functions too, and that are not Python's or ours."""
    nodes = (node for path in (ROOT / "recall_cli").rglob("*.py") for node in ast.walk(ast.parse(path.read_bytes())))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "recall_cli"}


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Return the paths that git holds."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a wheel and a source archive, built from what git holds and nothing else."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, checkout / name)
    build(checkout, out)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel unpacked, which is all that installing one without its dependencies does."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel_in(built)) as archive:
        archive.extractall(site)
    return site


def build(source: Path, out: Path, *targets: str) -> None:
    arguments = [argument for target in targets for argument in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *arguments, "-d", str(out)],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )


def wheel_in(folder: Path) -> Path:
    return folder / f"{NAME}-py3-none-any.whl"


def contents(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def metadata(folder: Path) -> Message:
    with zipfile.ZipFile(wheel_in(folder)) as archive:
        return message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))


def test_the_wheel_holds_the_package_and_nothing_else(built: Path, tracked: list[str]) -> None:
    facts = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"}
    wanted = {name for name in tracked if name.startswith("recall_cli/")}
    wanted |= {f"recall_cli/_{name}" for name in tracked if name.startswith("workloads/")}
    assert {"recall_cli/py.typed", "recall_cli/model/model.safetensors", "recall_cli/_workloads/bench.toml"} <= wanted
    assert set(contents(wheel_in(built))) == wanted | {f"{NAME}.dist-info/{name}" for name in facts}


def test_the_source_archive_makes_the_same_wheel(built: Path, tracked: list[str], tmp_path: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / NAME
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert found == (set(tracked) - FOR_DEVELOPERS) | {"PKG-INFO"}
    build(source, tmp_path, "wheel")
    assert contents(wheel_in(tmp_path)) == contents(wheel_in(built))


def test_the_licences_travel_with_it(built: Path, installed: Path) -> None:
    said = metadata(built)
    assert said["License-Expression"] == "Apache-2.0"
    assert said.get_all("License-File") == ["LICENSE", "NOTICE"]
    for name in ("LICENSE", "NOTICE"):
        assert (installed / f"{NAME}.dist-info" / "licenses" / name).read_bytes() == (ROOT / name).read_bytes()


def test_every_dependency_has_a_lower_bound_and_comes_from_the_registry(built: Path) -> None:
    required = metadata(built).get_all("Requires-Dist") or []
    assert len(required) > 20
    for requirement in required:
        assert ">=" in requirement, f"{requirement}: which is the oldest that works?"
        assert "@" not in requirement, f"{requirement}: an address, not a version"


def test_the_list_of_changes_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.M)[0] == __version__


def test_what_is_imported_is_asked_for() -> None:
    """A package that comes only because another one needs it may be gone with that one's next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {canonical(name) for name in project["dependencies"]}
    asked |= {canonical(name) for extra in project["optional-dependencies"].values() for name in extra}
    made = packages_distributions()
    strange = {module for module in imported() if not asked & {canonical(name) for name in made.get(module, [module])}}
    assert strange == WITH_OTHERS


def test_installed_it_finds_its_model_and_workloads(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(installed)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "SEMANTIC\n"), done.stderr


def test_a_users_program_is_typed(installed: Path, tmp_path: Path) -> None:
    """Four seconds of type checking: nothing cheaper sees what a user's type checker does of an installed package."""
    (tmp_path / "program.py").write_text(TYPED_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "program.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


INDEX_INSTALL = re.compile(
    r"\b(?:pip3?|pipx|uv|poetry)\b[^\n`&;|]*\b(?:install|add)\s(?:[^\n`&;|]*[\s'\"])?recall(?:[-_]cli)?(?!'s)(?![\w./-])"
    r"|install recall[-_]cli|recall[-_]cli\["
)
"""An install of this project by a name, as from a package index, where a stranger's package has that name."""


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    """No page, help text, message or script does it: pip would fetch whatever an index has under the name."""
    for told in (
        "pip install 'recall-cli[mcp]'",
        "uv pip install -U recall_cli",
        "reinstall recall-cli",
        "pip install recall",
    ):
        assert INDEX_INSTALL.search(told)
    for told in (
        "pip install . && recall bench",
        f"{REINSTALL}; then go on",
        extra_hint("mcp"),
        "pip install '.[mcp]'",
    ):
        assert not INDEX_INSTALL.search(told)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*"), *(ROOT / "workloads").rglob("*")]
    code = [
        *(ROOT / "recall_cli").rglob("*"),
        *(ROOT / "benchmarks").rglob("*"),
        *(ROOT / "training").rglob("*"),
        ROOT / "results" / "recipes.toml",
    ]
    texts = [path for path in (*pages, *code) if path.suffix in (".md", ".py", ".toml") or path.name == "Dockerfile"]
    assert len(texts) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if INDEX_INSTALL.search(line)
    ]
    assert found == []


def test_every_extra_that_a_hint_names_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set()
    for path in (*(ROOT / "recall_cli").rglob("*.py"), *(ROOT / "training").rglob("*.py")):
        named |= set(re.findall(r'extra_hint\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        named |= set(re.findall(r"pip install (?:-\S+ )*'\.\[(\w+)\]'", path.read_text(encoding="utf-8")))
    assert {"mcp", "postgres", "tokens", "train", "verify"} <= named <= set(extras)
