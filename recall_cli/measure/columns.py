"""Rows as columns: gathered in memory, spilled to Parquet in a folder of their own, read back one column at a time.

A log has any number of rows, so none of them may stay a Python object: what is held is one batch, and whatever
columns a caller has asked for. Texts, which are most of a log, go to a `Spool` beside, each distinct one about once.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from recall_cli.errors import RecallError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: what a killed run leaves there stays until the system clears its folder
    fcntl = None

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[Any]

BATCH_ROWS = 50_000
"""Rows held before they are spilled."""
PACKED = {("u", 1): "B", ("u", 2): "H", ("u", 4): "I", ("u", 8): "Q", ("i", 8): "q", ("f", 8): "d", ("b", 1): "?"}
"""Kinds of numbers, as numpy has them and as a packed row does."""
MASK = 2**64 - 1
PREFIX = "recall-rows-"
LOCK = "lock"
KNOWN = 1 << 18
"""Texts remembered as written, some 40 MB. One that comes again after so many others is written again."""


class Workspace:
    """A temporary folder that goes with its owner; opening one also removes those that dead processes left."""

    def __init__(self) -> None:
        try:
            _sweep(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        except OSError as error:
            hint = "free some space, or set TMPDIR to a folder of yours"
            raise RecallError(f"there is no temporary folder to write to: {error.strerror}", hint=hint) from error
        self._lock = _lock(self.path)
        self._spools: list[Spool] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for spool in self._spools:
            with suppress(OSError):  # what a full disk did not take is not needed any more
                spool.close()
        if self._lock is not None:
            os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    def spool(self, name: str) -> Spool:
        """Return a new spool in this folder."""
        self._spools.append(Spool(self.path / name))
        return self._spools[-1]


def _lock(folder: Path) -> int | None:
    """Lock a folder for as long as this process lives. A number of a process would mean nothing in a container."""
    if fcntl is None:
        return None
    made = os.open(folder / "taken", os.O_CREAT | os.O_RDWR)
    fcntl.flock(made, fcntl.LOCK_EX)
    # Named once it is locked: nobody finds it free in between.
    (folder / "taken").rename(folder / LOCK)
    return made


def _sweep(folder: Path) -> None:
    """Remove the folders of processes that were killed before they could."""
    if fcntl is None:
        return
    for lock in folder.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):
            found = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(found)


class Columns:
    """Rows of one schema, appended one by one.

    :param schema: name -> numpy type, in the order in which `append` is given the values.
    :param folder: where batches are spilled to.
    """

    def __init__(self, schema: Mapping[str, str], folder: Path) -> None:
        self._schema = {name: np.dtype(kind) for name, kind in schema.items()}
        self._folder = folder
        # A row is packed as it comes: its numbers take a fifth of the room and of the time of Python objects.
        self._row = np.dtype(list(self._schema.items()))
        self._packer = struct.Struct("=" + "".join(PACKED[kind.kind, kind.itemsize] for kind in self._schema.values()))
        self._waiting = bytearray(BATCH_ROWS * self._packer.size)
        self._held = 0
        self._parts: list[Path] = []
        self._amended: dict[str, tuple[Column, Column]] = {}

    def __len__(self) -> int:
        return len(self._parts) * BATCH_ROWS + self._held

    def append(self, row: tuple[Any, ...]) -> None:
        """Add a row: a value for each column of the schema."""
        self._packer.pack_into(self._waiting, self._held * self._packer.size, *row)
        self._held += 1
        if self._held == BATCH_ROWS:
            self._spill()

    def read(self, name: str) -> Column:
        """Return a column whole, shape (rows,)."""
        kind = self._schema[name]
        found = np.empty(len(self), dtype=kind)
        at = 0
        if self._parts:
            import polars as pl

            for part in self._parts:
                found[at : at + BATCH_ROWS] = pl.read_parquet(part, columns=[name])[name].to_numpy()
                at += BATCH_ROWS
        found[at:] = np.frombuffer(self._waiting, self._row, self._held)[name]
        if name in self._amended:
            rows, values = self._amended[name]
            found[rows] = values
        return found

    def amend(self, rows: Column, values: Mapping[str, Column]) -> None:
        """Give some rows other values than they were appended with; they are held, and put in place on reading."""
        for name, column in values.items():
            self._amended[name] = (rows, column)

    def _spill(self) -> None:
        import polars as pl

        rows = np.frombuffer(self._waiting, self._row)
        frame = pl.DataFrame({name: np.ascontiguousarray(rows[name]) for name in self._schema})
        path = self._folder / f"{len(self._parts)}.parquet"
        # Digests do not compress, and the rest is read once or twice: speed counts, not size.
        frame.write_parquet(path, compression="lz4", statistics=False)
        self._parts.append(path)
        self._held = 0


class Spool:
    """Texts on disk, found again by their place."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._known: dict[int, int] = {}
        self._end = 0

    def add(self, text: str) -> int:
        """Return the place of a text, written now unless it was lately."""
        key = key64(text)
        at = self._known.get(key)
        if at is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            at = self._known[key] = self._end
            raw = text.encode("utf-8", "surrogatepass")
            self._file.write(len(raw).to_bytes(4, "little"))
            self._file.write(raw)
            self._end += 4 + len(raw)
        return at

    def read(self, at: int) -> str:
        """Return the text at a place."""
        self._file.seek(at)
        return self._file.read(int.from_bytes(self._file.read(4), "little")).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Names:
    """Strings as small numbers. Past a limit all new ones share one number: a log may hold a name a row."""

    LIMIT = 1 << 20
    OTHER = "(other)"

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self.merged = 0
        """How often a name was one too many."""

    def __len__(self) -> int:
        return len(self._number)

    def number(self, name: str) -> int:
        """Return the number of a name."""
        found = self._number.get(name)
        if found is None:
            if len(self._number) >= self.LIMIT:
                name = self.OTHER
                self.merged += 1
            found = self._number.setdefault(name, len(self._number))
        return found

    def all(self) -> list[str]:
        """Return the names, each at its number."""
        return list(self._number)


def key64(text: str) -> int:
    """Return 64 bits that tell texts apart within this process, at a fifth of the time of a digest.

    Python's own keyed hash: of ten million different texts two share a key once in 300,000 logs.
    """
    return hash(text) & MASK


def number(keys: Column) -> tuple[Column, Column]:
    """Return (number of each key, a row that holds each number), int32: equal where the keys are."""
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return numbers.astype(np.int32), first.astype(np.int32)
