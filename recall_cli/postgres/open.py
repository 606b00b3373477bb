"""Opening a shared store: what talks to the database is loaded here, and may not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from recall_cli.errors import UsageError, extra_hint
from recall_cli.postgres.urls import check_url

if TYPE_CHECKING:
    from recall_cli.postgres.store import PostgresStore
    from recall_cli.types import VectorSpace


def open_shared(url: str, embedder: VectorSpace | None) -> PostgresStore:
    """Open the store at a URL; see `PostgresStore`. Raises UsageError when the extra is not installed."""
    check_url(url)
    with postgres_extra():
        from recall_cli.postgres.store import PostgresStore
    return PostgresStore(url, embedder=embedder)


def look_after(url: str) -> tuple[int, int]:
    """Bring a database's tables up to date and tend the graphs of its partitions and hubs; return (made, dropped).

    For the tables' owner.
    """
    check_url(url)
    with postgres_extra():
        from recall_cli.postgres.ann_indexes import tend_hub_graphs
        from recall_cli.postgres.connection import Database
        from recall_cli.postgres.lookup import tend_graphs
    database = Database(url)
    try:
        made, dropped = tend_graphs(database)
        more, fewer = tend_hub_graphs(database)
        return made + more, dropped + fewer
    finally:
        database.close()


def read_shared_facts(url: str) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    """Return a shared store's totals and its (namespace, entries, bytes), largest first."""
    store = open_shared(url, None)
    from recall_cli.postgres.replication import read_facts

    try:
        return read_facts(store)
    finally:
        store.close()


@contextmanager
def postgres_extra() -> Iterator[None]:
    """Raise UsageError, which names the extra, where an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"a PostgreSQL store needs packages that cannot be imported: {error}",
            hint=extra_hint("postgres"),
        ) from error
