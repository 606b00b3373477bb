"""Values in use, kept in memory within a size in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by entry; the longest unused go. Not locked: its owner serialises calls.

    :param most: bytes of all values.
    :param size: returns the bytes of one.
    """

    def __init__(self, most: int, size: Callable[[T], int]) -> None:
        self._most = most
        self._size_of = size
        self._size = 0
        self._kept: OrderedDict[int, T] = OrderedDict()

    def __contains__(self, id: object) -> bool:
        return id in self._kept

    def get(self, id: int) -> T | None:
        """Return an entry's value, which is the one used last then; None when it is not here."""
        kept = self._kept.get(id)
        if kept is not None:
            self._kept.move_to_end(id)
        return kept

    def keep(self, id: int, value: T) -> None:
        """Keep a value; the longest unused go, though never the one that came last."""
        self.forget(id)
        self._kept[id] = value
        self._size += self._size_of(value)
        while self._size > self._most and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))

    def forget(self, id: int) -> None:
        """Keep a value no more."""
        kept = self._kept.pop(id, None)
        if kept is not None:
            self._size -= self._size_of(kept)

    def clear(self) -> None:
        """Keep nothing any more."""
        self._kept.clear()
        self._size = 0
