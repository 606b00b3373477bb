"""The `recall` command: its sub-commands, settings, and how errors become exit codes.

Nothing here imports numpy, polars or a model: each command imports what it needs inside its body,
so that `recall --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from recall_cli import __version__
from recall_cli.cli.commands import (
    ann,
    bench,
    cache,
    compare,
    doctor,
    eval,
    explain,
    hub,
    hub_token,
    model,
    sample_log,
    savings,
    serve,
)
from recall_cli.cli.config_file import load_settings
from recall_cli.cli.output import note
from recall_cli.cli.service_links import pass_over_links
from recall_cli.errors import RecallError, UsageError


class _Commands(TyperGroup):
    """All commands. A reader that left (head, less) has what it wanted: that is no error, as click would have it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Python would complain once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None


app = typer.Typer(
    name="recall",
    cls=_Commands,
    help="Measure whether a semantic cache in front of your LLM traffic pays and whether it lies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("bench")(bench.bench)
app.command("ann-bench")(ann.ann_bench)
app.command("eval")(eval.evaluate)
app.command("compare")(compare.compare)
app.command("doctor")(doctor.doctor)
app.command("explain")(explain.explain)
app.command("sample-log")(sample_log.sample_log)
app.command("savings")(savings.savings)
app.command("serve")(serve.serve)
app.add_typer(cache.app, name="cache")
hub.app.add_typer(hub_token.app, name="token")
app.add_typer(hub.app, name="hub")
app.add_typer(model.app, name="model")

STRAY = re.compile("[\udc80-\udcff]")
"""How Python writes a byte of the command line that is no UTF-8: paths may hold it, nothing that is stored can."""
FULL = (errno.ENOSPC, errno.EDQUOT)

_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"recall {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="RECALL_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Measure whether a semantic cache in front of your LLM traffic pays and whether it lies."""
    global _debug
    _debug = debug
    context.default_map = load_settings(context)


@lru_cache(maxsize=1)
def _command() -> Any:
    """Return the commands as click knows them: typer would read all signatures anew at every call of `app`."""
    command = get_command(app)
    pass_over_links(command)
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    global _debug
    _debug = bool(os.environ.get("RECALL_DEBUG"))
    try:
        _command()(args=list(sys.argv[1:] if argv is None else argv), prog_name="recall")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except RecallError as error:
        if _debug:
            traceback.print_exc()
        note(f"error: {error}", error.hint)
        return error.exit_code
    except MemoryError:
        note("error: this takes more memory than the machine gives", "ask for fewer or smaller entries")
        return 1
    except Exception as error:
        if _debug:
            traceback.print_exc()
        if isinstance(error, UnicodeEncodeError) and STRAY.match(error.object, error.start):
            note("error: an argument holds a byte that is no UTF-8", "type it again, in a terminal that writes UTF-8")
            return UsageError.exit_code
        if isinstance(error, OSError) and error.errno in FULL:
            hint = "free some space, or set TMPDIR to a folder on a larger disk"
            note(f"error: a disk that recall writes to is full: {error.strerror}", hint)
            return 1
        note(
            f"error: recall failed in a way it did not expect: {type(error).__name__}: {error}",
            "run the same command as `recall --debug ...` and report what it prints",
        )
        return 1
    return 0


def run() -> None:
    """Be the console script."""
    sys.exit(main())
