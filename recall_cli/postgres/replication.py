"""What other replicas have changed: read from the tables themselves, on from what was seen last.

A tenant's ids are committed in their order (see `postgres.store`), so "everything above the last one" misses
nothing, however long a replica was cut off. It is asked for several times a second rather than announced by NOTIFY:
NOTIFY takes a lock of the whole cluster at each commit and a connection that no pooler may share, and a poll that
finds nothing takes a fraction of a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from recall_cli.postgres.connection import Database
from recall_cli.postgres.pg_policy import LATEST, NEW, Label, label_of
from recall_cli.postgres.store import FIELDS
from recall_cli.types import Entry

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
