"""Drawing: results on stdout, everything else (progress, notes, warnings, errors) on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from recall_cli.cli.options import FormatName
from recall_cli.cli.render.blocks import Block
from recall_cli.cli.render.text import cleaned, draw, shown_json, to_csv, to_markdown, visible
from recall_cli.errors import RecallError, UsageError
from recall_cli.types import Result, Warn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from recall_cli.cli.render.html import Page

PIPED_WIDTH = 240
"""Columns when stdout is no terminal: rich would assume 80 and cut digits to an ellipsis."""

View = Callable[[Result], Sequence[Block]]


class Output:
    """One command's output: opens `--out` first, draws progress, then prints the result.

    Used as a context manager, so that an interrupted run leaves no drawn progress bar.
    """

    def __init__(
        self, format: FormatName, json: bool, out: str | None, *, report: str | None = None, inputs: Sequence[str] = ()
    ) -> None:
        """Open the output.

        :param report: an HTML page to write beside it.
        :param inputs: files the command reads, which `--out` and `--report` must not be.
        """
        from recall_cli.measure.result import OutFile

        if json and format not in (FormatName.table, FormatName.json):
            raise UsageError(f"--json and --format {format.value} ask for two things", hint="give one of them")
        self.format = FormatName.json if json else format
        self._out = OutFile(out, inputs=inputs) if out else None
        self._report = OutFile(report, inputs=[*inputs, *([out] if out else [])], option="--report") if report else None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop_bar()

    def progress(self, done: int, total: int, what: str) -> None:
        """Draw how far the run is, with the time left, on a terminal only."""
        if sys.stderr is None or not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total, description=what)

    def checkpoint(self, result: Result) -> None:
        """Write what is finished to `--out`, so that an interruption loses only what was under way."""
        from recall_cli.measure.result import to_json

        if self._out is not None:
            self._out.write(to_json(result))

    def earlier(self) -> Result | None:
        """Return the result that `--out` holds from an earlier run, None when there is none."""
        from recall_cli.measure.result import from_json

        if self._out is None:
            raise UsageError("--resume needs the file of the earlier run", hint="name it with --out")
        return from_json(self._out.path.read_bytes()) if self._out.path.is_file() else None

    def emit(self, result: Result, view: View, page: Page | None = None) -> None:
        """Print the result in the chosen format and write `--out` and `--report`.

        :param page: how the result fills a report; needed when there is one.
        """
        from recall_cli.measure.result import to_json

        self._stop_bar()
        data = to_json(result)
        if self._out is not None:
            self._out.write(data)
        if self._report is not None and page is not None:
            from recall_cli.cli.render.html import html

            self._report.write(html(result, page).encode())
        _print(lambda: self._draw(result, data, view))
        warn(result.warnings)

    def _draw(self, result: Result, data: bytes, view: View) -> None:
        if self.format is FormatName.json:
            sys.stdout.write(shown_json(data.decode()))
        elif self.format is FormatName.csv:
            sys.stdout.write(to_csv(result))
        elif self.format is FormatName.markdown:
            sys.stdout.write(to_markdown(cleaned(view(result))))
        else:
            draw(cleaned(view(result)), console())

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _print(write: Callable[[], None]) -> None:
    """Print to standard output; a full disk or a closed one is a sentence, a reader that left is not."""
    if sys.stdout is None:
        raise RecallError("standard output is closed", hint="leave it open, or read the --out file")
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RecallError(
            f"standard output could not be written: {error.strerror}", hint="free some space, or print elsewhere"
        ) from error


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr: as wide as the terminal, or wide enough to lose nothing."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def warn(warnings: Sequence[Warn]) -> None:
    """Print warnings with what would help, on stderr."""
    for warning in warnings:
        note(f"warning: {warning.message}", warning.hint)


def note(message: str, hint: str = "") -> None:
    """Print a sentence and, indented below it, a next step, on stderr."""
    if sys.stderr is None:
        return
    print(visible(message), file=sys.stderr)
    if hint:
        print(f"  {visible(hint)}", file=sys.stderr)
