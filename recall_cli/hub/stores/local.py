"""A hub in a folder: a catalog in SQLite, its words in tantivy, its vectors in the core's index.

The catalog decides. A write is committed there first, then in the word index, and then the catalog says that the word
index has followed (`indexed`); only then do searches move to the new revision, in both legs at once. A process killed
in between leaves a word index that lags behind: whoever opens or asks the hub next brings it up to date.

Locks, outermost first: one writer of documents (`_applying` in this process, tantivy's own across processes), one
thread that brings in a revision (`_refreshing`), the view being changed or searched (`_searching`).

A search sees a view: one revision's facts and the vectors of its chunks.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, Unpack

import numpy as np

from recall_cli.cache.index.auto import index_maker
from recall_cli.errors import StoreError, StoreMismatch
from recall_cli.hub.models import Document, DocumentState, EmbedChunks, HubInfo, Passage, Settings, Upsert
from recall_cli.hub.stores.batches import anything, batches, check_width
from recall_cli.hub.stores.bm25 import Busy, Damaged, Lexical, LexicalWriter
from recall_cli.hub.stores.catalog import Catalog, Snapshot
from recall_cli.types import Ids, Index, Vector, VectorSpace

IN_PLACE = 1_024
"""Chunks that may come and go in the index in service: some 20 ms, for which searches wait."""
IN_PLACE_SHARE = 20
"""And one in so many of the hub's: to build its index anew would take far longer."""


@dataclass(frozen=True, slots=True)
class View:
    """One revision, whole."""

    info: HubInfo
    ids: Ids
    """Of all chunks, in order."""
    index: Index
    """Of those chunks whose vector has a direction."""


@dataclass(frozen=True, slots=True)
class Change:
    """What leads from one view to the next."""

    info: HubInfo
    ids: Ids
    gone: Ids
    new: Ids
    vectors: Vector


def build(snapshot: Snapshot, make_index: Callable[[int], Index]) -> View:
    """Return the view of a state, made from nothing."""
    info, ids = snapshot.info(), snapshot.chunk_ids()
    index = make_index(info.dim)
    for block in snapshot.vectors_after(0):
        index.add(*_wanted(*block, ids))
    return View(info, ids, index)


def change(view: View, snapshot: Snapshot) -> Change | None:
    """Return what leads to that state; None when so much has changed that it is better built anew."""
    info, ids = snapshot.info(), snapshot.chunk_ids()
    last = int(view.ids[-1]) if len(view.ids) else 0
    gone = np.setdiff1d(view.ids, ids, assume_unique=True)
    new = len(ids) - np.searchsorted(ids, last, side="right")
    if info.fingerprint != view.info.fingerprint:
        return None
    if len(gone) + new > max(IN_PLACE, len(view.ids) // IN_PLACE_SHARE):
        return None
    blocks = [_wanted(*block, ids) for block in snapshot.vectors_after(last)]
    if not blocks:
        return Change(info, ids, gone, np.empty(0, np.int64), np.empty((0, info.dim), np.float32))
    return Change(info, ids, gone, np.concatenate([i for i, _ in blocks]), np.concatenate([v for _, v in blocks]))


def changed(view: View, to: Change) -> View:
    """Return the next view; the index is changed in place, so nobody may search meanwhile."""
    view.index.remove(to.gone.tolist())
    view.index.add(to.new, to.vectors)
    return View(to.info, to.ids, view.index)


def vectors_of(view: View, ids: Ids) -> Vector:
    """Return the vectors of these chunks, shape (n, dim); zeros for those that are gone or have no direction."""
    found, vectors = view.index.fetch(ids)
    if len(found) == len(ids):
        return vectors
    rows: Vector = np.zeros((len(ids), view.info.dim), np.float32)
    rows[np.isin(ids, found)] = vectors
    return rows


def _wanted(ids: Ids, vectors: Vector, wanted: Ids) -> tuple[Ids, Vector]:
    """Leave out what is hidden, and the zero vectors of texts without a known token, which only their words find."""
    keep = vectors.any(axis=1) & np.isin(ids, wanted, assume_unique=True)
    return (ids, vectors) if keep.all() else (ids[keep], vectors[keep])


CATALOG, WORDS = "hub.db", "words"
WAIT_S = 5.0
"""How long a writer waits for another one before it reports a locked hub."""
RETRY_S = 0.1
"""How often a search looks whether a word index that lags behind can be brought up to date."""
NEVER = float("inf")

T = TypeVar("T")

_log = logging.getLogger(__name__)


class EmbeddedEngine:
    """The engine of one hub (see `nouns.HubEngine`) that lives in a folder, shared with other processes."""

    def __init__(self, folder: Path, *, index: str = "auto") -> None:
        """Open a hub. Raises StoreError when there is none, or it cannot be read.

        :param index: the index of its vectors, as `cache.index.auto.index_maker` reads it.
        """
        self._folder = folder
        self._make_index = index_maker(index)
        self._catalog = Catalog(folder / CATALOG)
        self._searching = threading.Lock()
        self._refreshing = threading.RLock()
        self._applying = threading.Lock()
        self._seen = -1
        self._retry_at = NEVER
        self._settings: tuple[int, Settings] | None = None
        """What they were at a version of the catalog."""
        try:
            self._words = Lexical(folder / WORDS)
            self._view = self._first_view()
        except BaseException:
            self._catalog.close()
            raise

    def info(self) -> HubInfo:
        """Return the hub's facts as of now.

        Its settings are read beside the view: who may ask waits for no words to be indexed, and for no other thread
        that brings a revision in.
        """
        info = self._current().info
        version = self._catalog.version()
        kept = self._settings
        if kept is None or kept[0] != version:
            # The version was read before: these are of it, or newer.
            kept = self._settings = version, self._catalog.settings()
        return replace(info, **kept[1])

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
        upserts: Iterable[Upsert],
        removed: Iterable[str] = (),
        *,
        fingerprint: str = "",
    ) -> int:
        """Store and remove documents in one write; return the new revision (the old one when nothing was given)."""
        catalog = self._catalog
        # Until there is something to write, nobody else is kept from writing.
        given = anything(upserts, removed)
        if given is None:
            return self.info().revision
        upserts, removed = given
        stage = secrets.randbits(62) + 1
        with self._writing() as words:
            for batch in batches(upserts):
                with catalog.writing():
                    for document, state, chunks, vectors in batch:
                        ids = catalog.stage(stage, document, state, chunks, vectors)
                        for id, chunk in zip(ids, chunks, strict=True):
                            words.add(id, document.title, chunk.text)
            with catalog.writing():
                if fingerprint not in ("", catalog.written("fingerprint")):
                    raise StoreMismatch(
                        f"the hub at {catalog.path.parent} has moved to another embedder meanwhile",
                        hint="ingest again, with the embedder it has now",
                    )
                catalog.sweep(stage)
                words.remove(catalog.publish(stage))
                for name in removed:
                    words.remove(catalog.remove(name))
                revision = catalog.next_revision()
        self._see_own()
        return revision

    def move(self, space: VectorSpace, embed: EmbedChunks) -> int:
        """Give every chunk the vector of another embedder, in one write; return the new revision."""
        catalog = self._catalog
        with self._writing(), catalog.moving():
            with catalog.writing():
                catalog.sweep()
            # Settings may change meanwhile, documents may not: this holds the right to write them.
            for ids, texts in catalog.titled():
                catalog.put_aside(ids, list(embed(texts)), space.dim)
            with catalog.writing():
                catalog.replace()
                catalog.set(embedder=space.name, fingerprint=space.fingerprint, dim=str(space.dim))
                revision = catalog.next_revision()
        self._see_own()
        return revision

    def configure(self, **changes: Unpack[Settings]) -> HubInfo:
        """Change the hub's settings; what is not named stays. Makes a new revision."""
        catalog = self._catalog
        with catalog.writing():
            in_step = catalog.written("indexed") == catalog.written("revision")
            catalog.set(**{name: None if value is None else str(value) for name, value in changes.items()})
            revision = catalog.next_revision()
            if in_step:
                # No word has changed, so the word index is as good for the new revision.
                catalog.set(indexed=str(revision))
        self._see_own()
        return self.info()

    def vector(self, vector: Vector, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and cosines of the n nearest chunks, best first."""
        self._current()
        with self._searching:
            check_width(vector, (self._view.info.dim,))
            return self._view.index.search(vector, n)

    def lexical(self, text: str, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and BM25 scores of the n best chunks that share a word with the text, best first."""
        self._current()
        return self._ask_words(lambda words: words.search(text, n))

    def score(self, text: str, ids: Ids) -> tuple[Vector, Vector]:
        """Return these chunks' vectors, shape (n, dim), and BM25 scores; zeros for what is gone or shares no word."""
        with self._searching:
            vectors = vectors_of(self._view, ids)
        return vectors, self._ask_words(lambda words: words.score(text, ids))

    def sample(self, most: int) -> Vector:
        """Return the vectors of up to so many chunks, spread evenly over the hub, shape (n, dim)."""
        with self._searching:
            ids = self._view.ids
            if most < len(ids):
                ids = ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]
            return vectors_of(self._view, ids)

    def passages(self, ids: Ids) -> list[Passage]:
        """Return these chunks' texts, in the order asked for; those that are gone meanwhile are left out."""
        return self._catalog.passages(ids.tolist())

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        self._catalog.close()

    @contextmanager
    def _writing(self) -> Iterator[LexicalWriter]:
        """Hold the right to write documents; at the end, let the word index follow what the catalog has committed."""
        catalog = self._catalog
        with self._applying, self._words.writing(WAIT_S) as words:
            catalog.check_place()
            if catalog.written("indexed") != catalog.written("revision"):
                self._follow(words)
            yield words
            # It may have been removed meanwhile; what is in its folder now has words of its own.
            catalog.check_place()
            words.commit()
            self._indexed()

    def _see_own(self) -> None:
        """Let searches see what this process has just written."""
        with self._refreshing:
            self._refresh()

    def _first_view(self) -> View:
        """Return the view of the present state, once the word index has all of it."""
        until = time.monotonic() + WAIT_S
        while True:
            # Before the state is read: what is written after it is noticed by the first search.
            self._seen = self._catalog.version()
            with self._catalog.snapshot() as state:
                if np.array_equal(state.chunk_ids(), self._words.ids()):
                    self._words.reload()
                    return build(state, self._make_index)
            # It lags behind, was made anew, or another process is between its two commits.
            self._catch_up(wait_s=max(0.0, until - time.monotonic()))

    def _current(self) -> View:
        """Return what searches see, after a look at whether there is a newer revision."""
        if self._catalog.version() == self._seen and time.monotonic() < self._retry_at:
            return self._view
        # One thread brings the next revision in; meanwhile the others go on with the one before.
        if self._refreshing.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._refreshing.release()
        return self._view

    def _refresh(self) -> None:
        self._seen, self._retry_at = self._catalog.version(), NEVER
        try:
            try:
                self._bring_in()
            except Damaged as error:
                self._mend(error)
                self._bring_in()
        except Busy:
            # Somebody is between the two commits: a moment later there will be a whole revision.
            self._retry_at = time.monotonic() + RETRY_S
        except BaseException:
            self._seen = -1
            raise

    def _bring_in(self) -> None:
        with self._catalog.snapshot() as state:
            if state.revision == self._view.info.revision:
                return  # something was staged
            if state.is_indexed:
                self._show(state)
                return
        self._catch_up(wait_s=0.0)

    def _show(self, state: Snapshot) -> None:
        """Let searches see a state that the word index has all of."""
        to = change(self._view, state)
        view = build(state, self._make_index) if to is None else self._view
        with self._searching:
            self._words.reload()
            self._view = view if to is None else changed(view, to)

    def _catch_up(self, wait_s: float) -> None:
        """Bring the word index up to date. Raises Busy when somebody else is writing."""
        with self._words.writing(wait_s) as words:
            self._follow(words)

    def _ask_words(self, ask: Callable[[Lexical], T]) -> T:
        """Ask the word index. One that turns out to be damaged is made anew first, by one thread; others are told."""
        words = self._words
        try:
            return ask(words)
        except Damaged as error:
            if not self._refreshing.acquire(blocking=False):
                raise
            try:
                if self._words is words:
                    self._mend(error)
            finally:
                self._refreshing.release()
            return ask(self._words)

    def _mend(self, found: Damaged) -> None:
        """Make a damaged word index anew. Raises Busy when somebody is writing, NoSuchHub when the hub was removed."""
        self._catalog.check_place()
        _log.warning("%s; it is made anew from %s", found, self._catalog.path)
        try:
            # In its own folder and in one write: other processes may have it open.
            with self._words.writing() as words:
                self._follow(words, anew=True)
        except Busy:
            raise
        except StoreError:
            # Not even the list of its files can be read; opened, it is an empty one.
            pass
        self._words = Lexical(self._folder / WORDS)
        self._catch_up(wait_s=0.0)
        self._words.reload()

    def _follow(self, words: LexicalWriter, *, anew: bool = False) -> None:
        """Give the word index what the catalog has and it has not; while this runs nobody else writes documents.

        :param anew: whatever it has.
        """
        with self._catalog.snapshot() as state:
            wanted = state.chunk_ids()
            there = wanted[:0] if anew else self._words.ids()
            if anew or len(np.unique(there)) < len(there):  # an id twice: it was written into by a hub before this one
                words.clear()
                there = wanted[:0]
            words.remove(np.setdiff1d(there, wanted).tolist())
            for word in state.words(np.setdiff1d(wanted, there).tolist()):
                words.add(*word)
        words.commit()
        self._indexed()

    def _indexed(self) -> None:
        """Say that the word index has followed; settings may have made a revision meanwhile, but changed no words."""
        with self._catalog.writing():
            self._catalog.set(indexed=self._catalog.written("revision"))
