"""What an engine stores in one write, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recall_cli.hub.nouns import Chunk, Document, DocumentState
from recall_cli.types import Vector

BATCH = 1_024
"""Chunks staged at a time."""

Upsert = tuple[Document, DocumentState, Sequence[Chunk], Vector]
"""A document, its state, its chunks and their vectors, shape (len(chunks), dim)."""


def batches(upserts: Iterable[Upsert]) -> Iterator[list[Upsert]]:
    """Yield the upserts in lists of about `BATCH` chunks."""
    batch: list[Upsert] = []
    size = 0
    for upsert in upserts:
        batch.append(upsert)
        size += len(upsert[2])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
