"""Slow callers and slow endpoints: whoever is slow waits alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document
from recall_cli.hub.stores.folder import make_hub
from recall_cli.hub.stores.open import opened
from recall_cli.proxy.settings import Limits
from recall_cli.types import Vector
from tests.hub.hub_server import HASH, HubServer, Serve

MANY = {"questions": 40, "writes": 10}
"""More than any pool has that the hubs could share."""


class Stuck(HashEmbedder):
    """Stands for an endpoint that does not answer until it is told to."""

    name = fingerprint = "stuck"

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = threading.Semaphore(0)

    def embed(self, text: str) -> Vector:
        self.asked.release()
        self.answers.wait(30)
        return super().embed(text)

    def embed_many(self, texts: Sequence[str]) -> Vector:
        return super().embed_many(texts)


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


def with_slow(serve: Serve, stuck: Stuck) -> HubServer:
    """Serve a hub whose endpoint is stuck beside one that is well."""
    server = serve()
    server.add("docs")
    make_hub(server.folder, "slow", stuck, owner="ann")
    stuck.answers.set()
    with opened(server.folder, "slow") as engine:
        ingest(engine, stuck, [Document("a", "text")])
    stuck.answers.clear()
    while stuck.asked.acquire(blocking=False):
        pass
    server.face.hubs._make_embedder = lambda spec, dim: stuck if spec == stuck.name else HASH
    return server


@pytest.mark.parametrize("what", MANY)
def test_an_endpoint_that_is_stuck_holds_up_its_own_hub_alone(serve: Serve, stuck: Stuck, what: str) -> None:
    server = with_slow(serve, stuck)
    token, good = server.owner("docs", "slow"), 201 if what == "writes" else 200

    def ask(hub: str, n: int) -> int:
        if what == "writes":
            return server.request("PUT", f"/api/hub/{hub}/documents/{n}", {"text": f"text {n}"}, token=token).status
        return server.ask(hub, f"question {n}").status

    with ThreadPoolExecutor(MANY[what]) as callers:
        slow = [callers.submit(ask, "slow", n) for n in range(MANY[what])]
        try:
            assert stuck.asked.acquire(timeout=20)
            assert ask("docs", 0) == good
            assert not any(one.done() for one in slow)
        finally:
            stuck.answers.set()
        assert {one.result() for one in slow} == {good}


HEAD = b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b"Content-Length: 5000\r\n\r\n{"
DRIPPED = {
    "the head of a question": b"POST /api/hub/docs/recall" + HEAD + b"X-More: ",
    "a question": b"POST /api/hub/docs/recall" + HEAD + BODY,
    "a document": b"PUT /api/hub/docs/documents/a" + HEAD + b"Authorization: Bearer %s\r\n" + BODY,
    "a prompt": b"POST /v1/chat/completions" + HEAD + BODY,
    "a file for the upstream": b"POST /v1/files" + HEAD + BODY,
}


def dripped(port: int, begun: bytes) -> bytes:
    """Send the beginning of a request, then a byte now and then, until something comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(begun)
        sock.settimeout(0.01)
        while True:
            with suppress(TimeoutError):
                return sock.recv(65_536)
            sock.sendall(b"x")


def test_whoever_sends_a_byte_now_and_then_is_not_waited_for(serve: Serve) -> None:
    server = serve(limits=Limits(header_s=0.3, body_s=0.3))
    server.add("docs")
    token = server.owner("docs").encode()
    with ThreadPoolExecutor(len(DRIPPED)) as callers:
        begun = [part.replace(b"%s", token) for part in DRIPPED.values()]
        said = callers.map(lambda part: dripped(server.port, part), begun)
        assert server.ask("docs").status == 200
        assert dict(zip(DRIPPED, (answer[:12] for answer in said), strict=True)) == dict.fromkeys(
            DRIPPED, b"HTTP/1.1 408"
        )
