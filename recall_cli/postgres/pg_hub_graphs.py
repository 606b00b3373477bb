"""The graphs of large hubs: one each, over the vectors that searches see and no other hub's."""

from __future__ import annotations

from psycopg import sql

from recall_cli.postgres.ann_indexes import GRAPH_S, GRAPHS, Graph, tend
from recall_cli.postgres.connection import Database

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
