"""Graphs (HNSW) over some rows of a table of vectors: made and dropped by the tables' owner, while serving goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from recall_cli.postgres.connection import Database

GRAPHS = 200
"""Graphs of a table at most: each is looked at in planning any search, and at every insert."""
GRAPH_S = 3_600.0
"""Seconds that making a graph may take."""

MADE = """
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = %s::regclass AND starts_with(relname::text, 'near_') AND (indisvalid OR NOT %s)"""


@dataclass(frozen=True, slots=True)
class Graph:
    """An index over the vectors of some rows."""

    name: str
    """Of the index: near_ and what tells these rows and vectors from all others."""
    dim: int
    where: sql.Composed
    """Which rows."""


def tend(database: Database, table: LiteralString, wanted: Sequence[Graph]) -> tuple[int, int]:
    """Make the graphs a table of `recall` is to have, and drop its others; return (made, dropped)."""
    names = {graph.name for graph in wanted}
    with database.connection(GRAPH_S) as db:
        whole = {row[0] for row in db.execute(MADE, (f"recall.{table}", True))}
        # One that is not whole was being made when its maker was stopped.
        there = [row[0] for row in db.execute(MADE, (f"recall.{table}", False))]
        stale = [name for name in there if name not in names or name not in whole]
        for name in stale:
            db.execute(sql.SQL("DROP INDEX CONCURRENTLY recall.{}").format(sql.Identifier(name)))
        fresh = [graph for graph in wanted if graph.name not in whole]
        db.execute("SET maintenance_work_mem = '512MB'")  # what does not fit is built many times slower
        for graph in fresh:
            query = sql.SQL(
                "CREATE INDEX CONCURRENTLY {name} ON {table}"
                " USING hnsw ((vector::public.vector({dim})) public.vector_ip_ops) WITH (ef_construction = 128)"
                " WHERE {where}"
            )
            named = {"name": sql.Identifier(graph.name), "table": sql.Identifier("recall", table)}
            db.execute(query.format(**named, dim=sql.Literal(graph.dim), where=graph.where))
    return len(fresh), len(stale)
