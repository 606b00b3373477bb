"""What an engine stores in one write, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from recall_cli.errors import StoreMismatch
from recall_cli.hub.models import Upsert
from recall_cli.types import Vector

BATCH = 1_024
"""Chunks embedded, or staged, at a time: enough for the embedder's own batches, little enough to hold in memory."""

T = TypeVar("T", bound=tuple[Any, ...])


def check_width(vectors: Vector, shape: tuple[int, ...]) -> None:
    """Raise StoreMismatch unless vectors, or one, have this shape, which ends with the width of the hub's."""
    if vectors.shape != shape:
        raise StoreMismatch(
            f"the hub's vectors have {shape[-1]} dimensions: shape {shape} was to come, and {vectors.shape} did",
            hint="use the hub's own embedder",
        )


def anything(upserts: Iterable[Upsert], removed: Iterable[str]) -> tuple[Iterable[Upsert], Iterable[str]] | None:
    """Return what is to be written, unread but for its beginning, or None when it is nothing."""
    upserts = iter(upserts)
    first = next(upserts, None)
    if first is not None:
        return chain((first,), upserts), removed
    removed = list(removed)
    return ((), removed) if removed else None


def batches(upserts: Iterable[T]) -> Iterator[list[T]]:
    """Yield upserts, with their vectors or still without, in lists of about `BATCH` chunks."""
    batch: list[T] = []
    size = 0
    for upsert in upserts:
        batch.append(upsert)
        size += len(upsert[2])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
