"""Opening a shared store: what talks to the database is loaded here, and may not be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recall_cli.engine.pg_url import check_url
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from recall_cli.engine.postgres import PostgresStore
    from recall_cli.types import VectorSpace


def open_shared(url: str, embedder: VectorSpace) -> PostgresStore:
    """Open the store at a URL; see `PostgresStore`. Raises UsageError when the extra is not installed."""
    check_url(url)
    try:
        from recall_cli.engine.postgres import PostgresStore
    except ImportError as error:
        raise UsageError(
            f"a PostgreSQL store needs packages that cannot be imported: {error}",
            hint="pip install 'recall-cli[postgres]'",
        ) from error
    return PostgresStore(url, embedder=embedder)
