"""The indexes by name. All of them keep one contract, which `tests/contract/test_index.py` holds them to.

* similarities are cosines, computed in float32 from the full vectors, best first;
* rows and queries have unit length; a row of zeros is refused, a query of zeros has no neighbours;
* `add` is all or nothing: a ValueError leaves the index as it was;
* ids with identical vectors all stay findable; a search for one neighbour returns the largest of them;
* any method may be called from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from recall_cli.cache.index.exact import ExactIndex
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from recall_cli.types import Index

__all__ = ["KINDS", "ExactIndex", "index_maker", "index_spec", "make_index"]

KINDS = ("auto", "exact", "scan", "hnsw")

_log = logging.getLogger(__name__)

PROBE_DIM = 4_096
"""Options are tried on an empty index of this dimension: wide enough for any number of codes."""


def index_maker(spec: str, dim: int = PROBE_DIM) -> Callable[[int], Index]:
    """Return what makes the index of a spec such as `auto` or `hnsw:M=32,ef_search=160`, given a dimension.

    Raises UsageError at once, not at the first entry. What depends on the dimension (scan's `m`) is judged by `dim`;
    without one, when the first index is made.
    """
    kind, _, rest = spec.partition(":")
    options: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in options:
            raise UsageError(f"the index {spec!r} has the option {name} twice", hint="leave out one of them")
        try:
            options[name] = int(value)
        except ValueError:
            raise UsageError(
                f"the index {spec!r} has the option {part!r}, which is no whole number",
                hint="write it as in hnsw:M=32,ef_search=160",
            ) from None
    make_index(kind, dim, **options)
    if kind == "hnsw":
        _say_which_graph()
    return partial(make_index, kind, **options)


def index_spec(kind: str, options: Mapping[str, int]) -> str:
    """Return the spec that `index_maker` reads."""
    return kind + (":" + ",".join(f"{name}={value}" for name, value in options.items()) if options else "")


def make_index(kind: str, dim: int, /, **options: Any) -> Index:
    """Make an empty index by name: auto, exact, scan or hnsw. Raises UsageError for another name or option."""
    try:
        make = _class(kind)
        known = [name for name in signature(make).parameters if name != "dim"]
        for name in options:
            if name not in known:
                hint = f"it takes {', '.join(known)}" if known else "it takes none"
                raise UsageError(f"the index {kind} has no option {name!r}", hint=hint)
        return make(dim, **options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the index {kind} cannot be made: {error}", hint="mend or leave out that option") from error
    except ImportError as error:
        raise UsageError(
            f"the index {kind} needs a package that cannot be imported: {error}",
            hint="install it, or choose the index called exact",
        ) from error


@cache
def _say_which_graph() -> None:
    """Say once that the graph is faiss's: its speed and recall are not the recorded ones of hnswlib."""
    from recall_cli.cache.index.hnsw_library import HNSWLIB, INSTALL_HNSWLIB, WITHOUT_HNSWLIB, graph_library

    if graph_library() != HNSWLIB:
        _log.warning("%s; %s", WITHOUT_HNSWLIB, INSTALL_HNSWLIB)


def _class(kind: str) -> Callable[..., Index]:
    if kind == "exact":
        return ExactIndex
    if kind == "scan":
        from recall_cli.cache.index.scan import ScanIndex

        return ScanIndex
    if kind == "hnsw":
        from recall_cli.cache.index.hnsw import HnswIndex

        return HnswIndex
    if kind == "auto":
        from recall_cli.cache.index.auto import AutoIndex

        return AutoIndex
    raise UsageError(f"there is no index called {kind!r}", hint=f"choose one of {', '.join(KINDS)}")
