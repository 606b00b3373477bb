"""The access log: one JSON object a line. Lines are handed to the disk by a thread, so no request waits for it.

Neither credentials nor prompts are ever in it, unless `--log-text` asks for the prompts.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from recall_cli.errors import InputError

FLUSH_S = 0.2
"""How long a line may wait for others before it is written."""

MOST_LINES = 100_000
"""Lines that may wait for a slow disk; more are dropped and counted."""


class AccessLog:
    """Writes lines to a file, or to standard error."""

    def __init__(self, path: str | None) -> None:
        """Open the log.

        :param path: a file to append to, `-` for standard error, None for no log.
        """
        self.dropped = 0
        # One buffer, not a list of lines: small blocks of all lengths left 25 MB of holes between them under load.
        self._held = bytearray()
        self._lines = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._file = -1
        if path is None:
            return
        try:
            self._file = (
                os.dup(sys.stderr.fileno())
                if path == "-"
                else os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            )
        except (OSError, ValueError) as error:
            raise InputError(f"the log {path} cannot be written: {error}", hint="name another file") from error
        self._thread = threading.Thread(target=self._work, name="recall-log", daemon=True)
        self._thread.start()

    def write(self, record: Mapping[str, Any]) -> None:
        """Add one line. Never raises and never waits."""
        if self._file < 0:
            return
        line = orjson.dumps(record, default=str, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            if self._lines >= MOST_LINES:
                self.dropped += 1
                return
            self._held += line
            self._lines += 1

    def close(self) -> None:
        """Write what waits and close the file."""
        if self._file >= 0:
            self._stop.set()
            self._thread.join(5)

    def _work(self) -> None:
        while not self._stop.wait(FLUSH_S):
            self._flush()
        self._flush()
        os.close(self._file)
        self._file = -1

    def _flush(self) -> None:
        with self._lock:
            held, lines = self._held, self._lines
            self._held, self._lines = bytearray(), 0
        data = memoryview(held)
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError:
                # A full disk must not stop the service; that lines are missing is counted.
                self.dropped += lines
                return
