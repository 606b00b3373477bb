"""The user's own requests: a request log or a prompts file, from a path or standard input, packed or not.

Which of the two it is shows in the first lines. Nothing is left out unsaid: what gives no request is counted
under its reason.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from recall_cli.core.request import parse_body, text_request
from recall_cli.errors import InputError
from recall_cli.logs.clean import clean
from recall_cli.logs.from_pairs import REQUEST
from recall_cli.logs.read import read_log
from recall_cli.logs.reader import read_lines
from recall_cli.logs.tally import Tally
from recall_cli.logs.unpack import GZIP_MAGIC, ZSTD_MAGIC
from recall_cli.measure.prompts import from_prompts
from recall_cli.types import Bypass, Json, Request, Warn

PEEK_LINES = 100
"""Lines at the start that show whether a file is a request log; a rotated log may begin with half a line."""


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
    if source != "-":
        yield Path(source)
        return
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="pipe the data in, or name a file")
    with TemporaryDirectory(prefix="recall-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        with _named(path, "standard input"):
            yield path


def head(path: Path) -> bytes:
    """Return the bytes that tell what kind of file it is."""
    with path.open("rb") as file:
        return file.read(8)


def read_source(path: Path, shown: str) -> Reading:
    """Return the requests of a log (repeats and all), or the prompts of a file. Raises InputError."""
    lines = read_lines(str(path), on_fault=lambda fault: None)  # Faults are for the second reading to report.
    first = list(islice((line for line in lines if line and line.strip()), PEEK_LINES))
    return _log(path) if any(map(_is_record, first)) else _prompts(path, shown)


@contextmanager
def _named(path: Path, shown: str) -> Iterator[None]:
    """Give the source's name, not that of a temporary copy, in errors."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(path), shown), hint=error.hint) from error


def _is_record(line: bytes) -> bool:
    try:
        row = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return False
    return isinstance(row, dict) and any(name in row for name in REQUEST)


def _log(path: Path) -> Reading:
    tally = Tally()
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
