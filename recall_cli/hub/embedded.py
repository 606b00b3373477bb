"""A hub in a folder: a catalog in SQLite, its words in tantivy, its vectors in the core's index.

The catalog decides. A write is committed there first, then in the word index, and then the catalog says that the word
index has followed (`indexed`); only then do searches move to the new revision, in both legs at once. A process killed
in between leaves a word index that lags behind: whoever opens or asks the hub next brings it up to date.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recall_cli.core.index import index_maker
from recall_cli.hub.catalog import Catalog
from recall_cli.hub.lexical import WAIT_S, Busy, Lexical, LexicalWriter
from recall_cli.hub.nouns import Chunk, Document, DocumentState, HubInfo, Passage, Visibility
from recall_cli.types import Ids, Index, Vector

CATALOG, WORDS = "hub.db", "words"
RETRY_S = 0.1
"""How often a search looks whether a word index that lags behind can be brought up to date."""


class EmbeddedEngine:
    """The engine of one hub (see `nouns.HubEngine`) that lives in a folder, shared with other processes."""

    def __init__(self, folder: Path, *, index: str = "auto") -> None:
        """Open a hub. Raises StoreError when there is none, or it cannot be read.

        :param index: the index of its vectors, as `core.index.index_maker` reads it.
        """
        self._make_index = index_maker(index)
        self._catalog = Catalog(folder / CATALOG)
        self._lock = threading.RLock()
        self._applying = threading.Lock()
        self._seen = -1
        self._lags = False
        self._retry_at = 0.0
        self._ids: Ids = np.empty(0, np.int64)
        try:
            self._words = Lexical(folder / WORDS)
            self._info = self._catalog.info()
            self._index: Index = self._make_index(self._info.dim)
            self._open()
        except BaseException:
            self._catalog.close()
            raise

    def info(self) -> HubInfo:
        """Return the hub's facts as of now."""
        with self._current():
            return self._info

    def documents(self) -> Iterator[tuple[str, DocumentState]]:
        """Yield every document's id and state, in the order of the ids."""
        return self._catalog.states()

    def document(self, id: str) -> Document | None:
        """Return a document as it was stored, None when it is not there."""
        return self._catalog.document(id)

    def known(self, digests: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Return the vectors of those chunk digests that are stored, shape (dim,) each."""
        return self._catalog.known(digests)

    def apply(
        self,
        upserts: Iterable[tuple[Document, DocumentState, Sequence[Chunk], Vector]],
        removed: Iterable[str] = (),
    ) -> int:
        """Store and remove documents in one write; return the new revision (the old one when nothing was given)."""
        catalog = self._catalog
        upserts = iter(upserts)
        # Until there is something to write, nobody else is kept from writing.
        first = next(upserts, None)
        if first is None:
            removed = list(removed)
            if not removed:
                return self.info().revision
        with self._applying, self._words.writing() as words:
            self._follow(words)
            with catalog.writing():
                if first is not None:
                    self._put(words, *first)
                for upsert in upserts:
                    self._put(words, *upsert)
                for id in removed:
                    self._remove(words, id)
                revision = catalog.next_revision()
            words.commit()
            catalog.set(indexed=str(revision))
        return revision

    def configure(
        self,
        *,
        visibility: Visibility | None = None,
        owner: str | None = None,
        alpha: float | None = None,
        min_score: float | None = None,
    ) -> HubInfo:
        """Change the hub's settings; what is None stays. Makes a new revision."""
        catalog = self._catalog
        settings = {"visibility": visibility, "owner": owner, "alpha": alpha, "min_score": min_score}
        with catalog.writing():
            in_step = catalog.written("indexed") == catalog.written("revision")
            catalog.set(**{name: str(value) for name, value in settings.items() if value is not None})
            revision = catalog.next_revision()
            if in_step:
                # No word has changed, so the word index is as good for the new revision.
                catalog.set(indexed=str(revision))
        return self.info()

    def vector(self, vector: Vector, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and cosines of the n nearest chunks, best first."""
        with self._current():
            return self._index.search(vector, n)

    def lexical(self, text: str, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and BM25 scores of the n best chunks that share a word with the text, best first."""
        with self._current():
            words = self._words
        return words.search(text, n)

    def score(self, text: str, ids: Ids) -> tuple[Vector, Vector]:
        """Return these chunks' vectors, shape (n, dim), and BM25 scores; zeros for what is gone or shares no word."""
        vectors = np.zeros((len(ids), self._info.dim), np.float32)
        found = self._catalog.vectors(ids.tolist())
        for at, id in enumerate(ids.tolist()):
            if id in found:
                vectors[at] = found[id]
        return vectors, self._words.score(text, ids)

    def sample(self, most: int) -> Vector:
        """Return the vectors of up to so many chunks, spread evenly over the hub, shape (n, dim)."""
        with self._current():
            ids, dim = self._ids, self._info.dim
        picked = ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)] if most < len(ids) else ids
        return np.array(list(self._catalog.vectors(picked.tolist()).values()), np.float32).reshape(-1, dim)

    def passages(self, ids: Ids) -> list[Passage]:
        """Return these chunks' texts, in the order asked for; those that are gone meanwhile are left out."""
        return self._catalog.passages(ids.tolist())

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        with self._lock:
            self._catalog.close()

    def _put(
        self,
        words: LexicalWriter,
        document: Document,
        state: DocumentState,
        chunks: Sequence[Chunk],
        vectors: Vector,
    ) -> None:
        self._remove(words, document.id)
        ids = self._catalog.add(document, state, chunks, vectors)
        for id, chunk in zip(ids, chunks, strict=True):
            words.add(id, document.title, chunk.text)

    def _remove(self, words: LexicalWriter, id: str) -> None:
        for chunk in self._catalog.remove(id) or ():
            words.remove(chunk)

    def _open(self) -> None:
        """See the first revision, when the word index has all of it or could be given it."""
        until = time.monotonic() + WAIT_S
        while True:
            with self._catalog.snapshot():
                ids = self._catalog.chunk_ids()
                self._words.reload()
                if np.array_equal(ids, self._words.ids()):
                    self._seen = self._catalog.version()
                    self._show()
                    return
            # It lags behind, is damaged, or another process is between its two commits.
            self._catch_up(wait_s=max(0.0, until - time.monotonic()))

    def _current(self) -> threading.RLock:
        """Return the lock to be held while looking at what is shown, which is the last whole revision."""
        with self._lock:
            version = self._catalog.version()
            if version != self._seen or (self._lags and time.monotonic() >= self._retry_at):
                self._seen = version
                self._refresh()
        return self._lock

    def _refresh(self) -> None:
        meta = self._catalog.meta()
        if meta["indexed"] != meta["revision"]:
            try:
                self._catch_up(wait_s=0.0)
            except Busy:
                # Being written just now: both legs stay with the revision before, but who may ask is obeyed at once.
                now = self._catalog.info()
                self._info = replace(
                    self._info, visibility=now.visibility, owner=now.owner, alpha=now.alpha, min_score=now.min_score
                )
                self._lags, self._retry_at = True, time.monotonic() + RETRY_S
                return
        with self._catalog.snapshot():
            self._words.reload()
            self._show()

    def _show(self) -> None:
        """Show the state of the file; to be called within one snapshot of it, with the word index in step."""
        info = self._catalog.info()
        ids = self._catalog.chunk_ids()
        if info.fingerprint != self._info.fingerprint:
            self._index, self._ids = self._make_index(info.dim), np.empty(0, np.int64)
        if info.revision != self._info.revision or not len(self._ids):
            self._index.remove(np.setdiff1d(self._ids, ids, assume_unique=True).tolist())
            last = int(self._ids[-1]) if len(self._ids) else 0
            for new, vectors in self._catalog.vectors_after(last):
                # Without a known token there is no direction: such a chunk is found by its words alone.
                real = vectors.any(axis=1)
                self._index.add(new[real], vectors[real])
        self._ids, self._info, self._lags = ids, info, False

    def _catch_up(self, wait_s: float) -> None:
        """Bring the word index up to date. Raises Busy when somebody else is writing."""
        with self._words.writing(wait_s) as words:
            self._follow(words, always=True)

    def _follow(self, words: LexicalWriter, *, always: bool = False) -> None:
        """Give the word index what the catalog has and it has not; while this runs nobody else writes documents."""
        catalog = self._catalog
        with catalog.snapshot():
            meta = catalog.meta()
            if not always and meta["indexed"] == meta["revision"]:
                return
            self._words.reload()
            wanted, there = catalog.chunk_ids(), self._words.ids()
            for id in np.setdiff1d(there, wanted).tolist():
                words.remove(id)
            for word in catalog.words(np.setdiff1d(wanted, there).tolist()):
                words.add(*word)
        words.commit()
        with catalog.writing():
            # Settings may have changed meanwhile, words not.
            catalog.set(indexed=catalog.written("revision"))
