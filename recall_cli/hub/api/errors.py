"""The one error that a caller of a hub's API is answered with: status, code, sentence.

Codes are stable: programs read them. Every refusal of the API is made by one of the functions below or by
`Refusal` itself, so that this page lists what a caller can meet.
"""

from __future__ import annotations

from collections.abc import Iterable

from recall_cli.errors import RecallError

RETRY_S = 5
"""Seconds after which a hub that could not answer is worth another try."""

RECALL = "hub:recall"
INGEST = "hub:ingest"
"""The two scopes there are: ask, and change documents."""


class Refusal(RecallError):
    """A request to a hub that is not answered, as HTTP words it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str = "",
        scope: str = "",
        retry_s: float | None = None,
        allow: str = "",
    ) -> None:
        """Say what is wrong.

        :param code: a stable name in snake case.
        :param field: the member of the body that is wrong.
        :param scope: what a token must allow (401 and 403).
        :param retry_s: seconds after which to try again (429 and 503).
        :param allow: the methods that exist (405).
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field
        self.scope = scope
        self.retry_s = retry_s
        self.allow = allow


def unknown() -> Refusal:
    """Return the refusal of a hub that does not exist, or must not seem to."""
    return Refusal(404, "no_such_hub", "there is no hub of this name")


def not_allowed(methods: Iterable[str]) -> Refusal:
    """Return the refusal of a method that a path does not take (405).

    :param methods: those that it takes.
    """
    allow = ", ".join(methods)
    return Refusal(405, "method_not_allowed", f"this path takes {allow}", allow=allow)


def malformed(message: str, field: str = "") -> Refusal:
    """Return the refusal of a body that breaks the contract: wrong JSON, type, range or name (400)."""
    return Refusal(400, "bad_request", message, field=field)


def impossible(message: str, field: str = "") -> Refusal:
    """Return the refusal of a well-formed body that cannot be answered: an empty question (422)."""
    return Refusal(422, "unprocessable", message, field=field)


def unavailable(message: str) -> Refusal:
    """Return the refusal of a hub that cannot answer now: first indexing, a failing store (503)."""
    return Refusal(503, "unavailable", message, retry_s=RETRY_S)
