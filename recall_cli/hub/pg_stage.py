"""One write to a shared hub: its documents are staged in tables of the connection's own, then published together.

Nothing is locked while they are read, cut and embedded, and what a killed process has staged goes with its
connection. Publishing is one transaction under the lock of the hub's row, all within the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recall_cli.errors import StoreMismatch
from recall_cli.hub.nouns import Chunk, Document, Upsert
from recall_cli.hub.pg_words import told_apart
from recall_cli.hub.words import Analyzer
from recall_cli.types import Vector

if TYPE_CHECKING:
    from recall_cli.engine.pg_database import Deadlined

STAGES = (
    "CREATE TEMPORARY TABLE staged_documents (id bigint, name bytea, digest bytea, title bytea, url bytea,"
    " updated double precision, chunks integer)",
    "CREATE TEMPORARY TABLE staged_chunks (id bigint, document bigint, ordinal integer, digest bytea, text bytea,"
    " vector public.vector, words text[], times integer[], size integer, length integer)",
    "CREATE TEMPORARY TABLE going (name bytea)",
)
DOCUMENTS = ("int8", "bytea", "bytea", "bytea", "bytea", "float8", "int4")
CHUNKS = ("int8", "int8", "int4", "bytea", "bytea", "vector", "text[]", "int4[]", "int4", "int4")

NOT_THESE = (
    "DELETE FROM staged_chunks USING staged_documents AS d, going WHERE document = d.id AND d.name = going.name",
    "DELETE FROM staged_documents AS d USING going WHERE d.name = going.name",
    "ANALYZE staged_documents",
    "ANALYZE staged_chunks",
)
OLD_VECTORS = "DELETE FROM recall.hub_vectors WHERE hub = %(hub)s AND generation < %(generation)s"
REMOVE = """
WITH old AS (
    DELETE FROM recall.hub_documents
    WHERE hub = %(hub)s AND name IN (SELECT name FROM staged_documents UNION SELECT name FROM going) RETURNING id
), gone AS (
    DELETE FROM recall.hub_chunks AS c USING old WHERE c.hub = %(hub)s AND document = old.id
    RETURNING c.id, c.words, c.size
), held AS MATERIALIZED (
    SELECT id AS chunk, unnest(words) AS word FROM gone
), fewer AS (
    UPDATE recall.hub_words AS w SET df = df - n FROM (SELECT word, count(*) AS n FROM held GROUP BY word) AS lost
    WHERE w.hub = %(hub)s AND w.id = lost.word
), unposted AS (
    DELETE FROM recall.hub_postings AS p USING held
    WHERE p.hub = %(hub)s AND p.word = held.word AND p.chunk = held.chunk
), unplaced AS (
    DELETE FROM recall.hub_vectors AS v USING gone WHERE v.hub = %(hub)s AND v.chunk = gone.id
)
SELECT (SELECT count(*) FROM old), count(*), coalesce(sum(size), 0)::bigint FROM gone"""
ADD_DOCUMENTS = """
INSERT INTO recall.hub_documents (hub, id, name, digest, title, url, updated, chunks)
SELECT %(hub)s, %(document)s + id, name, digest, title, url, updated, chunks FROM staged_documents"""
NEW_WORDS = """
INSERT INTO recall.hub_words (hub, id, word, df)
SELECT %(hub)s, %(word)s + row_number() OVER (), word, 0
FROM (SELECT DISTINCT unnest(words) AS word FROM staged_chunks) AS staged
WHERE NOT EXISTS (SELECT FROM recall.hub_words AS w WHERE w.hub = %(hub)s AND w.word = staged.word)"""
ADD_CHUNKS = """
WITH held AS MATERIALIZED (
    SELECT c.id AS chunk, w.id AS word, posted.times, c.length
    FROM staged_chunks AS c, unnest(c.words, c.times) AS posted (word, times)
    JOIN recall.hub_words AS w ON w.hub = %(hub)s AND w.word = posted.word
), more AS (
    UPDATE recall.hub_words AS w SET df = df + n FROM (SELECT word, count(*) AS n FROM held GROUP BY word) AS won
    WHERE w.hub = %(hub)s AND w.id = won.word
), posted AS (
    INSERT INTO recall.hub_postings (hub, word, chunk, times, length)
    SELECT %(hub)s, word, %(chunk)s + chunk, times, length FROM held ORDER BY word, chunk
), placed AS (
    INSERT INTO recall.hub_vectors (hub, chunk, generation, digest, vector)
    SELECT %(hub)s, %(chunk)s + id, %(generation)s, digest, vector FROM staged_chunks
), added AS (
    INSERT INTO recall.hub_chunks (hub, id, document, ordinal, size, words, text)
    SELECT %(hub)s, %(chunk)s + id, %(document)s + document, ordinal, size, coalesce(had.words, '{}'), text
    FROM staged_chunks LEFT JOIN (SELECT chunk, array_agg(word) AS words FROM held GROUP BY chunk) AS had ON chunk = id
)
SELECT (SELECT count(*) FROM staged_documents), count(*), coalesce(sum(size), 0)::bigint FROM staged_chunks"""
COUNT = """
UPDATE recall.hubs SET documents = documents + %(documents)s, chunks = chunks + %(chunks)s, words = words + %(sizes)s,
    last_document = last_document + %(staged_documents)s, last_chunk = last_chunk + %(staged_chunks)s,
    last_word = last_word + %(new_words)s, revision = revision + 1, updated = %(now)s
WHERE id = %(hub)s RETURNING revision"""


class Stage:
    """What one write brings, on a connection of its own."""

    def __init__(self, db: Deadlined, analyzer: Analyzer, dim: int) -> None:
        self._db = db
        self._analyzer = analyzer
        self._dim = dim
        self._documents = self._chunks = 0
        for table in STAGES:
            db.execute(table.encode())

    def add(self, upserts: Iterable[Upsert]) -> None:
        """Stage some documents. Raises StoreMismatch for vectors of another width."""
        documents: list[tuple[Any, ...]] = []
        chunks: list[tuple[Any, ...]] = []
        for document, state, cut, vectors in upserts:
            check_width(vectors, len(cut), self._dim)
            self._documents += 1
            names = (stored(document.id), state.digest, stored(document.title), stored(document.url))
            documents.append((self._documents, *names, document.updated, len(cut)))
            for chunk, vector in zip(cut, vectors, strict=True):
                chunks.append(self._row(document, chunk, vector))
        self._copy("staged_documents", DOCUMENTS, documents)
        self._copy("staged_chunks", CHUNKS, chunks)

    def remove(self, names: Iterable[str]) -> None:
        """Note documents that are to go."""
        self._copy("going", ("bytea",), [(stored(name),) for name in names])

    def publish(self, at: dict[str, Any], now: float) -> int:
        """Let searches see it, within a transaction that has locked the hub's row; return the new revision.

        :param at: hub, generation, and the last document, chunk and word there were.
        """
        db = self._db
        for statement in NOT_THESE:
            db.execute(statement.encode())
        db.execute(OLD_VECTORS, at)
        old = db.execute(REMOVE, at).fetchone() or (0, 0, 0)
        db.execute(ADD_DOCUMENTS, at)
        new_words = db.execute(NEW_WORDS, at).rowcount
        new = db.execute(ADD_CHUNKS, at).fetchone() or (0, 0, 0)
        documents, chunks, sizes = (a - b for a, b in zip(new, old, strict=True))
        counts = {"documents": documents, "chunks": chunks, "sizes": sizes, "new_words": new_words}
        staged = {"staged_documents": self._documents, "staged_chunks": self._chunks}
        row = db.execute(COUNT, {**at, **counts, **staged, "now": now}).fetchone()
        return int(row[0]) if row else 0

    def _row(self, document: Document, chunk: Chunk, vector: Vector) -> tuple[Any, ...]:
        self._chunks += 1
        words = self._analyzer.words(document.title, chunk.text)
        size = words.total()
        place = (self._chunks, self._documents, chunk.ordinal, chunk.digest, stored(chunk.text))
        return (*place, directed(vector), list(words), list(words.values()), size, told_apart(size))

    def _copy(self, table: str, types: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        with self._db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)


def check_width(vectors: Vector, n: int, dim: int) -> None:
    """Raise StoreMismatch unless the vectors have shape (n, dim)."""
    if n and vectors.shape != (n, dim):
        raise StoreMismatch(
            f"the hub holds vectors of {dim} dimensions; these have shape {vectors.shape}",
            hint="embed with the hub's own embedder",
        )


def directed(vector: Vector) -> Vector | None:
    """Return the vector as it is stored: one of zeros, which has no direction, as NULL, which no search finds."""
    return vector.astype("float32") if vector.any() else None


def stored(text: str) -> bytes:
    """Return the bytes of a text."""
    return text.encode("utf-8", "surrogatepass")
