"""The hub's HTTP face, put together: what `recall serve --hub-dir` mounts beside its own routes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recall_cli.errors import StoreUnavailable
from recall_cli.hub.api.access import PER_S, AccessControl, Rate
from recall_cli.hub.api.ask import BODY_BYTES, Asking
from recall_cli.hub.api.errors import INGEST, RECALL
from recall_cli.hub.api.result_cache import TTL_S, ResultCache
from recall_cli.hub.api.routes import Api, HubCounts, Operation
from recall_cli.hub.api.tokens import Tokens
from recall_cli.hub.api.write import BATCH_BYTES, DOCUMENT_BYTES, Writing
from recall_cli.hub.search.embedders import hub_embedder
from recall_cli.hub.search.rerank import NO_RERANKER, make_reranker
from recall_cli.hub.stores.open import HubRegistry, Place

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubPlan:
    """Which hubs to serve, and how."""

    place: Place
    url: str = ""
    """How callers name this server, as in https://host: part of every token. "": its own address."""
    reranker: str = NO_RERANKER
    """As `rerank.make_reranker` reads it."""
    cache_ttl_s: float = TTL_S
    cache_private: bool = False
    hide_private: bool = False
    per_s: float = PER_S
    log_text: bool = False


class HubFace:
    """All hubs of a place, over HTTP. Belongs to one event loop."""

    def __init__(self, plan: HubPlan, log: Callable[[dict[str, Any]], None]) -> None:
        """Open the keys; hubs are opened when they are first asked for.

        Raises InputError when others can read the keys, UsageError for a URL or a reranker that is none,
        StoreError when there is a database and it refuses. One that does not answer may do so later.
        """
        self._reranker = make_reranker(plan.reranker)
        self.hubs = HubRegistry(plan.place, hub_embedder, reranker=self._reranker)
        try:
            self._ring = self.hubs.store.ring()
            self.names()
        except StoreUnavailable as error:
            _log.error("%s; until it answers, callers are asked to try again. %s", error, error.hint)
        except BaseException:
            self.hubs.close()
            raise
        self.tokens = Tokens(self._ring, plan.url)
        self.counts = HubCounts()
        self._plan = plan
        self._log = log

    def routes(self) -> list[BaseRoute]:
        """Return the routes under /api/hub/ and the metadata of the protected resources."""
        plan = self._plan
        gate = AccessControl(self.hubs, self.tokens, Rate(plan.per_s), hide_private=plan.hide_private)
        cache = ResultCache(plan.cache_ttl_s, private=plan.cache_private)
        model = self._reranker.model if self._reranker is not None else ""
        asking = Asking(gate, cache, self.counts, reranker=model, log_text=plan.log_text)
        writing = Writing()
        hub = "/api/hub/{slug}"
        return Api(gate, self.tokens, self.counts, self._log).routes(
            {
                hub: {"GET": Operation("status", RECALL, BODY_BYTES, asking.status)},
                f"{hub}/recall": {"POST": Operation("recall", RECALL, BODY_BYTES, asking.recall)},
                f"{hub}/documents": {"POST": Operation("add", INGEST, BATCH_BYTES, writing.add)},
                f"{hub}/documents/{{id:path}}": {
                    "PUT": Operation("put", INGEST, DOCUMENT_BYTES, writing.put),
                    "DELETE": Operation("delete", INGEST, BODY_BYTES, writing.delete),
                },
            }
        )

    def names(self) -> list[str]:
        """Return the names of the hubs there are. Raises StoreError when they cannot be read."""
        return self.hubs.store.names()

    def shown_names(self) -> str:
        """Return the names of the hubs as one line."""
        try:
            return ", ".join(self.names()) or "none yet"
        except StoreUnavailable:
            return "not known, for the database does not answer"

    async def stop(self) -> None:
        """Close the connections; call it inside the event loop."""
        if self._reranker is not None:
            await self._reranker.close()

    def close(self) -> None:
        """Release hubs and keys."""
        self._ring.close()
        self.hubs.close()
