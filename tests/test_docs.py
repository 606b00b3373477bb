"""The pages under docs/: every block of code in them runs, or is read by what would run it."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.main import get_command

from recall_cli.cli.app import app, main
from tests.manual import manual
from tests.proxy.answers import chat, message, reply_with
from tests.proxy.fake import FakeUpstream, Reply, Seen

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
README = ROOT / "README.md"
PAGES = [*DOCS, ROOT / "CONTRIBUTING.md"]
FENCE = re.compile(r"((?:<!-- [^\n]* -->\n)*)```(\w*)\n(.*?)```", re.S)
SHELL = {"bash", "console"}
KNOWN = {"", *SHELL, "python", "json", "toml", "text", "sql"}
OTHERS = {
    "pip",
    "python",
    "python3",
    "curl",
    "docker",
    "psql",
    "pytest",
    "ruff",
    "mypy",
    "export",
    ".",
    "cp",
    "systemctl",
    "git",
    "head",
    "tail",
}
"""Programs in the pages' shell blocks that are not ours."""


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """(marks, language, content) of each block."""
    yield from FENCE.findall(page.read_text(encoding="utf-8"))


def commands(content: str) -> Iterator[list[str]]:
    """The words of each command of a shell block."""
    for line in content.replace("\\\n", " ").splitlines():
        for joined in re.split(r"\s(?:&&|\|\|?|;)\s", line):
            words = shlex.split(joined.partition(" > ")[0], comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words:
                yield words


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    """What the pages' clients ask instead of a provider."""

    def answer(seen: Seen) -> Reply:
        said = f"You asked: {seen.json['messages'][-1]['content']}"
        return reply_with(message(said) if "/messages" in seen.target else chat(said), seen)

    running = FakeUpstream(answer)
    yield running
    running.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    for marks, language, content in blocks(page):
        assert language in KNOWN, f"{page.name} has a block of {language}"
        if language == "json":
            try:
                orjson.loads(content)
            except orjson.JSONDecodeError:
                for line in content.splitlines():  # a value a line
                    orjson.loads(line)
        # A database's tests run what is marked; other SQL would be read by nobody.
        assert language != "sql" or "sql:" in marks, f"{page.name} has SQL that no test runs"
        if language == "toml":
            tomllib.loads(content)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=lambda p: p.name
)
def test_python_runs(
    page: Path,
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The blocks of a page run one after the other, as a reader would type them; `# prints` says what they print."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", upstream.url)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "k-1")
    names: dict[str, Any] = {}
    ran = 0
    for marks, language, content in blocks(page):
        needs = re.search(r"needs: (\S+)", marks)
        if language != "python" or (needs and importlib.util.find_spec(needs[1]) is None):
            continue
        exec(compile(content, page.name, "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        assert printed == re.findall(r"# prints (.*)", content), content
        ran += 1
    assert ran


@cache
def recall() -> Any:
    """All commands: typer reads their signatures once for the many lines of the pages."""
    return get_command(app)


def found(words: list[str]) -> tuple[Any, Any, list[str]]:
    """The context of a command line, the command that it names, and what follows the name."""
    root = recall()
    command, rest = root, words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        names = rest[0].split("|")
        assert set(names) <= command.commands.keys(), " ".join(words)
        command, rest = command.commands[names[0]], rest[1:]
    return root.make_context("recall", words[1:2], resilient_parsing=True), command, rest


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_commands_are_ones_that_recall_takes(page: Path) -> None:
    for _, language, content in blocks(page):
        for words in commands(content) if language in SHELL else ():
            program = Path(words[0]).name or words[0]
            if program != "recall":
                assert program in OTHERS, f"{page.name}: {program}"
                continue
            # Read as it would be read, and not run: an unknown option or a missing argument raises here.
            context, command, rest = found(words)
            command.make_context(words[1], list(rest), parent=context)


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_commands_within_sentences_too(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for said in re.findall(r"`(recall [^`]+)`", prose):
        _, command, rest = found(said.split())
        known = {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
        for option in re.findall(r"--[a-z][a-z-]+", " ".join(rest)):
            assert option in known, f"{page.name}: {said}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- runs" in page.read_text("utf-8")], ids=lambda p: p.name
)
def test_marked_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is marked `<!-- runs -->` ends with 0; `<!-- runs: N -->` with N. In a folder with the recorded results."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    for marks, language, content in blocks(page):
        asked = re.search(r"<!-- runs(?:: (\d))? -->", marks)
        if language not in SHELL or not asked:
            continue
        for words in commands(content):
            assert main(words[1:]) == int(asked[1] or 0), f"{words}: {capsys.readouterr().err}"
            capsys.readouterr()


def test_the_manual_is_what_the_commands_say(request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "cli.md"
    if request.config.getoption("--update-golden"):
        page.write_text(manual(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == manual(), "run pytest tests/test_docs.py --update-golden"


def test_every_command_and_option_has_help() -> None:
    def walk(command: Any, path: str) -> None:
        assert command.help, path
        for param in command.params:
            assert param.name == "help" or param.help or param.param_type_name == "argument", f"{path} {param.name}"
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}")

    walk(recall(), "recall")


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), f"{page.name}: [{text}]({target})"
        if anchor and place.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in slugs, f"{page.name}: [{text}]({target})"
