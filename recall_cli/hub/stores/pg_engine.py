"""A hub in a PostgreSQL database with pgvector, shared by any number of replicas.

The hub's row is its lock and its revision: a write holds it, and searches see what was committed. Every search asks
the database, so no replica has to learn of what another one wrote.

A write stages its documents in tables of its own connection, then publishes them together in one transaction under the
lock of the hub's row. Nothing is locked while they are read, cut and embedded, and what a killed process has staged
goes with its connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString, Unpack

import numpy as np
from psycopg import sql

from recall_cli.errors import StoreMismatch
from recall_cli.hub.models import Document, DocumentState, EmbedChunks, HubInfo, Passage, Settings, Upsert, Visibility
from recall_cli.hub.stores import pg_bm25
from recall_cli.hub.stores.analyzer import Analyzer
from recall_cli.hub.stores.batches import anything, batches, check_width
from recall_cli.hub.stores.folder import no_such_hub
from recall_cli.hub.stores.pg_bm25 import PostingsStage, copy, listed
from recall_cli.postgres.connection import Database
from recall_cli.postgres.store import matrix_of, text_of
from recall_cli.types import Ids, Vector, VectorSpace

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


READ_S = 5.0
"""Seconds that one look or search may take."""
SCAN_S = 60.0
"""Seconds that one page of a whole hub may take."""
WRITE_S = 3_600.0
"""Seconds that a write may take in the database, waiting for other writers included."""
PAGE = 5_000
"""Documents, or texts to embed, read at a time."""

FACTS = (
    "slug, uid, visibility, owner, embedder, fingerprint, dim, revision, documents, chunks, updated, alpha, min_score"
)
"""The columns of a `HubInfo`, in its order."""
INFO = f"SELECT {FACTS} FROM recall.hubs WHERE id = %s AND tenant = current_user"
SPACE = "SELECT dim, generation FROM recall.hubs WHERE id = %s AND tenant = current_user"
LOCK = """
SELECT fingerprint, dim, generation, last_document, last_chunk FROM recall.hubs
WHERE id = %s AND tenant = current_user FOR NO KEY UPDATE"""
STATES = """
SELECT name, digest, chunks FROM recall.hub_documents WHERE hub = %s AND name > %s ORDER BY name LIMIT %s"""
DOCUMENT = """
SELECT d.title, d.url, d.updated, (
    SELECT string_agg(text, ''::bytea ORDER BY ordinal) FROM recall.hub_chunks AS c
    WHERE c.hub = %(hub)s AND document = d.id
) FROM recall.hub_documents AS d WHERE hub = %(hub)s AND name = %(name)s"""
KNOWN = """
SELECT digest, public.vector_send(vector) FROM recall.hub_vectors
WHERE hub = %(hub)s AND digest = ANY(%(digests)s)
    AND generation = (SELECT generation FROM recall.hubs WHERE id = %(hub)s AND tenant = current_user)"""
VECTORS = """
SELECT chunk, public.vector_send(vector) FROM recall.hub_vectors
WHERE hub = %(hub)s AND chunk = ANY(%(ids)s::bigint[]) AND vector IS NOT NULL
    AND generation = (SELECT generation FROM recall.hubs WHERE id = %(hub)s AND tenant = current_user)"""
SCORED = """
SELECT c.id, size, terms, public.vector_send(vector) FROM recall.hub_chunks AS c
LEFT JOIN recall.hub_vectors AS v ON v.hub = c.hub AND chunk = c.id AND generation = %(generation)s
WHERE c.hub = %(hub)s AND c.id = ANY(%(ids)s::bigint[])"""
NEAREST = """
WITH near AS MATERIALIZED (
    SELECT chunk, (vector::public.vector({dim})) OPERATOR(public.<#>) %(vector)s AS distance FROM recall.hub_vectors
    WHERE hub = {hub} AND generation = {generation} AND vector IS NOT NULL ORDER BY 2 LIMIT %(n)s
)
SELECT chunk, -distance FROM near ORDER BY distance, chunk"""
"""Vectors are of unit norm: their inner product is the cosine."""
PASSAGES = """
SELECT c.id, d.name, d.title, d.url, c.ordinal, c.text
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY AS wanted (id, place)
JOIN recall.hub_chunks AS c ON c.hub = %(hub)s AND c.id = wanted.id
JOIN recall.hub_documents AS d ON d.hub = %(hub)s AND d.id = c.document ORDER BY place"""
CONFIGURE = f"""
UPDATE recall.hubs SET visibility = coalesce(%(visibility)s, visibility), owner = coalesce(%(owner)s, owner),
    alpha = coalesce(%(alpha)s, alpha), min_score = CASE WHEN %(limits)s THEN %(min_score)s::float8 ELSE min_score END,
    revision = revision + 1, updated = %(now)s
WHERE id = %(hub)s AND tenant = current_user RETURNING {FACTS}"""
TEXTS = """
SELECT c.id, d.title, c.text
FROM recall.hub_chunks AS c JOIN recall.hub_documents AS d ON d.hub = c.hub AND d.id = c.document
WHERE c.hub = %s AND c.id > %s ORDER BY c.id LIMIT 1024"""
PLACE = "INSERT INTO recall.hub_vectors (hub, chunk, generation, digest, vector) VALUES (%s, %s, %s, %s, %s)"
ORPHANS = """
DELETE FROM recall.hub_vectors AS v WHERE hub = %(hub)s AND generation = %(generation)s
    AND NOT EXISTS (SELECT FROM recall.hub_chunks AS c WHERE c.hub = %(hub)s AND c.id = v.chunk)"""
MOVED = """
UPDATE recall.hubs SET embedder = %(embedder)s, fingerprint = %(fingerprint)s, dim = %(dim)s,
    generation = %(generation)s, revision = revision + 1, updated = %(now)s
WHERE id = %(hub)s RETURNING revision"""


class PostgresEngine:
    """The engine of one hub (see `nouns.HubEngine`) in a database, shared with other processes."""

    def __init__(self, database: Database, hub: int, slug: str) -> None:
        """Use a hub that is there.

        :param database: closed by whoever opened it.
        :param hub: its number in the database.
        """
        self.number = hub
        self._database = database
        self._slug = slug
        self._analyzer = Analyzer()

    def info(self) -> HubInfo:
        """Return the hub's facts as of now."""
        with self._database.connection(READ_S) as db:
            return self._info(db.execute(INFO, (self.number,)).fetchone())

    def documents(self) -> Iterator[tuple[str, DocumentState]]:
        """Yield every document's id and state, in the order of the ids."""
        after = b""
        while True:
            with self._database.connection(SCAN_S) as db:
                rows = db.execute(STATES, (self.number, after, PAGE), binary=True).fetchall()
            for name, digest, chunks in rows:
                yield text_of(name), DocumentState(digest, chunks)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def document(self, id: str) -> Document | None:
        """Return a document as it was stored, None when it is not there."""
        asked = {"hub": self.number, "name": stored(id)}
        with self._database.connection(READ_S) as db:
            row = db.execute(DOCUMENT, asked, binary=True).fetchone()
        if row is None:
            return None
        title, url, updated, text = row
        return Document(id, text_of(text or b""), text_of(title), text_of(url), updated)

    def known(self, digests: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Return the vectors of those chunk digests that are stored, shape (dim,) each."""
        with self._database.connection(SCAN_S) as db:
            dim, _ = self._space(db)
            rows = db.execute(KNOWN, {"hub": self.number, "digests": list(digests)}, binary=True).fetchall()
        sent = {digest: vector for digest, vector in rows if vector is not None}
        known: dict[bytes, Vector] = {digest: np.zeros(dim, np.float32) for digest, _ in rows}
        known.update(zip(sent, matrix_of(list(sent.values()), dim, self._database.name), strict=True))
        return known

    def apply(self, upserts: Iterable[Upsert], removed: Iterable[str] = (), *, fingerprint: str = "") -> int:
        """Store and remove documents in one write; return the new revision (the old one when nothing was given)."""
        given = anything(upserts, removed)
        if given is None:
            return self.info().revision
        upserts, removed = given
        with self._database.session(WRITE_S) as db:
            dim, _ = self._space(db)
            stage = Stage(db, self._analyzer, self.number, dim)
            for batch in batches(upserts):
                db.ends = time.monotonic() + WRITE_S  # embedding may have taken longer
                stage.add(batch)
            stage.remove(removed)
            with self._locked(db) as held:
                if fingerprint not in ("", held["fingerprint"]) or held["dim"] != dim:
                    raise self._has_moved()
                return stage.publish(held, time.time())

    def move(self, space: VectorSpace, embed: EmbedChunks) -> int:
        """Give every chunk the vector of another embedder, in one write; return the new revision.

        The new ones are stored beside the old ones, which searches use until the end. What is ingested meanwhile has
        larger ids, and comes last, while nobody else writes.
        """
        with self._database.session(WRITE_S) as db:
            _, before = self._space(db)
            (generation,) = db.execute("SELECT nextval('recall.ids')").fetchone() or (0,)
            last = self._embed_after(db, 0, generation, space.dim, embed)
            with self._locked(db) as held:
                if held["generation"] != before:
                    raise self._has_moved()
                # Between two statements an embedder may take longer than a vanished client is waited for.
                db.execute("SET LOCAL idle_in_transaction_session_timeout = '5min'")
                self._embed_after(db, last, generation, space.dim, embed)
                facts = {"embedder": space.name, "fingerprint": space.fingerprint, "dim": space.dim}
                at = {"hub": self.number, "generation": generation}
                db.execute(ORPHANS, at)
                row = db.execute(MOVED, {**facts, **at, "now": time.time()}).fetchone()
        return int(row[0]) if row else 0

    def configure(self, **changes: Unpack[Settings]) -> HubInfo:
        """Change the hub's settings; what is not named stays. Makes a new revision."""
        asked: dict[str, Any] = {**dict.fromkeys(Settings.__annotations__), **changes}
        if "visibility" in changes:
            asked["visibility"] = changes["visibility"].value
        asked |= {"limits": "min_score" in changes, "hub": self.number, "now": time.time()}
        with self._database.connection(SCAN_S) as db:
            return self._info(db.execute(CONFIGURE, asked).fetchone())

    def vector(self, vector: Vector, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and cosines of the n nearest chunks, best first.

        Exact, until `recall cache upkeep` has given a large hub a graph of its own; nearly so from then on.
        """
        with self._database.connection(READ_S) as db:
            dim, generation = self._space(db)
            check_width(vector, (dim,))
            query = nearest_in(self.number, generation, dim)
            rows = db.execute(query, {"vector": vector.astype(np.float32), "n": n}, prepare=False).fetchall()
        return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float32)

    def lexical(self, text: str, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and BM25 scores of the n best chunks that share a word with the text, best first."""
        words = self._analyzer.asked(text)
        with self._database.connection(READ_S) as db:
            return pg_bm25.search(db, self.number, words, n)

    def score(self, text: str, ids: Ids) -> tuple[Vector, Vector]:
        """Return these chunks' vectors, shape (n, dim), and BM25 scores; zeros for what is gone or shares no word."""
        words = self._analyzer.asked(text)
        with self._database.connection(READ_S) as db:
            asked = pg_bm25.look_up(db, self.number, words)
            if asked is None:
                raise no_such_hub(self._database.name, self._slug)
            wanted = {"hub": self.number, "ids": listed(ids), "generation": asked.generation}
            rows = db.execute(SCORED, wanted, binary=True).fetchall()
        vectors = self._matrix(ids, {row[0]: row[3] for row in rows if row[3] is not None}, asked.dim)
        return vectors, pg_bm25.score(asked, ids, [row[:3] for row in rows]).astype(np.float32)

    def sample(self, most: int) -> Vector:
        """Return the vectors of up to so many chunks, spread evenly over the hub, shape (n, dim)."""
        query = "SELECT id FROM recall.hub_chunks WHERE hub = %s ORDER BY id"
        with self._database.connection(SCAN_S) as db:
            rows = db.execute(query, (self.number,), binary=True).fetchall()
            ids = np.array(rows, np.int64).reshape(-1)
            if most < len(ids):
                ids = ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]
            return self._vectors(db, ids)

    def passages(self, ids: Ids) -> list[Passage]:
        """Return these chunks' texts, in the order asked for; those that are gone meanwhile are left out."""
        with self._database.connection(READ_S) as db:
            rows = db.execute(PASSAGES, {"hub": self.number, "ids": listed(ids)}, binary=True).fetchall()
        return [
            Passage(id, text_of(name), text_of(title), text_of(url), ordinal, text_of(text))
            for id, name, title, url, ordinal, text in rows
        ]

    def close(self) -> None:
        """Do nothing: the connections are the database's."""

    def _vectors(self, db: Deadlined, ids: Ids) -> Vector:
        dim, _ = self._space(db)
        rows = db.execute(VECTORS, {"hub": self.number, "ids": listed(ids)}, binary=True).fetchall()
        return self._matrix(ids, dict(rows), dim)

    def _matrix(self, ids: Ids, sent: dict[int, bytes], dim: int) -> Vector:
        """Return the vectors that were sent, each in its chunk's place, shape (n, dim)."""
        vectors: Vector = np.zeros((len(ids), dim), np.float32)
        places = [place for place, id in enumerate(ids.tolist()) if id in sent]
        vectors[places] = matrix_of([sent[int(ids[place])] for place in places], dim, self._database.name)
        return vectors

    def _embed_after(self, db: Deadlined, last: int, generation: int, dim: int, embed: EmbedChunks) -> int:
        """Store the other vectors of the chunks with larger ids; return the largest."""
        while rows := db.execute(TEXTS, (self.number, last), binary=True).fetchall():
            moved = []
            embedded = embed([(text_of(title), text_of(text)) for _, title, text in rows])
            for row, (digest, vector) in zip(rows, embedded, strict=True):
                check_width(vector, (dim,))
                moved.append((self.number, row[0], generation, digest, directed(vector)))
            db.ends = time.monotonic() + WRITE_S
            with db.cursor() as cursor:
                cursor.executemany(PLACE, moved)
            last = rows[-1][0]
        return last

    @contextmanager
    def _locked(self, db: Deadlined) -> Iterator[dict[str, Any]]:
        """Make the writes inside it one, alone among the hub's writers; give what the hub's row says."""
        with db.transaction():
            row = db.execute(LOCK, (self.number,)).fetchone()
            if row is None:
                raise no_such_hub(self._database.name, self._slug)
            names = ("fingerprint", "dim", "generation", "document", "chunk")
            yield {"hub": self.number, **dict(zip(names, row, strict=True))}

    def _space(self, db: Deadlined) -> tuple[int, int]:
        """Return how wide the vectors are, and which generation of them searches see."""
        row = db.execute(SPACE, (self.number,)).fetchone()
        if row is None:
            raise no_such_hub(self._database.name, self._slug)
        return row[0], row[1]

    def _info(self, row: Sequence[Any] | None) -> HubInfo:
        if row is None:
            raise no_such_hub(self._database.name, self._slug)
        return HubInfo(row[0], row[1], Visibility(row[2]), *row[3:])

    def _has_moved(self) -> StoreMismatch:
        return StoreMismatch(
            f"the hub {self._slug} has moved to another embedder meanwhile",
            hint="do it again, with the embedder it has now",
        )


def nearest_in(hub: int, generation: int, dim: int) -> sql.Composed:
    """Return the search of one hub's vectors.

    Its numbers are written out: a partial index is used only where its condition can be seen.
    """
    return sql.SQL(NEAREST).format(hub=sql.Literal(hub), generation=sql.Literal(generation), dim=sql.Literal(dim))
