"""One request of a client and its answer, sans-io: what the proxy does for it, without the proxy.

Walls, keys, what bypasses, what is never stored and how a stream is replayed are the proxy's own. Two things
differ. The host is part of the wall, since one client may ask several. And a hit that a learning policy wants
checked is not served and asked again behind the caller's back: the caller gets the fresh answer, and the policy
its label.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import orjson

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import reads_all
from recall_cli.proxy.asgi import JSON, Headers
from recall_cli.proxy.planner import (
    Ask,
    Planner,
    Walls,
    by_name,
    completion,
    objection,
    read_controls,
    storable,
    tenant_key,
)
from recall_cli.proxy.providers import openai
from recall_cli.proxy.providers.dialect import BY_PATH, OPENAI, Dialect
from recall_cli.proxy.replay import hit_headers, miss_headers, read_body, replay, same_answer, withheld
from recall_cli.proxy.settings import Settings
from recall_cli.proxy.stream_options import Options
from recall_cli.types import Bypass, Decision, Lookup, Outcome

NOT_STORED = "no stored answer fits this request"
OURS = b"x-recall"

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: nothing has to be asked."""

    status: int
    headers: Headers
    body: bytes


@dataclass(slots=True)
class Errand:
    """A request that goes upstream, and what is to be learned from its answer."""

    dialect: Dialect
    decision: Decision
    body: bytes
    """What to send: the caller's, or one that asks for the usage too."""
    again: bytes | None = None
    """What to send where an upstream refuses that question: the caller's own."""
    url: str = ""
    """Whom it goes to, as what is known of upstreams is kept."""
    ask: Ask | None = None
    """None: the answer passes unseen."""
    found: Lookup | None = None

    strips: bool = False
    """Whether the usage of a stream was asked for on recall's account, and is kept from the caller."""

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        n = None if self.ask is None else self.ask.body.get("n")
        return n if isinstance(n, int) and n > 1 else 1

    def headers(self) -> Headers:
        """Return what the caller is told beside the answer."""
        return miss_headers(self.decision, self.decision.outcome, self.decision.reason)


class Exchange:
    """Answers requests from a cache, and learns from the answers of those that went upstream. No fault of it raises.

    :param allow_sampled: answer also calls whose temperature is unset or above 0.
    :param share_scope: "credential" (the default), "user" or "all", as for `recall serve`.
    :param learn_usage: ask for the usage in OpenAI streams too, and keep it from callers that did not: a stored stream
        then has its counts. A server that refuses `stream_options` is asked once more without.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        allow_sampled: bool = False,
        share_scope: str = "credential",
        learn_usage: bool = True,
    ) -> None:
        self.cache = cache
        self.outcomes: Counter[str] = Counter()
        """Requests by outcome."""
        self.faults: Counter[str] = Counter()
        """Faults of the cache, which no caller met, by where they happened."""
        self._settings = Settings(allow_sampled=allow_sampled, share_scope=share_scope, learn_usage=learn_usage)
        self._options = Options()
        self._planner = Planner(Walls(tenant_key(cache.store), self._settings), self._settings)
        self._compare = Comparator(cache.embedder)
        self._serial = itertools.count(1)
        self._prefix = "req_recall_" + os.urandom(6).hex()

    def open(
        self, *, method: str, origin: bytes, path: str, query: bytes, headers: Headers, raw: bytes
    ) -> Reply | Errand | None:
        """Return a stored answer, an errand, or None for a request that is none of ours.

        :param origin: scheme, host and port, which part the entries of several hosts.
        :param headers: names in lower case.
        """
        dialect = next((one for suffix, one in BY_PATH.items() if path.endswith(suffix)), None)
        if dialect is None or method != "POST":
            return None
        route = origin + path.encode() + b"?" + query
        planned = self._guarded("plan", lambda: self._planner.plan(dialect, raw, headers, route), Bypass("cache_fault"))
        if isinstance(planned, Bypass):
            if read_controls(by_name(headers)).only_if_cached:
                return _not_stored(dialect)
            return self._counted(Errand(dialect, Decision(Outcome.BYPASS, reason=planned.reason), raw))
        missed = Lookup(Decision(Outcome.MISS, reason="cache_fault"))
        found = self._guarded("lookup", lambda: self._find(planned), missed)
        if found.completion is not None:
            made = self._guarded("replay", lambda: self._reply(dialect, planned, found), None)
            if made is not None:
                self.outcomes[found.decision.outcome] += 1
                return made
            found = withheld(found, "cache_fault")
        if planned.controls.only_if_cached:
            return _not_stored(dialect)
        decision = withheld(found, "audited").decision if found.audit else found.decision
        errand = Errand(dialect, decision, raw, ask=planned, found=found)
        errand.url = (origin + path.encode()).decode("utf-8", "replace")
        model = planned.request.model
        if (
            self._settings.learn_usage
            and planned.stream
            and dialect is OPENAI
            and not planned.wants_usage
            and self._options.may_add(errand.url, model)
        ):
            body = planned.body
            asking = openai.ask_usage(raw, body)
            if asking is not None:
                errand.body, errand.strips = asking, True
                errand.again = None if "stream_options" in body else raw
        return self._counted(errand)

    def doubts(self, errand: Errand, status: int) -> bool:
        """Take the status of an answer; return whether its body has to be read at once, for `refused`."""
        if errand.again is None or errand.ask is None:
            return False
        self._options.learn(errand.url, errand.ask.request.model, status, added=errand.strips)
        return errand.strips and self._options.may_refuse(status)

    def refused(self, errand: Errand, status: int, body: bytes) -> bool:
        """Return whether the errand is to be run once more, with what it holds then; see `Options`."""
        if errand.again is None or errand.ask is None or not errand.strips:
            return False
        if not self._options.refuses(errand.url, errand.ask.request.model, status, body):
            return False
        errand.body, errand.strips = errand.again, False
        return True

    def close(
        self, errand: Errand, status: int, headers: Headers, raw: bytes, *, is_sse: bool, is_clean: bool = True
    ) -> None:
        """Learn from the answer to an errand. Of one that broke off nothing is learned.

        :param is_clean: the answer was read to its end; else only what the stream says itself tells that it is whole.
        """
        if errand.ask is not None and errand.found is not None:
            choices = errand.choices if is_clean else None
            self._guarded("learn", lambda: self._learn(errand, status, headers, raw, is_sse, choices), None)

    def _find(self, ask: Ask) -> Lookup:
        request = ask.request
        request.exact_only = request.exact_only or not reads_all(self.cache.embedder, request.text)
        found = self.cache.get(request)
        if found.completion is None:
            return found
        reason = objection(found, ask.controls, time.time() - found.completion.created)
        if reason:
            return withheld(found, reason)
        # Drawn to be checked: the stored answer stays beside, for the fresh one to be compared with.
        return Lookup(found.decision, None, found.vector, found.evidence, audit=True) if found.audit else found

    def _reply(self, dialect: Dialect, ask: Ask, found: Lookup) -> Reply:
        answer = found.completion
        assert answer is not None
        body = replay(dialect, answer, stream=ask.stream, usage=ask.wants_usage)
        id = f"{self._prefix}{next(self._serial):08x}"
        told = hit_headers(dialect, answer, found.decision, stream=ask.stream, size=len(body), now=time.time(), id=id)
        return Reply(200, told, body)

    def _learn(
        self, errand: Errand, status: int, headers: Headers, raw: bytes, is_sse: bool, choices: int | None
    ) -> None:
        ask, found = errand.ask, errand.found
        assert ask is not None
        assert found is not None
        body, whole = read_body(errand.dialect, raw, is_sse=is_sse, choices=choices)
        if is_sse and body is not None:
            raw = orjson.dumps(body)
        most = self._settings.limits.cached_body_bytes
        if body is None or storable(status, by_name(headers), body, whole, len(raw), most):
            return
        same = None
        if self.cache.policy.learns and found.evidence is not None:
            same = same_answer(self.cache, self._compare, found, body).label
        self.cache.learn(ask.request, found, completion(raw, body, time.time()), same=same)

    def _counted(self, errand: Errand) -> Errand:
        self.outcomes[errand.decision.outcome] += 1
        return errand

    def _guarded(self, kind: str, work: Callable[[], T], otherwise: U) -> T | U:
        try:
            return work()
        except Exception:
            if not self.faults[kind]:
                _log.exception("the cache failed (%s); requests go on without it, and this is said once", kind)
            self.faults[kind] += 1
            return otherwise


def _not_stored(dialect: Dialect) -> Reply:
    """Return what a caller gets that wants a stored answer or none."""
    body = dialect.error_body(504, "only_if_cached", NOT_STORED)
    told = miss_headers(None, Outcome.MISS, "only_if_cached")
    return Reply(504, [JSON, *told, (b"x-should-retry", b"false")], body)
