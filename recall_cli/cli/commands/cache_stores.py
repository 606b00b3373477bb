"""Where `recall cache` looks: a store's file, a database or a running server by its URL."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from recall_cli.errors import InputError, UpstreamError, UsageError
from recall_cli.proxy.access import TOKEN

if TYPE_CHECKING:
    from recall_cli.types import HeldStore, VectorSpace

WAIT_S = 60.0


class Place(Protocol):
    """What can be done to a cache, wherever it is."""

    def listed(self, namespace: str | None, contains: str | None, limit: int) -> list[dict[str, Any]]:
        """Return entries, latest first."""

    def shown(self, id: int) -> dict[str, Any] | None:
        """Return all of one entry."""

    def remove(self, ids: list[int]) -> int:
        """Remove entries; return how many there were."""

    def purge(self, namespace: str | None, older_s: float | None, contains: str | None) -> int:
        """Remove what fits; return how many there were."""

    def exported(self) -> Iterator[bytes]:
        """Yield the export's lines."""

    def take_in(self, lines: Iterable[bytes], embedder: str) -> int:
        """Store an export's entries; return how many."""


def place(name: str) -> Place:
    """Return the place of that name: the URL of a server or a database, or a file."""
    return ServerPlace(name) if name.startswith(("http://", "https://")) else StorePlace(name)


def open_named(name: str, embedder: VectorSpace | None) -> HeldStore:
    """Open a store by its file or URL.

    :param embedder: whose vectors it is to hold, made where there is none; None opens one that there is.
    """
    from recall_cli.postgres.urls import is_database_url

    if is_database_url(name):
        from recall_cli.postgres.open import open_shared

        return open_shared(name, embedder)
    from recall_cli.cache.stores.maintenance import open_store
    from recall_cli.cache.stores.sqlite import SqliteStore

    return open_store(name) if embedder is None else SqliteStore(name, embedder=embedder)


def store_alone(name: str) -> str:
    """Return a store's path. Raises UsageError for the URL of a server: this is done to the store."""
    if name.startswith(("http://", "https://")):
        raise UsageError(
            "this takes a store, not a server",
            hint=f"name what --store was given; a server's numbers are at {name.rstrip('/')}/metrics",
        )
    return name


def file_alone(name: str) -> str:
    """Return a store's path. Raises UsageError for any URL: this is done to a file."""
    from recall_cli.postgres.urls import is_database_url

    if is_database_url(store_alone(name)):
        raise UsageError(
            "this takes a SQLite file, not a database that others have open",
            hint="recall cache export URL, then import it as another role, with --embedder",
        )
    return name


class StorePlace:
    """A store's SQLite file or database; servers that have it open notice within a second."""

    def __init__(self, name: str) -> None:
        self._name = name

    def listed(self, namespace: str | None, contains: str | None, limit: int) -> list[dict[str, Any]]:
        """Return entries, latest first."""
        from recall_cli.cache.stores.maintenance import listed

        with self._open() as store:
            return listed(store, namespace=namespace, contains=contains, limit=limit)

    def shown(self, id: int) -> dict[str, Any] | None:
        """Return all of one entry."""
        from recall_cli.cache.stores.maintenance import shown

        with self._open() as store:
            return shown(store, id)

    def remove(self, ids: list[int]) -> int:
        """Remove entries; return how many there were."""
        with self._open() as store:
            there = {entry.id for entry in store.entries()}
            store.delete(ids)
        return len(there.intersection(ids))

    def purge(self, namespace: str | None, older_s: float | None, contains: str | None) -> int:
        """Remove what fits; return how many there were."""
        from recall_cli.cache.stores.maintenance import chosen

        before = None if older_s is None else time.time() - older_s
        with self._open() as store:
            ids = chosen(store, namespace=namespace, before=before, contains=contains)
            store.delete(ids)
        return len(ids)

    def exported(self) -> Iterator[bytes]:
        """Yield the export's lines."""
        from recall_cli.cache.stores.maintenance import exported

        with self._open() as store:
            yield from exported(store, store.embedder)

    def take_in(self, lines: Iterable[bytes], embedder: str) -> int:
        """Store an export's entries; return how many."""
        from recall_cli.cache.embed.registry import make_embedder
        from recall_cli.cache.stores.maintenance import Import, admit_key

        model = make_embedder(embedder)
        reader = Import(lines, model)
        store = open_named(self._name, model)
        try:
            admit_key(store, reader.tenants)
            taken = 0
            for request, completion, vector, created, expires in reader.entries():
                store.append(request, completion, vector, created=created, expires=expires)
                taken += 1
        finally:
            store.close()
        return taken

    def _open(self) -> AbstractContextManager[HeldStore]:
        return closing(open_named(self._name, None))


class ServerPlace:
    """A running `recall serve`, by its admin API."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._token = os.environ.get(TOKEN, "")
        if not self._token:
            raise UsageError(
                "a running server takes its admin token",
                hint=f"set {TOKEN} to the token that the server was started with",
            )

    def listed(self, namespace: str | None, contains: str | None, limit: int) -> list[dict[str, Any]]:
        """Return entries, latest first."""
        asked = {"namespace": namespace, "contains": contains, "limit": limit}
        query = urllib.parse.urlencode({name: value for name, value in asked.items() if value is not None})
        rows: list[dict[str, Any]] = self._json("GET", f"/recall/entries?{query}")["entries"]
        return rows

    def shown(self, id: int) -> dict[str, Any] | None:
        """Return all of one entry."""
        row: dict[str, Any] | None = self._json("GET", f"/recall/entries/{id}", absent=None)
        return row

    def remove(self, ids: list[int]) -> int:
        """Remove entries; return how many there were."""
        return sum(self._json("DELETE", f"/recall/entries/{id}", absent={"removed": 0})["removed"] for id in ids)

    def purge(self, namespace: str | None, older_s: float | None, contains: str | None) -> int:
        """Remove what fits; return how many there were."""
        asked = {"namespace": namespace, "older_s": older_s, "contains": contains}
        said = {name: value for name, value in asked.items() if value is not None} or {"all": True}
        return int(self._json("POST", "/recall/purge", orjson.dumps(said))["removed"])

    def exported(self) -> Iterator[bytes]:
        """Yield the export's lines."""
        with self._open("GET", "/recall/export", None) as answer:
            yield from answer

    def take_in(self, lines: Iterable[bytes], embedder: str) -> int:
        """Store an export's entries; return how many."""
        return int(self._json("POST", "/recall/import", b"".join(lines))["stored"])

    def _json(self, method: str, path: str, body: bytes | None = None, **more: Any) -> Any:
        try:
            with self._open(method, path, body) as answer:
                return orjson.loads(answer.read())
        except FileNotFoundError:
            if "absent" in more:
                return more["absent"]
            raise InputError(f"{self._url} has no admin API", hint=f"start it with {TOKEN} set") from None

    def _open(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=WAIT_S)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read()
            if error.code == 404:
                raise FileNotFoundError from None
            try:
                told = orjson.loads(said)
                message, hint = told["error"], told.get("hint", "")
            except (ValueError, KeyError, TypeError):
                message, hint = f"it answered {error.code}", "check that this is a recall server"
            raise InputError(f"{self._url}: {message}", hint=hint) from error
        except (OSError, ValueError) as error:
            raise UpstreamError(f"{self._url} cannot be reached: {error}", hint="check that it runs there") from error
