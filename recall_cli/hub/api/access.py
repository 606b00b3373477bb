"""Access to a hub: hub, token, right and rate, in this order, before a body is looked at.

The rate is a token bucket for each caller of each hub.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import LRUCache

from recall_cli.errors import StoreError
from recall_cli.hub.api.errors import RECALL, ApiError, unknown
from recall_cli.hub.api.tokens import Grant, Tokens, read_bearer
from recall_cli.hub.models import HubInfo, Visibility

if TYPE_CHECKING:
    from recall_cli.hub.search.pipeline import Hub
    from recall_cli.hub.stores.open import HubRegistry

PER_S = 20.0
"""Requests a second that a caller may make of a hub for long."""
BURST_S = 2.0
"""Seconds' worth of requests that may come at once."""

CALLERS = 100_000
"""Callers remembered; the longest silent is forgotten first, and has a full bucket again by then."""


class Rate:
    """The buckets. Belongs to one thread."""

    def __init__(self, per_s: float = PER_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Fill every bucket.

        :param per_s: requests a second; 0 sets no limit.
        """
        self._per_s = per_s
        self._most = max(1.0, per_s * BURST_S)
        self._clock = clock
        self._buckets: LRUCache[tuple[str, str], tuple[float, float]] = LRUCache(CALLERS)
        """What is left, and when that was."""

    def take(self, caller: str, hub: str) -> None:
        """Count one request. Raises ApiError (429) when the bucket is empty."""
        if not self._per_s:
            return
        now = self._clock()
        left, at = self._buckets.get((caller, hub), (self._most, now))
        left = min(self._most, left + (now - at) * self._per_s)
        if left < 1.0:
            wait = (1.0 - left) / self._per_s
            raise ApiError(429, "rate_limited", f"more than {self._per_s:g} requests a second", retry_s=wait)
        self._buckets[caller, hub] = (left - 1.0, now)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was let in."""

    hub: Hub
    info: HubInfo
    """The hub as it was when the right was checked."""
    grant: Grant | None
    """None: nobody in particular."""

    @property
    def principal(self) -> str:
        """Who asks and with what right, as one text; "" for nobody in particular."""
        if self.grant is None:
            return ""
        scopes = "owner" if self.grant.scopes is None else " ".join(sorted(self.grant.scopes))
        return f"{self.grant.subject}\n{scopes}"


class AccessControl:
    """Lets requests in."""

    def __init__(self, hubs: HubRegistry, tokens: Tokens, rate: Rate, *, hide_private: bool = False) -> None:
        """Stand before some hubs.

        :param hide_private: answer for a private hub as for one that does not exist, as long as nobody shows a
            token for it.
        """
        self._hubs = hubs
        self._tokens = tokens
        self._rate = rate
        self._hide_private = hide_private

    async def enter(self, slug: str, scope: str, *, authorization: list[str], client: str) -> Entry:
        """Return the hub for a request that may do this.

        Raises ApiError: 404, 401, 403, 429; and what `HubRegistry` raises.

        :param authorization: all Authorization headers.
        :param client: the address, which stands for callers without a token.
        """
        from starlette.concurrency import run_in_threadpool

        # With hidden hubs, authenticate before the lookup, so that timing and errors reveal nothing.
        grant = await self._grant(authorization) if self._hide_private else None
        try:
            found = await run_in_threadpool(self._hubs.find, slug)
        except StoreError as error:
            if not self._hide_private or (grant is not None and slug in grant.hubs):
                raise
            # Whether it is private cannot be read either.
            _log.error("a hub cannot be read: %s", error)
            found = None
        if found is None:
            raise required(scope) if self._hide_private and grant is None else unknown()
        grant = grant or await self._grant(authorization)
        engine, info = found
        self.admit(info, grant, scope)
        self._rate.take(f"sub {grant.subject}" if grant is not None else f"at {client}", info.uid)
        return Entry(await run_in_threadpool(self._hubs.hub, engine, info), info, grant)

    async def _grant(self, authorization: list[str]) -> Grant | None:
        """Return what the request's token allows, None when it brings none. Raises ApiError (401)."""
        from starlette.concurrency import run_in_threadpool

        token = read_bearer(authorization)
        # The keys may be in a database far away.
        return None if token is None else await run_in_threadpool(self._tokens.verify, token)

    def admit(self, info: HubInfo, grant: Grant | None, scope: str) -> None:
        """Raise Refusal (401, 403 or 404) when this may not be done with the hub as it is now."""
        if scope == RECALL and info.visibility is Visibility.PUBLIC:
            return
        if grant is None:
            raise required(scope)
        if grant.allows(scope, info):
            return
        if self._hide_private and info.visibility is Visibility.PRIVATE and info.slug not in grant.hubs:
            raise unknown()
        raise ApiError(403, "insufficient_scope", f"the token does not allow {scope} here", scope=scope)


def required(scope: str) -> ApiError:
    """Return the refusal of a request without a token."""
    return ApiError(401, "token_required", "this takes a token: Authorization: Bearer ...", scope=scope)
