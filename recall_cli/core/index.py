"""The indexes by name. All of them keep one contract, which `tests/contract/test_index.py` holds them to.

* similarities are cosines, computed in float32 from the full vectors, best first;
* rows and queries have unit length; a row of zeros is refused, a query of zeros has no neighbours;
* `add` is all or nothing: a ValueError leaves the index as it was;
* ids with identical vectors all stay findable; a search for one neighbour returns the largest of them;
* any method may be called from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recall_cli.core.exact import ExactIndex
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from recall_cli.types import Index

__all__ = ["KINDS", "ExactIndex", "make_index"]

KINDS = ("auto", "exact", "scan", "hnsw")


def make_index(kind: str, dim: int, **options: Any) -> Index:
    """Make an empty index by name: auto, exact, scan or hnsw. Raises UsageError for another name or option."""
    try:
        if kind == "exact":
            return ExactIndex(dim, **options)
        if kind == "scan":
            from recall_cli.core.scan import ScanIndex

            return ScanIndex(dim, **options)
        if kind == "hnsw":
            from recall_cli.core.hnsw import HnswIndex

            return HnswIndex(dim, **options)
        if kind == "auto":
            from recall_cli.core.auto import AutoIndex

            return AutoIndex(dim, **options)
    except TypeError as error:
        raise UsageError(f"index {kind} cannot be made: {error}", hint="Leave the option out.") from error
    except ImportError as error:
        raise UsageError(
            f"index {kind} needs a package that cannot be imported: {error}",
            hint="Install it, or choose the index called exact.",
        ) from error
    raise UsageError(f"there is no index called {kind!r}", hint=f"Choose one of {', '.join(KINDS)}.")
