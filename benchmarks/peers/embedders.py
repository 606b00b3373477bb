"""Our embedders inside a peer's process, so that a peer embeds as its user would: by a call."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recall_cli.types import Embedder


@cache
def loaded(name: str) -> Embedder:
    """Load an embedder once a process: a cache that is opened anew for each pair of texts would do little else."""
    from recall_cli.cache.embed.registry import make_embedder

    return make_embedder(name)
