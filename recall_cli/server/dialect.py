"""The two APIs that are understood, by the path they are asked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from recall_cli.server import anthropic, openai
from recall_cli.types import Json


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one API says things; the functions are those of its module."""

    name: str
    path: str
    id_header: bytes
    """The header in which its SDK looks for the request's id."""
    join: Callable[[Iterable[tuple[bytes, bytes]]], tuple[dict[str, Any] | None, bool]]
    split: Callable[..., bytes]
    is_end: Callable[[bytes, bytes], bool]
    is_error: Callable[[bytes, bytes], bool]
    error_body: Callable[[int, str, str], bytes]
    stream_error: Callable[[str, str], bytes]
    wants_usage: Callable[[Json], bool]


OPENAI = Dialect(
    "openai",
    "/v1/chat/completions",
    b"x-request-id",
    openai.join,
    openai.split,
    openai.is_end,
    openai.is_error,
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
    anthropic.is_end,
    anthropic.is_error,
    anthropic.error_body,
    anthropic.stream_error,
    lambda body: True,
)
BY_PATH = {dialect.path: dialect for dialect in (OPENAI, ANTHROPIC)}
