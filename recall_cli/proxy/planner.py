"""What to do with one request, sans-io: whose it is, what it asks of the cache, what may hit, what may be stored."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from blake3 import blake3

from recall_cli.cache import finish_reasons
from recall_cli.cache.request import DIGEST_BYTES, parse_body
from recall_cli.cache.stores.maintenance import TENANTS
from recall_cli.logs.answer import read as read_answer
from recall_cli.logs.usage import normalise
from recall_cli.proxy.credentials import LISTED, own_cookies, says_who_asks
from recall_cli.proxy.providers.dialect import Dialect
from recall_cli.proxy.settings import Settings
from recall_cli.types import CLOCKS_S, Bypass, Completion, Json, Lookup, Outcome, Request, Store, Usage

RawHeaders = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

SHAPING = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""Headers that change the answer."""

LISTS = (b"cache-control", b"connection", b"x-recall-cutoff")
"""Headers of which every line counts: the second must not undo a `no-store` in the first."""

KEY_BYTES = 32

KNOWN_CREDENTIALS = 4_096
"""Tenants whose digest is remembered, to not make it anew at every request."""
KNOWN_NAMES = 4_096
"""The same for names of headers: a client has a handful, an attacker any number."""
KNOWN_REQUESTS = 4_096
"""The same for requests, of `KNOWN_BYTES` at most: what is remembered stays below 16 MB or so."""
KNOWN_BYTES = 4_096


@dataclass(slots=True)
class Controls:
    """What the caller asks of the cache, by `cache-control` and `x-recall-*`. A caller can only narrow."""

    no_store: bool = False
    no_cache: bool = False
    only_if_cached: bool = False
    max_age: float | None = None
    cutoff: float | None = None


NO_CONTROLS = Controls()


@dataclass(slots=True)
class PlannedRequest:
    """A request that the cache may answer."""

    request: Request
    raw: bytes
    controls: Controls
    stream: bool
    wants_usage: bool
    tenant: str

    @property
    def body(self) -> dict[str, Any]:
        """The decoded body. Decoded anew each time: a hit does not need it."""
        body: dict[str, Any] = orjson.loads(self.raw)
        return body


class TenantKeys:
    """Turns who asks into the tenant part of a partition: a keyed digest, so that no store holds a credential.

    :param key: 32 bytes; another key makes every stored entry unreachable.
    """

    def __init__(self, key: bytes, settings: Settings) -> None:
        self._key = key
        self._scope = settings.share_scope
        extra = tuple(name.lower().encode("latin-1") for name in settings.credential_headers)
        self._credentials = (*LISTED, *extra)
        self._keyed = frozenset((*self._credentials, *SHAPING, b"x-recall-namespace", b"origin"))
        self._known: dict[tuple[Any, ...], str] = {}
        self._settled = {*self._credentials, b"cookie"}
        """Names to which the rule has nothing to add: they are looked at anyway, or are no credentials."""

    def repeats(self, headers: RawHeaders) -> bool:
        """Return True when a header that is keyed comes twice: which one would count is the upstream's secret."""
        names = [name for name, _ in headers if self._is_keyed(name)]
        return len(names) != len(set(names))

    def withholds(self, connection: bytes) -> bool:
        """Return True when a `connection` header names one that is keyed: it would count here and stay here."""
        if not connection or connection == b"keep-alive":
            return False
        return any(self._is_keyed(part.strip()) for part in connection.lower().split(b","))

    def credential(self, found: dict[bytes, bytes]) -> str:
        """Return the digest of the caller's credentials, whatever the scope."""
        return self._digest(self._said(found))

    def wall(self, found: dict[bytes, bytes], route: bytes, user: str) -> str:
        """Return what separates this caller's entries from the others'.

        :param route: upstream, path and query: another route is another answer.
        :param user: the end user that the body names; counts in the scope "user" alone.
        """
        said = () if self._scope == "all" else self._said(found)
        end_user = user if self._scope == "user" else ""
        return self._digest(
            (route, said, end_user, found.get(b"x-recall-namespace"), *[found.get(name) for name in SHAPING])
        )

    def _said(self, found: dict[bytes, bytes]) -> tuple[Any, ...]:
        listed = tuple([found.get(name) for name in self._credentials])
        more = () if self._settled.issuperset(found) else self._unlisted(found)
        # Without any of these more, the digests are the ones that stores of before have.
        cookie = found.get(b"cookie")
        if any(listed):
            cookie = None if cookie is None else own_cookies(cookie)
            return (*listed, *more) if cookie is None else (*listed, *more, (b"cookie", cookie))
        if more and cookie is not None:
            cookie = own_cookies(cookie)
        # A web page that reaches us through its visitor's browser (DNS rebinding) must not read what others asked.
        origin = found.get(b"origin")
        return (cookie, *more) if origin is None else (cookie, origin, *more)

    def _is_keyed(self, name: bytes) -> bool:
        return name in self._keyed or says_who_asks(name)

    def _unlisted(self, found: dict[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that say who asks and are not listed, in an order of their own."""
        more = []
        for name in found.keys() - self._settled:
            if says_who_asks(name):
                more.append((name, found[name]))
            elif len(self._settled) < KNOWN_NAMES:
                self._settled.add(name)
        return tuple(sorted(more))

    def _digest(self, said: tuple[Any, ...]) -> str:
        known = self._known.get(said)
        if known is None:
            if len(self._known) >= KNOWN_CREDENTIALS:
                self._known.clear()
            known = self._known[said] = blake3(repr(said).encode(), key=self._key).hexdigest(length=16)
        return known


def tenant_key(store: Store) -> bytes:
    """Return the key of the tenants' digests, made once a store: with another one no entry would be found again."""
    with store.batch():  # of two processes that start on an empty store, the second finds the first's key
        saved = (store.saved(TENANTS) or {}).get("key")
        if isinstance(saved, str) and len(saved) == 2 * KEY_BYTES:
            return bytes.fromhex(saved)
        key = secrets.token_bytes(KEY_BYTES)
        store.save(TENANTS, {"key": key.hex()})
    return key


def by_name(headers: RawHeaders) -> dict[bytes, bytes]:
    """Return headers by name; those that may be said in several lines are joined, of others the last counts."""
    found = dict(headers)
    if len(found) != len(headers):
        for name in LISTS:
            if name in found:
                found[name] = b",".join([value for said, value in headers if said == name])
    return found


def read_controls(found: dict[bytes, bytes]) -> Controls:
    """Return what the headers ask. What cannot be read asks for the careful reading of it."""
    said, cutoff = found.get(b"cache-control"), found.get(b"x-recall-cutoff")
    if said is None and cutoff is None:
        return NO_CONTROLS
    controls = Controls()
    for part in (said or b"").lower().split(b","):
        name, _, value = part.strip().partition(b"=")
        if name == b"no-store":
            controls.no_store = True
        elif name == b"no-cache":
            controls.no_cache = True
        elif name == b"only-if-cached":
            controls.only_if_cached = True
        elif name == b"max-age":
            age = _number(value.strip(b'" '))
            controls.no_cache |= age is None
            controls.max_age = age
    if cutoff is not None:
        at = _number(cutoff)
        # A cutoff nobody can read: nothing but an equal request may answer.
        controls.cutoff = 2.0 if at is None else at
    return controls


def _number(value: bytes) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0.0 <= number < float("inf") else None


class Planner:
    """Says what a request asks of the cache, or why it bypasses it.

    Clients repeat themselves to the byte, and what is asked follows from the bytes: it is remembered by their
    digest, which spares an exact hit the decoding and keying of its body.
    """

    def __init__(self, walls: TenantKeys, settings: Settings) -> None:
        self.walls = walls
        self._settings = settings
        self._by_user = settings.share_scope == "user"
        self._known: dict[bytes, tuple[Request, bool, bool]] = {}

    def plan(self, dialect: Dialect, raw: bytes, headers: RawHeaders, route: bytes) -> PlannedRequest | Bypass:
        """Return what a body asks of the cache, or why it bypasses it."""
        found = by_name(headers)
        if len(raw) > self._settings.limits.cached_body_bytes:
            return Bypass("body_too_large")
        if b"content-encoding" in found:
            return Bypass("body_encoded")
        controls = read_controls(found)
        if controls.no_store:
            return Bypass("no_store")
        if len(found) != len(headers) and self.walls.repeats(headers):
            return Bypass("repeated_header")
        if self.walls.withholds(found.get(b"connection", b"")):
            return Bypass("withheld_header")
        tenant = self.walls.wall(found, route, _user(raw) if self._by_user else "")
        digest = blake3(raw)
        digest.update(tenant.encode())
        key = digest.digest(length=DIGEST_BYTES)
        known = self._known.get(key)
        if known is None:
            made = self._read(dialect, raw, tenant)
            if isinstance(made, Bypass):
                return made
            known = made
            if len(raw) <= KNOWN_BYTES:
                if len(self._known) >= KNOWN_REQUESTS:
                    self._known.clear()
                self._known[key] = made
        request, stream, wants_usage = known
        return PlannedRequest(request, raw, controls, stream, wants_usage, tenant)

    def _read(self, dialect: Dialect, raw: bytes, tenant: str) -> tuple[Request, bool, bool] | Bypass:
        try:
            body = orjson.loads(raw)
        except ValueError:
            return Bypass("body_not_json")
        if not isinstance(body, dict):
            return Bypass("body_not_json")
        if repeats_a_name(raw, body):
            return Bypass("repeated_name")
        request = parse_body(dialect.name, body, tenant=tenant)
        if isinstance(request, Bypass):
            return request
        if request.sampled and not self._settings.allow_sampled:
            return Bypass("sampled")
        stream = body.get("stream") is True
        return request, stream, stream and dialect.wants_usage(body)


class BypassAllPlanner(Planner):
    """Lets every request bypass the cache: its store has not been reached yet, nor the key that tells tenants apart."""

    def plan(self, dialect: Dialect, raw: bytes, headers: RawHeaders, route: bytes) -> Bypass:
        """Return why a body bypasses the cache."""
        return Bypass("store_away")


def repeats_a_name(raw: bytes, body: Json) -> bool:
    """Return True when an object in a body may name a field twice: which one counts differs from reader to reader.

    Decoding kept one of them, so the body written anew has fewer quotes. Quotes written as escapes spoil the count,
    and what cannot be written has no key anyway: both are taken for a repeat.
    """
    try:
        return b"\\u0022" in raw or raw.count(b'"') != orjson.dumps(body).count(b'"')
    except TypeError:
        return True


def _user(raw: bytes) -> str:
    try:
        body = orjson.loads(raw)
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    metadata = body.get("metadata")
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    return orjson.dumps([body.get("user"), body.get("safety_identifier"), named]).decode()


def objection(found: Lookup, controls: Controls, age: float) -> str:
    """Return why a hit may not be served to this caller, "" when it may.

    :param age: seconds since the answer was made.
    """
    if controls.no_cache:
        return "no_cache"
    if controls.max_age is not None and is_too_old(age, controls.max_age):
        return "older_than_max_age"
    decision = found.decision
    if (
        controls.cutoff is not None
        and decision.outcome is Outcome.SEMANTIC
        and (decision.similarity or 0.0) < controls.cutoff
    ):
        return "below_callers_cutoff"
    return ""


def is_too_old(age: float, most: float) -> bool:
    """Return whether an answer is older than a caller takes, in seconds.

    An answer dated in the future counts as too old, because the clock was changed.
    """
    return not -CLOCKS_S <= age <= most


def is_finished(body: Json) -> bool:
    """Return True when an unstreamed body says why it ended."""
    choices = body.get("choices")
    if isinstance(choices, list):
        return all(
            isinstance(choice, dict) and finish_reasons.is_said(choice.get("finish_reason")) for choice in choices
        )
    return finish_reasons.is_said(body.get("stop_reason"))


def storable(status: int, headers: dict[bytes, bytes], body: Json | None, whole: bool, size: int, most: int) -> str:
    """Return why an answer may not be stored, "" when it may."""
    if status != 200:  # a replay says 200, and 206 says of itself that it is a part
        return "error"
    if body is None:
        return "answer_unreadable" if whole else "stream_cut_off"
    flaw = read_answer(body, status=status).flaw
    if flaw or not whole:
        return flaw or "stream_cut_off"
    if not finish_reasons.is_whole(body):
        return "unknown_ending"
    if size > most:
        return "answer_too_large"
    if b"no-store" in headers.get(b"cache-control", b"").lower():
        return "upstream_no_store"
    return ""


def completion(raw: bytes, body: Json, created: float) -> Completion:
    """Return the answer as it is stored."""
    counted = normalise(body.get("usage"))
    usage = Usage() if counted is None else counted[0]
    return Completion(raw, str(body.get("model") or ""), usage, created)
