"""The command line's manual, made from the commands themselves: `docs/cli.md` is this, word for word."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from recall_cli.cli.app import app

HEAD = """# The command line

Made from the commands by `pytest tests/test_docs.py --update-golden`; a test fails when they differ.

The result goes to standard output, everything else to standard error. Nearly every option has an environment variable,
and all may stand in `recall.toml`, here or in your settings folder, under their command's name; a flag comes first,
then the variable, then the file. Exit codes: 0 done, 1 failed, 2 usage, 3 a gate failed, 4 input cannot be read, 5
upstream or port, 130 interrupted.
"""

GENERAL = frozenset({"help", "install_completion", "show_completion"})


def manual() -> str:
    """Return the manual as Markdown."""
    root: Any = get_command(app)
    return "\n".join([HEAD, *(_section(path, command) for path, command in _commands(root, ()))])


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in command.commands.items():
        if inner.hidden:
            continue
        yield (*path, name), inner
        if hasattr(inner, "commands"):
            yield from _commands(inner, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    name = " ".join(("recall", *path))
    lines = [f"{'#' * (1 + len(path))} {name}", ""]
    for paragraph in _said(command.help or "").split("\n\n"):
        example = re.fullmatch(r"([\w ]+:) (recall [a-z].*)", paragraph)
        lines += [example[1], "", "```bash", example[2], "```", ""] if example else [paragraph, ""]
    kinds = get_type_hints(inspect.unwrap(command.callback)) if command.callback else {}
    rows = [_row(param, kinds) for param in command.params if param.name not in GENERAL]
    if rows:
        lines += ["| | default | variable | |", "| --- | --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _row(param: Any, kinds: dict[str, Any]) -> str:
    if param.param_type_name == "argument":
        names = param.metavar or param.name.upper()
    else:
        names = ", ".join((*param.opts, *param.secondary_opts))
        if not param.is_flag:
            names += f" {param.metavar or _kind(kinds[param.name])}"
    shown = ""
    if param.param_type_name == "option" and not param.is_flag and param.default not in (None, ""):
        shown = f"`{param.default}`"
    variable = param.envvar if isinstance(param.envvar, str) else ", ".join(param.envvar or ())
    cells = (f"`{names}`", shown, f"`{variable}`" if variable else "", _said(param.help or ""))
    return f"| {' | '.join(map(_cell, cells))} |"


def _kind(annotation: Any) -> str:
    """Return how the value of an option is called: N, X, TEXT, or its choices."""
    bare = next((kind for kind in get_args(annotation) if kind is not type(None)), annotation)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return "|".join(str(choice.value) for choice in bare)
    return {int: "N", float: "X"}.get(bare, "TEXT")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _said(text: str) -> str:
    """Return help as flowing text: its line breaks are the source's, its paragraphs are meant."""
    return "\n\n".join(re.sub(r"\s+", " ", part).strip() for part in text.split("\n\n"))
