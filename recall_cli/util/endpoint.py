"""The address and the key of a model's API. Keys come from the environment: no flag holds one, nothing stores one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from recall_cli.errors import UsageError


def address(url: str, *, of: str, hint: str) -> SplitResult:
    """Return the parts of an API's base URL. Raises UsageError when it is no http or https URL.

    :param of: what the address is of, for the message: "the judge".
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(ord(c) <= 32 or ord(c) >= 127 for c in url):
        raise UsageError(f"{of}'s address is no http or https URL", hint=hint)
    return parts


def first_set(names: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the value of the first of these variables that has one, "" for none."""
    return next((environ[name] for name in names if environ.get(name)), "")


def key_of(names: Sequence[str], environ: Mapping[str, str], *, of: str) -> str:
    """Return the key in the first of these variables that has one, "" for none. Raises UsageError for one that is none.

    :param of: whose key it is, for the message: "the judge".
    """
    key = first_set(names, environ).strip()
    if not key.isascii() or any(c.isspace() for c in key):
        raise UsageError(f"{of}'s key holds a space or a character that no header can carry", hint="set it again")
    return key
