"""Where hubs are kept: in a folder, or in a database; whoever opens them need not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recall_cli.errors import StoreError
from recall_cli.hub.models import HubEngine, HubInfo, Visibility
from recall_cli.hub.stores.folder import HubFolder, no_such_hub
from recall_cli.hub.stores.signing_keys import Ring
from recall_cli.postgres.open import postgres_extra
from recall_cli.postgres.urls import shown
from recall_cli.types import VectorSpace


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

    def ring(self) -> Ring:
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
