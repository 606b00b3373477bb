"""Settings from files: `./recall.toml`, then the user's folder. Flags and RECALL_* come first.

A table a command, with the options' names as keys:

    [bench]
    tau = 0.85
    entries = "1000,10000"
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from recall_cli.errors import InputError, UsageError

FILE_NAME = "recall.toml"


def load_settings(context: typer.Context) -> dict[str, Any]:
    """Return the defaults that the settings files give, nearest file first, as click reads them."""
    settings: dict[str, Any] = {}
    for path in settings_files():
        _merge(settings, _read(path, context))
    return settings


def settings_files() -> list[Path]:
    """Return the settings files that there are, the one that comes first last."""
    found = []
    for path in (Path(typer.get_app_dir("recall")) / FILE_NAME, Path(FILE_NAME)):
        try:
            exists = path.is_file()
        except OSError:
            continue  # a home that is not ours to read holds no settings of ours
        if exists:
            found.append(path)
    return found


def _read(path: Path, context: typer.Context) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="mend the file, or move it away") from error
    return _checked(tables, context.command, path, "")


def _checked(table: Mapping[str, Any], command: Any, path: Path, where: str) -> dict[str, Any]:
    """Return the table with option names as click knows them; an unknown name is an error, not a shrug."""
    commands: Mapping[str, Any] = getattr(command, "commands", {})
    options = {param.name: param for param in command.params}
    checked: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if key in commands and isinstance(value, Mapping):
            checked[key] = _checked(value, commands[key], path, f"{where}{key}.")
        elif where and name in options:
            # An option that may be repeated takes a list; a lone value is a list of one.
            checked[name] = [value] if options[name].multiple and not isinstance(value, list) else value
        else:
            known = [*commands, *(options if where else [])]
            near = difflib.get_close_matches(key, [str(k) for k in known], 1)
            raise UsageError(
                f"{path} sets {where}{key}, which recall does not know",
                hint=f"did you mean {near[0]}?" if near else f"known here: {', '.join(str(k) for k in known)}",
            )
    return checked


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
