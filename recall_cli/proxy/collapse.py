"""The same miss on several replicas at one time: one of them asks the upstream, the others wait for what it stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from recall_cli.errors import StoreError
from recall_cli.types import Lookup, Request

ASK_S = 0.25
"""Seconds that a miss waits to be told whether another replica is at it already."""
WAIT_S = 30.0
"""Seconds that it waits for that replica's answer; then it asks the upstream itself."""
AGAIN_S = 0.1
"""Seconds between two looks whether the other replica is done."""


class Claims(Protocol):
    """Who may ask the upstream; see `postgres.pg_claims`."""

    def take(self, identity: bytes) -> bool:
        """Return whether the claim is this replica's now."""

    def give_back(self, identity: bytes) -> None:
        """Let others have the claim."""

    def close(self) -> None:
        """Give all claims back."""


class Collapse:
    """Decides, for each miss, whether to ask the upstream or to wait. Best effort: any doubt asks.

    :param stored: returns the hit on a request's identity as the store has it now.
    """

    def __init__(self, claims: Claims, stored: Callable[[Request], Lookup | None]) -> None:
        self._claims = claims
        self._stored = stored
        self._thread = ThreadPoolExecutor(1, "recall-claims")
        self._mine: set[bytes] = set()
        self._contests: dict[bytes, asyncio.Task[Lookup | None]] = {}

    async def elsewhere(self, request: Request) -> Lookup | None:
        """Return the hit on what another replica fetched meanwhile, None when the upstream is to be asked from here."""
        identity = request.identity
        if identity in self._mine:
            return None  # a call is under way here, which this request joins
        contest = self._contests.get(identity)
        if contest is None:
            contest = self._contests[identity] = asyncio.get_running_loop().create_task(self._contend(request))
            contest.add_done_callback(lambda _: self._contests.pop(identity, None))
        return await asyncio.shield(contest)

    def landed(self, identity: bytes) -> None:
        """Say that a call has ended, and that its answer is stored if it ever will be."""
        if identity in self._mine:
            self._mine.discard(identity)
            self._thread.submit(self._claims.give_back, identity)

    def close(self) -> None:
        """Give all claims back."""
        self._thread.submit(self._claims.close)
        self._thread.shutdown()

    async def _contend(self, request: Request) -> Lookup | None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + WAIT_S
        while loop.time() < ends:
            asked = self._thread.submit(self._claims.take, request.identity)
            try:
                is_mine = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asked)), ASK_S)
            except TimeoutError:
                asked.add_done_callback(partial(self._too_late, request.identity))
                return None
            except StoreError:
                return None
            if is_mine:
                self._mine.add(request.identity)
                # Whoever had the claim gave it back after storing its answer, or without one to store. That may have
                # been after this request was looked up, and memory here is behind the database by a moment.
                found = await self._look(request)
                if found is not None:
                    self.landed(request.identity)
                return found
            await asyncio.sleep(AGAIN_S)
        return None

    async def _look(self, request: Request) -> Lookup | None:
        looked = asyncio.wrap_future(self._thread.submit(self._stored, request))
        try:
            return await asyncio.wait_for(looked, ASK_S)
        except (TimeoutError, StoreError):
            return None

    def _too_late(self, identity: bytes, asked: Future[bool]) -> None:
        """Give back a claim that came after the request had gone on without it."""
        if asked.exception() is None and asked.result():
            self._thread.submit(self._claims.give_back, identity)
