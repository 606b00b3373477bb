"""The user's own vectors: an array, prompts, or a request log; from a file or standard input, packed or not."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.core.request import parse_body
from recall_cli.errors import InputError
from recall_cli.logs.clean import clean
from recall_cli.logs.pairs import REQUEST, Tally, read_log
from recall_cli.logs.reader import read_lines
from recall_cli.logs.unpack import GZIP_MAGIC, ZSTD_MAGIC
from recall_cli.measure.ann_data import unit
from recall_cli.measure.prompts import from_prompts
from recall_cli.types import Bypass, Embedder, Vector, Warn

PEEK_LINES = 100
"""Lines at the start that show whether a file is a request log; a rotated log may begin with half a line."""

NPY_MAGIC = b"\x93NUMPY"
NPY_HINT = "save it with numpy.save"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The distinct vectors of a file, what was left out of it, and what tells it from another."""

    rows: Vector
    digest: str
    """Hex digest (blake3) of the file's bytes."""
    warnings: list[Warn]


def load(source: str, embedder: Embedder) -> Loaded:
    """Return the user's vectors: rows of an .npy file, or the texts of a prompts file or a log, embedded.

    Equal rows are kept once: a copy of a stored row is not a fresh query. Raises InputError.

    :param source: a path, or "-" for standard input.
    """
    with _as_file(source) as path:
        digest = _digest(path)
        if source.lower().endswith(".npy") or _head(path).startswith(NPY_MAGIC):
            return Loaded(_distinct(_array(path, _shown(source))), digest, [])
        texts, warnings = _texts(path, _shown(source))
    rows = embedder.embed_many(list(dict.fromkeys(texts)))
    known = rows.any(axis=1)
    if not known.all():
        warnings.append(
            Warn("TEXTS_WITHOUT_VECTOR", f"{(~known).sum():,} texts of {_shown(source)} have no token that is known")
        )
    return Loaded(_distinct(rows[known]), digest, warnings)


def _shown(source: str) -> str:
    return "standard input" if source == "-" else clean(source)


@contextmanager
def _as_file(source: str) -> Iterator[Path]:
    """Yield a path that can be read more than once; errors name the source."""
    if source != "-":
        yield Path(source)
        return
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="pipe the data in, or name a file")
    with TemporaryDirectory(prefix="recall-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        with _named(path, "standard input"):
            yield path


@contextmanager
def _named(path: Path, shown: str) -> Iterator[None]:
    """Give the source's name, not that of a temporary copy, in errors."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(path), shown), hint=error.hint) from error


def _digest(path: Path) -> str:
    digest = blake3()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{clean(str(path))} cannot be read: {reason}", hint="name a readable file; - is standard input"
        ) from None
    return digest.hexdigest()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _distinct(rows: Vector) -> Vector:
    """Return each direction once, in the order of first appearance."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def _texts(path: Path, shown: str) -> tuple[list[str], list[Warn]]:
    """Return the prompts of a file (the last user turns of a log, or the lines), and what could not be read."""
    lines = read_lines(str(path), on_fault=lambda fault: None)  # Faults are for the second reading to report.
    first = list(islice((line for line in lines if line and line.strip()), PEEK_LINES))
    texts, left_out, faults = _log(path) if any(map(_is_record, first)) else _prompts(path, shown)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in left_out.most_common())
    if not texts:
        raise InputError(f"{shown} holds no text to embed ({reasons})", hint="give prompts, a log or an .npy file")
    warnings = [Warn("DAMAGED_FILE", f"{shown}: {fault}") for fault in faults]
    if left_out:
        warnings.append(Warn("LINES_LEFT_OUT", f"{left_out.total():,} lines of {shown} were left out: {reasons}"))
    return texts, warnings


def _is_record(line: bytes) -> bool:
    try:
        row = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return False
    return isinstance(row, dict) and any(name in row for name in REQUEST)


def _log(path: Path) -> tuple[list[str], Counter[str], list[str]]:
    tally = Tally()
    texts: list[str] = []
    bypassed: Counter[str] = Counter()
    for record in read_log(str(path), tally):
        request = parse_body(record.provider, record.request)
        if isinstance(request, Bypass):
            bypassed[request.reason] += 1
        elif request.text.strip():
            texts.append(request.text)
        else:
            bypassed["no_text"] += 1
    return texts, tally.skipped + bypassed, tally.faults


def _prompts(path: Path, shown: str) -> tuple[list[str], Counter[str], list[str]]:
    faults: list[str] = []
    left_out: Counter[str] = Counter()
    with TemporaryDirectory(prefix="recall-") as folder:
        plain = path
        if _head(path).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            plain = Path(folder) / path.name.removesuffix(path.suffix)
            with plain.open("wb") as unpacked:
                for line in read_lines(str(path), on_fault=faults.append):
                    left_out["line_too_long"] += line is None
                    unpacked.write((line or b"") + b"\n")
        with _named(plain, shown):
            work = from_prompts(str(plain), None)
    left_out.update({reason: count for reason, count in work.skipped.items() if reason != "blank"})
    return [query.text for query in work.queries], +left_out, faults


def _array(path: Path, shown: str) -> Vector:
    if not _head(path).startswith(NPY_MAGIC):
        raise InputError(f"{shown} is not an .npy file", hint=NPY_HINT)
    try:
        rows: Any = np.load(path, allow_pickle=False)
    except MemoryError:
        raise InputError(f"{shown} is larger than the memory", hint="give fewer rows") from None
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or 'it is cut short'}", hint=NPY_HINT) from None
    except (ValueError, EOFError, SyntaxError) as error:
        # numpy's own words are for programmers, and some of them advise to unpickle.
        what = "holds Python objects, not numbers" if "Object arrays" in str(error) else "is damaged or cut short"
        raise InputError(f"{shown} cannot be read as an array: it {what}", hint=NPY_HINT) from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.size:
        raise InputError(
            f"{shown} holds {rows.dtype} of shape {rows.shape}, not rows of numbers",
            hint="save one vector a row: shape (n, dim)",
        )
    # In double precision, so that a row and its multiple come out as the same direction.
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float64)
    if not np.isfinite(rows).all():
        raise InputError(f"{shown} holds NaN or infinity", hint="drop those rows")
    if not rows.any(axis=1).all():
        raise InputError(f"{shown} holds a row of zeros, which has no direction", hint="drop those rows")
    # The square of 1e300 is infinite: by a power of two, which loses no digit, each row is brought near 1.
    return unit(np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]))
