"""recall: measure whether a semantic cache pays and whether it lies, then run it.

For programs: `open_cache` opens a cache, `text_request` makes a request of a bare prompt, `Completion` is an answer,
`CachedTransport` and `AsyncCachedTransport` go into the official clients. Each is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recall_cli.adapters.transport import AsyncCachedTransport as AsyncCachedTransport
    from recall_cli.adapters.transport import CachedTransport as CachedTransport
    from recall_cli.cache.factory import open_cache as open_cache
    from recall_cli.cache.request import text_request as text_request
    from recall_cli.types import Completion as Completion

__version__ = "0.1.0"

_OFFERED = {
    "AsyncCachedTransport": "recall_cli.adapters.transport",
    "CachedTransport": "recall_cli.adapters.transport",
    "Completion": "recall_cli.types",
    "open_cache": "recall_cli.cache.factory",
    "text_request": "recall_cli.cache.request",
}


def __getattr__(name: str) -> Any:
    """Load what is named: the command line names none of these, and `recall --help` waits for none."""
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)
