"""From a file to numbered rows, whatever contains them: lines, one document, a table, a database.

No row is fatal: a row that cannot be read comes out as the reason why. A line is parsed strictly and fast first, and
leniently where that fails. Tables are CSV, Parquet, and the SQLite databases of programs that keep their calls there.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

import orjson

from recall_cli.errors import InputError
from recall_cli.logs import files
from recall_cli.logs.files import MAX_LINE_BYTES
from recall_cli.logs.formats import llm, store
from recall_cli.logs.formats.otlp import spans
from recall_cli.logs.formats.vllm import line_row
from recall_cli.logs.report import ReadReport, clean
from recall_cli.types import Json

WRAPPERS = frozenset(
    ("resourceSpans", "resource_spans", "log", "batch", "post", "patch", "requests", "data", "runs", "spans",
     "observations", "traces", "items", "results")
)  # fmt: skip
"""Keys under which exports and API answers hold their rows."""
MAX_DEPTH = 8
"""Wrappers within wrappers: a page of exports, each with its batch, is three."""
ROW_KEYS = frozenset(("request", "response", "messages", "body", "custom_id", "attributes"))
"""A row that has one of these is a row, whatever else it holds."""


def parse_line(line: bytes, tally: ReadReport) -> Any:
    """Return the JSON value of a line, or MALFORMED."""
    try:
        return orjson.loads(line)
    except ValueError:
        pass
    # orjson is strict and fast; the few lines it refuses get a second, lenient reading.
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text.removeprefix("\ufeff").rstrip().removesuffix(","))
    except (ValueError, RecursionError):
        return MALFORMED
    tally.repaired[_oddity(line, text)] += 1
    return value


MALFORMED = object()
"""Stands for a line that is no JSON; None would be the JSON value null."""


ODDITIES = {
    "byte_order_mark": "a byte order mark",
    "invalid_utf8": "bytes that are no UTF-8, shown as \N{REPLACEMENT CHARACTER}",
    "comma_at_its_end": "a comma at the end",
    "not_strict_json": "what strict JSON does not allow, as NaN",
}
"""What makes a line need the lenient reading, in words."""


def _oddity(line: bytes, text: str) -> str:
    if text.startswith("\ufeff"):
        return "byte_order_mark"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "invalid_utf8"
    return "comma_at_its_end" if text.rstrip().endswith(",") else "not_strict_json"


def is_row(value: Json) -> bool:
    """Return whether an object is a row itself and wraps no others."""
    return WRAPPERS.isdisjoint(value) or not ROW_KEYS.isdisjoint(value)


def unfold(value: Any, depth: int = 0) -> Iterator[dict[str, Any] | str]:
    """Yield the rows in a JSON value: itself, the items of a list, what an export's wrapper holds."""
    if isinstance(value, dict):
        if depth > MAX_DEPTH or is_row(value):
            yield value
        else:
            yield from _unwrapped(value, depth)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for item in value:
            yield from unfold(item, depth + 1)
    else:
        yield "not_an_object"


def _unwrapped(value: Json, depth: int) -> Iterator[dict[str, Any] | str]:
    if isinstance(value.get("resourceSpans", value.get("resource_spans")), list):
        yield from spans(value)
        return
    log = value.get("log")
    held = log.get("entries") if isinstance(log, dict) else None
    lists = (
        [held] if isinstance(held, list) else [value[k] for k in WRAPPERS_IN_ORDER if isinstance(value.get(k), list)]
    )
    rows = [row for rows in lists for row in rows]
    if not lists or not all(isinstance(row, dict) for row in rows):
        yield dict(value)
        return
    for row in rows:
        yield from unfold(row, depth + 1)


WRAPPERS_IN_ORDER = ("post", "patch", *sorted(WRAPPERS - {"post", "patch", "log", "resourceSpans", "resource_spans"}))
"""A run is posted before it is patched."""


BATCH_ROWS = 4_096
"""Rows of a Parquet file decoded at a time."""
TABLE_NAMES = re.compile(r"\.[ct]sv(\.(gz|zst))?$", re.IGNORECASE)
_COLUMN = re.compile(r"[^\W\d][\w .\-/()#%$]*")
"""What the name of a column looks like: a letter first, no sentence's punctuation."""


def database_rows(path: str) -> Iterator[dict[str, Any] | str]:
    """Yield the calls in a SQLite file of a program we know. Raises InputError for any other."""
    name = clean(path)
    try:
        db = _opened(path)
        try:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for known in (llm, store):
                if tables >= known.TABLES:
                    yield from known.table_rows(db)
                    return
        finally:
            db.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # Damage may also sit in the name of a column.
        raise InputError(
            f"cannot read the database {name}: {error}", hint="check that no other program holds it"
        ) from None
    raise InputError(
        f"{name} is a SQLite database of a program recall does not know (tables: {', '.join(sorted(tables)[:8])})",
        hint="export its calls as CSV or JSON Lines, and name the columns with --field prompt=COLUMN",
    )


def _opened(path: str) -> sqlite3.Connection:
    uri = Path(path).absolute().as_uri()
    db = sqlite3.connect(f"{uri}?mode=ro", uri=True)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A write-ahead log cannot be joined from a folder that may not be written to.
        db.close()
        db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)
    db.row_factory = sqlite3.Row
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, a batch at a time."""
    import polars as pl

    try:
        frame = pl.scan_parquet(path)
        total = frame.select(pl.len()).collect().item()
        for start in range(0, total, BATCH_ROWS):
            for row in frame.slice(start, BATCH_ROWS).collect().iter_rows(named=True):
                yield {name: _plain(value) for name, value in row.items()}
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError) as error:
        # Polars panics on some kinds of damage, and that is no Exception; others give dates that Python cannot hold.
        first = str(error).partition("\n")[0]
        raise InputError(
            f"cannot read the Parquet file {clean(path)}: {first}", hint="check that it is whole"
        ) from None


def _plain(value: Any) -> Any:
    """Return a cell as JSON would hold it."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def is_table(path: str, first: bytes, knows: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether a first line that is no JSON is the header of a table."""
    try:
        names = next(csv.reader([_text(first)], delimiter=_delimiter(first)), [])
    except csv.Error:
        return False
    if len(names) < 2 or not all(_COLUMN.fullmatch(name.strip()) for name in names):
        return bool(TABLE_NAMES.search(path)) and bool(names)
    return bool(TABLE_NAMES.search(path)) or knows(dict.fromkeys((name.strip() for name in names), "x"))


def csv_rows(lines: Iterable[tuple[int, bytes | None]]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield (line, cells by column). A row of more or fewer cells than the header is kept as far as it goes."""
    source = _Numbered(lines)
    header = source.first()
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(source, delimiter=_delimiter(header))
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error:
        yield 1, "malformed_csv"
        return
    while True:
        number = source.number + 1
        try:
            cells = next(reader, None)
        except csv.Error:
            # A cell beyond the limit: most likely a quote that is never closed.
            yield number, "malformed_csv"
            continue
        if cells is None:
            return
        if cells:
            yield source.began(number), dict(zip(names, cells, strict=False))


class _Numbered:
    """Lines as csv wants them, with the number of the last one given out."""

    def __init__(self, lines: Iterable[tuple[int, bytes | None]]) -> None:
        self._lines = iter(lines)
        self._held: list[tuple[int, bytes | None]] = []
        self.number = 0

    def first(self) -> bytes:
        self._held = [next(self._lines)]
        return self._held[0][1] or b""

    def began(self, number: int) -> int:
        """Return the line at which the row now read began, at or after the one expected."""
        return min(number, self.number)

    def __iter__(self) -> Iterator[str]:
        for number, line in (*self._held, *()):
            self.number = number
            yield _text(line or b"") + "\n"
        for number, line in self._lines:
            self.number = number
            # A line over the limit is no row, but the quotes around it must stay balanced.
            yield _text(line or b"") + "\n"


def _text(line: bytes) -> str:
    # A carriage return within a line would end it for csv, and a NUL be an error.
    return line.decode("utf-8", "replace").removeprefix("\ufeff").replace("\0", "").replace("\r", " ")


def _delimiter(header: bytes) -> str:
    return max(",\t;", key=lambda mark: header.count(mark.encode()))


MAX_DOCUMENT_BYTES = 256 << 20
"""A file that is one JSON document is decoded as a whole, at several times its size; lines have no such limit."""
PEEK_LINES = 200
SQLITE_MAGIC = b"SQLite format 3\0"
PARQUET_MAGIC = b"PAR1"

Row = tuple[int, dict[str, Any] | str]
"""The line or row it stands at, from 1, and what stands there: an object, or why there is none."""
Knows = Callable[[dict[str, Any]], bool]
"""Tells whether some format knows a row by its keys."""


def read_rows(
    path: str, tally: ReadReport, *, knows: Knows, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Row]:
    """Yield the rows of a file. Raises InputError when it cannot be opened."""
    magic = _magic(path)
    if magic == SQLITE_MAGIC:
        yield from enumerate(database_rows(path), start=1)
    elif magic[:4] == PARQUET_MAGIC:
        yield from enumerate(parquet_rows(path), start=1)
    else:
        lines = enumerate(files.read_lines(path, on_fault=tally.faults.append, on_bytes=on_bytes), start=1)
        yield from _text_rows(path, lines, tally, knows)
        return
    if on_bytes is not None:
        on_bytes(Path(path).stat().st_size)


def _magic(path: str) -> bytes:
    if not os.path.isfile(path):
        # A pipe gives its first bytes only once.
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC))
    except OSError:
        # Opened again for its lines, it fails in words.
        return b""


def _text_rows(path: str, lines: Iterator[tuple[int, bytes | None]], tally: ReadReport, knows: Knows) -> Iterator[Row]:
    dense = (line for line in lines if line[1] is None or line[1].strip())
    head = list(islice(dense, 1))
    opening = head[0][1] if head else None
    if opening is not None and not isinstance(_parsed(opening), (dict, list)):
        if opening.lstrip(b"\xef\xbb\xbf \t").startswith((b"{", b"[")):
            head += islice(dense, PEEK_LINES)
            if _is_document(head):
                yield from _document_rows(path, chain(head, dense), tally)
                return
        elif is_table(path, opening, knows):
            # Blank lines too: a cell may hold some.
            yield from csv_rows(chain(head, lines))
            return
    elif head:
        head += islice(dense, 1)
        if len(head) == 1:
            if opening is None:
                raise _too_large(path, f"one line of more than {files.MAX_LINE_BYTES >> 20} MiB")
            # One document on one line: its items are what a reader would count.
            rows = (row for _, row in _line_rows(iter(head), tally))
            yield from enumerate(rows, start=head[0][0])
            return
    yield from _line_rows(chain(head, dense), tally)


def _line_rows(lines: Iterator[tuple[int, bytes | None]], tally: ReadReport) -> Iterator[Row]:
    for number, line in lines:
        if line is None:
            yield number, "line_too_long"
            continue
        value = parse_line(line, tally)
        if value is MALFORMED:
            yield number, line_row(line) or "malformed_json"
            continue
        if type(value) is dict and is_row(value):
            yield number, value
            continue
        for row in unfold(value):
            yield number, row


def _parsed(line: bytes) -> Any:
    # With a tally of its own: the line is read again, and counted then.
    return parse_line(line, ReadReport())


def _too_large(path: str, what: str) -> InputError:
    return InputError(
        f"{clean(path)} is {what}", hint="split it, or write one object a line: jq -c '.[]' LOG > LOG.jsonl"
    )


def _is_document(head: list[tuple[int, bytes | None]]) -> bool:
    """Return whether a file whose first line is no JSON is one document over many lines."""
    first = head[0][1]
    if first is not None and first.lstrip(b"\xef\xbb\xbf").strip() in (b"{", b"["):
        return True
    return not any(line and isinstance(_parsed(line), dict) for _, line in head[1:])


def _document_rows(path: str, lines: Iterator[tuple[int, bytes | None]], tally: ReadReport) -> Iterator[Row]:
    numbers: list[int] = []
    parts: list[bytes] = []
    size = 0
    for number, line in lines:
        size += len(line or b"") + 1
        numbers.append(number)
        parts.append(line or b"")
        if size > MAX_DOCUMENT_BYTES:
            raise _too_large(path, f"one JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB")
    # One copy at a time: a document is as large as memory allows.
    text = b"\n".join(parts)
    del parts
    try:
        value = orjson.loads(text.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        # Broken off or damaged: lines that are whole objects are still rows. Bare brackets are no loss.
        held = zip(numbers, text.split(b"\n"), strict=True)
        yield from _line_rows(((n, line) for n, line in held if line.strip(b" \t[]{},")), tally)
        return
    del text
    yield from enumerate(unfold(value), start=1)
