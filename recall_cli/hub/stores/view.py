"""What the searches of a hub see: one revision's facts and the vectors of its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recall_cli.hub.models import HubInfo
from recall_cli.hub.stores.snapshot import Snapshot
from recall_cli.types import Ids, Index, Vector

IN_PLACE = 1_024
"""Chunks that may come and go in the index in service: some 20 ms, for which searches wait."""
IN_PLACE_SHARE = 20
"""And one in so many of the hub's: to build its index anew would take far longer."""


@dataclass(frozen=True, slots=True)
class View:
    """One revision, whole."""

    info: HubInfo
    ids: Ids
    """Of all chunks, in order."""
    index: Index
    """Of those chunks whose vector has a direction."""


@dataclass(frozen=True, slots=True)
class Change:
    """What leads from one view to the next."""

    info: HubInfo
    ids: Ids
    gone: Ids
    new: Ids
    vectors: Vector


def build(snapshot: Snapshot, make_index: Callable[[int], Index]) -> View:
    """Return the view of a state, made from nothing."""
    info, ids = snapshot.info(), snapshot.chunk_ids()
    index = make_index(info.dim)
    for block in snapshot.vectors_after(0):
        index.add(*_wanted(*block, ids))
    return View(info, ids, index)


def change(view: View, snapshot: Snapshot) -> Change | None:
    """Return what leads to that state; None when so much has changed that it is better built anew."""
    info, ids = snapshot.info(), snapshot.chunk_ids()
    last = int(view.ids[-1]) if len(view.ids) else 0
    gone = np.setdiff1d(view.ids, ids, assume_unique=True)
    new = len(ids) - np.searchsorted(ids, last, side="right")
    if info.fingerprint != view.info.fingerprint:
        return None
    if len(gone) + new > max(IN_PLACE, len(view.ids) // IN_PLACE_SHARE):
        return None
    blocks = [_wanted(*block, ids) for block in snapshot.vectors_after(last)]
    if not blocks:
        return Change(info, ids, gone, np.empty(0, np.int64), np.empty((0, info.dim), np.float32))
    return Change(info, ids, gone, np.concatenate([i for i, _ in blocks]), np.concatenate([v for _, v in blocks]))


def changed(view: View, to: Change) -> View:
    """Return the next view; the index is changed in place, so nobody may search meanwhile."""
    view.index.remove(to.gone.tolist())
    view.index.add(to.new, to.vectors)
    return View(to.info, to.ids, view.index)


def vectors_of(view: View, ids: Ids) -> Vector:
    """Return the vectors of these chunks, shape (n, dim); zeros for those that are gone or have no direction."""
    found, vectors = view.index.fetch(ids)
    if len(found) == len(ids):
        return vectors
    rows: Vector = np.zeros((len(ids), view.info.dim), np.float32)
    rows[np.isin(ids, found)] = vectors
    return rows


def _wanted(ids: Ids, vectors: Vector, wanted: Ids) -> tuple[Ids, Vector]:
    """Leave out what is hidden, and the zero vectors of texts without a known token, which only their words find."""
    keep = vectors.any(axis=1) & np.isin(ids, wanted, assume_unique=True)
    return (ids, vectors) if keep.all() else (ids[keep], vectors[keep])
