"""The hubs of a PostgreSQL database, as `hub.stores.folder` has those of a folder, and their keys.

The signing keys and the revoked tokens are the same for every replica, from its next look on.
"""

from __future__ import annotations

import secrets
import threading

from recall_cli.errors import StoreError
from recall_cli.hub.models import ALPHA, HubInfo, Visibility
from recall_cli.hub.stores.analyzer import ANALYZER
from recall_cli.hub.stores.folder import check_slug, name_taken, no_such_hub
from recall_cli.hub.stores.pg_engine import READ_S, SCAN_S, PostgresEngine
from recall_cli.hub.stores.signing_keys import LIVE, Key, new_key
from recall_cli.postgres.connection import Database, Deadlined
from recall_cli.postgres.urls import check_url
from recall_cli.types import VectorSpace

KEYS_READ_S = 5.0
"""Seconds that one look or change may take."""

NEWEST = "SELECT kid, secret, created FROM recall.hub_keys WHERE tenant = current_user ORDER BY id DESC"
SECRET = "SELECT secret FROM recall.hub_keys WHERE tenant = current_user AND kid = %s"
ADD = "INSERT INTO recall.hub_keys (kid, secret, created) VALUES (%s, %s, %s)"
RETIRE = """
DELETE FROM recall.hub_keys WHERE tenant = current_user
    AND id NOT IN (SELECT id FROM recall.hub_keys WHERE tenant = current_user ORDER BY id DESC LIMIT %s)"""
REVOKE = "INSERT INTO recall.hub_revoked (jti, until) VALUES (%s, %s) ON CONFLICT DO NOTHING"
FORGET = """
DELETE FROM recall.hub_revoked WHERE tenant = current_user
    AND until < (SELECT MIN(created) FROM recall.hub_keys WHERE tenant = current_user)"""
"""As `KeyRing.rotate`, by no clock."""
REVOKED = "SELECT FROM recall.hub_revoked WHERE tenant = current_user AND jti = %s"
ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('recall.hub_keys ' || current_user, 0))"
"""Advisory lock for the creation of keys: if two replicas race, the second uses the first one's key."""


class PostgresKeys:
    """A tenant's keys and revocations; see `keys.Ring`. Nothing is asked of the database before it is needed."""

    def __init__(self, database: Database) -> None:
        """Keep them in a database.

        :param database: closed by whoever opened it.
        """
        self._database = database

    def close(self) -> None:
        """Do nothing: the connections are the database's."""

    def signing(self) -> tuple[str, bytes]:
        """Return the name and the secret of the key that signs; the first to ask makes it."""
        kid, secret, _ = self._live()[0]
        return kid, secret

    def secret(self, kid: str) -> bytes | None:
        """Return the secret of a live key, None when there is no such key."""
        if not kid.isascii() or "\x00" in kid:  # which PostgreSQL's text may not hold, and no key's name does
            return None
        with self._database.connection(KEYS_READ_S) as db:
            row = db.execute(SECRET, (kid,), binary=True).fetchone()
        return None if row is None else row[0]

    def live(self) -> list[Key]:
        """Return the live keys, newest first."""
        return [Key(kid, created, signs=at == 0) for at, (kid, _, created) in enumerate(self._live())]

    def rotate(self) -> str:
        """Make the key that signs from now on; only the one before it goes on verifying. Return its name."""
        with self._database.connection(KEYS_READ_S) as db, db.transaction():
            db.execute(ALONE)
            kid = self._add(db)
            db.execute(RETIRE, (LIVE,))
            db.execute(FORGET)
        return kid

    def revoke(self, jti: str, until: float) -> None:
        """Refuse a token from now on.

        :param until: when it expires by itself, seconds since the epoch; two rotations later it is forgotten.
        """
        with self._database.connection(KEYS_READ_S) as db:
            db.execute(REVOKE, (jti, until))

    def is_revoked(self, jti: str) -> bool:
        """Return whether a token was revoked."""
        with self._database.connection(KEYS_READ_S) as db:
            return db.execute(REVOKED, (jti,)).fetchone() is not None

    def _live(self) -> list[tuple[str, bytes, float]]:
        with self._database.connection(KEYS_READ_S) as db:
            rows = db.execute(NEWEST, binary=True).fetchall()
            if not rows:
                with db.transaction():
                    db.execute(ALONE)
                    if not db.execute(NEWEST).fetchall():
                        self._add(db)
                rows = db.execute(NEWEST, binary=True).fetchall()
        return rows

    def _add(self, db: Deadlined) -> str:
        key = new_key()
        db.execute(ADD, key)
        return key[0]


MAKE = """
INSERT INTO recall.hubs (slug, uid, visibility, owner, embedder, fingerprint, dim, analyzer, alpha)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING id"""
FIND = "SELECT id, analyzer FROM recall.hubs WHERE tenant = current_user AND slug = %s"
NAMES = 'SELECT slug FROM recall.hubs WHERE tenant = current_user ORDER BY slug COLLATE "C"'
NEAREST = ("SET hnsw.ef_search = 200",)
"""Of 25,000 chunks of shuffled sentences, recall@30 is .951 at 120, .977 at 200 and .988 at 300, which takes twice as
long as 200."""
REMOVE = (
    "SELECT FROM recall.hubs WHERE id = %s AND tenant = current_user FOR UPDATE",
    "DELETE FROM recall.hub_postings WHERE hub = %s",
    "DELETE FROM recall.hubs WHERE id = %s AND tenant = current_user",
)
"""The lock first: no write may post words meanwhile. The other tables follow the hub's row."""


class PostgresHubs:
    """The hubs of a tenant, which is the role that is logged in. Any method may be called from any thread.

    Raises StoreError when the database cannot be had.
    """

    def __init__(self, url: str) -> None:
        """Connect with the first call; the first to come makes the tables.

        :param url: without a password, which comes from PGPASSWORD, ~/.pgpass or a service.
        """
        self._database = Database(check_url(url), NEAREST)
        self.name = self._database.name
        self._lock = threading.Lock()
        self._open: dict[int, PostgresEngine] = {}

    def make(
        self, slug: str, space: VectorSpace, *, visibility: Visibility = Visibility.PUBLIC, owner: str = ""
    ) -> None:
        """Make an empty hub. Raises UsageError for a name that is none, or is taken."""
        check_slug(slug)
        facts = (slug, secrets.token_hex(16), visibility.value, owner, space.name, space.fingerprint, space.dim)
        with self._database.connection(READ_S) as db:
            made = db.execute(MAKE, (*facts, ANALYZER, ALPHA)).fetchone()
        if made is None:
            raise name_taken(slug)

    def open(self, slug: str) -> PostgresEngine:
        """Return a hub's engine. Raises NoSuchHub when there is none."""
        found = self.find(slug)
        if found is None:
            raise no_such_hub(self.name, slug)
        return found

    def find(self, slug: str) -> PostgresEngine | None:
        """Return a hub's engine, the same one each time, None when there is no such hub."""
        with self._database.connection(READ_S) as db:
            row = db.execute(FIND, (slug,)).fetchone()
        if row is None:
            return None
        if row[1] != ANALYZER:
            raise StoreError(
                f"the words of the hub {slug} were cut by {row[1]}, not by {ANALYZER}",
                hint="use the recall that wrote it, or export its documents and ingest them into a new hub",
            )
        with self._lock:
            if row[0] not in self._open:
                self._open[row[0]] = PostgresEngine(self._database, row[0], slug)
            return self._open[row[0]]

    def info(self, slug: str) -> HubInfo:
        """Return a hub's facts. Raises NoSuchHub when there is none."""
        return self.open(slug).info()

    def names(self) -> list[str]:
        """Return the names of the hubs, in order."""
        with self._database.connection(READ_S) as db:
            return [slug for (slug,) in db.execute(NAMES)]

    def remove(self, slug: str) -> None:
        """Delete a hub with everything in it. Raises NoSuchHub when there is none."""
        number = self.open(slug).number
        with self._database.connection(SCAN_S) as db, db.transaction():
            for statement in REMOVE:
                db.execute(statement.encode(), (number,))
        with self._lock:
            self._open.pop(number, None)

    def ring(self) -> PostgresKeys:
        """Return the keys of these hubs' tokens, which all replicas share."""
        return PostgresKeys(self._database)

    def close(self) -> None:
        """Close the connections, and with them every hub; a second call does nothing."""
        self._database.close()
