"""Archives as they come in files, and as they are made to hurt."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError
from recall_cli.logs.files import CUT, FOREIGN, gunzip, read_lines, unpacker, unzstd
from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport

TEXT = b"".join(b"%x\n" % random.Random(i).getrandbits(400) for i in range(4000))
NOTE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
EMPTY_NOTE = b"\x5f\x2a\x4d\x18\x00\x00\x00\x00"


def zstd(data: bytes, **how: bool) -> bytes:
    return zstandard.ZstdCompressor(**how).compress(data)  # type: ignore[arg-type]


def streamed(data: bytes) -> bytes:
    """Return a frame whose header does not say how much it holds."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush()


def unpack(packed: bytes, size: int = 1 << 16) -> tuple[bytes, list[str]]:
    faults: list[str] = []
    run = unpacker(packed)
    assert run is not None
    chunks = (packed[at : at + size] for at in range(0, len(packed), size))
    return b"".join(run(chunks, faults.append)), faults


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(zstd(TEXT), id="plain"),
        pytest.param(zstd(TEXT, write_checksum=True), id="checksum"),
        pytest.param(zstd(TEXT, write_content_size=False), id="no-size"),
        pytest.param(streamed(TEXT), id="streamed"),
        pytest.param(zstd(TEXT[:99]) + zstd(b"") + streamed(TEXT[99:]), id="frames"),
        pytest.param(NOTE + zstd(TEXT), id="note-first"),
        pytest.param(NOTE + EMPTY_NOTE + zstd(TEXT[:99]) + NOTE + zstd(TEXT[99:]) + NOTE, id="notes-between"),
        pytest.param(zstd(TEXT) + b"\0" * 517, id="padded"),
        pytest.param(zstd(TEXT[:9]) + b"\0" * 3 + zstd(TEXT[9:]), id="padded-between"),
        pytest.param(gzip.compress(TEXT, mtime=0), id="gzip"),
        pytest.param(gzip.compress(TEXT[:9], mtime=0) + b"\0" * 9 + gzip.compress(TEXT[9:], mtime=0), id="members"),
    ],
)
def test_all_of_it_however_it_arrives(packed: bytes, size: int) -> None:
    assert unpack(packed, size) == (TEXT, [])


@pytest.mark.parametrize("pack", [zstd, streamed, lambda data: gzip.compress(data, mtime=0)], ids=["zstd", "s", "gz"])
def test_every_cut_is_said_and_keeps_what_came_before(pack) -> None:  # type: ignore[no-untyped-def]
    packed = pack(TEXT)
    for end in (4, 5, 6, 9, 13, 100, len(packed) // 2, len(packed) - 3, len(packed) - 1):
        text, faults = unpack(packed[:end])
        assert TEXT.startswith(text)
        assert faults == [CUT], end
    # Whole blocks before the cut are there.
    assert len(unpack(packed[:-1])[0]) > len(TEXT) - 131_073


@pytest.mark.parametrize("end", [1, 5, 8, 10])
def test_a_cut_in_a_note(end: int) -> None:
    assert unpack(zstd(TEXT) + NOTE[:end]) == (
        TEXT,
        [CUT] if end >= 4 or zstd(b"").startswith(NOTE[:end]) else [FOREIGN],
    )


def test_damage_and_foreign_bytes_lose_nothing_before_them() -> None:
    small = zstd(b"one line\n")
    assert unpack(small + b"garbage") == (b"one line\n", [FOREIGN])
    assert unpack(gzip.compress(b"one line\n", mtime=0) + b"garbage") == (b"one line\n", [FOREIGN])
    broken = bytearray(streamed(TEXT))
    broken[-2] ^= 0xFF  # the checksum
    text, faults = unpack(bytes(broken))
    assert len(text) > len(TEXT) - 131_073
    assert len(faults) == 1
    assert "damaged" in faults[0]


@given(
    st.binary(max_size=60), st.sampled_from([zstd(b"ab" * 40), gzip.compress(b"ab" * 40, mtime=0)]), st.integers(0, 50)
)
def test_no_bytes_raise(noise: bytes, packed: bytes, at: int) -> None:
    for run in (gunzip, unzstd):
        for data in (noise, packed[:at] + noise + packed[at:], packed[:4] + noise, NOTE[:4] + noise):
            list(run(iter([data]), lambda fault: None))


def bomb_of_zstd(path: Path, size: int) -> None:
    """Write one frame of blocks that repeat a space 128 KiB long: four bytes each."""
    blocks = size >> 17
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b" "
    last = (1).to_bytes(3, "little")
    # No single segment, window of 128 KiB, no sizes.
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x38" + block * blocks + last)


def bomb_of_gzip(path: Path, size: int) -> None:
    packer = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.flush())


@pytest.mark.parametrize("make", [bomb_of_zstd, bomb_of_gzip])
def test_a_bomb_is_never_held(tmp_path: Path, make, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("recall_cli.logs.files.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "bomb"
    make(path, 300 << 20)
    assert path.stat().st_size < 400_000
    tracemalloc.start()
    lines = list(read_lines(str(path), on_fault=pytest.fail))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [None]
    assert peak < 12 << 20


def test_a_file_of_which_nothing_can_be_unpacked_says_why(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(zstd(TEXT)[:50])
    with pytest.raises(InputError, match="holds no line that can be read: the compressed file ends before"):
        list(read_log(str(path), ReadReport()))


def test_what_is_not_packed_has_no_unpacker() -> None:
    assert unpacker(b'{"a": 1}') is None
    assert unpacker(b"") is None
    assert unpacker(b"\x50\x2a\x4d") is None


def test_chunks_are_read_as_they_are_needed() -> None:
    read = []

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(packed), 1000):
            read.append(at)
            yield packed[at : at + 1000]

    packed = zstd(TEXT[:99]) + b"\0" * 5000
    assert next(unzstd(chunks(), pytest.fail)) == TEXT[:99]
    assert len(read) == 1
