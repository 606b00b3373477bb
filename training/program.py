"""Run one function as a program, with the options, messages and exit codes that the `recall` command has."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.main import get_command

from recall_cli.cli.output import note
from recall_cli.errors import RecallError


def run(function: Callable[..., Any], argv: Sequence[str] | None = None, *, name: str = "") -> int:
    """Run a function whose signature names its options; return the exit code.

    :param name: how the program is called, as its help shows it.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(function)
    try:
        get_command(app)(args=list(sys.argv[1:] if argv is None else argv), prog_name=name or None)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except RecallError as error:
        note(f"error: {error}", error.hint)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return 1
    return 0
