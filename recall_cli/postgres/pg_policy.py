"""Labels pooled by all replicas: each is one row, so none is lost, and every replica learns from all of them.

There is no shared state of a policy to overwrite. The labels are the state: a replica that starts reads the latest,
and from then on what comes by the feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from recall_cli.postgres.store import PostgresStore, plain
from recall_cli.types import Evidence, Policy

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
