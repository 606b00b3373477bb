"""HNSW indexes over some rows of a table of vectors, made and dropped by the tables' owner while serving goes on.

Each large hub has an index of its own, over the vectors that searches see and no other hub's.
"""

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


GRAPH_FROM = 5_000
"""Chunks from which a hub is worth a graph; a smaller one is compared whole, which is exact."""

LARGE = f"""
SELECT id, generation, dim FROM recall.hubs WHERE chunks >= %s ORDER BY chunks DESC LIMIT {GRAPHS}"""


def tend_hub_graphs(database: Database, at_least: int = GRAPH_FROM) -> tuple[int, int]:
    """Give each large hub its graph, and drop those of what is small or gone now; return (made, dropped).

    For the tables' owner, as only it may; serving goes on meanwhile.
    """
    with database.connection(GRAPH_S) as db:
        hubs = db.execute(LARGE, (at_least,)).fetchall()
    return tend(database, "hub_vectors", [_graph(*hub) for hub in hubs])


def _graph(hub: int, generation: int, dim: int) -> Graph:
    where = sql.SQL("hub = {} AND generation = {} AND vector IS NOT NULL")
    return Graph(f"near_{hub}_{generation}", dim, where.format(sql.Literal(hub), sql.Literal(generation)))
