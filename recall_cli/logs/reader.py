"""From a path to lines: compression by magic bytes, a cap on one line, faults that lose nothing read.

Everything streams. What is held at a time is one chunk and one line, whatever the file's size.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from recall_cli.errors import InputError
from recall_cli.logs.clean import clean

MAX_LINE_BYTES = 64 << 20
"""Longer than any request body a provider accepts (32 MB at Anthropic); a longer line is not one record."""
CHUNK_BYTES = 1 << 20
PACKED_CHUNK_BYTES = 16 << 10
"""Compressed bytes fed at a time: a file made to explode can only do so chunk by chunk."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

Fault = Callable[[str], None]
"""Called with a sentence when the input ends or breaks before its proper end."""


class Inflater(Protocol):
    """What zlib's and zstandard's decompression objects have in common."""

    @property
    def eof(self) -> bool:
        """True when the member or frame is complete."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the member or frame."""

    def decompress(self, data: bytes, /) -> bytes:
        """Return what these bytes unpack to."""


def read_lines(log: str, *, on_fault: Fault, on_bytes: Callable[[int], None] | None = None) -> Iterator[bytes | None]:
    """Yield each line without its end; None stands for a line over MAX_LINE_BYTES.

    :param log: a path, or "-" for standard input; gzip and zstd are recognised by their first bytes.
    :param on_bytes: told how many bytes of the file have been read, for progress.
    """
    if log == "-":
        yield from _lines(_unpacked(sys.stdin.buffer, log, on_fault, on_bytes))
        return
    try:
        with open(log, "rb") as file:
            yield from _lines(_unpacked(file, log, on_fault, on_bytes))
    except FileNotFoundError:
        raise InputError(
            f"there is no file {clean(log)}", hint="check the path, or pass - to read standard input"
        ) from None
    except IsADirectoryError:
        raise InputError(
            f"{clean(log)} is a folder", hint="name one log file; several can be piped in with cat"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {clean(log)}: {error.strerror or error}", hint="check its permissions") from None


def _unpacked(file: BinaryIO, log: str, on_fault: Fault, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    head = file.read(PACKED_CHUNK_BYTES)
    chunks = _chunks(file, head, on_bytes)
    if head.startswith(GZIP_MAGIC):
        return _checked(_inflate(chunks, lambda: zlib.decompressobj(wbits=31), GZIP_MAGIC, on_fault), log)
    if head.startswith(ZSTD_MAGIC):
        from zstandard import ZstdDecompressor

        return _checked(_inflate(chunks, lambda: ZstdDecompressor().decompressobj(), ZSTD_MAGIC, on_fault), log)
    return _checked(chunks, log)


def _chunks(file: BinaryIO, head: bytes, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    packed = head.startswith((GZIP_MAGIC, ZSTD_MAGIC))
    size = PACKED_CHUNK_BYTES if packed else CHUNK_BYTES
    done = 0
    while head:
        done += len(head)
        if on_bytes is not None:
            on_bytes(done)
        yield head
        head = file.read(size)


def _checked(chunks: Iterator[bytes], log: str) -> Iterator[bytes]:
    """Pass chunks on after a look at the first: text, or something that can never be a log."""
    name = "standard input" if log == "-" else clean(log)
    first = next((chunk for chunk in chunks if chunk), b"")
    if first.startswith(UTF16_MARKS):
        raise InputError(f"{name} is UTF-16 text", hint="save it as UTF-8: iconv -f UTF-16 -t UTF-8 LOG > LOG.utf8")
    if b"\0" in first:
        # JSON text writes a NUL as an escape, never as the byte.
        raise InputError(f"{name} is a binary file", hint="a log is JSON Lines: one JSON object a line")
    yield first
    yield from chunks


def _inflate(chunks: Iterator[bytes], make: Callable[[], Inflater], magic: bytes, on_fault: Fault) -> Iterator[bytes]:
    """Unpack members or frames one after another; whatever was unpacked before a fault is kept."""
    inflater: Inflater | None = None
    for chunk in chunks:
        rest = chunk
        while rest:
            if inflater is None:
                # Tapes and some archivers pad a member with zeros.
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                if not magic.startswith(rest[: len(magic)]):
                    on_fault("bytes that are not compressed data follow the compressed data; they were not read")
                    return
                inflater = make()
            try:
                unpacked = inflater.decompress(rest)
            except Exception as error:  # zlib.error and zstandard.ZstdError have no common parent.
                on_fault(f"the compressed data is damaged ({error}); the rest of the file was not read")
                return
            if unpacked:
                yield unpacked
            rest = inflater.unused_data if inflater.eof else b""
            if inflater.eof:
                inflater = None
    if inflater is not None:
        on_fault("the compressed file ends before its end mark; what came before was read")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes | None]:
    parts: list[bytes] = []
    held = 0
    for chunk in chunks:
        *complete, tail = chunk.split(b"\n")
        for piece in complete:
            yield _joined(parts, piece, held)
            parts, held = [], 0
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
