"""A cache by one call, for programs that hold it themselves."""

from __future__ import annotations

import secrets
from pathlib import Path

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER, make_embedder
from recall_cli.cache.index.auto import index_maker
from recall_cli.cache.policy.registry import labels_version, make_policy, vetoes_of
from recall_cli.cache.policy.static import DEFAULT_TAU
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import UsageError
from recall_cli.types import Embedder


def open_cache(
    path: str | Path | None = None,
    *,
    embedder: str | Embedder = DEFAULT_EMBEDDER,
    index: str = "auto",
    policy: str = "static",
    verify_on_hit: str = "auto",
    tau: float = DEFAULT_TAU,
    target_false_hit: float = 0.01,
    ttl: float | None = None,
    max_entries: int | None = None,
    max_bytes: int | None = None,
) -> Cache:
    """Return a cache in a SQLite file, made when it is not there, or in memory. Close it to keep times of use.

    Raises StoreError when the file is no store, StoreMismatch when its vectors are another embedder's.

    :param path: the file; None keeps everything in memory.
    :param embedder: a name as `make_embedder` takes it, or one that is loaded.
    :param policy: "exact", which serves equal requests alone; "static", which serves from `tau` on what the evidence
        does not forbid; or "adaptive", which learns a cutoff a namespace that holds `target_false_hit`.
    :param verify_on_hit: "none" takes the evidence's vetoes from a static policy; "evidence" gives them to any.
    :param ttl: seconds an entry lives; None: until it is evicted.
    """
    model = make_embedder(embedder) if isinstance(embedder, str) else embedder
    if verify_on_hit not in ("auto", "none", "evidence"):
        raise UsageError(f"there is no check {verify_on_hit!r} here", hint="choose auto, none or evidence")
    chosen = make_policy(
        policy,
        tau=tau,
        target_false_hit=target_false_hit,
        version=labels_version(model),
        seed=secrets.randbits(32),
    )
    return Cache(
        embedder=model,
        policy=chosen,
        vetoes=vetoes_of(verify_on_hit, chosen),
        store=None if path is None else SqliteStore(path, embedder=model),
        make_index=index_maker(index, model.dim),
        ttl=ttl,
        max_entries=max_entries,
        max_bytes=max_bytes,
    )
