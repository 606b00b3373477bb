"""Entries in a PostgreSQL database: one cache for any number of replicas, each write whole or absent.

Writes of one tenant are made one transaction at a time, as SQLite makes them: the row in `tenants` is the lock. So ids
are committed in their order, which the change feed stands on, and no two replicas can deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import orjson

from recall_cli.cache.stores.memory import HeldSpace, entry_size, other_embedder, other_width
from recall_cli.errors import StoreError
from recall_cli.postgres.connection import Database, Deadlined
from recall_cli.postgres.urls import check_url
from recall_cli.types import Completion, Entry, Ids, Request, Usage, Vector, VectorSpace

WRITE_S = 5.0
"""Seconds that one write may take, waiting for other replicas' included."""
READ_S = 1.0
"""Seconds that reading one entry may take."""
SCAN_S = 60.0
"""Seconds that one page of a whole store may take."""
PAGE = 5_000
"""Entries read at a time."""

FIELDS = "id, identity, partition, namespace, created, expires, used, size, has_vector, answer_group, labels, wrong"
"""The columns of an `Entry`, in its order."""

ENTER = "INSERT INTO recall.tenants (embedder, fingerprint, dim) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
HELD = "SELECT embedder, dim, fingerprint FROM recall.tenants WHERE tenant = current_user"
OWN = "SELECT embedder, fingerprint FROM recall.tenants WHERE tenant = current_user FOR UPDATE"
NEW_IDS = "SELECT nextval('recall.ids') FROM generate_series(1, 64)"
REPLACE = "DELETE FROM recall.entries WHERE tenant = current_user AND identity = %s"
INSERT = """
WITH entry AS (
    INSERT INTO recall.entries
        (id, identity, partition, namespace, created, expires, used, size, has_vector, answer_group)
    VALUES (%(id)s, %(identity)s, %(partition)s, %(namespace)s, %(created)s, %(expires)s, %(created)s, %(size)s,
            %(has_vector)s, %(group)s)
    RETURNING id
), vector AS (
    INSERT INTO recall.vectors (id, partition, vector)
    SELECT id, %(partition)s, %(vector)s::public.vector FROM entry WHERE %(has_vector)s
), body AS (
    INSERT INTO recall.bodies (id, text, model, usage, created, body)
    SELECT id, %(text)s, %(model)s, %(usage)s, %(made)s, %(body)s FROM entry
)
SELECT"""
GET = """
SELECT body, model, usage, bodies.created, identity FROM recall.bodies JOIN recall.entries USING (id)
WHERE entries.tenant = current_user AND id = %s"""
REMOVE = """
WITH removed AS (DELETE FROM recall.entries WHERE tenant = current_user AND id = ANY(%s) RETURNING id)
INSERT INTO recall.gone (entry) SELECT id FROM removed RETURNING entry"""
TOUCH = """
UPDATE recall.entries SET used = greatest(entries.used, news.used)
FROM unnest(%s::bigint[], %s::float8[]) AS news (id, used)
WHERE entries.tenant = current_user AND entries.id = news.id"""
LEARN = """
UPDATE recall.entries SET answer_group = %s, labels = %s, wrong = %s WHERE tenant = current_user AND id = %s"""
SAVE = """
INSERT INTO recall.states (key, value) VALUES (%s, %s)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value"""


class PostgresStore:
    """A tenant's entries in a database; the tenant is the role that is logged in.

    Raises StoreError when the database cannot be had, and StoreMismatch when the tenant's vectors come from another
    embedder. An acknowledged write is as durable as the server's `synchronous_commit` makes it.
    """

    def __init__(self, url: str, *, embedder: VectorSpace | None) -> None:
        """Open the store; the first to come makes its tables.

        :param url: without a password, which comes from PGPASSWORD, ~/.pgpass or a service.
        :param embedder: whose vectors it is to hold; None opens a store that there is, whatever its embedder.
        """
        self.database = Database(check_url(url))
        self.name = self.database.name
        self._mine = threading.local()
        try:
            self.embedder = self._held() if embedder is None else embedder
            self.dim = self.embedder.dim
            if embedder is not None:
                with self.database.connection(WRITE_S) as db:
                    db.execute(ENTER, (embedder.name, embedder.fingerprint, embedder.dim))
                with self.writing():
                    pass  # which checks whose vectors they are
        except BaseException:
            self.close()
            raise

    def append(
        self,
        request: Request,
        completion: Completion,
        vector: Vector | None,
        *,
        created: float,
        expires: float | None,
        group: int | None = None,
    ) -> Entry:
        """Keep one entry, replacing the one of the same identity; durable when this returns."""
        size, namespace = entry_size(request, completion, vector), plain(request.namespace)
        row: dict[str, Any] = {
            "identity": request.identity,
            "partition": request.partition,
            "namespace": namespace,
            "created": created,
            "expires": expires,
            "size": size,
            "has_vector": vector is not None,
            "group": group,
            "vector": None if vector is None else vector.astype(np.float32),
            "text": request.text.encode("utf-8", "surrogatepass"),
            "model": plain(completion.model),
            "usage": orjson.dumps(completion.usage).decode(),
            "made": completion.created,
            "body": completion.body,
        }
        with self.writing() as db:
            id = row["id"] = self._next_id(db)
            db.execute(REPLACE, (request.identity,))
            db.execute(INSERT, row)
        return Entry(
            id,
            request.identity,
            request.partition,
            namespace,
            created,
            expires,
            created,
            size,
            vector is not None,
            group,
        )

    def batch(self) -> AbstractContextManager[Any]:
        """Return what makes the writes inside it one transaction; no other replica writes meanwhile."""
        return self.writing()

    def get(self, id: int, identity: bytes | None = None) -> Completion | None:
        """Return the completion of an entry, or None when it is gone, unreadable, or of another identity."""
        row = self._one(GET, (id,))
        if row is None or (identity is not None and row[4] != identity):
            return None
        return completion_of(row)

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""
        row = self._one("SELECT text FROM recall.bodies WHERE tenant = current_user AND id = %s", (id,))
        return None if row is None else text_of(row[0])

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""
        self.remove(ids)

    def remove(self, ids: Sequence[int]) -> int:
        """Forget entries and let the other replicas know; return how many there were."""
        with self.writing() as db:
            return len(db.execute(REMOVE, (list(ids),)).fetchall())

    def touch(self, used: Mapping[int, float]) -> None:
        """Persist the time of last use, id by id; of two replicas' times the later stays."""
        with self.writing() as db:
            db.execute(TOUCH, (list(used), list(used.values())))

    def learn(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Persist (group, labels, wrong), id by id; unknown ids are ignored."""
        with self.writing() as db, db.cursor() as cursor:
            cursor.executemany(LEARN, [(*record, id) for id, record in records.items()])

    def save(self, key: str, state: Mapping[str, Any]) -> None:
        """Keep a JSON-ready state under a key."""
        with self.writing() as db:
            db.execute(SAVE, (key, orjson.dumps(state).decode()))

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the state kept under a key, None when there is none or it cannot be read."""
        row = self._one("SELECT value FROM recall.states WHERE tenant = current_user AND key = %s", (key,))
        try:
            state = None if row is None else orjson.loads(row[0])
        except orjson.JSONDecodeError:
            return None
        return state if isinstance(state, dict) else None

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""
        after = 0
        while rows := self._page(f"{FIELDS} FROM recall.entries", after):
            for row in rows:
                yield Entry(*row)
            after = rows[-1][0]

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""
        ids: list[int] = []
        parts: list[Vector] = []
        while rows := self._page("id, public.vector_send(vector) FROM recall.vectors", ids[-1] if ids else 0):
            ids += [row[0] for row in rows]
            parts.append(matrix_of([row[1] for row in rows], self.dim, self.name))
        return np.array(ids, np.int64), np.concatenate(parts) if parts else np.empty((0, self.dim), np.float32)

    def compact(self) -> None:
        """Do nothing: the server's autovacuum gives the space of deleted entries back."""

    def close(self) -> None:
        """Release the connections; a second call does nothing."""
        self.database.close()

    @contextmanager
    def writing(self) -> Iterator[Deadlined]:
        """Write whole or not at all, alone among the tenant's writers; within a batch, as a part of it.

        Statements are sent without waiting for each other: a batch costs three trips to the database.
        """
        inside: Deadlined | None = getattr(self._mine, "db", None)
        if inside is not None:
            yield inside
            return
        with self.database.connection(WRITE_S) as db, db.pipeline(), db.transaction():
            held = db.execute(OWN).fetchone()
            self._check_embedder(held)
            self._mine.db, self._mine.ids = db, []
            try:
                yield db
            finally:
                self._mine.db = None

    def _next_id(self, db: Deadlined) -> int:
        """Return a new id, taken while nobody else writes; of those that one write takes, some may stay unused."""
        if not self._mine.ids:
            self._mine.ids = [row[0] for row in db.execute(NEW_IDS).fetchall()][::-1]
        id: int = self._mine.ids.pop()
        return id

    def _one(self, query: str, values: tuple[Any, ...]) -> Any:
        inside: Deadlined | None = getattr(self._mine, "db", None)
        if inside is not None:
            return inside.execute(query, values).fetchone()
        with self.database.connection(READ_S) as db:
            return db.execute(query, values).fetchone()

    def _page(self, columns_and_table: str, after: int) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns_and_table} WHERE tenant = current_user AND id > %s ORDER BY id LIMIT %s"
        with self.database.connection(SCAN_S) as db:
            return db.execute(query.encode(), (after, PAGE), binary=True).fetchall()

    def _held(self) -> VectorSpace:
        """Return whose vectors the tenant's are. Raises StoreError when there is no such tenant."""
        row = self._one(HELD, ())
        if row is None:
            raise StoreError(
                f"{self.name} holds no store of this role", hint="name the URL, with the role, that --store was given"
            )
        return HeldSpace(*row)

    def _check_embedder(self, held: tuple[Any, ...] | None) -> None:
        ours = self.embedder
        name, fingerprint = held or ("none", "")
        if fingerprint == ours.fingerprint:
            return
        raise other_embedder(
            self.name,
            (name, fingerprint),
            ours,
            hint=f"open it with --embedder {name}, or log in as another role, which has a cache of its own",
        )


def completion_of(row: Sequence[Any]) -> Completion | None:
    """Return the completion in (body, model, usage, created, ...); None when another version wrote it."""
    try:
        return Completion(body=row[0], model=row[1], usage=Usage(**orjson.loads(row[2])), created=row[3])
    except (TypeError, ValueError):
        return None


def text_of(stored: bytes) -> str:
    """Return a prompt as it was: PostgreSQL's own text holds neither NUL nor half a surrogate pair."""
    return stored.decode("utf-8", "surrogatepass")


def matrix_of(sent: Sequence[bytes], dim: int, name: str) -> Vector:
    """Return vectors, as `vector_send` words them, as one matrix. Raises StoreError when one is of another width.

    Two numbers of two bytes (the width, and nothing) come before the floats, which are the wrong way round.
    """
    step = 4 + 4 * dim
    if any(len(vector) != step for vector in sent):
        raise other_width(name, dim, "it was written by something else: log in as another role and start empty")
    raw = np.frombuffer(b"".join(sent), np.uint8).reshape(len(sent), step)
    return np.ascontiguousarray(raw[:, 4:]).view(">f4").astype(np.float32)


def plain(name: str) -> str:
    """Return a name that PostgreSQL's text can hold; callers choose the names of models."""
    return name.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
