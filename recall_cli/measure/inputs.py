"""The user's own requests: a request log or a prompts file, from a path or standard input, packed or not.

Which of the two it is shows in the first rows. Nothing is left out unsaid: what gives no request is counted
under its reason.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from recall_cli.cache.request import parse_body, text_request
from recall_cli.errors import InputError
from recall_cli.logs.files import GZIP_MAGIC, ZSTD_MAGIC, read_lines
from recall_cli.logs.formats.registry import Formats
from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport, clean
from recall_cli.logs.rows import read_rows
from recall_cli.measure.prompts import Prompt, Workload, from_prompts, make_workload
from recall_cli.types import Bypass, Json, Request, Warn

LOG = "log"
"""The name of a workload that was read from one."""
PEEK_ROWS = 100
"""Rows at the start that show whether a file is a request log; a rotated log may begin with half a line."""


@dataclass(frozen=True, slots=True)
class Found:
    """One request of the source, and its body when the source has one."""

    where: str
    request: Request
    body: Json | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The requests of a source, and what was left out of it."""

    found: list[Found]
    left_out: Counter[str]
    """Lines that gave no request, by reason."""
    faults: list[str]
    """What is wrong with the file itself, as sentences."""

    def reasons(self) -> str:
        """Return the reasons with their counts, most frequent first."""
        return ", ".join(f"{reason} {count:,}" for reason, count in (+self.left_out).most_common())

    def warnings(self, shown: str) -> list[Warn]:
        """Return what a reader should know of the source, which is shown under this name."""
        found = [Warn("DAMAGED_FILE", f"{shown}: {fault}") for fault in self.faults]
        if n := self.left_out.total():
            found.append(Warn("LINES_LEFT_OUT", f"{n:,} lines of {shown} were left out: {self.reasons()}"))
        return found


def shown(source: str) -> str:
    """Return how a source is called in messages."""
    return "standard input" if source == "-" else clean(source)


@contextmanager
def as_file(source: str) -> Iterator[Path]:
    """Yield a path that can be read more than once; errors name the source."""
    # A pipe gives its bytes only once, under whatever name: /dev/stdin, <(...), mkfifo.
    if source != "-" and not Path(source).is_fifo():
        yield Path(source)
        return
    if source == "-" and sys.stdin is None:
        raise InputError("standard input is closed", hint="pipe the data in, or name a file")
    with TemporaryDirectory(prefix="recall-") as folder:
        path = Path(folder) / "piped"
        with path.open("wb") as copy, nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as piped:
            shutil.copyfileobj(piped, copy)
        with _named(path, shown(source)):
            yield path


def head(path: Path) -> bytes:
    """Return the bytes that tell what kind of file it is."""
    with path.open("rb") as file:
        return file.read(8)


def read_source(path: Path, shown: str) -> Reading:
    """Return the requests of a log (repeats and all), or the prompts of a file. Raises InputError."""
    return _log(path) if _is_log(path) else _prompts(path, shown)


def asked(path_or_dash: str, stdin: BinaryIO | None) -> Workload:
    """Return what a file asks, in its order: the last user turns of a log, or the prompts of a file.

    Only a regular file can be a log: it is looked at before it is read. Raises InputError.
    """
    path = Path(path_or_dash)
    if path_or_dash == "-" or not path.is_file() or not _is_log(path):
        return from_prompts(path_or_dash, stdin)
    reading = _log(path)
    lines = [Prompt(number, found.request.text) for number, found in enumerate(reading.found, 1)]
    if not lines:
        raise InputError(f"{shown(path_or_dash)} holds no request to look up: {reading.reasons()}.")
    return make_workload(LOG, 0, lines, shown(path_or_dash), reading.left_out)


def _is_log(path: Path) -> bool:
    formats = Formats()
    # With a tally of its own: faults are for the second reading to report.
    rows = read_rows(str(path), ReadReport(), knows=formats.knows)
    first = [row for _, row in islice(rows, PEEK_ROWS) if isinstance(row, dict)]
    return any(map(formats.is_call, first))


@contextmanager
def _named(path: Path, shown: str) -> Iterator[None]:
    """Give the source's name, not that of a temporary copy, in errors."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(path), shown), hint=error.hint) from error


def _log(path: Path) -> Reading:
    tally = ReadReport()
    found: list[Found] = []
    bypassed: Counter[str] = Counter()
    for record in read_log(str(path), tally):
        request = parse_body(record.provider, record.request, tenant=record.tenant)
        if isinstance(request, Bypass):
            bypassed[request.reason] += 1
        else:
            found.append(Found(record.source, request, record.request))
    return Reading(found, tally.skipped + bypassed, tally.faults)


def _prompts(path: Path, shown: str) -> Reading:
    faults: list[str] = []
    left_out: Counter[str] = Counter()
    with TemporaryDirectory(prefix="recall-") as folder:
        plain = path
        if head(path).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            plain = Path(folder) / path.name.removesuffix(path.suffix)
            with plain.open("wb") as unpacked:
                for line in read_lines(str(path), on_fault=faults.append):
                    left_out["line_too_long"] += line is None
                    unpacked.write((line or b"") + b"\n")
        with _named(plain, shown):
            work = from_prompts(str(plain), None)
    left_out.update({reason: count for reason, count in work.skipped.items() if reason != "blank"})
    found = [Found(f"prompt {number}", text_request(query.text)) for number, query in enumerate(work.queries, start=1)]
    return Reading(found, +left_out, faults)
