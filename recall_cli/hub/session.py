"""A hub opened for one piece of work by the command line, and what can be told of it without its embedder.

A watch leaves a note in its hub's folder each time it has looked, so that others can tell how fresh the hub is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from recall_cli.errors import StoreError
from recall_cli.hub.api.views import hub_json
from recall_cli.hub.ingest.pipeline import move
from recall_cli.hub.models import Answer, HubEngine, Question, Report
from recall_cli.hub.search.embedders import hub_embedder
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.search.rerank import LlmReranker
from recall_cli.hub.stores.folder import no_such_hub
from recall_cli.hub.stores.open import HubRegistry, HubStore, Place, open_place, opened, pulse_folder
from recall_cli.types import Progress

FILE = "watch.json"


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A sign of life. Times are seconds since the epoch."""

    source: str
    """The watched folder."""
    looked: float
    refreshed: float | None = None
    """When something last changed in the hub."""
    lag_s: float | None = None
    """From an edit to its being searchable, at most: of the last refresh."""
    slowest_lag_s: float | None = None


def write_pulse(hub: Path, pulse: WatchStatus) -> None:
    """Leave a sign of life in a folder that is there; one that cannot be left is no reason to stop watching."""
    place = hub / FILE
    try:
        aside = place.with_suffix(f".{os.getpid()}")
        aside.write_bytes(orjson.dumps(asdict(pulse)))
        aside.replace(place)
    except OSError:
        pass


def read_pulse(hub: Path, *, now: float) -> dict[str, Any] | None:
    """Return the last sign of life with its age, JSON-ready; None when the hub was never watched."""
    try:
        pulse = WatchStatus(**orjson.loads((hub / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return {**asdict(pulse), "looked_ago_s": max(0.0, now - pulse.looked)}


@contextmanager
def local_hub(place: Place, slug: str, *, reranker: LlmReranker | None = None) -> Iterator[Hub]:
    """Open a hub with its own embedder. Raises NoSuchHub, StoreError, or what `embedders.hub_embedder` raises."""
    with closing(HubRegistry(place, hub_embedder, reranker=reranker)) as hubs:
        yield find_hub(hubs, place, slug)


def find_hub(hubs: HubRegistry, place: Place, slug: str) -> Hub:
    """Return a hub of a place. Raises NoSuchHub when there is none."""
    found = hubs.find(slug)
    if found is None:
        raise no_such_hub(place, slug)
    return hubs.hub(*found)


def ask(hub: Hub, question: Question, reranker: LlmReranker | None) -> Answer:
    """Return the answer to one question, and close the reranker, which is the hub's."""
    return hub.recall(question) if reranker is None else asyncio.run(_reranked(hub, question, reranker))


async def _reranked(hub: Hub, question: Question, reranker: LlmReranker) -> Answer:
    try:
        return await hub.answer(question)
    finally:
        await reranker.close()


def state(place: Place, slug: str) -> dict[str, Any]:
    """Return a hub's state and that of its watch, JSON-ready. Raises NoSuchHub or StoreError."""
    with closing(open_place(place)) as hubs:
        return _state(hubs, place, slug)


def states(place: Place) -> list[dict[str, Any]]:
    """Return the states of all hubs, by name; one that cannot be read has an `error` instead."""
    rows: list[dict[str, Any]] = []
    with closing(open_place(place)) as hubs:
        for slug in hubs.names():
            try:
                rows.append(_state(hubs, place, slug))
            except StoreError as error:
                rows.append({"hub": slug, "error": str(error)})
    return rows


def owner_of(place: Place, slugs: Iterable[str]) -> str:
    """Return the owner that all these hubs have in common, "" when there is none. Raises NoSuchHub, StoreError."""
    with closing(open_place(place)) as hubs:
        owners = {hubs.info(slug).owner for slug in slugs}
    return owners.pop() if len(owners) == 1 else ""


def remove_documents(place: Place, slug: str, ids: Sequence[str]) -> int:
    """Remove documents of a hub in one write; return how many there were. Raises NoSuchHub, StoreError."""
    with opened(place, slug) as engine:
        before = engine.info().documents
        engine.apply((), ids)
        return before - engine.info().documents


def reembed(place: Place, slug: str, spec: str, *, progress: Progress) -> Report:
    """Move a hub to another embedder; until all is embedded, it is asked with the one before.

    Raises NoSuchHub, StoreError, or what `embedders.hub_embedder` raises.
    """
    embedder = hub_embedder(spec)
    with opened(place, slug) as engine:
        total = engine.info().chunks
        return move(engine, embedder, progress=lambda report: progress(report.chunks, total, "embedding"))


def exported(engine: HubEngine) -> Iterator[bytes]:
    """Yield a hub's documents as lines that `sources.documents` reads back equal."""
    for id, _ in engine.documents():
        document = engine.document(id)
        # One that was removed meanwhile is no part of the export.
        if document is not None:
            yield orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _state(hubs: HubStore, place: Place, slug: str) -> dict[str, Any]:
    return {**hub_json(hubs.info(slug)), "watched": read_pulse(pulse_folder(place, slug), now=time.time())}
