"""Pages read in a process of their own, which a hostile one takes down instead of an ingest.

A parser that repairs what browsers repair looks through all open tags, all attributes of a tag, all formats in force:
tags nested 100,000 deep take it minutes, and a few megabytes can be written that fill any memory. So a page has a
budget of processor time, by its size, and of memory; a process that goes beyond ends, and the next page gets another.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from contextlib import suppress

import orjson

from recall_cli.errors import RecallError
from recall_cli.hub.ingest.html import Page, read_page
from recall_cli.util.subprocess_worker import start

SMALL_CHARS = 16_384
"""A page up to here is read at once: the worst that it can hold takes a tenth of a second and 200 MB."""
PATIENCE_S = 5.0
"""Seconds of processor time that any page has."""
MORE = 0.4
"""Share of it that a page has besides, for each MiB. One of nothing but tags takes 0.9 s a MiB, others half of it."""
MOST_MEMORY = 6 << 30
"""Bytes of address space; 32 MiB of nothing but tags take 3.6 GB."""

_ASKED = struct.Struct("=dQ")
_SAID = struct.Struct("=Q")


class PageReader:
    """Reads pages. One thread uses it; close it, for it may have a process.

    Where the system has no timer of processor time (Windows), a page takes what it takes.

    :param patience_s: seconds of processor time that any page has, however small.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PageReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, html: str) -> Page | None:
        """Return what a page says, None when it would take more time or memory than a page may.

        Raises RecallError when no process can be had.
        """
        if len(html) <= SMALL_CHARS or not sys.executable:
            return read_page(html)
        data = html.encode("utf-8", "replace")
        try:
            if self._process is None:
                self._process = start(__name__)
            said = self._exchange(self._process, data)
        except BrokenPipeError:
            said = None
        except OSError as error:
            raise RecallError(
                f"the process that reads pages cannot be started: {error}", hint="is there memory enough?"
            ) from error
        if said is None:
            self.close()
            return None
        return Page(*orjson.loads(said))

    def close(self) -> None:
        """End the process, if there is one; a later page gets another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it was not sent any more
                    pipe.close()  # type: ignore[union-attr]
            process.wait()

    def _exchange(self, process: subprocess.Popen[bytes], data: bytes) -> bytes | None:
        assert process.stdin is not None
        assert process.stdout is not None
        seconds = self._patience_s * (1.0 + MORE * len(data) / (1 << 20))
        process.stdin.write(_ASKED.pack(seconds, len(data)))
        process.stdin.write(data)
        process.stdin.flush()
        head = process.stdout.read(_SAID.size)
        if len(head) < _SAID.size:
            return None
        (size,) = _SAID.unpack(head)
        said = process.stdout.read(size)
        return said if len(said) == size else None


def main() -> None:
    """Read pages from standard input until it ends, and write what they say to standard output."""
    from selectolax.lexbor import SelectolaxError

    # Ctrl-C reaches both; the one that reports says what is to be said.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hold_memory()
    pages, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := pages.read(_ASKED.size)) == _ASKED.size:
        seconds, size = _ASKED.unpack(head)
        html = pages.read(size).decode()
        _hold_time(seconds)
        try:
            page = read_page(html)
        except (MemoryError, SelectolaxError):  # the parser, too, says so where it gets no more memory
            sys.exit(1)
        _hold_time(0.0)
        said = orjson.dumps([page.title, page.url, page.text])
        answers.write(_SAID.pack(len(said)))
        answers.write(said)
        answers.flush()


def _hold_time(seconds: float) -> None:
    """Let the process end after so many seconds of its processor time, whatever it does then; 0 lets it live."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _hold_memory() -> None:
    """Let an allocation beyond the limit fail."""
    with suppress(ImportError, OSError, ValueError):  # another system, or a lower limit that holds already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


if __name__ == "__main__":
    main()
