"""The embedders that a hub may have: those of the core, and any behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import os

from recall_cli.cache.embed.registry import NAMES, make_embedder
from recall_cli.errors import EmbedderError
from recall_cli.types import Embedder


def hub_embedder(spec: str, dim: int | None = None) -> Embedder:
    """Return the embedder of a spec: what `cache.embed.registry.make_embedder` reads, or `openai:MODEL@URL`.

    Raises EmbedderError or UsageError when there is none, UpstreamError when an endpoint must be asked and cannot be.

    :param dim: of its vectors where that is known, as a hub knows it: then no endpoint is asked before it is needed.
    """
    if spec.startswith("openai:"):
        from recall_cli.hub.search.remote import make_remote

        return make_remote(spec, dim=dim)
    kind, _, source = spec.partition(":")
    if kind == "model2vec" and os.path.isdir(source):
        # A hub is asked from any folder, and not only from the one that it was made in.
        spec = f"{kind}:{os.path.abspath(source)}"
    if kind not in {name.partition(":")[0] for name in NAMES}:
        raise EmbedderError(
            f"there is no embedder named {spec!r}", hint=f"choose one of {', '.join(NAMES)}, openai:MODEL@URL"
        )
    return make_embedder(spec)
