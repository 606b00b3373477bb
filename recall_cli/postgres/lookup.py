"""Lookups in the database: by identity, by neighbourhood within one partition, and what a replica reads to hold one.

A small partition is compared whole, which is exact. A large one has a graph of its own, over its rows alone: a graph
over everything would walk past the partition's few rows, and return fewer than asked. `tend_graphs` makes and drops
them; until a partition's is there, it is compared whole, for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from psycopg import sql

from recall_cli.postgres.ann_indexes import GRAPH_S, GRAPHS, Graph, tend
from recall_cli.postgres.connection import Database
from recall_cli.postgres.store import FIELDS, PAGE, READ_S, SCAN_S, PostgresStore, completion_of, matrix_of, text_of
from recall_cli.types import CLOCKS_S, Completion, Entry, Vector

GRAPH_FROM = 2_000
"""Rows from which a partition is worth a graph: comparing as many takes about as long as a request may wait."""

_ENTRY = ", ".join(f"entries.{name}" for name in FIELDS.split(", "))
_FRESH = f"(expires IS NULL OR expires > %(now)s AND entries.created <= %(now)s + {CLOCKS_S})"
_LIVE = f"entries.tenant = current_user AND {_FRESH}"
"""As `Entry.is_fresh`."""
FIND = f"""
SELECT body, model, usage, bodies.created, entries.id FROM recall.entries JOIN recall.bodies USING (id)
WHERE identity = %(identity)s AND {_LIVE}"""
BRING = """
SELECT body, model, usage, bodies.created, identity, text FROM recall.entries JOIN recall.bodies USING (id)
WHERE entries.tenant = current_user AND id = %s"""
NEAREST = """
WITH near AS MATERIALIZED (
    SELECT id, (vector::public.vector({dim})) OPERATOR(public.<#>) %(vector)s AS distance FROM recall.vectors
    WHERE tenant = current_user AND partition = %(partition)s ORDER BY 2 LIMIT %(k)s
)
SELECT {entry}, -distance, text FROM near JOIN recall.entries USING (id) JOIN recall.bodies USING (id)
WHERE {live} ORDER BY distance, id DESC"""
ROWS = f"""
SELECT {_ENTRY}, public.vector_send(vector) FROM recall.entries LEFT JOIN recall.vectors USING (id)
WHERE entries.tenant = current_user AND entries.partition = %s AND entries.id > %s ORDER BY entries.id LIMIT {PAGE}"""
VECTORS = """
SELECT id, public.vector_send(vector) FROM recall.vectors WHERE tenant = current_user AND id = ANY(%s)"""
COUNT = "SELECT count(*) FROM recall.entries WHERE tenant = current_user AND partition = %s"
LARGE = f"""
SELECT partition, public.vector_dims(vector) FROM recall.vectors
GROUP BY 1, 2 HAVING count(*) > %s ORDER BY count(*) DESC LIMIT {GRAPHS}"""


@dataclass(frozen=True, slots=True)
class Near:
    """A neighbour found in the database."""

    entry: Entry
    similarity: float
    text: str


def find(store: PostgresStore, identity: bytes, now: float) -> tuple[int, Completion] | None:
    """Return the entry of an identity and its answer."""
    with store.database.connection(READ_S) as db:
        row = db.execute(FIND, {"identity": identity, "now": now}, binary=True).fetchone()
    completion = None if row is None else completion_of(row)
    return None if row is None or completion is None else (row[4], completion)


def bring(store: PostgresStore, id: int) -> tuple[bytes, Completion, str] | None:
    """Return (identity, completion, prompt) of an entry, None when it is gone."""
    with store.database.connection(READ_S) as db:
        row = db.execute(BRING, (id,), binary=True).fetchone()
    completion = None if row is None else completion_of(row)
    return None if row is None or completion is None else (row[4], completion, text_of(row[5]))


def nearest(store: PostgresStore, partition: bytes, vector: Vector, k: int, now: float) -> list[Near]:
    """Return up to k neighbours, best first, of one partition: exact ones without a graph, nearly so with one."""
    asked = {"vector": vector.astype(np.float32), "partition": partition, "k": k, "now": now}
    with store.database.connection(READ_S) as db:
        # Not a prepared statement: a generic plan cannot use the HNSW indexes, which are one for each partition.
        rows = db.execute(_nearest_in(store.dim), asked, prepare=False).fetchall()
    return [Near(Entry(*row[:12]), row[12], text_of(row[13])) for row in rows]


def read_page(store: PostgresStore, partition: bytes, after: int) -> list[tuple[Entry, Vector | None]]:
    """Return the partition's entries above an id, with their vectors; fewer than `PAGE` are the last ones."""
    with store.database.connection(SCAN_S) as db:
        rows = db.execute(ROWS, (partition, after), binary=True).fetchall()
    return _with_vectors(store, [Entry(*row[:12]) for row in rows], {row[0]: row[12] for row in rows if row[12]})


def with_vectors(store: PostgresStore, entries: Sequence[Entry]) -> list[tuple[Entry, Vector | None]]:
    """Return entries with their vectors, without those that are gone meanwhile."""
    wanted = [entry.id for entry in entries if entry.has_vector]
    with store.database.connection(SCAN_S) as db:
        rows = db.execute(VECTORS, (wanted,), binary=True).fetchall() if wanted else []
    sent: dict[int, bytes] = dict(rows)
    return _with_vectors(store, [entry for entry in entries if not entry.has_vector or entry.id in sent], sent)


def count(store: PostgresStore, partition: bytes) -> int:
    """Return how many entries a partition has."""
    with store.database.connection(SCAN_S) as db:
        row = db.execute(COUNT, (partition,)).fetchone()
    return 0 if row is None else int(row[0])


def tend_graphs(database: Database, at_least: int = GRAPH_FROM) -> tuple[int, int]:
    """Give each large partition its graph, and drop those of what is small now; return (made, dropped).

    For the tables' owner, as only it may; serving goes on meanwhile.
    """
    with database.connection(GRAPH_S) as db:
        partitions = db.execute(LARGE, (at_least,)).fetchall()
    return tend(database, "vectors", [_graph(partition, dim) for partition, dim in partitions])


@cache
def _nearest_in(dim: int) -> bytes:
    """Return the search of vectors so wide; put together once, as that takes longer than sending it."""
    query = sql.SQL(NEAREST).format(dim=sql.Literal(dim), entry=sql.SQL(_ENTRY), live=sql.SQL(_LIVE))
    return query.as_bytes(None)


def _graph(partition: bytes, dim: int) -> Graph:
    where = sql.SQL("partition = {}").format(sql.Literal(partition))
    return Graph(f"near_{partition.hex()}_{dim}", dim, where)


def _with_vectors(
    store: PostgresStore, entries: Sequence[Entry], sent: dict[int, bytes]
) -> list[tuple[Entry, Vector | None]]:
    held = list(sent)
    rows = dict(zip(held, matrix_of([sent[id] for id in held], store.dim, store.name), strict=True))
    return [(entry, rows.get(entry.id)) for entry in entries]
