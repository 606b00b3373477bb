"""A hub of this machine's folder, opened with its own embedder for one piece of work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recall_cli.errors import StoreError, StoreMismatch
from recall_cli.hub.catalog import Catalog
from recall_cli.hub.embedded import CATALOG, EmbeddedEngine
from recall_cli.hub.embedders import hub_embedder
from recall_cli.hub.folder import hub_names, no_such_hub, open_hub
from recall_cli.hub.nouns import Answer, HubInfo, Question
from recall_cli.hub.pulse import read_pulse
from recall_cli.hub.query import Hub
from recall_cli.hub.rerank import LlmReranker
from recall_cli.hub.shown import hub_json
from recall_cli.types import Embedder


class Local(NamedTuple):
    """An open hub."""

    engine: EmbeddedEngine
    embedder: Embedder


@contextmanager
def local_hub(folder: Path, slug: str) -> Iterator[Local]:
    """Open a hub and its embedder. Raises NoSuchHub, StoreError, or what `embedders.hub_embedder` raises.

    Raises StoreMismatch when an embedder of the hub's name makes other vectors than the hub holds.
    """
    engine = open_hub(folder, slug)
    try:
        info = engine.info()
        embedder = hub_embedder(info.embedder, dim=info.dim)
        if embedder.fingerprint != info.fingerprint:
            raise StoreMismatch(
                f"the hub {slug} was made with another {info.embedder} than the one that is here",
                hint="export it with the recall that made it, and ingest the export into a new hub",
            )
        yield Local(engine, embedder)
    finally:
        engine.close()


def ask(hub: Local, question: Question, reranker: LlmReranker | None) -> Answer:
    """Return the answer to one question; a reranker is closed with it."""
    found = Hub(hub.engine, hub.embedder, reranker=reranker)
    if reranker is None:
        return found.recall(question)
    return asyncio.run(_reranked(found, question, reranker))


async def _reranked(hub: Hub, question: Question, reranker: LlmReranker) -> Answer:
    try:
        return await hub.answer(question)
    finally:
        await reranker.close()


def state(folder: Path, slug: str) -> dict[str, Any]:
    """Return a hub's state and that of its watch, JSON-ready. Raises NoSuchHub or StoreError."""
    engine = open_hub(folder, slug)
    try:
        return {**hub_json(engine.info()), "watched": read_pulse(folder / slug, now=time.time())}
    finally:
        engine.close()


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


def exported(engine: EmbeddedEngine) -> Iterator[bytes]:
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
