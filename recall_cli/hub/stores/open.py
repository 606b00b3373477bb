"""Where hubs are kept: in a folder or in a database. Whoever opens them need not know which.

A server keeps them open, each with its embedder and the reranker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recall_cli.errors import StoreError
from recall_cli.hub.models import HubEngine, HubInfo, OtherModel, Reranker, Visibility
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.folder import HubFolder, no_such_hub
from recall_cli.hub.stores.signing_keys import KeyStore
from recall_cli.postgres.open import postgres_extra
from recall_cli.postgres.urls import shown
from recall_cli.types import Embedder, VectorSpace


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """A PostgreSQL database of hubs. Signs of life stay in a folder of this machine."""

    url: str
    folder: Path

    def __str__(self) -> str:
        return shown(self.url)


Place = Path | DatabasePlace


class HubStore(Protocol):
    """The hubs of a place, opened as they are asked for. Any method may be called from any thread."""

    def make(
        self, slug: str, space: VectorSpace, *, visibility: Visibility = Visibility.PUBLIC, owner: str = ""
    ) -> None:
        """Make an empty hub. Raises UsageError for a name that is none, or is taken."""
        ...

    def find(self, slug: str) -> HubEngine | None:
        """Return a hub's engine, the same as long as it is the same hub; None when there is no such hub."""
        ...

    def info(self, slug: str) -> HubInfo:
        """Return a hub's facts, at less than opening it takes. Raises NoSuchHub when there is none."""
        ...

    def names(self) -> list[str]:
        """Return the names of the hubs, in order."""
        ...

    def remove(self, slug: str) -> None:
        """Delete a hub with everything in it. Raises NoSuchHub when there is none."""
        ...

    def ring(self) -> KeyStore:
        """Return the keys of these hubs' tokens, to be closed by the caller before the hubs.

        Raises InputError when others can read them.
        """
        ...

    def close(self) -> None:
        """Release every hub; a second call does nothing."""
        ...


def open_place(place: Place) -> HubStore:
    """Open the hubs of a place. Raises StoreError when it cannot be had, UsageError when its extra is missing."""
    if isinstance(place, Path):
        return HubFolder(place)
    with postgres_extra():
        from recall_cli.hub.stores.pg_hubs import PostgresHubs
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {place.folder} cannot be made: {error.strerror}", hint="name one you can write to: --hub-dir"
        ) from error
    return PostgresHubs(place.url)


def pulse_folder(place: Place, slug: str) -> Path:
    """Return the folder of a hub's signs of life; a name with a dot is no slug."""
    return place / slug if isinstance(place, Path) else place.folder / ".watched" / slug


def find_engine(hubs: HubStore, place: Place, slug: str) -> HubEngine:
    """Return a hub's engine. Raises NoSuchHub when there is none."""
    engine = hubs.find(slug)
    if engine is None:
        raise no_such_hub(place, slug)
    return engine


@contextmanager
def opened(place: Place, slug: str) -> Iterator[HubEngine]:
    """Open one hub for a while. Raises NoSuchHub when there is none, StoreError when it cannot be read."""
    with closing(open_place(place)) as hubs:
        yield find_engine(hubs, place, slug)


class HubRegistry:
    """Finds hubs by their slugs. Any method may be called from any thread."""

    def __init__(
        self, place: Place, make_embedder: Callable[[str, int], Embedder], *, reranker: Reranker | None = None
    ) -> None:
        """Open nothing yet.

        :param make_embedder: returns the embedder of a spec and a number of dimensions.
        """
        self.store = open_place(place)
        self._make_embedder = make_embedder
        self._reranker = reranker
        self._hubs: dict[str, Hub] = {}
        self._embedders: dict[tuple[str, int], Embedder] = {}

    def find(self, slug: str) -> tuple[HubEngine, HubInfo] | None:
        """Return a hub's engine and its state as of now, None when there is none. The first call for a hub opens it.

        Raises StoreError where it cannot be read.
        """
        engine = self.store.find(slug)
        if engine is None:
            self._hubs.pop(slug, None)
            return None
        return engine, engine.info()

    def hub(self, engine: HubEngine, info: HubInfo) -> Hub:
        """Return what answers for an engine that was found. The first call for an embedder loads it.

        Raises OtherModel where it is not the one that the hub was made with, and what making it raises.
        """
        hub = self._hubs.get(info.slug)
        # It may have been made anew, or moved to another embedder, since.
        if hub is None or hub.engine is not engine or hub.embedder.fingerprint != info.fingerprint:
            hub = self._hubs[info.slug] = Hub(engine, self._embedder(info), reranker=self._reranker)
        return hub

    def close(self) -> None:
        """Close every hub."""
        self.store.close()

    def _embedder(self, info: HubInfo) -> Embedder:
        """Return the hub's embedder; hubs of one spec share it."""
        spec = (info.embedder, info.dim)
        embedder = self._embedders.get(spec)
        if embedder is None:
            embedder = self._embedders[spec] = self._make_embedder(*spec)
        if embedder.fingerprint != info.fingerprint:
            raise OtherModel(
                f"the hub {info.slug} was embedded with another {info.embedder} than the one that is here",
                hint="give the server the embedder that the hub was made with, or ingest the hub anew",
            )
        return embedder
