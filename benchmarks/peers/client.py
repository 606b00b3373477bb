"""The driver's end of an adapter: a process of its own, asked one line at a time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.serve import Server

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 300.0
"""A peer that has not answered one line in this time has hung."""


class PeerError(Exception):
    """What a peer raised, or that it hung or died."""


class Peer:
    """A running adapter.

    :param python: the interpreter of the peer's environment.
    :param module: the adapter, such as `benchmarks.peers.adapt_recall`.
    :param log: where its standard error goes.
    :param servers: what it asks in turn: their processor time is its too.
    """

    def __init__(self, python: str | Path, module: str, log: Path, servers: Sequence[Server] = (), **env: str) -> None:
        # One thread each: what is compared is a call, not how many cores it takes.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **threads, **env}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [str(python), "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=log.parent,
            )
        self.module = module
        self.servers = servers

    def ask(self, op: str, timeout: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Send one operation and return its answer. Raises PeerError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Timer(timeout, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError as error:
            raise PeerError(f"{self.module} has ended: {error}") from error
        finally:
            late.cancel()
        if not line:
            raise PeerError(f"{self.module} ended during {op}, exit code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def served_s(self) -> float:
        """Return the seconds of processor time that its servers have used, in the clock's ticks of 10 ms."""
        return sum(server.cpu() for server in self.servers)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it died with a question unread
                    pipe.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
