"""The two APIs that are understood, by the path they are asked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from recall_cli.proxy.providers import anthropic, openai
from recall_cli.types import Json


class Join(Protocol):
    """Makes one body of a stream's events."""

    def __call__(
        self, events: Iterable[tuple[bytes, bytes]], *, choices: int | None = None
    ) -> tuple[dict[str, Any] | None, bool]:
        """Return (body, whole?)."""


class Ending(Protocol):
    """Follows a stream, and says whether all of it has come."""

    is_said: bool
    """The stream said that it ends."""

    def take(self, event: bytes, data: bytes) -> None:
        """Take the next event."""

    @property
    def is_whole(self) -> bool:
        """Whether a connection that ends cleanly here ends a whole stream."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one API says things; the functions are those of its module."""

    name: str
    path: str
    id_header: bytes
    """The header in which its SDK looks for the request's id."""
    join: Join
    split: Callable[..., bytes]
    ending: Callable[[int], Ending]
    """Made for each stream, of the number of answers that were asked for."""
    error_body: Callable[[int, str, str], bytes]
    stream_error: Callable[[str, str], bytes]
    wants_usage: Callable[[Json], bool]


OPENAI = Dialect(
    "openai",
    "/v1/chat/completions",
    b"x-request-id",
    openai.join,
    openai.split,
    openai.Ending,
    openai.error_body,
    openai.stream_error,
    openai.wants_usage,
)
ANTHROPIC = Dialect(
    "anthropic",
    "/v1/messages",
    b"request-id",
    anthropic.join,
    anthropic.split,
    anthropic.Ending,
    anthropic.error_body,
    anthropic.stream_error,
    lambda body: True,
)
BY_PATH = {dialect.path: dialect for dialect in (OPENAI, ANTHROPIC)}
