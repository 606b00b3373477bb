"""The hubs of a place as a server asks them: each with its embedder and the reranker."""

from __future__ import annotations

from collections.abc import Callable

from recall_cli.hub.models import HubEngine, HubInfo, OtherModel, Reranker
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.open import Place, open_place
from recall_cli.types import Embedder


class Hubs:
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
