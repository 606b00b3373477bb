"""The URLs of shared stores: known without loading what talks to a database."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from recall_cli.errors import UsageError

SCHEMES = ("postgresql", "postgres")


def is_database_url(name: str) -> bool:
    """Return whether a store's name is the URL of a PostgreSQL database."""
    return name.partition("://")[0] in SCHEMES


def check_url(url: str) -> str:
    """Return the URL. Raises UsageError when it holds a password.

    Every user of the machine sees a process's arguments, and shells keep them: a secret is no flag, here as
    everywhere in recall.
    """
    parts = urlsplit(url)
    named = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.password is not None or named & {"password", "sslpassword"}:
        raise UsageError(
            "the store's URL holds a password, which all users of this machine could read",
            hint="leave it out, and set PGPASSWORD, PGPASSFILE (~/.pgpass) or a service: postgresql:///?service=NAME",
        )
    return url


def shown(url: str) -> str:
    """Return the URL as it may be printed and logged."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
