"""The folder of the hubs, one folder a hub, named by its slug."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from pathlib import Path

from recall_cli.errors import StoreError, UsageError
from recall_cli.hub.models import HubInfo, NoSuchHub, Visibility
from recall_cli.hub.stores.catalog import Catalog, create
from recall_cli.hub.stores.local import CATALOG, EmbeddedEngine
from recall_cli.hub.stores.signing_keys import FILE, KeyRing
from recall_cli.types import VectorSpace

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
"""What a hub may be called: it is a name in a URL and of a folder, on systems that tell no cases apart too."""


def no_such_hub(place: object, slug: str) -> NoSuchHub:
    """Return the error for a hub that is not there."""
    return NoSuchHub(f"there is no hub called {slug!r} in {place}", hint="recall hub list shows the ones there are")


def is_slug(slug: str) -> bool:
    """Return whether a hub may be called so."""
    return SLUG.fullmatch(slug) is not None


def check_slug(slug: str) -> None:
    """Raise UsageError when no hub may be called so."""
    if not is_slug(slug):
        raise UsageError(
            f"a hub cannot be called {slug!r}",
            hint="use up to 64 letters a-z, digits and hyphens, beginning and ending with a letter or digit",
        )


def name_taken(slug: str) -> UsageError:
    """Return the error for a hub that is to be made and is there."""
    return UsageError(f"there is a hub called {slug} already", hint="choose another name, or remove that hub first")


def make_hub(
    folder: Path, slug: str, space: VectorSpace, *, visibility: Visibility = Visibility.PUBLIC, owner: str = ""
) -> None:
    """Make an empty hub. Raises UsageError for a name that is none, or is taken, and StoreError when it cannot be made.

    :param space: the embedder of its vectors.
    """
    check_slug(slug)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Made aside and moved in whole: nobody ever finds half a hub. A name with a dot is no slug.
        aside = folder / f".new-{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            create(aside / CATALOG, slug, space, visibility=visibility, owner=owner)
            aside.rename(folder / slug)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        if (folder / slug).exists():
            raise name_taken(slug) from error
        raise StoreError(
            f"the hub {slug} cannot be made in {folder}: {error.strerror}", hint="name a folder you can write to"
        ) from error


def open_hub(folder: Path, slug: str, *, index: str = "auto") -> EmbeddedEngine:
    """Open a hub. Raises NoSuchHub when there is none, StoreError when it cannot be read."""
    if not _is_hub(folder, slug):
        raise no_such_hub(folder, slug)
    return EmbeddedEngine(folder / slug, index=index)


def hub_names(folder: Path) -> list[str]:
    """Return the names of the hubs, in order; none when the folder is not there yet."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if _is_hub(folder, path.name))


def remove_hub(folder: Path, slug: str) -> None:
    """Delete a hub with everything in it. Raises NoSuchHub when there is none."""
    aside = folder / f".old-{secrets.token_hex(8)}"
    try:
        if not is_slug(slug):
            raise FileNotFoundError(slug)
        # Moved away at once, so that a process that dies here leaves no half of a hub.
        (folder / slug).rename(aside)
    except FileNotFoundError as error:
        raise no_such_hub(folder, slug) from error
    shutil.rmtree(aside, ignore_errors=True)


class HubFolder:
    """The hubs of a folder, opened as they are asked for and kept open. Any method may be called from any thread."""

    def __init__(self, path: Path, *, index: str = "auto") -> None:
        self.path = path
        self._index = index
        self._lock = threading.Lock()
        self._open: dict[str, tuple[int, EmbeddedEngine]] = {}

    def make(
        self, slug: str, space: VectorSpace, *, visibility: Visibility = Visibility.PUBLIC, owner: str = ""
    ) -> None:
        """Make an empty hub; see `make_hub`."""
        make_hub(self.path, slug, space, visibility=visibility, owner=owner)

    def remove(self, slug: str) -> None:
        """Delete a hub with everything in it. Raises NoSuchHub when there is none."""
        self._forget(slug)
        remove_hub(self.path, slug)

    def info(self, slug: str) -> HubInfo:
        """Return a hub's facts from its catalog alone: neither words nor vectors are read. Raises NoSuchHub."""
        if not _is_hub(self.path, slug):
            raise no_such_hub(self.path, slug)
        catalog = Catalog(self.path / slug / CATALOG)
        try:
            with catalog.snapshot() as snapshot:
                return snapshot.info()
        finally:
            catalog.close()

    def find(self, slug: str) -> EmbeddedEngine | None:
        """Return a hub's engine, None when there is no such hub. Raises StoreError when it cannot be read.

        A hub that is open already costs one look at its file: another process may have removed it, or made it anew.
        """
        if not is_slug(slug):
            return None
        try:
            file = os.stat(self.path / slug / CATALOG).st_ino
        except OSError:
            self._forget(slug)
            return None
        found = self._open.get(slug)
        if found is not None and found[0] == file:
            return found[1]
        with self._lock:
            found = self._open.get(slug)
            if found is None or found[0] != file:
                if found is not None:
                    found[1].close()
                found = self._open[slug] = file, open_hub(self.path, slug, index=self._index)
            return found[1]

    def names(self) -> list[str]:
        """Return the names of the hubs, in order."""
        return hub_names(self.path)

    def ring(self) -> KeyRing:
        """Return the keys of these hubs' tokens. Raises InputError when others can read them."""
        return KeyRing(self.path / FILE)

    def close(self) -> None:
        """Close every hub."""
        with self._lock:
            for _, engine in self._open.values():
                engine.close()
            self._open.clear()

    def _forget(self, slug: str) -> None:
        with self._lock:
            found = self._open.pop(slug, None)
        if found is not None:
            found[1].close()


def _is_hub(folder: Path, name: str) -> bool:
    return is_slug(name) and (folder / name / CATALOG).is_file()
