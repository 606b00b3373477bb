"""What any replica does for all: delete what has expired or is too much, and prune the feed."""

from __future__ import annotations

import time
from typing import Any

from recall_cli.postgres.pg_policy import KEPT
from recall_cli.postgres.schema import VERSION
from recall_cli.postgres.store import SCAN_S, PostgresStore

AT_ONCE = 2_000
"""Entries deleted in one transaction: writers wait for it."""

EXPIRED = f"""
SELECT id FROM recall.entries WHERE tenant = current_user AND expires <= %s ORDER BY expires LIMIT {AT_ONCE}"""
HELD = "SELECT count(*), coalesce(sum(size), 0) FROM recall.entries WHERE tenant = current_user"
OLDEST = f"""
SELECT id, size FROM recall.entries WHERE tenant = current_user ORDER BY used, id LIMIT {AT_ONCE}"""
PRUNE = """
WITH pruned AS (
    DELETE FROM recall.gone WHERE tenant = current_user AND at < now() - interval '1 hour' RETURNING seq
)
UPDATE recall.tenants SET forgotten = greatest(forgotten, (SELECT max(seq) FROM pruned))
WHERE tenant = current_user AND EXISTS (SELECT FROM pruned)"""
FORGET = f"""
DELETE FROM recall.labels WHERE tenant = current_user AND seq <= (
    SELECT seq FROM recall.labels WHERE tenant = current_user ORDER BY seq DESC OFFSET {2 * KEPT} LIMIT 1
)"""
FACTS = """
SELECT count(*), count(DISTINCT partition), coalesce(sum(size), 0), count(*) FILTER (WHERE has_vector)
FROM recall.entries WHERE tenant = current_user"""
NAMESPACES = """
SELECT namespace, count(*), sum(size)::bigint FROM recall.entries WHERE tenant = current_user
GROUP BY namespace ORDER BY count(*) DESC, namespace"""
DISK = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relnamespace = 'recall'::regnamespace"


def read_facts(store: PostgresStore) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Return the tenant's totals and its (namespace, entries, bytes), largest first; disk space is all tenants'."""
    with store.database.connection(SCAN_S) as db:
        entries, partitions, size, vectors = db.execute(FACTS).fetchone() or (0, 0, 0, 0)
        namespaces = db.execute(NAMESPACES).fetchall()
        (disk,) = db.execute(DISK).fetchone() or (0,)
    facts = {
        "embedder": store.embedder.name,
        "fingerprint": store.embedder.fingerprint,
        "dim": store.dim,
        "schema": VERSION,
        "entries": entries,
        "vectors": vectors,
        "partitions": partitions,
        "bytes": int(size),
        "file_bytes": disk,
    }
    return facts, [(name, count, bytes) for name, count, bytes in namespaces]


def tidy(store: PostgresStore, max_entries: int | None, max_bytes: int | None) -> int:
    """Delete expired entries, then the least recently used over the caps; return how many went.

    Deletions are told for an hour: a replica that was cut off for longer starts afresh. Replicas that come at the same
    time find nothing left to do.
    """
    gone = 0
    while True:
        with store.writing() as db:
            ids = [row[0] for row in db.execute(EXPIRED, (time.time(),))]
            if not ids and (max_entries is not None or max_bytes is not None):
                entries, size = db.execute(HELD).fetchone() or (0, 0)
                ids = _surplus(db.execute(OLDEST).fetchall(), entries, int(size), max_entries, max_bytes)
            if not ids:
                db.execute(PRUNE)
                db.execute(FORGET)
                return gone
            gone += store.remove(ids)


def _surplus(
    oldest: list[tuple[int, int]], entries: int, size: int, max_entries: int | None, max_bytes: int | None
) -> list[int]:
    """Return the ids, least recently used first, without which the caps hold."""
    ids = []
    for id, bytes in oldest:
        if (max_entries is None or entries <= max_entries) and (max_bytes is None or size <= max_bytes):
            break
        ids.append(id)
        entries, size = entries - 1, size - bytes
    return ids
