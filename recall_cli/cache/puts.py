"""An answer made ready to be stored: with a lifetime, and a vector that can be indexed."""

from __future__ import annotations

from recall_cli.cache.embed.registry import reads
from recall_cli.cache.index.rows import checked_query
from recall_cli.errors import UsageError
from recall_cli.types import Embedder, Put


def check_ttl(ttl: float | None) -> float | None:
    """Return the lifetime. Raises UsageError for one that is none."""
    if ttl is not None and not ttl > 0:
        raise UsageError(f"ttl must be above 0, not {ttl}", hint="leave ttl out for no limit")
    return ttl


def prepared(put: Put, embedder: Embedder, ttl: float | None) -> Put:
    """Return a put as it is to be stored: the store must not keep a vector that no index would take.

    :param ttl: seconds that an entry lives whose put names no lifetime.
    """
    lifetime = check_ttl(ttl if put.ttl is None else put.ttl)
    vector = put.vector
    if put.request.exact_only:
        vector = None
    elif not reads(embedder)(put.request.text):
        vector = None  # it must not be found by meaning
    elif vector is None:
        vector = embedder.embed(put.request.text)
    if vector is not None:
        vector = checked_query(vector, embedder.dim, 1)
    return Put(put.request, put.completion, vector, lifetime, put.like)
