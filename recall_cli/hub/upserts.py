"""What an engine stores in one write, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from recall_cli.hub.nouns import Chunk, Document, DocumentState
from recall_cli.types import Vector

BATCH = 1_024
"""Chunks embedded, or staged, at a time: enough for the embedder's own batches, little enough to hold in memory."""

Upsert = tuple[Document, DocumentState, Sequence[Chunk], Vector]
"""A document, its state, its chunks and their vectors, shape (len(chunks), dim)."""


T = TypeVar("T", bound=tuple[Any, ...])


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
