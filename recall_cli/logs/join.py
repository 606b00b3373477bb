"""Requests and answers that stand in different rows or files and share an id, in any order."""

from __future__ import annotations

from collections.abc import Iterator

from recall_cli.logs.formats.base import NO_TEXT, Found, Pair

REUSED = "id_used_twice"
"""The reason for a row whose id stands for several requests: which answer is whose cannot be told."""


class Joiner:
    """Holds halves of calls until the other half comes."""

    def __init__(self) -> None:
        self._asked: dict[str, Pair] = {}
        self._answered: dict[str, Pair] = {}
        self._reused: set[str] = set()

    def ask(self, id: str, pair: Pair) -> tuple[Found, ...]:
        """Take a request; return the call if its answer was there before it."""
        answer = self._answered.pop(id, None)
        if answer is not None and id not in self._reused:
            return (joined(pair, answer),)
        before = self._asked.get(id)
        if before is not None and before.request != pair.request:
            self._reused.add(id)
        if id in self._reused:
            return (REUSED,)
        self._asked[id] = pair
        # The same request in two files (a batch's input, kept twice) is one.
        return () if before is None else ("duplicate",)

    def answer(self, id: str, pair: Pair) -> tuple[Found, ...]:
        """Take an answer; return the call if its request was there before it."""
        if id in self._reused or id in self._answered:
            # What it cost is still known; what was asked is not.
            self._reused.add(id)
            return (without_text(pair),)
        asked = self._asked.pop(id, None)
        if asked is not None:
            return (joined(asked, pair),)
        self._answered[id] = pair
        return ()

    def end(self) -> Iterator[Found]:
        """Return the requests that nothing answered, and the answers to what was not logged."""
        for id, pair in self._asked.items():
            yield REUSED if id in self._reused else pair
        for pair in self._answered.values():
            yield without_text(pair)
        self._asked.clear()
        self._answered.clear()


def joined(asked: Pair, answered: Pair) -> Pair:
    """Return a request's half with what only its answer's half knows."""
    asked.response = answered.response
    asked.row = {**asked.row, **answered.row}
    asked.status = answered.status
    asked.flaw = asked.flaw or answered.flaw
    return asked


def without_text(pair: Pair) -> Pair:
    """Return an answer's half as a call that can be priced, and no more."""
    pair.request = {}
    pair.flaw = NO_TEXT
    return pair
