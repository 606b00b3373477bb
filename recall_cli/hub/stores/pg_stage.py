"""One write to a shared hub: its documents are staged in tables of the connection's own, then published together.

Nothing is locked while they are read, cut and embedded, and what a killed process has staged goes with its
connection. Publishing is one transaction under the lock of the hub's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, LiteralString

from recall_cli.hub.models import Upsert
from recall_cli.hub.stores.analyzer import Analyzer
from recall_cli.hub.stores.batches import check_width
from recall_cli.hub.stores.pg_postings import PostingsStage, copy
from recall_cli.types import Vector

if TYPE_CHECKING:
    from recall_cli.postgres.connection import Deadlined

STAGES = (
    "CREATE TEMPORARY TABLE staged_documents (id bigint, name bytea, digest bytea, title bytea, url bytea,"
    " updated double precision, chunks integer)",
    "CREATE TEMPORARY TABLE staged_chunks (id bigint, document bigint, ordinal integer, digest bytea, text bytea,"
    " vector public.vector, size integer, terms bytea)",
    "CREATE TEMPORARY TABLE going (name bytea)",
)
DOCUMENTS = ("int8", "bytea", "bytea", "bytea", "bytea", "float8", "int4")
CHUNKS = ("int8", "int8", "int4", "bytea", "bytea", "vector", "int4", "bytea")

OLD_VECTORS = "DELETE FROM recall.hub_vectors WHERE hub = %(hub)s AND generation < %(generation)s"
REPLACED = "SELECT name FROM staged_documents UNION SELECT name FROM going"
GOING = "SELECT name FROM going"
"""Looked at again in the end: what was staged may be among what goes."""
TERMS = """
SELECT c.id, c.terms FROM recall.hub_documents AS d JOIN recall.hub_chunks AS c ON c.hub = d.hub AND c.document = d.id
WHERE d.hub = %(hub)s AND d.name IN ({names})"""
REMOVE = """
WITH old AS (
    DELETE FROM recall.hub_documents WHERE hub = %(hub)s AND name IN ({names}) RETURNING id
), gone AS (
    DELETE FROM recall.hub_chunks AS c USING old WHERE c.hub = %(hub)s AND document = old.id RETURNING c.id, c.size
), unplaced AS (
    DELETE FROM recall.hub_vectors AS v USING gone WHERE v.hub = %(hub)s AND v.chunk = gone.id
)
SELECT (SELECT count(*) FROM old), count(*), coalesce(sum(size), 0)::bigint FROM gone"""
ADD = """
WITH documents AS (
    INSERT INTO recall.hub_documents (hub, id, name, digest, title, url, updated, chunks)
    SELECT %(hub)s, %(document)s + id, name, digest, title, url, updated, chunks FROM staged_documents
), vectors AS (
    INSERT INTO recall.hub_vectors (hub, chunk, generation, digest, vector)
    SELECT %(hub)s, %(chunk)s + id, %(generation)s, digest, vector FROM staged_chunks
)
INSERT INTO recall.hub_chunks (hub, id, document, ordinal, size, terms, text)
SELECT %(hub)s, %(chunk)s + id, %(document)s + document, ordinal, size, terms, text FROM staged_chunks"""
COUNT = """
UPDATE recall.hubs SET documents = documents + %(documents)s, chunks = chunks + %(chunks)s, words = words + %(sizes)s,
    last_document = last_document + %(staged_documents)s, last_chunk = last_chunk + %(staged_chunks)s,
    revision = revision + 1, updated = %(now)s
WHERE id = %(hub)s RETURNING revision"""


class Stage:
    """What one write brings, on a connection of its own."""

    def __init__(self, db: Deadlined, analyzer: Analyzer, hub: int, dim: int) -> None:
        self._db = db
        self._analyzer = analyzer
        self._dim = dim
        self._postings = PostingsStage(db, hub)
        self._documents = self._chunks = self._sizes = 0
        for table in STAGES:
            db.execute(table.encode())

    def add(self, upserts: Iterable[Upsert]) -> None:
        """Stage some documents. Raises StoreMismatch for vectors of another width."""
        documents: list[tuple[Any, ...]] = []
        chunks: list[tuple[Any, ...]] = []
        words = []
        before = self._chunks
        for document, state, cut, vectors in upserts:
            if len(cut):
                check_width(vectors, (len(cut), self._dim))
            self._documents += 1
            names = (stored(document.id), state.digest, stored(document.title), stored(document.url))
            documents.append((self._documents, *names, document.updated, len(cut)))
            for chunk, vector in zip(cut, vectors, strict=True):
                self._chunks += 1
                place = (self._chunks, self._documents, chunk.ordinal, chunk.digest, stored(chunk.text))
                words.append(self._analyzer.words(document.title, chunk.text))
                chunks.append((*place, directed(vector), words[-1].total()))
        self._sizes += sum(row[-1] for row in chunks)
        terms = self._postings.add(before + 1, words)
        copy(self._db, "staged_documents", DOCUMENTS, documents)
        copy(self._db, "staged_chunks", CHUNKS, [(*row, own) for row, own in zip(chunks, terms, strict=True)])

    def remove(self, names: Iterable[str]) -> None:
        """Note documents that are to go."""
        copy(self._db, "going", ("bytea",), [(stored(name),) for name in names])

    def publish(self, at: dict[str, Any], now: float) -> int:
        """Let searches see it, within a transaction that has locked the hub's row; return the new revision.

        :param at: hub, generation, and the last document and chunk there were.
        """
        db = self._db
        db.execute("ANALYZE staged_documents")
        db.execute(OLD_VECTORS, at)
        self._postings.count()
        old = self._remove(REPLACED, at)
        db.execute(ADD, at)
        self._postings.publish(at["chunk"])
        late = self._remove(GOING, at)
        if late[1]:
            self._postings.publish(at["chunk"])
        staged = {"staged_documents": self._documents, "staged_chunks": self._chunks}
        new = (self._documents, self._chunks, self._sizes)
        documents, chunks, sizes = (n - a - b for n, a, b in zip(new, old, late, strict=True))
        counts = {"documents": documents, "chunks": chunks, "sizes": sizes}
        row = db.execute(COUNT, {**at, **counts, **staged, "now": now}).fetchone()
        return int(row[0]) if row else 0

    def _remove(self, names: LiteralString, at: dict[str, Any]) -> Sequence[int]:
        """Remove the documents that a query names; return how many they were, their chunks, and the words of these."""
        rows = self._db.execute(TERMS.format(names=names), at, binary=True).fetchall()
        self._postings.take_out(at["chunk"], rows)
        return self._db.execute(REMOVE.format(names=names), at).fetchone() or (0, 0, 0)


def directed(vector: Vector) -> Vector | None:
    """Return the vector as it is stored: one of zeros, which has no direction, as NULL, which no search finds."""
    return vector.astype("float32") if vector.any() else None


def stored(text: str) -> bytes:
    """Return the bytes of a text."""
    return text.encode("utf-8", "surrogatepass")
