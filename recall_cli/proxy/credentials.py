"""Which headers say who asks: the one rule by which tenants are told apart.

The rule fails closed. Nobody can list the credential headers of all gateways (x-goog-api-key,
ocp-apim-subscription-key, cf-aig-authorization, x-portkey-api-key, helicone-auth, x-amz-security-token, ...), so a
header counts when its *name* speaks of a credential. A header that counts without need costs hits. One that does not
count although it should gives an answer to the wrong person.

Exceptions are few, and each has a reason beside it. Headers of tracing (traceparent, tracestate, baggage, x-request-id,
x-amzn-trace-id) need none: their names say nothing of the kind. A session id counts: it may be all that tells two
people apart. A credential in the query (`?key=`, `?api-key=`, `?access_token=`) counts too, without this rule: the
whole query is part of the route, and so of the partition, in every scope.
"""

from __future__ import annotations

import re
from functools import lru_cache

LISTED = (
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"openai-organization",
    b"openai-project",
    b"proxy-authorization",
)
"""Headers that say who asks. Organisation and project bill apart, and so must not meet either."""

SPEAKING = re.compile(
    # The credential itself.
    rb"key|token|secret|session|cred|cookie|auth|passw|jwt|bearer|assertion|cert|signature|"
    # Whom it belongs to, as gateways and terminators say it after they have checked it.
    rb"principal|oidc|saml|tenant|organi[sz]ation|project|account|workspace|subscription"
)
"""What the name of a credential speaks of, anywhere in it: names are also written in one word (apikey)."""

BRANDS = re.compile(rb"\bportkey\b")
"""Names of companies that hold such a word: x-portkey-trace-id is no key."""

PER_REQUEST = re.compile(
    # New at every request, so it would end all hits, and it opens nothing.
    rb"idempotency-(?:key|token)$|^sec-websocket-key$|"
    # Says that a page of one's own asks, and may be new at every request. Who asks is in the cookie beside it.
    rb"^(?:x-)?[cx]srf-?token$"
)
"""Headers whose name speaks of a credential and which are none."""

MORE = frozenset({b"x-portkey-config"})
"""Credentials whose names say nothing: this one may hold the providers' keys."""

FRONT_DOOR = re.compile(
    rb"(?:__cf_bm|__cflb|__cfruid|_cfuvid|cf_clearance|AWSALB(?:TG)?(?:CORS)?|GCLB|ARRAffinity\w*)="
)
"""Cookies of load balancers and bot checks: they name a connection, not a caller. SDKs carry them along, new ones
every half hour, and two processes with one key have different ones. Any other cookie counts."""

KNOWN_NAMES = 4_096
"""Names whose answer is remembered: callers choose them."""


@lru_cache(KNOWN_NAMES)
def says_who_asks(name: bytes) -> bool:
    """Return whether a header is part of the tenant, by its name in lower case."""
    if name in LISTED or name in MORE:
        return True
    name = name.replace(b"_", b"-")
    if PER_REQUEST.search(name):
        return False
    return SPEAKING.search(BRANDS.sub(b"", name)) is not None


def own_cookies(value: bytes) -> bytes | None:
    """Return the part of a `cookie` header that says who asks, None when nothing in it does."""
    said = [part for part in map(bytes.strip, value.split(b";")) if part and not FRONT_DOOR.match(part)]
    return b"; ".join(said) if said else None
