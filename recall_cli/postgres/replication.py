"""What replicas share through the database: a feed of changes, pooled labels, upkeep, claims on upstream calls.

The feed is read from the tables themselves, on from what was seen last. A tenant's ids are committed in their order
(see `postgres.store`), so "everything above the last one" misses nothing, however long a replica was cut off. It is
polled several times a second rather than announced by NOTIFY: NOTIFY takes a lock of the whole cluster at each commit
and a connection that no pooler may share, and a poll that finds nothing takes a fraction of a millisecond.

Each label is one row, so none is lost, and every replica learns from all of them. The labels are the state of a policy:
a replica that starts reads the latest, and follows the feed from then on. Any replica deletes what has expired or is
too much, and prunes the feed.

Of the replicas that miss the same request at one time, one holds the claim on the call. A claim is an advisory lock of
one session, so it ends with the replica that holds it, whatever ends that. It saves calls and promises nothing: a
replica that cannot ask for one goes upstream.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, LiteralString, Protocol

import orjson

from recall_cli.errors import StoreError
from recall_cli.postgres.connection import Database
from recall_cli.postgres.schema import VERSION
from recall_cli.postgres.store import FIELDS, SCAN_S, PostgresStore, plain
from recall_cli.types import Entry, Evidence, Policy

KEPT = 5_000
"""Labels that a starting replica learns from, more than a policy's window of decisions."""

INSERT = """
INSERT INTO recall.labels (replica, version, entry, namespace, evidence, same, served, propensity)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""
COUNT = """
UPDATE recall.entries SET labels = labels + 1, wrong = wrong + (NOT %s)::integer
WHERE tenant = current_user AND id = %s"""
_COLUMNS = "seq, replica, entry, namespace, evidence, same, served, propensity"
NEW = f"""
SELECT {_COLUMNS} FROM recall.labels WHERE tenant = current_user AND version = %s AND seq > %s ORDER BY seq LIMIT %s"""
LATEST = f"""
SELECT * FROM (
    SELECT {_COLUMNS} FROM recall.labels WHERE tenant = current_user AND version = %s ORDER BY seq DESC LIMIT {KEPT}
) AS latest ORDER BY seq"""


@dataclass(frozen=True, slots=True)
class Label:
    """Whether a candidate's answer was right, and how the decision came about that it was asked of."""

    replica: str
    entry: int
    namespace: str
    evidence: Evidence
    same: bool
    served: bool
    propensity: float
    """The chance with which a served hit was drawn to be checked; 1 for what was not served."""


class Pooled(Policy, Protocol):
    """A policy that learns from labels of decisions that other replicas took."""

    version: str
    """Labels of another version say nothing here."""

    def drawn(self, ticket: int) -> tuple[bool, float]:
        """Return whether a decision was to serve, and with what chance it was to be audited."""

    def adopt(self, namespace: str, evidence: Evidence, *, same: bool, served: bool, propensity: float) -> None:
        """Learn from another replica's label."""


def pool(store: PostgresStore, version: str, labels: Sequence[Label]) -> None:
    """Write labels for all replicas, and count them at their entries."""
    rows = [
        (
            label.replica,
            version,
            label.entry,
            plain(label.namespace),
            orjson.dumps(label.evidence).decode(),
            label.same,
            label.served,
            label.propensity,
        )
        for label in labels
    ]
    with store.writing() as db, db.cursor() as cursor:
        cursor.executemany(INSERT, rows)
        cursor.executemany(COUNT, [(label.same, label.entry) for label in labels])


def label_of(row: Sequence[Any]) -> Label:
    """Return the label in a row."""
    _, replica, entry, namespace, evidence, same, served, propensity = row
    return Label(replica, entry, namespace, Evidence(**orjson.loads(evidence)), same, served, propensity)


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


CLAIM_S = 0.5
"""Seconds that asking for a claim may take: a miss waits for it."""


class Claims:
    """The claims of one replica. Used by one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db = database.connect(CLAIM_S)

    def take(self, identity: bytes) -> bool:
        """Return whether the claim is this replica's now. Raises StoreError when the database cannot be asked."""
        row = self._ask("SELECT pg_try_advisory_lock(%s)", identity)
        return bool(row and row[0])

    def give_back(self, identity: bytes) -> None:
        """Let others have the claim; one that went with its connection is nobody's already."""
        with suppress(StoreError):
            self._ask("SELECT pg_advisory_unlock(%s)", identity)

    def close(self) -> None:
        """Give all claims back."""
        self._db.close()

    def _ask(self, question: LiteralString, identity: bytes) -> tuple[object, ...] | None:
        if self._db.closed or self._db.is_gone:
            self._db.close()
            self._db = self._database.connect(CLAIM_S)
        try:
            return self._database.within(self._db, CLAIM_S, question, (_key(identity),))
        except StoreError:
            self._db.close()
            raise


def _key(identity: bytes) -> int:
    """Return the lock's number: two requests that share one wait for each other in vain, once in 2^64."""
    return int.from_bytes(identity[:8], "big", signed=True)


READ_S = 5.0
"""Seconds that one look at the feed may take."""
MOST = 2_000
"""Changes of one kind read at a time."""

ENTRIES = f"SELECT {FIELDS} FROM recall.entries WHERE tenant = current_user AND id > %s ORDER BY id LIMIT {MOST}"
GONE = f"SELECT seq, entry FROM recall.gone WHERE tenant = current_user AND seq > %s ORDER BY seq LIMIT {MOST}"
STATE = """
SELECT forgotten, pg_postmaster_start_time()::text || left(pg_walfile_name(pg_current_wal_lsn()), 8)
FROM recall.tenants WHERE tenant = current_user"""
NOW = """
SELECT (SELECT coalesce(max(id), 0) FROM recall.entries WHERE tenant = current_user),
       (SELECT coalesce(max(seq), 0) FROM recall.gone WHERE tenant = current_user)"""


@dataclass(slots=True)
class Changes:
    """What was written since the last look, in the order of commits by kind."""

    entries: list[Entry] = field(default_factory=list)
    """New ones that are still there; each replaces the one of the same identity."""
    gone: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    broken: bool = False
    """Something was missed: what is held in memory cannot be trusted."""
    is_all: bool = True
    """Nothing more waits."""


class Feed:
    """One replica's place in the changes of its tenant. Used by one thread."""

    def __init__(self, database: Database, version: str) -> None:
        self._database = database
        self._version = version
        self._entry = self._gone = self._label = 0
        self._epoch = ""

    def read(self) -> Changes:
        """Return what is new. The first look, and one after a gap, start from now and say `broken`."""
        with self._database.connection(READ_S, probe=True) as db:
            with db.pipeline():
                state = db.execute(STATE)
                entries = db.execute(ENTRIES, (self._entry,), binary=True)
                gone = db.execute(GONE, (self._gone,))
                labels = db.execute(NEW, (self._version, self._label, MOST))
            forgotten, epoch = state.fetchone() or (0, "")
            # A server that was restarted or replaced by its standby may have lost what we have seen, and then gives
            # the same numbers to something else.
            if epoch != self._epoch or forgotten > self._gone:
                return self._start(db, epoch)
            gone_rows = gone.fetchall()
            changes = Changes([Entry(*row) for row in entries], [row[1] for row in gone_rows])
            return self._advance(changes, gone_rows, labels.fetchall())

    def _start(self, db: Any, epoch: str) -> Changes:
        self._entry, self._gone = db.execute(NOW).fetchone()
        rows = [] if self._epoch else db.execute(LATEST, (self._version,)).fetchall()
        self._epoch = epoch
        if rows:  # a policy that has learned already goes on from where it was
            self._label = rows[-1][0]
        return Changes(labels=[label_of(row) for row in rows], broken=True)

    def _advance(self, changes: Changes, gone: list[Any], labels: list[Any]) -> Changes:
        if changes.entries:
            self._entry = changes.entries[-1].id
        if gone:
            self._gone = gone[-1][0]
        if labels:
            self._label = labels[-1][0]
        changes.labels = [label_of(row) for row in labels]
        changes.is_all = max(len(changes.entries), len(gone), len(labels)) < MOST
        return changes
