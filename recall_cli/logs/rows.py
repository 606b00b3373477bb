"""From a file to numbered rows, whatever contains them: lines, one document, a table, a database.

No row is fatal: what is none comes out as the reason why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import orjson

from recall_cli.errors import InputError
from recall_cli.logs import files, tables
from recall_cli.logs.clean import clean
from recall_cli.logs.formats.vllm import line_row
from recall_cli.logs.lines import MALFORMED, is_row, parse_line, unfold
from recall_cli.logs.report import Tally

MAX_DOCUMENT_BYTES = 256 << 20
"""A file that is one JSON document is decoded as a whole, at several times its size; lines have no such limit."""
PEEK_LINES = 200
SQLITE_MAGIC = b"SQLite format 3\0"
PARQUET_MAGIC = b"PAR1"

Row = tuple[int, dict[str, Any] | str]
"""The line or row it stands at, from 1, and what stands there: an object, or why there is none."""
Knows = Callable[[dict[str, Any]], bool]
"""Tells whether some format knows a row by its keys."""


def read_rows(path: str, tally: Tally, *, knows: Knows, on_bytes: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Yield the rows of a file. Raises InputError when it cannot be opened."""
    magic = _magic(path)
    if magic == SQLITE_MAGIC:
        yield from enumerate(tables.database_rows(path), start=1)
    elif magic[:4] == PARQUET_MAGIC:
        yield from enumerate(tables.parquet_rows(path), start=1)
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


def _text_rows(path: str, lines: Iterator[tuple[int, bytes | None]], tally: Tally, knows: Knows) -> Iterator[Row]:
    dense = (line for line in lines if line[1] is None or line[1].strip())
    head = list(islice(dense, 1))
    opening = head[0][1] if head else None
    if opening is not None and not isinstance(_parsed(opening), (dict, list)):
        if opening.lstrip(b"\xef\xbb\xbf \t").startswith((b"{", b"[")):
            head += islice(dense, PEEK_LINES)
            if _is_document(head):
                yield from _document_rows(path, chain(head, dense), tally)
                return
        elif tables.is_table(path, opening, knows):
            # Blank lines too: a cell may hold some.
            yield from tables.csv_rows(chain(head, lines))
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


def _line_rows(lines: Iterator[tuple[int, bytes | None]], tally: Tally) -> Iterator[Row]:
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
    return parse_line(line, Tally())


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


def _document_rows(path: str, lines: Iterator[tuple[int, bytes | None]], tally: Tally) -> Iterator[Row]:
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
