"""A real server with hubs on a real socket, and a fake model behind it whose every answer a test chooses."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.hub.api.app import HubPlan
from recall_cli.hub.api.tokens import Minted
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document, HubInfo, Visibility
from recall_cli.hub.stores.folder import make_hub
from recall_cli.hub.stores.open import opened
from recall_cli.proxy.settings import Limits
from tests.proxy.fake import FakeUpstream, Handler, Reply, RunningProxy, Seen, make_plan

HASH = make_embedder("hash-v1")
URL = "https://hub.example.org"

DOCUMENTS = [
    Document(
        "reset.md", "To reset a password, open the settings page and choose reset.", "Passwords", "https://x/reset"
    ),
    Document("billing.md", "Invoices are sent on the first day of each month.", "Billing"),
    Document("refund.md", "A refund of an invoice takes five days.", "Refunds"),
]


def reordered(seen: Seen, order: Callable[[list[Any]], list[Any]] = lambda ids: ids[::-1]) -> Reply:
    """Return a model's answer that orders the passages it was given otherwise: by default the last one first."""
    text = json.loads(seen.json["messages"][0]["content"])
    ids = [passage["id"] for passage in text["passages"]]
    body = {"content": [{"type": "text", "text": json.dumps(order(ids))}], "stop_reason": "end_turn", "type": "message"}
    return Reply([json.dumps(body).encode()])


@dataclass
class Answer:
    """What a caller got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def found(self) -> list[str]:
        """Ids of the documents found, best first."""
        return [result["doc_id"] for result in self.json["results"]]

    @property
    def worded(self) -> list[str]:
        """Ids of the documents that share a word with the question: vectors of `hash-v1` mean nothing."""
        return [result["doc_id"] for result in self.json["results"] if result["scores"]["bm25"] > 0]


class HubServer:
    """Serves a folder of hubs in a thread of its own until `close`."""

    def __init__(
        self, folder: Path, model: FakeUpstream, *, log: str | None = None, limits: Limits | None = None, **options: Any
    ) -> None:
        self.folder = folder
        self.model = model
        plan = HubPlan(**{"place": folder, "url": URL, "per_s": 0.0, **options})
        self.proxy = RunningProxy(make_plan(model, hub=plan, log=log, limits=limits or Limits()))
        self.port = self.proxy.port
        assert self.proxy.server.hub is not None
        self.face = self.proxy.server.hub
        self.tokens = self.face.tokens

    def close(self) -> None:
        self.proxy.close()

    def add(
        self,
        slug: str,
        documents: Iterable[Document] = DOCUMENTS,
        *,
        visibility: Visibility = Visibility.PUBLIC,
        owner: str = "ann",
    ) -> None:
        """Make a hub as another process would."""
        make_hub(self.folder, slug, HASH, visibility=visibility, owner=owner)
        with opened(self.folder, slug) as engine:
            ingest(engine, HASH, documents)

    def set(self, slug: str, visibility: Visibility) -> HubInfo:
        """Change who may ask, as another process would."""
        with opened(self.folder, slug) as engine:
            return engine.configure(visibility=visibility)

    def mint(self, *hubs: str, sub: str = "bob", scopes: list[str] | None = None, **options: Any) -> Minted:
        return self.tokens.mint(sub, hubs, ["hub:recall"] if scopes is None else scopes, **options)

    def owner(self, *hubs: str, sub: str = "ann") -> str:
        return self.tokens.mint(sub, hubs, None).token

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request on a connection of its own."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, raw, {**sent, **(headers or {})})
            response = connection.getresponse()
            said = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, said, response.read())
        finally:
            connection.close()

    def ask(self, slug: str = "docs", question: Any = "reset a password", **more: Any) -> Answer:
        """Ask a hub; what is no member of a body goes along as it is."""
        also = {name: more.pop(name) for name in ("token", "headers") if name in more}
        return self.request("POST", f"/api/hub/{slug}/recall", {"question": question, **more}, **also)


Serve = Callable[..., HubServer]
__all__ = ["HASH", "URL", "Answer", "FakeUpstream", "Handler", "HubServer", "Reply", "Seen", "Serve", "reordered"]
