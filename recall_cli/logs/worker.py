"""Large logs, read by a process of their own: on two cores a report takes two thirds of the time.

Decoding and normalising a record takes about as long as what a report does with it. The records come in the order of
`read_logs`, which the other process runs as it is; only the tally is filled at the end.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from itertools import islice
from operator import attrgetter
from typing import IO, Any

from recall_cli.errors import InputError, RecallError
from recall_cli.logs.files import log_files
from recall_cli.logs.read import OnBytes, read_logs
from recall_cli.logs.report import ReadReport
from recall_cli.types import LogRecord, Usage
from recall_cli.util.subprocess_worker import start

LARGE_BYTES = 64 << 20
"""From here on a second process is worth its start, which takes as long as reading some 20 MB."""
BATCH = 16
"""Records sent at a time: few, for they may hold images."""

_HEAD = struct.Struct("=cQ")
_RECORDS, _END = b"r", b"e"
_NAMES = tuple(field.name for field in fields_of(LogRecord))
_COUNTS = attrgetter(*(field.name for field in fields_of(Usage)))
_USAGE = _NAMES.index("usage")
_values = attrgetter(*_NAMES)


def read_ahead(
    paths: Sequence[str],
    tally: ReadReport,
    *,
    format: str = "",
    fields: Mapping[str, str] | None = None,
    on_bytes: OnBytes | None = None,
) -> Iterator[LogRecord]:
    """Yield what `logs.read.read_logs` yields, with the same arguments and errors; `tally` is filled by the end.

    Raises RecallError when the process that reads is killed: what it had not sent is unknown.
    """
    if _alone(paths):
        yield from read_logs(paths, tally, format=format, fields=fields, on_bytes=on_bytes)
        return
    reader = start(__name__)
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        asked = {"paths": list(paths), "format": format, "fields": dict(fields or {})}
        reader.stdin.write(json.dumps(asked).encode())
        reader.stdin.close()
        yield from _received(reader.stdout, tally, on_bytes)
    finally:
        reader.kill()
        reader.stdout.close()
        reader.wait()


def _alone(paths: Sequence[str]) -> bool:
    """Return whether this process had better read: little to read, standard input or pipes, one core."""
    if not sys.executable or (os.cpu_count() or 1) < 2:
        return True
    try:
        files = log_files(paths, ReadReport())
        return not all(map(os.path.isfile, files)) or sum(map(os.path.getsize, files)) < LARGE_BYTES
    except (InputError, OSError):
        # Said in words by whoever reads.
        return True


def _received(pipe: IO[bytes], tally: ReadReport, on_bytes: OnBytes | None) -> Iterator[LogRecord]:
    while True:
        head = pipe.read(_HEAD.size)
        kind, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
        data = pipe.read(size)
        if not kind or len(data) < size:
            raise RecallError("the process that reads the log was ended", hint="is there memory enough? split the log")
        if kind == _RECORDS:
            done, batch = pickle.loads(data)
            if on_bytes is not None:
                on_bytes(done)
            yield from map(_record, batch)
            continue
        counted, error = pickle.loads(data)
        for field in fields_of(ReadReport):
            setattr(tally, field.name, getattr(counted, field.name))
        if error is not None:
            raise error
        return


def _sent(record: LogRecord) -> list[Any]:
    """Return a record's values: pickled, they take a third of the time of the record itself."""
    values = list(_values(record))
    if record.usage is not None:
        values[_USAGE] = _COUNTS(record.usage)
    return values


def _record(values: list[Any]) -> LogRecord:
    if values[_USAGE] is not None:
        values[_USAGE] = Usage(*values[_USAGE])
    return LogRecord(*values)


def _send(pipe: IO[bytes], kind: bytes, data: bytes) -> None:
    pipe.write(_HEAD.pack(kind, len(data)))
    pipe.write(data)
    pipe.flush()


def main() -> None:
    """Read what standard input asks for and write it to standard output: the other process's whole life."""
    # Ctrl-C reaches both; the one that reports says what is to be said.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.stdin.buffer.read())
    pipe, tally = sys.stdout.buffer, ReadReport()
    done = 0

    def on_bytes(read: int) -> None:
        nonlocal done
        done = read

    fault: Exception | None = None
    try:
        records = read_logs(asked.pop("paths"), tally, **asked, on_bytes=on_bytes)
        while batch := [_sent(record) for record in islice(records, BATCH)]:
            _send(pipe, _RECORDS, pickle.dumps((done, batch), pickle.HIGHEST_PROTOCOL))
    except BrokenPipeError:
        # Nobody wants the rest.
        os._exit(0)
    except Exception as error:
        fault = error
    _send(pipe, _END, pickle.dumps((tally, fault)))


if __name__ == "__main__":
    main()
