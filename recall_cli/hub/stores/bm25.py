"""The words of a hub's chunks, ranked by BM25: a tantivy index in a folder of its own.

It is a set of chunk ids. What an id stands for never changes, so the set of ids alone tells whether it is in step with
the catalog; what is missing is added, what is too much is removed, and a damaged index is made anew.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from recall_cli.errors import StoreError
from recall_cli.hub.stores.analyzer import ANALYZER, Analyzer, titled
from recall_cli.types import Ids, Vector

HEAP = 128_000_000
"""Bytes of postings gathered before they are written to a segment."""


class Busy(StoreError):
    """Somebody else is writing."""


class Damaged(StoreError):
    """The index cannot be read."""


class Lexical:
    """A BM25 index over (id, text). Searches are those of the last `reload`; any thread may search."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._analyzer = Analyzer()
        self._schema = _schema()
        try:
            self._open()
        except StoreError:
            # Damaged, or made with another analyzer. Nothing is lost: the catalog has every word of it.
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # a folder that cannot be removed: opening it again says what is wrong
                folder.unlink(missing_ok=True)
            self._open()

    def reload(self) -> None:
        """Let searches see what was last committed, by whichever process. Raises Damaged."""
        self._searcher = self._latest()

    def ids(self) -> Ids:
        """Return the ids of what was last committed, in order. Raises Damaged."""
        searcher = self._latest()
        if not searcher.num_docs:
            return np.empty(0, np.int64)
        with self._reading():
            hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
            return np.sort(np.array(searcher.fast_field_values("id", [at for _, at in hits]), np.int64))

    def search(self, text: str, n: int) -> tuple[Ids, Vector]:
        """Return ids and BM25 scores of the n best, best first. Whatever the text holds, it is only words.

        Raises Damaged, as `score` does: what opening the index did not see, a search may find.
        """
        return self._run(self._any_of(text), n)

    def score(self, text: str, ids: Ids) -> Vector:
        """Return the BM25 scores of these ids, as `search` would give them; 0 where no word is shared."""
        terms = self._any_of(text)
        if not terms or not len(ids):
            return np.zeros(len(ids), np.float32)
        # The filter adds nothing to the scores, and limits their computation to these ids. One term each: for sixty ids
        # a set of terms takes eight times as long.
        own = [(tantivy.Occur.Should, tantivy.Query.term_query(self._schema, "id", id)) for id in ids.tolist()]
        must = (tantivy.Occur.Must, tantivy.Query.const_score_query(tantivy.Query.boolean_query(own), 0.0))
        found, scores = self._run([must, *terms], len(ids))
        by_id = dict(zip(found.tolist(), scores.tolist(), strict=True))
        return np.array([by_id.get(id, 0.0) for id in ids.tolist()], np.float32)

    @contextmanager
    def writing(self, wait_s: float = 0.0) -> Iterator[LexicalWriter]:
        """Hold the right to write, which one thread of one process has at a time. Raises Busy when it stays taken.

        What was not committed at the end is forgotten.
        """
        writer = self._writer(wait_s)
        try:
            yield LexicalWriter(writer, self._schema)
        finally:
            # Gives the lock back, once the merges under way have ended.
            with suppress(ValueError):
                writer.wait_merging_threads()

    def _writer(self, wait_s: float) -> tantivy.IndexWriter:
        until = time.monotonic() + wait_s
        while True:
            try:
                # One thread: the other core reads, cuts and embeds meanwhile.
                return self._index.writer(HEAP, 1)
            except ValueError as error:
                if "LockBusy" not in str(error):
                    raise StoreError(
                        f"the word index {self._folder} cannot be written: {error}",
                        hint="check that the folder is writable and the disk is not full",
                    ) from error
                if time.monotonic() >= until:
                    raise Busy(
                        f"the hub at {self._folder.parent} is being written by somebody else",
                        hint="wait until that ingest has ended, then try again",
                    ) from error
                time.sleep(0.02)

    def _any_of(self, text: str) -> list[tuple[tantivy.Occur, tantivy.Query]]:
        """Return one optional term query a distinct word, as heavy as it is frequent; stop words only if all are."""
        return [(tantivy.Occur.Should, self._term(word, count)) for word, count in self._analyzer.asked(text).items()]

    def _term(self, word: str, count: int) -> tantivy.Query:
        term = tantivy.Query.term_query(self._schema, "text", word, "freq")
        return term if count == 1 else tantivy.Query.boost_query(term, float(count))

    def _run(self, clauses: list[tuple[tantivy.Occur, tantivy.Query]], n: int) -> tuple[Ids, Vector]:
        if not clauses or n < 1:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        searcher = self._searcher
        with self._reading():
            hits = searcher.search(tantivy.Query.boolean_query(clauses), limit=n, count=False).hits
            ids: list[Any] = searcher.fast_field_values("id", [at for _, at in hits])
        return np.array(ids, np.int64), np.array([score for score, _ in hits], np.float32)

    def _latest(self) -> tantivy.Searcher:
        with self._reading():
            self._index.reload()
            return self._index.searcher()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what tantivy says of an index that it cannot read into Damaged."""
        try:
            yield
        except ValueError as error:
            raise self._damaged(error) from error
        except BaseException as error:
            # Bytes that make no sense may be a panic, which is no Exception.
            if not _is_panic(error):
                raise
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> Damaged:
        return Damaged(f"the word index {self._folder} cannot be read: {error}", hint="it is made anew: ask again")

    def _open(self) -> None:
        """Open the index and prove that it can be read. Raises StoreError when it cannot."""
        try:
            # Without its parents: a hub that was removed meanwhile must not leave a folder in the way of another.
            self._folder.mkdir(exist_ok=True)
            index = tantivy.Index(self._schema, str(self._folder), reuse=True)
            index.register_tokenizer(ANALYZER, self._analyzer.plain)
            index.config_reader("manual")
        except BaseException as error:
            if not isinstance(error, ValueError | OSError) and not _is_panic(error):
                raise
            raise StoreError(
                f"the word index {self._folder} cannot be opened: {error}", hint="check that its folder is writable"
            ) from error
        self._index = index
        self.ids()
        self.reload()
        self.search("proof", 1)


class LexicalWriter:
    """Changes to the index, invisible until they are committed."""

    def __init__(self, writer: tantivy.IndexWriter, schema: tantivy.Schema) -> None:
        self._writer, self._schema = writer, schema
        self._removed: list[int] = []

    def add(self, id: int, title: str, text: str) -> None:
        """Add a chunk; the words of its document's title count twice in it. Raises StoreError as `commit` does."""
        document = tantivy.Document()
        document.add_unsigned("id", id)
        document.add_text("text", titled(title, text))
        try:
            self._writer.add_document(document)
        except ValueError as error:
            raise _unwritable(error) from error

    def remove(self, ids: Iterable[int]) -> None:
        """Remove chunks."""
        self._removed += ids

    def clear(self) -> None:
        """Remove all chunks, and with them whatever files they were in; searches have them until `commit`."""
        self._writer.delete_all_documents()

    def commit(self) -> None:
        """Make the changes last. Raises StoreError when the disk refuses them."""
        try:
            if self._removed:
                # In one query, and not by term: that would look for a signed number, and find none.
                gone = tantivy.Query.term_set_query(self._schema, "id", self._removed)
                self._writer.delete_documents_by_query(gone)
            self._writer.commit()
        except ValueError as error:
            raise _unwritable(error) from error


def _unwritable(error: ValueError) -> StoreError:
    return StoreError(f"the word index cannot be written: {error}", hint="free some space")


def _is_panic(error: BaseException) -> bool:
    """Return whether this is a panic of Rust's, whose type can be named by no import."""
    return type(error).__name__ == "PanicException"


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("id", indexed=True, fast=True)
    # Frequencies without positions: nothing asks for phrases, and they would double the index.
    builder.add_text_field("text", tokenizer_name=ANALYZER, index_option="freq")
    return builder.build()
