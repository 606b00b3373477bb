"""Handing over from one engine to its successor while searches and writes go on.

Two things need it: a graph that has collected too many deleted nodes, and an index that has outgrown its
kind. Both are slow to build, so the successor is filled beside the engine in service, from copies taken a
few rows at a time; writes meanwhile reach the old engine and a log; the log is replayed, and the two are
swapped while writers wait for the last few entries. A search only ever sees a complete engine.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from threading import Lock, Thread
from typing import TYPE_CHECKING, Protocol

import numpy as np

from recall_cli.types import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from recall_cli.types import Ids, Vector

    Change = tuple[Ids, Vector | None]
    """What was added, or (with None) the ids that were removed."""

_CHUNK = 256
"""Rows copied between two looks at whether the process is ending: a tenth of a second of graph building."""

_LAST_ENTRIES = 256
"""Rows of the log that are replayed while writers wait; a longer log is replayed first without stopping them."""

_ROUNDS = 8
"""After so many replays the writers are as fast as the replay, and have to wait once."""

_log = logging.getLogger(__name__)


class Engine(Index, Protocol):
    """An index whose content can be copied out while it is in service."""

    def ids(self) -> Ids:
        """Return a copy of all ids, oldest entry first."""


class SwappableIndex:
    """An index that passes every call to the engine in service, and can replace it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = Lock()
        self._changes: list[Change] | None = None  # a list while a successor is being filled
        self._builder: Thread | None = None
        self._stopped = False  # for good: the process is ending, or a successor could not be built
        _relays.add(self)

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._engine)

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows (n, dim) under ids (n,). Raises ValueError and changes nothing if any cannot be added."""
        with self._writing:
            self._engine.add(ids, vectors)
            if self._changes is not None:
                self._changes.append((np.array(ids, np.int64), np.array(vectors, np.float32)))
        self._after_write()

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""
        # What no int64 holds was never added.
        gone = np.array([id for id in map(int, ids) if -(2**63) <= id < 2**63], np.int64)
        with self._writing:
            self._engine.remove(gone.tolist())
            if self._changes is not None:
                self._changes.append((gone, None))
        self._after_write()

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, cosines), best first."""
        return self._engine.search(vector, k)

    def ids(self) -> Ids:
        """Return a copy of all ids, oldest entry first."""
        return self._engine.ids()

    def fetch(self, ids: Ids) -> tuple[Ids, Vector]:
        """Return those of the ids that are here, and copies of their vectors."""
        return self._engine.fetch(ids)

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use, without those of a successor under construction."""
        return self._engine.memory_bytes()

    def wait(self) -> None:
        """Return when no successor is under construction."""
        builder = self._builder
        if builder is not None:
            builder.join()
        if isinstance(self._engine, SwappableIndex):
            self._engine.wait()

    def _after_write(self) -> None:
        """Look whether it is time for a successor; called without a lock after every change."""

    def _hand_over(self, make: Callable[[], Engine], *, background: bool) -> None:
        """Replace the engine by what `make` returns, filled; does nothing while that is already going on.

        Never raises: the write that led here has been done.
        """
        with self._writing:
            if self._changes is not None or self._stopped:
                return
            self._changes = []
            ids = self._engine.ids()
            if background:
                # A daemon: an exit need not wait for a minute of building; `_stop_all` ends it within a chunk.
                self._builder = Thread(target=self._build_quietly, args=(make, ids), daemon=True, name="recall-index")
                try:
                    self._builder.start()
                except RuntimeError:  # no more threads
                    self._builder, background = None, False
        if not background:
            self._build_quietly(make, ids)

    def _build_quietly(self, make: Callable[[], Engine], ids: Ids) -> None:
        try:
            self._build(make, ids)
        except Exception:
            # The engine in service is whole; without this, every later write would try and fail again.
            self._stopped = True
            _log.exception("building a new index failed; the present one stays in service")

    def _forget_builder(self) -> None:
        """After a fork, in the child: its copy of the building thread does not run, and may have held a lock."""
        if self._changes is not None:
            self._writing, self._changes, self._builder = Lock(), None, None
            if hasattr(self._engine, "_lock"):
                self._engine._lock = Lock()

    def _build(self, make: Callable[[], Engine], ids: Ids) -> None:
        try:
            successor = make()
            for at in range(0, len(ids), _CHUNK):
                if self._stopped:
                    return
                successor.add(*self._engine.fetch(ids[at : at + _CHUNK]))
            for left in reversed(range(_ROUNDS)):
                with self._writing:
                    changes = self._changes or []
                    self._changes = []
                    if not left or sum(len(ids) for ids, _ in changes) <= _LAST_ENTRIES:
                        _replay(changes, successor)
                        self._engine = successor
                        return
                _replay(changes, successor)
        finally:
            with self._writing:
                self._changes = None


def _replay(changes: list[Change], engine: Engine) -> None:
    for ids, vectors in changes:
        if vectors is None:
            engine.remove(ids.tolist())
        else:
            engine.add(ids, vectors)


_relays: weakref.WeakSet[SwappableIndex] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End background building before the interpreter goes away under it."""
    for relay in list(_relays):
        relay._stopped = True
    for relay in list(_relays):
        relay.wait()


def _after_fork() -> None:
    for relay in list(_relays):
        relay._forget_builder()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
