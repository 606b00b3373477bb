"""Which upstreams take `stream_options`, learned from what they answer: some servers refuse a field they do not know.

recall adds the field to streamed requests to learn their usage. Where that is refused, the request is sent once more
as the caller wrote it, and the upstream is not asked again for that model.
"""

from __future__ import annotations

KNOWN = 1_024
"""Upstreams and models that are remembered; then the oldest is forgotten, and may be asked once more."""

REFUSAL_BYTES = 1 << 16
"""What is read of an answer with status 4xx to see what it refuses."""

NAMES = (b"stream_options", b"include_usage")
UNREAD = (400, 422)
"""What servers answer to a field they do not know, in whatever words."""


class Options:
    """What is known of upstreams, by address and model."""

    def __init__(self) -> None:
        self._takes: dict[tuple[str, str], bool] = {}

    def may_add(self, url: str, model: str) -> bool:
        """Return whether the field may be added to a request: always, unless it was refused before."""
        return self._takes.get((url, model), True)

    def may_refuse(self, status: int) -> bool:
        """Return whether an answer with this status has to be read to tell."""
        return 400 <= status < 500

    def refuses(self, url: str, model: str, status: int, body: bytes) -> bool:
        """Return whether an answer to a request with the added field is worth asking again without it.

        That is one that names the field. One that says nothing of it is so only where the field was never taken.
        """
        if not self.may_refuse(status):
            return False
        if any(name in body for name in NAMES):
            return True
        return status in UNREAD and (url, model) not in self._takes

    def learn(self, url: str, model: str, status: int, *, added: bool) -> None:
        """Remember what came of a request: with the field added, or of the same one sent again without it.

        A second failure proves nothing: the request was refused for another reason.
        """
        if not 200 <= status < 300:
            return
        key = (url, model)
        if key not in self._takes and len(self._takes) >= KNOWN:
            del self._takes[next(iter(self._takes))]
        self._takes[key] = added
