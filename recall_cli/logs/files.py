"""From what the user named (files, patterns, folders, "-") to the files to read, and from a file to lines.

Compression is told by magic bytes, a line has a cap, and a fault loses nothing read. Everything streams: what is held
at a time is one chunk and one line, whatever the file's size or what it unpacks to.

gzip and zstd are read as they come in files: members and frames one after another, cut short, padded, made to explode.
What one call unpacks is bounded, and whatever was unpacked before a fault is kept. Therefore zstd is fed block by block
and not through `stream_reader`: that one cannot tell a file that was cut from a whole one, and loses all that it had
unpacked of a piece in which it meets damage.
"""

from __future__ import annotations

import glob
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from recall_cli.errors import InputError
from recall_cli.logs.report import ReadReport, clean

PIECE_BYTES = 1 << 20
"""What gzip may unpack to at a time. A block of zstd is at most 128 KiB, unpacked (RFC 8878, 3.1.1.2.4)."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of zstd frames that carry somebody's notes (pzstd, seek tables), no data."""

CUT = "the compressed file ends before its end mark; what came before was read"
FOREIGN = "bytes that are not compressed data follow the compressed data; they were not read"

Fault = Callable[[str], None]
"""Called with a sentence when the input ends or breaks before its proper end."""


def unpacker(head: bytes) -> Callable[[Iterator[bytes], Fault], Iterator[bytes]] | None:
    """Return what unpacks a file that starts with these bytes, None when it is not packed."""
    if head.startswith(GZIP_MAGIC):
        return gunzip
    return unzstd if head.startswith(ZSTD_MAGIC) or _is_skippable(head[:4]) else None


def gunzip(chunks: Iterator[bytes], on_fault: Fault) -> Iterator[bytes]:
    """Yield what gzip members unpack to."""
    inflater = None
    for chunk in chunks:
        rest = chunk
        while rest:
            if inflater is None:
                # Tapes and some archivers pad a member with zeros.
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                if not GZIP_MAGIC.startswith(rest[: len(GZIP_MAGIC)]):
                    on_fault(FOREIGN)
                    return
                inflater = zlib.decompressobj(wbits=31)
            try:
                piece = inflater.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                on_fault(_damaged(error))
                return
            if piece:
                yield piece
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if inflater.eof:
                inflater = None
    if inflater is not None:
        on_fault(CUT)


def unzstd(chunks: Iterator[bytes], on_fault: Fault) -> Iterator[bytes]:
    """Yield what zstd frames unpack to; skippable frames are skipped."""
    from zstandard import ZstdDecompressor, ZstdError

    data = _Bytes(chunks)
    decompressor = ZstdDecompressor()
    while magic := data.frame_magic():
        if _is_skippable(magic):
            size = data.take(4)
            if len(size) < 4 or not data.skip(int.from_bytes(size, "little")):
                on_fault(CUT)
                return
            continue
        if magic != ZSTD_MAGIC:
            on_fault(CUT if ZSTD_MAGIC.startswith(magic) else FOREIGN)
            return
        inflater = decompressor.decompressobj()
        try:
            for part in _parts(magic, data):
                piece = inflater.decompress(part)
                if piece:
                    yield piece
        except ZstdError as error:
            on_fault(_damaged(error))
            return
        if not inflater.eof:
            on_fault(CUT)
            return


def _damaged(error: Exception) -> str:
    return f"the compressed data is damaged ({error}); the rest of the file was not read"


def _is_skippable(magic: bytes) -> bool:
    return len(magic) == 4 and int.from_bytes(magic, "little") in SKIPPABLE


def _parts(magic: bytes, data: _Bytes) -> Iterator[bytes]:
    """Yield a frame's header and then its blocks one by one, whole unless the file is cut there (RFC 8878, 3.1.1)."""
    descriptor = data.take(1)
    if not descriptor:
        return
    flags = descriptor[0]
    single = flags >> 5 & 1
    # Window, dictionary id, size of the content: each may be there or not.
    header = (1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
    yield magic + descriptor + data.take(header)
    last = False
    while not last:
        head = data.take(3)
        fields = int.from_bytes(head, "little")
        last = bool(fields & 1) or len(head) < 3
        repeats_one_byte = fields >> 1 & 3 == 1
        part = head + data.take(1 if repeats_one_byte else fields >> 3)
        if last and flags & 4:
            part += data.take(4)  # the checksum
        if part:
            yield part


class _Bytes:
    """Chunks as one run of bytes, of which no more is held than is asked for and the chunk it ends in."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        self._at = 0

    def take(self, n: int) -> bytes:
        """Return the next n bytes, fewer at the end."""
        end = self._at + n
        if end > len(self._held):
            parts = [self._held[self._at :]]
            missing = n - len(parts[0])
            while missing > 0 and (chunk := next(self._chunks, b"")):
                parts.append(chunk)
                missing -= len(chunk)
            self._held, self._at, end = b"".join(parts), 0, n
        taken = self._held[self._at : end]
        self._at += len(taken)
        return taken

    def skip(self, n: int) -> bool:
        """Pass over n bytes. Returns False when there are not so many."""
        while n > 0 and (passed := len(self.take(min(n, PIECE_BYTES)))):
            n -= passed
        return n == 0

    def frame_magic(self) -> bytes:
        """Return the next four bytes after any zeros of padding; b"" at the end."""
        magic = self.take(4)
        while magic.startswith(b"\0"):
            kept = magic.lstrip(b"\0")
            magic = kept + self.take(4 - len(kept))
        return magic


ENDINGS = frozenset(
    (".jsonl", ".ndjson", ".json", ".log", ".txt", ".csv", ".tsv", ".har", ".db", ".sqlite", ".sqlite3", ".parquet")
)
"""What is read out of a folder. A file that is named is read whatever it is called."""
PACKED = (".gz", ".zst")


def log_files(paths: Sequence[str], tally: ReadReport) -> list[str]:
    """Return the files, each once, in the order they were named and sorted within a folder or pattern.

    Raises InputError when a folder or pattern holds none.
    """
    found: dict[str, None] = {}
    for path in paths:
        if path != "-" and os.path.isdir(path):
            found |= dict.fromkeys(_in_folder(path, tally))
        elif path != "-" and glob.has_magic(path) and not os.path.exists(path):
            matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
            if not matches:
                raise InputError(f"no file matches {clean(path)}", hint="check the pattern; ** also looks into folders")
            found |= dict.fromkeys(matches)
        else:
            found[path] = None
    return list(found)


def _in_folder(folder: str, tally: ReadReport) -> list[str]:
    logs: list[str] = []
    others: Counter[str] = Counter()
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(at, name)
            ending = (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()
            if ending in ENDINGS:
                logs.append(str(path))
            else:
                others[ending or "none"] += 1
    if not logs:
        raise InputError(f"the folder {clean(folder)} holds no log", hint=f"logs end in {', '.join(sorted(ENDINGS))}")
    if others:
        kinds = ", ".join(f"{clean(ending)} {count}" for ending, count in others.most_common(5))
        tally.faults.append(f"{others.total()} files of {clean(folder)} have other endings and were not read ({kinds})")
    return logs


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
