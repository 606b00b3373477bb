"""The tables of a shared store and of shared hubs, in versions: the first process to come brings them up to date, once.

Every row carries its tenant, the database role that wrote it, and row level security lets a role see nothing else.
All that is written for a tenant is written one transaction at a time, so ids are committed in their order: whoever
remembers the last one it saw has seen all before it. That is the whole change feed.

A hub's rows are documents, chunks, words and vectors, each with its hub. The words are an inverted index in a table
of its own. A text-search index could not be used under row level security: its operators might tell one tenant of
another's rows, so PostgreSQL checks the policy first, row by row. Equality may come first. It has no term
frequencies to rank by either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recall_cli.cache.stores.sqlite_file import other_schema
from recall_cli.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

HUB_TABLES = ("hub_documents", "hub_chunks", "hub_vectors", "hub_words", "hub_postings")
"""Everything that holds a hub's rows; `hubs` has the hubs."""
TOKEN_TABLES = ("hub_keys", "hub_revoked")
"""What a tenant's tokens are signed with, and which are refused."""

HUBS = """
CREATE TABLE recall.hubs (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL DEFAULT current_user,
    slug text NOT NULL, uid text NOT NULL, visibility text NOT NULL, owner text NOT NULL,
    embedder text NOT NULL, fingerprint text NOT NULL, dim integer NOT NULL,
    generation bigint NOT NULL DEFAULT 0,
    analyzer text NOT NULL,
    alpha double precision NOT NULL, min_score double precision,
    revision bigint NOT NULL DEFAULT 0, updated double precision,
    documents bigint NOT NULL DEFAULT 0, chunks bigint NOT NULL DEFAULT 0, words bigint NOT NULL DEFAULT 0,
    last_document bigint NOT NULL DEFAULT 0, last_chunk bigint NOT NULL DEFAULT 0, last_word integer NOT NULL DEFAULT 0,
    UNIQUE (tenant, slug)
);
CREATE TABLE recall.hub_documents (
    hub integer NOT NULL REFERENCES recall.hubs ON DELETE CASCADE,
    id bigint NOT NULL,
    name bytea NOT NULL, digest bytea NOT NULL, title bytea NOT NULL, url bytea NOT NULL, updated double precision,
    chunks integer NOT NULL,
    PRIMARY KEY (hub, id)
);
CREATE UNIQUE INDEX hub_documents_by_name ON recall.hub_documents (hub, name);
CREATE TABLE recall.hub_chunks (
    hub integer NOT NULL REFERENCES recall.hubs ON DELETE CASCADE,
    id bigint NOT NULL,
    document bigint NOT NULL, ordinal integer NOT NULL,
    size integer NOT NULL,
    terms bytea NOT NULL,
    text bytea NOT NULL,
    PRIMARY KEY (hub, id)
);
ALTER TABLE recall.hub_chunks ALTER COLUMN terms SET STORAGE MAIN;
CREATE INDEX hub_chunks_of_document ON recall.hub_chunks (hub, document, ordinal);
CREATE TABLE recall.hub_vectors (
    hub integer NOT NULL REFERENCES recall.hubs ON DELETE CASCADE,
    chunk bigint NOT NULL,
    generation bigint NOT NULL,
    digest bytea NOT NULL,
    vector public.vector,
    PRIMARY KEY (hub, chunk, generation)
);
ALTER TABLE recall.hub_vectors ALTER COLUMN vector SET STORAGE PLAIN;
CREATE INDEX hub_vectors_by_digest ON recall.hub_vectors (hub, generation, digest);
CREATE TABLE recall.hub_words (
    hub integer NOT NULL REFERENCES recall.hubs ON DELETE CASCADE,
    id integer NOT NULL,
    word text COLLATE "C" NOT NULL,
    df integer NOT NULL,
    PRIMARY KEY (hub, word)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX hub_words_by_id ON recall.hub_words (hub, id);
CREATE TABLE recall.hub_postings (
    hub integer NOT NULL,
    word integer NOT NULL,
    first bigint NOT NULL, last bigint NOT NULL,
    postings bytea NOT NULL,
    PRIMARY KEY (hub, word, first)
);
ALTER TABLE recall.hub_postings ALTER COLUMN postings SET STORAGE PLAIN;
CREATE TABLE recall.hub_keys (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL DEFAULT current_user,
    kid text NOT NULL, secret bytea NOT NULL, created double precision NOT NULL,
    PRIMARY KEY (tenant, kid)
);
CREATE TABLE recall.hub_revoked (
    tenant text NOT NULL DEFAULT current_user,
    jti text NOT NULL, until double precision NOT NULL,
    PRIMARY KEY (tenant, jti)
);
CREATE POLICY upkeep ON recall.hubs FOR SELECT TO CURRENT_USER USING (true);
"""
"""Texts are bytes, since PostgreSQL's own text holds not every string. `generation` tells a hub's vectors from those of
the embedder before and after. A vector is NULL for a text without a known token. `postings` are packed, and so is
what a chunk has of them, its `terms`: see `hub.stores.pg_bm25`. They have no foreign key: they are written and deleted
only together with their hub's row."""

WALL = """
ALTER TABLE recall.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE recall.{table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON recall.{table}
    USING (hub IN (SELECT id FROM recall.hubs WHERE tenant = current_user))
    WITH CHECK (hub IN (SELECT id FROM recall.hubs WHERE tenant = current_user));
"""

TENANT_WALL = """
ALTER TABLE recall.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE recall.{table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON recall.{table} USING (tenant = current_user) WITH CHECK (tenant = current_user);
"""

SECOND = (
    HUBS
    + "".join(TENANT_WALL.format(table=table) for table in ("hubs", *TOKEN_TABLES))
    + "".join(WALL.format(table=table) for table in HUB_TABLES)
)


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
