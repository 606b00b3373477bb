"""Logs that are tables: CSV, Parquet, and the databases of programs that keep their calls in SQLite."""

from __future__ import annotations

import csv
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from recall_cli.errors import InputError
from recall_cli.logs.clean import clean
from recall_cli.logs.files import MAX_LINE_BYTES
from recall_cli.logs.formats import llm, store

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
