"""A server with hubs, closed again whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_server import FakeUpstream, Handler, HubServer, Serve, reordered


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return what starts a server, given a model's handler (then it reranks) and a hub plan's options."""
    running: list[Any] = []

    def make(handler: Handler | None = None, **options: Any) -> HubServer:
        model = FakeUpstream(handler or reordered)
        running.append(model)
        monkeypatch.setenv("RECALL_RERANK_URL", model.url)
        if handler is not None:
            options.setdefault("reranker", "llm:small")
        folder = tmp_path / "hubs"
        folder.mkdir(exist_ok=True)
        server = HubServer(folder, model, **options)
        running.append(server)
        return server

    yield make
    for one in reversed(running):
        one.close()
