"""Carrying a hub into another engine: resumable, nothing embedded anew, and checked document by document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.stores.memory import HeldSpace
from recall_cli.errors import InputError, StoreMismatch
from recall_cli.hub.ingest.chunk import cut
from recall_cli.hub.models import DocumentState, HubEngine, Settings, Upsert
from recall_cli.hub.stores.batches import batches
from recall_cli.hub.stores.open import Place, find_engine, open_place, opened


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of it."""

    documents: int
    """Of the source, all of which are in the target, with the same digest."""
    copied: int
    """By this run; the others were there."""
    digest: str
    """Of all documents of the source and their vectors, the same when read from either hub."""


def carry(source: Place, target: Place, slug: str, progress: Callable[[int], None] = lambda done: None) -> Moved:
    """Copy a hub into another place, where it is made if it is not there; see `move_hub`."""
    with opened(source, slug) as old, closing(open_place(target)) as hubs:
        info = old.info()
        if slug not in hubs.names():
            # As closed as the source from the beginning: nobody may ask half of a private hub.
            space = HeldSpace(info.embedder, info.dim, info.fingerprint)
            hubs.make(slug, space, visibility=info.visibility, owner=info.owner)
        return move_hub(old, find_engine(hubs, target, slug), progress)


def move_hub(source: HubEngine, target: HubEngine, progress: Callable[[int], None] = lambda done: None) -> Moved:
    """Copy what the target lacks, and the settings; then read both and compare. The source stays as it is.

    Raises StoreMismatch when the target's vectors are another embedder's, and InputError when a document of the source
    was cut by another version, or when the two differ in the end.
    """
    ours, theirs = source.info(), target.info()
    if ours.fingerprint != theirs.fingerprint:
        raise StoreMismatch(
            f"the hub holds vectors of {ours.embedder}, the target's of {theirs.embedder}",
            hint="choose another name for the target, or move one of the two with: recall hub reembed",
        )
    copied = 0
    for batch in batches(_missing(source, target, ours.fingerprint)):
        target.apply(batch, fingerprint=ours.fingerprint)
        copied += len(batch)
        progress(copied)
    settings: Settings = {
        "visibility": ours.visibility,
        "owner": ours.owner,
        "alpha": ours.alpha,
        "min_score": ours.min_score,
    }
    if any(getattr(theirs, name) != value for name, value in settings.items()):
        target.configure(**settings)
    wanted = dict(source.documents())
    count, digest = _digest(source, wanted, ours.fingerprint)
    found, same = _digest(target, wanted, ours.fingerprint)
    if (count, digest) != (found, same):
        raise InputError(
            f"of {count:,} documents {found:,} arrived, and they are not the same",
            hint="stop what writes to either hub, and run it again: it goes on where it was",
        )
    return Moved(count, copied, digest)


def _missing(source: HubEngine, target: HubEngine, fingerprint: str) -> Iterator[Upsert]:
    """Yield the documents that the target does not have, or has otherwise."""
    there = dict(target.documents())
    for id, state in list(source.documents()):
        document = source.document(id)
        if document is None or (there.get(id) == state and target.document(id) == document):
            continue
        pieces = cut(document, fingerprint)
        vectors = source.known([piece.digest for piece in pieces])
        if len(pieces) != state.chunks or any(piece.digest not in vectors for piece in pieces):
            raise InputError(
                f"the document {id} was cut by another version of recall",
                hint="ingest the hub's documents again, which cuts them anew, then migrate",
            )
        yield document, DocumentState(state.digest, len(pieces)), pieces, np.stack([vectors[p.digest] for p in pieces])


def _digest(engine: HubEngine, among: dict[str, DocumentState], fingerprint: str) -> tuple[int, str]:
    """Return how many of these documents there are, and one digest of them and their vectors."""
    hasher, count = blake3(), 0
    for id, state in list(engine.documents()):
        document = engine.document(id) if id in among else None
        if document is None:
            continue
        digests = [piece.digest for piece in cut(document, fingerprint)]
        vectors = engine.known(digests)
        facts = [id, document.title, document.url, document.updated, document.text, state.digest.hex(), state.chunks]
        hasher.update(orjson.dumps(facts))
        for digest in digests:
            vector = vectors.get(digest)
            hasher.update(b"" if vector is None else vector.astype(np.float32).tobytes())
        count += 1
    return count, hasher.hexdigest(length=16)
