"""The one exception tree, with the exit code each class maps to.

    RecallError                1  something failed that is not the user's input
    ├── UsageError             2  an option or a combination of options makes no sense
    ├── GateFailed             3  a measured value missed a limit, or an answer was wrong
    ├── InputError             4  a file, a log, a model or a store cannot be read
    │   ├── EmbedderError      4  no such embedder, or its files do not load
    │   └── StoreError         4  the store is damaged, locked or of another version
    │       ├── StoreMismatch  4  the store's vectors come from another embedder
    │       └── StoreUnavailable 4  the store's server does not answer now
    └── UpstreamError          5  a network peer or a port failed

Every error is a sentence (`str(error)`) and a next step (`error.hint`).
"""

from __future__ import annotations

from typing import ClassVar

REINSTALL = "reinstall recall: pip install . in the clone of its repository"
"""The next step where something that recall ships is missing or damaged. No package index holds this project."""

INTERRUPTED = 130
"""Exit code of a run ended by Ctrl-C: 128 + SIGINT, as shells report it."""


def extra_hint(extra: str) -> str:
    """Return the next step where the packages of an extra are missing."""
    return f"pip install '.[{extra}]' in the clone of recall's repository"


class RecallError(Exception):
    """Base of every error that recall raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RecallError):
    """An option, or a combination of options, makes no sense."""

    exit_code = 2


class GateFailed(RecallError):
    """A measured value missed a limit the user set, or a benchmark arm answered wrongly."""

    exit_code = 3


class InputError(RecallError):
    """Something the user named cannot be read."""

    exit_code = 4


class EmbedderError(InputError):
    """No such embedder, or its files do not load."""


class StoreError(InputError):
    """A store is damaged, locked or of another schema version."""


class StoreMismatch(StoreError):
    """A store's vectors were made by another embedder; mixing them would compare unlike spaces."""


class StoreUnavailable(StoreError):
    """A store's server does not answer; it may later, and nothing says that the store is not as it should be."""


class UpstreamError(RecallError):
    """A network peer failed or a port cannot be had."""

    exit_code = 5
