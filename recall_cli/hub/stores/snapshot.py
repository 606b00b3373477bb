"""One state of a hub's file, read over a connection of its own: no search waits for it, no write changes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from recall_cli.cache.stores.sqlite_file import connect, unreadable
from recall_cli.errors import StoreError
from recall_cli.hub.models import HubInfo, Settings, Visibility
from recall_cli.types import Ids, Vector

BLOCK_BYTES = 64 << 20
"""Vectors read at a time. Large blocks: the index codes its rows anew as their mean moves with each of them."""

COUNTS = "SELECT COUNT(*), SUM(chunks) FROM documents WHERE hidden IS NULL"
HIDDEN = "SELECT chunks.id FROM documents JOIN chunks ON document = row WHERE hidden IS NOT NULL"
WORDS = "SELECT chunks.id, title, text FROM chunks JOIN documents ON document = row WHERE chunks.id = ?"


def settings_of(meta: Mapping[str, str]) -> Settings:
    """Return the settings among a hub's facts as they are stored. Raises ValueError or LookupError for odd ones."""
    return {
        "visibility": Visibility(meta["visibility"]),
        "owner": meta["owner"],
        "alpha": float(meta["alpha"]),
        "min_score": float(meta["min_score"]) if "min_score" in meta else None,
    }


@contextmanager
def snapshot_of(path: Path) -> Iterator[Snapshot]:
    """Give the present state of a hub's file. Raises StoreError when it cannot be read, or makes no sense."""
    db = connect(path, mode="rw")
    try:
        db.execute("BEGIN")
        yield Snapshot(db)
    except sqlite3.Error as error:
        raise unreadable(path, error) from error
    except (ValueError, TypeError, LookupError) as error:
        # SQLite keeps no checksums: a damaged page may hand over what no write of ours has stored.
        raise damaged(path, error) from error
    finally:
        db.close()


def damaged(path: Path, error: Exception) -> StoreError:
    """Return the error for a hub's file that can be read and makes no sense."""
    return StoreError(
        f"{path} is damaged: {error}", hint="restore the file, or make the hub anew and ingest its documents"
    )


class Snapshot:
    """Reads that all see the same state."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._meta: dict[str, str] = dict(db.execute("SELECT key, value FROM meta"))

    @property
    def uid(self) -> str:
        """Which hub it is of."""
        return self._meta["uid"]

    @property
    def revision(self) -> int:
        """The number of this state."""
        return int(self._meta["revision"])

    @property
    def is_indexed(self) -> bool:
        """Whether the word index has been given all of this state."""
        return self._meta["indexed"] == self._meta["revision"]

    def info(self) -> HubInfo:
        """Return what the hub is."""
        meta = self._meta
        documents, chunks = self._db.execute(COUNTS).fetchone()
        return HubInfo(
            slug=meta["slug"],
            uid=meta["uid"],
            embedder=meta["embedder"],
            fingerprint=meta["fingerprint"],
            dim=int(meta["dim"]),
            revision=self.revision,
            documents=documents,
            chunks=chunks or 0,
            updated=float(meta["updated"]) if "updated" in meta else None,
            **settings_of(meta),
        )

    def chunk_ids(self) -> Ids:
        """Return the ids of all chunks, in order."""
        # Unordered, SQLite reads them off its narrowest index; by id, it would walk all texts.
        ids = np.sort(np.array(self._db.execute("SELECT id FROM chunks").fetchall(), np.int64).reshape(-1))
        hidden = np.array(self._db.execute(HIDDEN).fetchall(), np.int64).reshape(-1)
        return np.setdiff1d(ids, hidden, assume_unique=True) if len(hidden) else ids

    def vectors_after(self, id: int) -> Iterator[tuple[Ids, Vector]]:
        """Yield (ids, vectors (n, dim)) of the chunks with a larger id, in order, block by block; hidden ones too."""
        dim = int(self._meta["dim"])
        cursor = self._db.execute("SELECT id, vector FROM vectors WHERE id > ? ORDER BY id", (id,))
        while rows := cursor.fetchmany(max(1, BLOCK_BYTES // (4 * dim))):
            ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
            yield ids, np.frombuffer(b"".join(row[1] for row in rows), np.float32).reshape(len(rows), dim)

    def words(self, ids: Iterable[int]) -> Iterator[tuple[int, str, str]]:
        """Yield (id, title, text) of these chunks."""
        for id in ids:
            yield from self._db.execute(WORDS, (id,))
