"""One computation that several callers follow: whoever asks the same meanwhile gets the same steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from recall_cli.hub.models import Answer


class Flight:
    """A stream of answers, the last one final, computed once.

    It runs while anybody follows, and is cancelled when the last follower has gone: a reranker whose order nobody
    reads is not paid for. Belongs to one event loop.
    """

    def __init__(self, steps: AsyncIterator[Answer]) -> None:
        self._steps = steps
        self._seen: list[Answer] = []
        self._moved = asyncio.Event()
        self._followers = 0
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._ended)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is being cancelled."""
        return self.task.done() or self.task.cancelling() > 0

    async def follow(self) -> AsyncGenerator[Answer, None]:
        """Yield every step, also those that came before. Raises what the computation raised."""
        self._followers += 1
        at = 0
        try:
            while True:
                if at < len(self._seen):
                    yield self._seen[at]
                    at += 1
                elif self.task.done():
                    self.task.result()
                    return
                else:
                    await self._moved.wait()
        finally:
            self._followers -= 1
            if not self._followers:
                self.task.cancel()

    async def last(self) -> Answer:
        """Return the final answer."""
        async with aclosing(self.follow()) as steps:
            found = [answer async for answer in steps]
        return found[-1]

    async def _run(self) -> None:
        async for answer in self._steps:
            self._seen.append(answer)
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: when all followers have gone, nobody else does
        self._wake()


class Flights:
    """The computations under way, by what they compute."""

    def __init__(self) -> None:
        self._flights: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def join(self, key: bytes) -> Flight | None:
        """Return the computation of this key that is under way, None when there is none. Follow it at once."""
        flight = self._flights.get(key)
        return None if flight is None or flight.is_over else flight

    def start(self, key: bytes, steps: AsyncIterator[Answer]) -> Flight:
        """Begin a computation that others can join until it is over. Follow it at once."""
        flight = self._flights[key] = Flight(steps)

        def forget(task: asyncio.Task[None]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]

        flight.task.add_done_callback(forget)
        return flight
