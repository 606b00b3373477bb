"""A hub of this machine's folder, opened for one piece of work; and what its folder tells without its embedder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from recall_cli.errors import StoreError
from recall_cli.hub.catalog import Catalog
from recall_cli.hub.embedded import CATALOG
from recall_cli.hub.embedders import hub_embedder
from recall_cli.hub.folder import hub_names, no_such_hub, open_hub
from recall_cli.hub.ingest import move
from recall_cli.hub.nouns import Answer, HubEngine, HubInfo, Question, Report
from recall_cli.hub.pulse import read_pulse
from recall_cli.hub.query import Hub
from recall_cli.hub.rerank import LlmReranker
from recall_cli.hub.served import Hubs
from recall_cli.hub.shown import hub_json
from recall_cli.types import Progress


@contextmanager
def local_hub(folder: Path, slug: str, *, reranker: LlmReranker | None = None) -> Iterator[Hub]:
    """Open a hub with its own embedder. Raises NoSuchHub, StoreError, or what `embedders.hub_embedder` raises."""
    hubs = Hubs(folder, hub_embedder, reranker=reranker)
    try:
        yield find_hub(hubs, folder, slug)
    finally:
        hubs.close()


def find_hub(hubs: Hubs, folder: Path, slug: str) -> Hub:
    """Return a hub of a folder. Raises NoSuchHub when there is none."""
    found = hubs.find(slug)
    if found is None:
        raise no_such_hub(folder, slug)
    return hubs.hub(*found)


def ask(hub: Hub, question: Question, reranker: LlmReranker | None) -> Answer:
    """Return the answer to one question, and close the reranker, which is the hub's."""
    return hub.recall(question) if reranker is None else asyncio.run(_reranked(hub, question, reranker))


async def _reranked(hub: Hub, question: Question, reranker: LlmReranker) -> Answer:
    try:
        return await hub.answer(question)
    finally:
        await reranker.close()


def state(folder: Path, slug: str) -> dict[str, Any]:
    """Return a hub's state and that of its watch, JSON-ready. Raises NoSuchHub or StoreError."""
    return {**hub_json(_info(folder, slug)), "watched": read_pulse(folder / slug, now=time.time())}


def states(folder: Path) -> list[dict[str, Any]]:
    """Return the states of all hubs, by name; one that cannot be read has an `error` instead."""
    rows: list[dict[str, Any]] = []
    for slug in hub_names(folder):
        try:
            rows.append(state(folder, slug))
        except StoreError as error:
            rows.append({"hub": slug, "error": str(error)})
    return rows


def owner_of(folder: Path, slugs: Iterable[str]) -> str:
    """Return the owner that all these hubs have in common, "" when there is none. Raises NoSuchHub, StoreError."""
    owners = {_info(folder, slug).owner for slug in slugs}
    return owners.pop() if len(owners) == 1 else ""


def remove_documents(folder: Path, slug: str, ids: Sequence[str]) -> int:
    """Remove documents of a hub in one write; return how many there were. Raises NoSuchHub, StoreError."""
    engine = open_hub(folder, slug)
    try:
        before = engine.info().documents
        engine.apply((), ids)
        return before - engine.info().documents
    finally:
        engine.close()


def reembed(folder: Path, slug: str, spec: str, *, progress: Progress) -> Report:
    """Move a hub to another embedder; until all is embedded, it is asked with the one before.

    Raises NoSuchHub, StoreError, or what `embedders.hub_embedder` raises.
    """
    embedder = hub_embedder(spec)
    engine = open_hub(folder, slug)
    try:
        total = engine.info().chunks
        return move(engine, embedder, progress=lambda report: progress(report.chunks, total, "embedding"))
    finally:
        engine.close()


def exported(engine: HubEngine) -> Iterator[bytes]:
    """Yield a hub's documents as lines that `sources.documents` reads back equal."""
    for id, _ in engine.documents():
        document = engine.document(id)
        # One that was removed meanwhile is no part of the export.
        if document is not None:
            yield orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _info(folder: Path, slug: str) -> HubInfo:
    """Return a hub's facts from its catalog alone: neither words nor vectors are read."""
    if slug not in hub_names(folder):
        raise no_such_hub(folder, slug)
    catalog = Catalog(folder / slug / CATALOG)
    try:
        with catalog.snapshot() as snapshot:
            return snapshot.info()
    finally:
        catalog.close()
