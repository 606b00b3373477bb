"""What a caller that joins another's call may have of it: the answer, and nothing that is about the other caller.

A follower that gets no answer this way asks by itself, with its own credentials, and once. What sends it there:

- any status but 2xx. 401, 403 and 429 are about the key. So may be 400 and 404 (a model that an organisation may not
  use), 402, and 5xx: gateways answer 500 to a key they cannot read, and providers shed load by tier. One failure must
  not become that of everybody who waits, either. Across replicas it is the same: who waited in vain asks.
- a call that failed before its answer was whole, as far as the follower has had nothing of it; and an error inside a
  body or a stream that began with status 200.

There is one exception: the upstream was silent until recall gave up. Asking again would make the caller wait twice.

This makes no herd. Followers that are the same caller (the same credentials, the same bytes) ask as one, so that a
failure costs one more call for each of them at most, never more than without joining; and they share what comes of it,
since that is about themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from blake3 import blake3

from recall_cli.cache.request import DIGEST_BYTES

if TYPE_CHECKING:
    from recall_cli.proxy.asgi import Headers

SHARED = frozenset({b"content-type", b"content-encoding", b"content-language"})
"""The headers that describe the body. All others are the leader's own: cookies, its organisation, its limits, its
request's id, what its connection was told. A list of what to leave out would miss the next provider's."""

LINGER_S = 10.0
"""Seconds that a call whose answer has come can be joined while it waits to be stored: as long as a slow disk may take.
When it takes longer the upstream is asked again."""


def shared(headers: Headers) -> Headers:
    """Return what a follower gets of the upstream's headers."""
    return [(name, value) for name, value in headers if name in SHARED]


def own_key(identity: bytes, credential: str, raw: bytes) -> bytes:
    """Return the name of a call that only the same caller may join, with the same bytes."""
    return blake3(b"%b%b/%b" % (identity, credential.encode(), raw)).digest(length=2 * DIGEST_BYTES)


def is_error_body(raw: bytes) -> bool:
    """Return whether a body says that it is an error: some gateways send one with status 200."""
    if b'"error"' not in raw:
        return False
    try:
        body = orjson.loads(raw)
    except ValueError:
        return False
    return isinstance(body, dict) and (body.get("error") is not None or body.get("type") == "error")


class Fit:
    """How much of a stream a follower may have: whole events, and none from the first error on.

    What an upstream says in an error may name the leader's organisation and limits.
    """

    __slots__ = ("begun", "failed", "plain", "size")

    def __init__(self) -> None:
        self.begun = False
        """The first event that carries data has come."""
        self.failed = False
        """An event was an error."""
        self.size = 0
        """Bytes of the stream as it came."""
        self.plain = 0
        """Bytes of the stream without the usage."""

    def take(self, event: bytes, data: bytes | None, size: int, plain: int) -> None:
        """Take the next event, and how long it is in both forms."""
        if data is not None:
            self.begun = True
            self.failed = self.failed or event == b"error" or is_error_body(data)
        if not self.failed:
            self.size += size
            self.plain += plain
