"""From a path to lines: compression by magic bytes, a cap on one line, faults that lose nothing read.

Everything streams. What is held at a time is one chunk and one line, whatever the file's size or what it unpacks to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from recall_cli.errors import InputError
from recall_cli.logs.clean import clean
from recall_cli.logs.unpack import Fault, unpacker

MAX_LINE_BYTES = 64 << 20
"""Longer than any request body a provider accepts (32 MB at Anthropic); a longer line is not one record."""
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 16 << 10
"""Read first, to tell what the file is."""

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_lines(log: str, *, on_fault: Fault, on_bytes: Callable[[int], None] | None = None) -> Iterator[bytes | None]:
    """Yield each line without its end; None stands for a line over MAX_LINE_BYTES.

    :param log: a path, or "-" for standard input; gzip and zstd are recognised by their first bytes.
    :param on_bytes: told how many bytes of the file have been read, for progress.
    """
    name = "standard input" if log == "-" else clean(log)
    try:
        if log == "-":
            # None when it was closed before recall started.
            if sys.stdin is None:
                raise InputError("standard input is closed", hint="pipe the log in, or name a file")
            yield from _lines(_unpacked(sys.stdin.buffer, name, on_fault, on_bytes))
            return
        with open(log, "rb") as file:
            yield from _lines(_unpacked(file, name, on_fault, on_bytes))
    except FileNotFoundError:
        raise InputError(f"there is no file {name}", hint="check the path, or pass - to read standard input") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder", hint="name one log file; several can be piped in with cat") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}", hint="check its permissions") from None


def _unpacked(file: BinaryIO, name: str, on_fault: Fault, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    head = file.read(HEAD_BYTES)
    chunks = _chunks(file, head, on_bytes)
    unpack = unpacker(head)
    return _checked(chunks if unpack is None else unpack(chunks, on_fault), name)


def _chunks(file: BinaryIO, head: bytes, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    done = 0
    while head:
        done += len(head)
        if on_bytes is not None:
            on_bytes(done)
        yield head
        head = file.read(CHUNK_BYTES)


def _checked(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Pass chunks on after a look at the first: text, or something that can never be a log."""
    first = next((chunk for chunk in chunks if chunk), b"")
    if first.startswith(UTF16_MARKS):
        raise InputError(f"{name} is UTF-16 text", hint="save it as UTF-8: iconv -f UTF-16 -t UTF-8 LOG > LOG.utf8")
    if b"\0" in first and not first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        # JSON text writes a NUL as an escape, never as the byte; after a crash a log may hold some between its lines.
        raise InputError(f"{name} is a binary file", hint="a log is JSON Lines: one JSON object a line")
    yield first
    yield from chunks


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes | None]:
    parts: list[bytes] = []
    held = 0
    for chunk in chunks:
        *complete, tail = chunk.split(b"\n")
        for piece in complete:
            if held:
                yield _joined(parts, piece, held)
                parts, held = [], 0
            else:
                yield piece.removesuffix(b"\r") if len(piece) <= MAX_LINE_BYTES else None
        if held <= MAX_LINE_BYTES:
            parts.append(tail)
        else:
            parts.clear()
        held += len(tail)
    if held:
        yield _joined(parts, b"", held)


def _joined(parts: list[bytes], last: bytes, held: int) -> bytes | None:
    if held + len(last) > MAX_LINE_BYTES:
        return None
    line = b"".join([*parts, last]) if parts else last
    return line.removesuffix(b"\r")
