"""Reading logs: the one call that everything above this floor makes.

No row is fatal and none is dropped silently: what is not a record is counted under its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from recall_cli.errors import InputError
from recall_cli.logs.files import log_files
from recall_cli.logs.formats.base import Adapter, Found
from recall_cli.logs.formats.registry import Formats
from recall_cli.logs.record import to_record
from recall_cli.logs.report import ReadReport, clean, told
from recall_cli.logs.rows import Row, read_rows
from recall_cli.types import LogRecord

SNIFF_ROWS = 200
"""Rows looked at before a format is chosen: enough to see past a preamble, few enough to hold."""
SNIFF_BYTES = 16 << 20
"""Of the file, after which fewer rows must do: rows with images in them are megabytes each."""
ODD_SHAPES = (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError)
"""What a row of a shape that nobody thought of may cause in an adapter. It costs that row, not the run."""

OnBytes = Callable[[int], None]


def read_log(log: str, tally: ReadReport, *, on_bytes: OnBytes | None = None) -> Iterator[LogRecord]:
    """Yield the records of one log and count the rest in `tally`. Raises InputError when there are none."""
    return read_logs([log], tally, on_bytes=on_bytes)


def read_logs(
    paths: Sequence[str],
    tally: ReadReport,
    *,
    format: str = "",
    fields: Mapping[str, str] | None = None,
    on_bytes: OnBytes | None = None,
) -> Iterator[LogRecord]:
    """Yield the records of files, folders, patterns and "-", and count the rest in `tally`.

    A file that cannot be read is a fault among several. Raises InputError when there is no record at all, and
    UsageError for a format or field that does not exist.

    :param format: the name of the only format to read (`formats.NAMES`); "" finds out by itself.
    :param fields: columns of plain tables by what they mean: {"prompt": "question"} (`from_plain.FIELDS`).
    :param on_bytes: told how many bytes of all files have been read, for progress.
    """
    formats = Formats(format, fields)
    files = log_files(paths, tally)
    progress = _Progress(on_bytes)
    for file in files:
        try:
            yield from _read_file(file, formats, tally, progress)
        except InputError as error:
            if len(files) == 1 and not tally.lines:
                raise
            tally.faults.append(f"{error}; {error.hint}" if error.hint else str(error))
        for adapter in formats.adapters:
            yield from _late(adapter, adapter.end_file(), tally)
        progress.next_file()
    for adapter in formats.adapters:
        yield from _late(adapter, adapter.end(), tally)
    unseen = formats.unseen() if tally.lines else []
    tally.faults += unseen
    if fields and tally.records and not unseen and not tally.formats["plain"]:
        tally.faults.append("named columns count in plain tables only, and no row was read as one")
    if not tally.records:
        raise _nothing(files, tally, unseen)


def _read_file(file: str, formats: Formats, tally: ReadReport, progress: _Progress) -> Iterator[LogRecord]:
    name = "stdin" if file == "-" else clean(file)
    rows = read_rows(file, tally, knows=formats.knows, on_bytes=progress)
    head: list[Row] = []
    for at_row in rows:
        head.append(at_row)
        if len(head) == SNIFF_ROWS or progress.of_file > SNIFF_BYTES:
            break
    chosen, sniffed = formats.sniff(name, (row for _, row in head))
    if head:
        tally.sniffed.append(sniffed)
    adapter_of, skipped = formats.adapter_of, tally.skipped
    for number, row in chain(head, rows):
        tally.lines += 1
        if isinstance(row, str):
            skipped[row] += 1
            continue
        try:
            adapter = adapter_of(row, chosen)
            found = adapter.read(row, f"{name}:{number}")
        except ODD_SHAPES:
            skipped["unexpected_shape"] += 1
            continue
        if not found:
            tally.merged[adapter.name] += 1
        for pair in found:
            record = _record(adapter, pair, tally)
            if record is not None:
                yield record


def _record(adapter: Adapter, pair: Found, tally: ReadReport) -> LogRecord | None:
    try:
        record = pair if isinstance(pair, str) else to_record(pair, adapter.name, tally)
    except ODD_SHAPES:
        record = "unexpected_shape"
    if isinstance(record, str):
        tally.skipped[record] += 1
        return None
    tally.records += 1
    tally.formats[adapter.name] += 1
    return record


def _late(adapter: Adapter, found: Iterable[Found], tally: ReadReport) -> Iterator[LogRecord]:
    """Yield the records of rows that an adapter had kept, which are no part of another after all."""
    try:
        for pair in found:
            tally.merged[adapter.name] -= 1
            record = _record(adapter, pair, tally)
            if record is not None:
                yield record
    except ODD_SHAPES as error:
        tally.faults.append(f"rows of format {adapter.name} that waited for others could not be completed: {error}")
    if not tally.merged[adapter.name]:
        del tally.merged[adapter.name]


def _nothing(files: Sequence[str], tally: ReadReport, unseen: Sequence[str]) -> InputError:
    name = f"the {len(files):,} files" if len(files) > 1 else "stdin" if files[0] == "-" else clean(files[0])
    if not tally.lines:
        why = f" that can be read: {tally.faults[0]}" if tally.faults else ""
        return InputError(f"{name} holds no line{why}", hint="a log is JSON Lines: one request/response object a line")
    if unseen:
        return InputError(
            f"{unseen[0]} in {name}", hint="check the name's spelling and case against the table's header"
        )
    parts = [f"{count:,} part of a {format} call" for format, count in tally.merged.most_common()]
    reasons = ", ".join(filter(None, (told(tally.skipped), *parts)))
    return InputError(
        f"none of the {tally.lines:,} lines of {name} is a request with messages ({reasons})",
        hint='each line needs {"request": {"model": ..., "messages": [...]}, "response": {...}, "timestamp": ...},'
        " or must be of another format recall knows; a table needs --field prompt=COLUMN",
    )


class _Progress:
    """Bytes read of one file after another, as one count."""

    def __init__(self, told: OnBytes | None) -> None:
        self._told = told
        self._before = 0
        self.of_file = 0

    def __call__(self, done: int) -> None:
        self.of_file = done
        if self._told is not None:
            self._told(self._before + done)

    def next_file(self) -> None:
        self._before += self.of_file
        self.of_file = 0
