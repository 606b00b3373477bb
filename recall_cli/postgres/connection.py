"""Connections to the database: each wait has a deadline, and a database that failed is left alone for a moment."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from pgvector.psycopg import register_vector
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from recall_cli.errors import StoreError, StoreUnavailable
from recall_cli.postgres.schema import migrate
from recall_cli.postgres.urls import shown

CONNECT_S = 3
"""Seconds to connect in: libpq counts whole ones."""
CONNECTIONS = 6
"""At most: the writer, the follower, two lookups, and two for the admin API."""
REST_S = 1.0
"""Once the database has failed, how long nobody but the follower tries it again: no request waits for it in vain."""

SETTINGS = (
    # A replica that vanishes within a transaction must not hold up the others' writes.
    "SET idle_in_transaction_session_timeout = '5s'",
    # Among 100,000 sentences of random words, far from each other: recall@1 of near ones .983 at 200, .988 at 250.
    "SET hnsw.ef_search = 300",
    "SET hnsw.iterative_scan = relaxed_order",
    # No query here is so long that compiling it pays.
    "SET jit = off",
    "SET client_min_messages = warning",
)

PASSING = ("starting up", "shutting down", "recovery", "too many", "connection slots")
"""What a server says that will have us later."""

T = TypeVar("T")
Row = tuple[Any, ...]


class Deadlined(psycopg.Connection[Row]):
    """A connection on which no wait lasts longer than its deadline, whatever became of the other side."""

    ends = float("inf")
    """By the monotonic clock."""

    @property
    def is_gone(self) -> bool:
        """Whether the server has closed an idle connection, as one that was restarted has; nothing is sent to ask.

        What a server sends unasked is taken in: a setting that changed, or why it ends the session.
        """
        with suppress(psycopg.OperationalError):
            waits = select.poll()
            waits.register(self.pgconn.socket, select.POLLIN)
            while waits.poll(0):
                self.pgconn.consume_input()  # raises at the end of what was sent
        return self.pgconn.status != ConnStatus.OK

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        """Wait for an operation. Raises OperationalError, and closes the connection, when it takes too long."""
        return super().wait(self._until(gen), *args, **more)

    def _until(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                # psycopg resumes us every tenth of a second, with nothing when nothing has come.
                if not ready and time.monotonic() > self.ends:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the database did not answer in time")
                asked = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value


class Database:
    """A pool of connections to one database. What PostgreSQL raises becomes a StoreError."""

    def __init__(self, url: str, settings: Sequence[LiteralString] = ()) -> None:
        """Connect with the first use, which brings the schema up to date.

        :param settings: statements for each connection, after those for all.
        """
        self.name = shown(url)
        self._settings = (*SETTINGS, *settings)
        self._down_until = 0.0
        self._lock = threading.Lock()
        self._url = url
        self._more: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": CONNECT_S,
            "application_name": "recall",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 2,
            "tcp_user_timeout": 5_000,
        }
        self._pool: ConnectionPool[Deadlined] | None = None

    @property
    def is_down(self) -> bool:
        """Whether the database failed a moment ago."""
        return time.monotonic() < self._down_until

    @contextmanager
    def connection(self, seconds: float, *, probe: bool = False) -> Iterator[Deadlined]:
        """Lend a connection on which all must be done within so many seconds.

        :param probe: try the database though it failed a moment ago.
        """
        if not probe and self.is_down:
            raise self._left_alone()
        with self._translated(), self._lent(seconds) as db:
            db.ends = time.monotonic() + seconds
            yield db
        self._down_until = 0.0

    def connect(self, seconds: float) -> Deadlined:
        """Return a connection outside the pool, for what lasts as long as its session."""
        if self.is_down:
            raise self._left_alone()
        with self._translated():
            self._opened()
            db = Deadlined.connect(self._url, **self._more)
            db.ends = time.monotonic() + seconds
            return db

    @contextmanager
    def session(self, seconds: float) -> Iterator[Deadlined]:
        """Lend a connection outside the pool, for work that takes long and may hold up no request."""
        with closing(self.connect(seconds)) as db, self._translated():
            self._configure(db)
            db.ends = time.monotonic() + seconds
            yield db

    def within(self, db: Deadlined, seconds: float, query: LiteralString, values: tuple[Any, ...]) -> Row | None:
        """Return the first row of a query on such a connection, to be had within so many seconds."""
        if self.is_down:
            raise self._left_alone()
        with self._translated():
            db.ends = time.monotonic() + seconds
            return db.execute(query, values).fetchone()

    def renew(self) -> None:
        """Replace the connections that did not survive what the database went through."""
        with self._translated():
            self._opened().check()

    def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            self._pool.close(timeout=1.0)

    @contextmanager
    def _lent(self, seconds: float) -> Iterator[Deadlined]:
        """Lend a connection of the pool that is there: a restarted database has closed all of them.

        The pool's own `check` would wait for a second after the first that is gone.
        """
        pool, ends = self._opened(), time.monotonic() + seconds
        db = pool.getconn(timeout=seconds)
        while db.is_gone:
            db.close()
            pool.putconn(db)  # the pool makes another in its place
            db = pool.getconn(timeout=max(0.0, ends - time.monotonic()))
        try:
            with db:
                yield db
        finally:
            pool.putconn(db)

    def _opened(self) -> ConnectionPool[Deadlined]:
        """Return the pool, its first connection made and the schema up to date."""
        if self._pool is not None:
            return self._pool
        with self._lock:
            if self._pool is None:
                with psycopg.connect(self._url, **self._more) as first:
                    migrate(first, self.name)
                self._pool = ConnectionPool(
                    self._url,
                    connection_class=Deadlined,
                    kwargs=self._more,
                    min_size=1,
                    max_size=CONNECTIONS,
                    configure=self._configure,
                    # One try: the next request for a connection tries again, where the pool's own back-off would let a
                    # database that has come back wait for a quarter of a minute.
                    reconnect_timeout=0.5,
                    open=True,
                    name="recall",
                )
            return self._pool

    def _configure(self, db: Deadlined) -> None:
        db.ends = time.monotonic() + CONNECT_S
        for setting in self._settings:
            db.execute(setting)
        register_vector(db)

    def _left_alone(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name} does not answer", hint="it is tried again within a second")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.OperationalError, PoolTimeout) as error:
            # A lock that was not had in time, or a full disk, is no reason to leave the database alone.
            is_away = getattr(error, "sqlstate", None) is None or isinstance(error, psycopg.errors.AdminShutdown)
            if is_away:
                self._down_until = time.monotonic() + REST_S
            raise unusable(self.name, error, is_away=is_away and not _is_refusal(str(error))) from error
        except psycopg.Error as error:
            raise StoreError(
                f"{self.name} refused: {_first_line(error)}", hint="check the role's rights, see docs/scaling.md"
            ) from error


def unusable(name: str, error: Exception, *, is_away: bool) -> StoreError:
    """Return the error for a database that cannot be asked.

    :param is_away: it may be able to later, and nobody need change anything.
    """
    return (StoreUnavailable if is_away else StoreError)(
        f"{name} cannot be used as a store: {_first_line(error)}",
        hint="check that the database runs, and its address, role and password (PGPASSWORD, ~/.pgpass)",
    )


def _is_refusal(said: str) -> bool:
    """Return whether a server answered that it will not have us: another role, password or database is needed.

    An error of connecting has no code, only the server's words; in another language than English a server that is
    just starting is taken for one that refuses.
    """
    return "FATAL" in said and not any(words in said for words in PASSING)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
