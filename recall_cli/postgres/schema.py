"""The tables of a shared store, in versions: brought up to date by whoever comes first, once.

Every row carries its tenant, the database role that wrote it, and row level security lets a role see nothing else.
All that is written for a tenant is written one transaction at a time, so ids are committed in their order: whoever
remembers the last one it saw has seen all before it. That is the whole change feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recall_cli.cache.stores.sqlite_file import other_schema
from recall_cli.errors import StoreError
from recall_cli.postgres.pg_hub_schema import SECOND, TENANT_WALL

if TYPE_CHECKING:
    from psycopg import Connection

LOCK = 0x52434C31
"""The advisory lock of migrations ("RCL1"): replicas that start together wait for the first."""

TABLES = ("tenants", "states", "entries", "vectors", "bodies", "gone", "labels")
"""Everything that holds a tenant's rows."""

FIRST = """
CREATE TABLE recall.tenants (
    tenant text PRIMARY KEY DEFAULT current_user,
    embedder text NOT NULL, fingerprint text NOT NULL, dim integer NOT NULL,
    forgotten bigint NOT NULL DEFAULT 0
);
CREATE TABLE recall.states (
    tenant text NOT NULL DEFAULT current_user, key text NOT NULL, value text NOT NULL, PRIMARY KEY (tenant, key)
);
CREATE SEQUENCE recall.ids;
CREATE TABLE recall.entries (
    id bigint PRIMARY KEY DEFAULT nextval('recall.ids'),
    tenant text NOT NULL DEFAULT current_user,
    identity bytea NOT NULL,
    partition bytea NOT NULL,
    namespace text NOT NULL,
    created double precision NOT NULL,
    expires double precision,
    used double precision NOT NULL,
    size bigint NOT NULL,
    has_vector boolean NOT NULL,
    answer_group bigint,
    labels integer NOT NULL DEFAULT 0,
    wrong integer NOT NULL DEFAULT 0,
    UNIQUE (tenant, identity)
) WITH (fillfactor = 80);
CREATE INDEX entries_feed ON recall.entries (tenant, id);
CREATE INDEX entries_partition ON recall.entries (tenant, partition, id);
CREATE INDEX entries_expiry ON recall.entries (tenant, expires) WHERE expires IS NOT NULL;
CREATE TABLE recall.vectors (
    id bigint PRIMARY KEY REFERENCES recall.entries ON DELETE CASCADE,
    tenant text NOT NULL DEFAULT current_user,
    partition bytea NOT NULL,
    vector public.vector NOT NULL
);
ALTER TABLE recall.vectors ALTER COLUMN vector SET STORAGE PLAIN;
CREATE INDEX vectors_partition ON recall.vectors (tenant, partition);
CREATE TABLE recall.bodies (
    id bigint PRIMARY KEY REFERENCES recall.entries ON DELETE CASCADE,
    tenant text NOT NULL DEFAULT current_user,
    text bytea NOT NULL, model text NOT NULL, usage text NOT NULL, created double precision NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE recall.gone (
    seq bigint PRIMARY KEY DEFAULT nextval('recall.ids'),
    tenant text NOT NULL DEFAULT current_user,
    entry bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gone_feed ON recall.gone (tenant, seq);
CREATE TABLE recall.labels (
    seq bigint PRIMARY KEY DEFAULT nextval('recall.ids'),
    tenant text NOT NULL DEFAULT current_user,
    replica text NOT NULL,
    version text NOT NULL,
    entry bigint NOT NULL,
    namespace text NOT NULL,
    evidence text NOT NULL,
    same boolean NOT NULL,
    served boolean NOT NULL,
    propensity real NOT NULL
);
CREATE INDEX labels_feed ON recall.labels (tenant, seq);
"""
"""Vectors have no fixed width: a tenant may change its embedder. They stand alone, since a row that is never
updated keeps its place in the indexes; `entries` is updated at every flush and has room for it on its pages."""

UPKEEP = "CREATE POLICY upkeep ON recall.vectors FOR SELECT TO CURRENT_USER USING (true);"
"""The owner counts the rows of all partitions, to give the large ones their graphs; it could lift the wall anyway."""

MIGRATIONS = (FIRST + "".join(TENANT_WALL.format(table=table) for table in TABLES) + UPKEEP, SECOND)
"""Statement by statement what makes version n + 1 of version n. What was released is never edited."""

VERSION = len(MIGRATIONS)


def migrate(db: Connection[Any], name: str) -> None:
    """Bring the schema up to this version. Raises StoreError when it is newer, or when the role may not.

    :param name: the store's name, for errors.
    """
    import psycopg

    held = _version(db)
    if held == VERSION:
        return
    try:
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            held = _version(db)  # another replica may have been first
            if held > VERSION:
                raise other_schema(name, held, VERSION, "use the recall that wrote it, or a newer one")
            if held == 0:
                db.execute("CREATE EXTENSION IF NOT EXISTS vector")
                db.execute("CREATE SCHEMA IF NOT EXISTS recall")
                db.execute("CREATE TABLE recall.versions (version integer NOT NULL)")
            for statements in MIGRATIONS[held:]:
                db.execute(statements.encode())
            db.execute("DELETE FROM recall.versions")
            db.execute("INSERT INTO recall.versions VALUES (%s)", (VERSION,))
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFile,
    ) as error:
        raise StoreError(
            f"{name} has no recall schema of version {VERSION}, and cannot be given one: {_said(error)}",
            hint="let the tables' owner run: recall cache upkeep URL (with pgvector installed; see docs/scaling.md)",
        ) from error


def _version(db: Connection[Any]) -> int:
    """Return the schema's version, 0 when there is none."""
    # Not to_regclass: what it once did not find it remembers, within the transaction that waited for the lock too.
    if db.execute("SELECT FROM pg_tables WHERE schemaname = 'recall' AND tablename = 'versions'").fetchone() is None:
        return 0
    row = db.execute("SELECT version FROM recall.versions").fetchone()
    return 0 if row is None else int(row[0])


def _said(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
