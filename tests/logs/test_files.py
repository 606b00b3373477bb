"""Bytes to lines: every compression, every kind of broken end."""

from __future__ import annotations

import gzip
import io
import itertools
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError
from recall_cli.logs import files
from recall_cli.logs.files import _lines, read_lines

LINES = [b'{"a": 1}', b"", b'{"b": "\xc3\xa9"}', b"x" * 70_000]
TEXT = b"\n".join(LINES)


def lines_of(path: Path) -> tuple[list[bytes | None], list[str]]:
    faults: list[str] = []
    return list(read_lines(str(path), on_fault=faults.append)), faults


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(TEXT, id="plain"),
        pytest.param(TEXT + b"\n", id="final-newline"),
        pytest.param(TEXT.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(gzip.compress(TEXT), id="gzip"),
        pytest.param(gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), id="two-gzip-members"),
        pytest.param(gzip.compress(TEXT) + b"\0" * 512, id="gzip-padded"),
        pytest.param(zstd(TEXT), id="zstd"),
        pytest.param(zstd(TEXT[:9]) + zstd(TEXT[9:]), id="two-zstd-frames"),
    ],
)
def test_same_lines_whatever_the_packing(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "log.txt"  # the suffix says nothing: magic bytes decide
    path.write_bytes(packed)
    assert lines_of(path) == (LINES, [])


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_truncated_archive_keeps_what_was_read(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    import random

    # Incompressible lines, so that the cut falls in the middle and not in the last bytes.
    whole = b"".join(b"%x\n" % random.Random(i).getrandbits(400) for i in range(9000))
    packed = pack(whole)
    path = tmp_path / "log"
    path.write_bytes(packed[: len(packed) // 2])
    lines, faults = lines_of(path)
    assert len(lines) > 1000
    assert whole.startswith(b"\n".join(lines[:-1]))  # type: ignore[arg-type]
    assert len(faults) == 1
    assert "ends before its end mark" in faults[0]


def test_damaged_gzip_keeps_what_was_read(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 0xFF  # the checksum
    path = tmp_path / "log"
    path.write_bytes(bytes(packed))
    _, faults = lines_of(path)
    assert len(faults) == 1
    assert "damaged" in faults[0]


def test_bytes_after_the_archive_are_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(TEXT) + b"garbage")
    lines, faults = lines_of(path)
    assert lines == LINES
    assert "not compressed data" in faults[0]


def test_a_huge_line_is_dropped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    chunks = [b"one\n" + b"x" * 8, b"x" * 8, b"x" * 8 + b"\ntwo\n", b"1234567890\n12345678901\nend"]
    assert list(_lines(iter(chunks))) == [b"one", None, b"two", b"1234567890", None, b"end"]


def test_a_huge_line_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100_000)
    tracemalloc.start()
    assert list(_lines(b"%d" % i + b"x" * 50_000 for i in range(400))) == [None]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000  # 20 MB went through


@given(st.binary(), st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_chunking(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    chunks = [data[a:b] for a, b in itertools.pairwise(edges)]
    want = [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if data else []
    assert list(_lines(iter(chunks))) == want


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(gzip.compress(TEXT))

    monkeypatch.setattr(sys, "stdin", Piped)
    assert list(read_lines("-", on_fault=pytest.fail)) == LINES


def test_progress_counts_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    seen: list[int] = []
    list(read_lines(str(path), on_fault=pytest.fail, on_bytes=seen.append))
    assert seen[-1] == len(TEXT)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\0\0\0", "binary"),
        (gzip.compress(b"\0\1\2"), "binary"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
    ],
    # Not the bytes: gzip's hold the time, and parallel workers must collect the same names.
    ids=["elf", "inside-gzip", "utf-16"],
)
def test_what_can_never_be_a_log(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        lines_of(path)
    assert caught.value.hint


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        lines_of(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        lines_of(tmp_path)
