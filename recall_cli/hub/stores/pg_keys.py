"""The signing keys and the revoked tokens of a database of hubs: the same for every replica, from the next look on."""

from __future__ import annotations

from recall_cli.hub.stores.signing_keys import LIVE, Key, new_key
from recall_cli.postgres.connection import Database, Deadlined

READ_S = 5.0
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
"""Whoever changes the keys of a tenant: of two replicas that find none, the second takes the first's."""


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
        with self._database.connection(READ_S) as db:
            row = db.execute(SECRET, (kid,), binary=True).fetchone()
        return None if row is None else row[0]

    def live(self) -> list[Key]:
        """Return the live keys, newest first."""
        return [Key(kid, created, signs=at == 0) for at, (kid, _, created) in enumerate(self._live())]

    def rotate(self) -> str:
        """Make the key that signs from now on; only the one before it goes on verifying. Return its name."""
        with self._database.connection(READ_S) as db, db.transaction():
            db.execute(ALONE)
            kid = self._add(db)
            db.execute(RETIRE, (LIVE,))
            db.execute(FORGET)
        return kid

    def revoke(self, jti: str, until: float) -> None:
        """Refuse a token from now on.

        :param until: when it expires by itself, seconds since the epoch; two rotations later it is forgotten.
        """
        with self._database.connection(READ_S) as db:
            db.execute(REVOKE, (jti, until))

    def is_revoked(self, jti: str) -> bool:
        """Return whether a token was revoked."""
        with self._database.connection(READ_S) as db:
            return db.execute(REVOKED, (jti,)).fetchone() is not None

    def _live(self) -> list[tuple[str, bytes, float]]:
        with self._database.connection(READ_S) as db:
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
