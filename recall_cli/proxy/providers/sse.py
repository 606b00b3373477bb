r"""Server-sent events, sans-io: bytes to frames at any split, frames to (event, data).

A frame is what stands between two blank lines, its own blank line included, byte for byte: what is relayed
is what came. Line ends are \n, \r\n or \r, as the standard has it; comments and unknown fields travel
along and mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

MAX_HELD = 8 << 20
"""Bytes of one unfinished frame beyond which a stream is relayed without being understood."""

# Atomic groups: \r\n is one line end and must not be read as two.
_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"
"""What OpenAI sends as the data of its last event."""


class Frames:
    """Splits a byte stream into frames. The frames and `rest`, joined, are the bytes that came."""

    __slots__ = ("_from", "rest")

    def __init__(self) -> None:
        self.rest = b""
        """What came after the last blank line."""
        self._from = 0  # before this, `rest` holds no blank line

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that these bytes complete. Raises OverflowError when one grows beyond `MAX_HELD`."""
        if not self.rest and data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            return [data]  # the usual case: a chunk is a whole frame
        held = self.rest + data
        frames, self.rest = _split(held, self._from)
        # A blank line may lack its last byte, or its last two, until the next chunk comes.
        self._from = max(0, len(self.rest) - 3)
        if len(self.rest) > MAX_HELD:
            raise OverflowError("an event of the stream does not end")
        return frames


def _split(data: bytes, start: int = 0) -> tuple[list[bytes], bytes]:
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        return [frame + b"\n\n" for frame in whole], rest
    frames = []
    at = 0
    for blank in _BLANK.finditer(data, start):
        frames.append(data[at : blank.end()])
        at = blank.end()
    return frames, data[at:]


def read_frame(frame: bytes) -> tuple[bytes, bytes | None]:
    """Return (event name, data) of a frame; data is None when the frame carries none (a comment, blank lines)."""
    if frame.startswith(b"data: ") and frame.find(b"\n") == len(frame) - 2 and b"\r" not in frame:
        return b"", frame[6:-2]
    event = b""
    data: list[bytes] = []
    for line in _LINE.split(frame.removeprefix(_BOM)):
        name, colon, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" ") if colon else b"")
        elif name == b"event":
            event = value.removeprefix(b" ")
    return event, b"\n".join(data) if data else None


def read_rest(rest: bytes) -> tuple[bytes, bytes] | None:
    """Return (event name, data) of what stands behind the last blank line, when it is an event all the same.

    Some servers leave out the last blank line. A torn event is none, as the standard has it: a JSON object that lacks
    a byte cannot be read.
    """
    event, data = read_frame(rest)
    if data is None:
        return None
    if data.strip() == DONE:
        return event, data
    try:
        return (event, data) if isinstance(orjson.loads(data), dict) else None
    except ValueError:
        return None


def events(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (event name, data) of every event that carries data; the last may lack its blank line."""
    frames = Frames()
    for frame in frames.feed(stream):
        event, data = read_frame(frame)
        if data is not None:
            yield event, data
    last = read_rest(frames.rest)
    if last is not None:
        yield last
