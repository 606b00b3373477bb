"""gzip and zstd as they come in files: members and frames one after another, cut short, padded, made to explode.

What one call unpacks is bounded, and whatever was unpacked before a fault is kept. Therefore zstd is fed block by
block and not through `stream_reader`: that one cannot tell a file that was cut from a whole one, and loses all that
it had unpacked of a piece in which it meets damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

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
