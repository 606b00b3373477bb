"""The tables of shared hubs: documents, chunks, words and vectors, each row with its hub.

The words are an inverted index in a table of its own. A text-search index could not be used behind the wall: its
operators might tell one tenant of another's rows, so PostgreSQL checks the wall first, row by row. Equality may come
first. It has no term frequencies to rank by either.
"""

from __future__ import annotations

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
what a chunk has of them, its `terms`: see `hub.stores.postings`. They have no foreign key: they are written and deleted
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
