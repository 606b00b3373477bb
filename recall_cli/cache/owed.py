"""Writes that lookups leave behind: made once the lookups' lock is free, or handed to somebody else."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from recall_cli.errors import StoreError

_log = logging.getLogger(__name__)


class Owed:
    """Changes of a store that a lookup leads to: what has expired, times of use.

    :param later: called with each change instead of making it here; a server hands them to a thread.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object] | None) -> None:
        self._later = later
        self._changes: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._changes)

    def add(self, change: Callable[[], None]) -> None:
        """Leave a change. May be called with the lookups' lock held, which writers take second."""
        self._changes.append(change)

    def settle(self) -> None:
        """Make the changes, or hand them on. Call it without the lookups' lock."""
        while self._changes:
            try:
                change = self._changes.popleft()
            except IndexError:
                return  # another thread was quicker
            if self._later is None:
                _write(change)
            else:
                self._later(partial(_write, change))


def _write(change: Callable[[], None]) -> None:
    """Change the store; one that fails is said and not raised: the lookup had its answer."""
    try:
        change()
    except StoreError as error:
        _log.warning("the store was read but could not be written: %s", error)
