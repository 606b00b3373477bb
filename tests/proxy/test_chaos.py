"""Everything goes wrong at once: no wrong, partial or foreign answer is taken for whole, and nothing hangs."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.proxy.settings import Limits
from tests.proxy.answers import chat, message, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Answer, FakeUpstream, Reply, RunningProxy, Seen, ask, make_plan, talk
from tests.proxy.test_rules import wait_for

CALLERS, ROUNDS = 8, 40
TENANTS = ("k-1", "k-2", "k-3")
ROUTES = ("/v1/chat/completions", "/v1/messages")
SUBJECTS = ("invoice", "password", "parcel", "refund", "contract", "calendar")


def answer_to(tenant: str, route: str, prompt: str) -> str:
    return f"{tenant} asked at {route}: {prompt} " + "and so on " * 5


class Misbehaving:
    """Answers each request by its tenant, route and prompt, when it answers at all."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.never = threading.Event()

    def __call__(self, seen: Seen) -> Reply:
        asked = seen.json
        tenant = (seen.header("authorization") or "").removeprefix("Bearer ")
        text = answer_to(tenant, seen.target, asked["messages"][-1]["content"])
        whole = reply_with(message(text) if "messages" in seen.target else chat(text), seen)
        with self._lock:
            luck, cut = self._random.random(), self._random.randrange(1, 6)
        if luck < 0.6:
            return whole
        if luck < 0.66:
            status = self._random.choice([429, 500, 503, 529])
            return Reply([b'{"error": {"message": "not now", "type": "x"}}'], status=status)
        pieces = whole.pieces[:cut] if len(whole.pieces) > 1 else [whole.pieces[0][: 20 * cut]]  # type: ignore[index]
        headers = list(whole.headers)
        if not whole.chunked:
            headers.append(("Content-Length", "5000"))
        if luck < 0.9:
            end = self._random.choice(["reset", "close", "clean"] if whole.chunked else ["reset", "close"])
            return Reply(pieces, headers=headers, chunked=whole.chunked, end=end)
        return Reply([*pieces, self.never], headers=headers, chunked=whole.chunked)


def whole_text(got: Answer) -> str | None:
    """The text a client would take for whole, None when it would see that it is not."""
    if got.status != 200 or b'"upstream_error"' in got.body:
        return None
    return got.text


def rude(port: int, lucky: random.Random, tenant: str) -> None:
    """A caller that leaves at some point, or sends nonsense."""
    body = json.dumps({"model": "m", "temperature": 0, "stream": True,
                       "messages": [{"role": "user", "content": lucky.choice(SUBJECTS)}]}).encode()  # fmt: skip
    head = (
        f"POST {ROUTES[0]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    data = (head.encode() + body)[: lucky.randrange(1, len(head) + len(body) + 1)]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(data)
        if lucky.random() < 0.5 and len(data) == len(head) + len(body):
            sock.recv(10)


@pytest.mark.parametrize("shadow", [False, True])
def test_chaos(shadow: bool, start: Start) -> None:
    upstream = Misbehaving(1)
    proxy, _ = start(
        upstream, shadow=shadow, tau=1.0, verify_sample=0.2,
        limits=Limits(upstream_s=0.3, header_s=0.5, body_s=0.5, lookup_s=5.0),
    )  # fmt: skip
    wrong: list[Any] = []
    seen = {"whole": 0, "broken": 0, "hit": 0}

    def call(worker: int) -> None:
        lucky = random.Random(worker)
        for turn in range(ROUNDS):
            tenant, route = lucky.choice(TENANTS), lucky.choice(ROUTES)
            if lucky.random() < 0.15:
                rude(proxy.port, lucky, tenant)
                continue
            prompt = f"Where do I find my {lucky.choice(SUBJECTS)} of week {lucky.randrange(3)}?"
            try:
                got = ask(proxy, prompt, to=route, key=tenant, stream=lucky.random() < 0.5, timeout=30)
            except (http.client.HTTPException, ConnectionError):
                seen["broken"] += 1
                continue
            text = whole_text(got)
            seen["whole" if text is not None else "broken"] += 1
            seen["hit"] += got.outcome == "EXACT"
            if text is not None and text != answer_to(tenant, route, prompt):
                wrong.append((tenant, route, prompt, turn, got))

    with ThreadPoolExecutor(CALLERS) as pool:
        for one in [pool.submit(call, worker) for worker in range(CALLERS)]:
            one.result(240)
    assert not wrong
    assert seen["whole"] > 100
    assert seen["broken"] > 20
    assert (seen["hit"] > 20) is not shadow
    upstream.never.set()
    wait_for(lambda: proxy.server.metrics.in_flight() == 0)
    proxy.settle()
    for entry in proxy.server.keeper.cache.store.entries():
        stored = proxy.server.keeper.cache.store.get(entry.id)
        prompt = proxy.server.keeper.cache.store.text(entry.id)
        assert stored is not None
        assert prompt is not None
        assert f": {prompt} " in stored.body.decode(), "nothing but whole answers is stored"
        assert stored.body.decode().count("and so on") == 5


def odd(seen: Seen) -> Reply:
    """An API that answers what it can read."""
    try:
        return reply_with(message("fine") if "/messages" in seen.target else chat("fine"), seen)
    except Exception:
        return Reply([b"{}"], status=400)


@pytest.fixture(scope="module")
def pair() -> Any:
    upstream = FakeUpstream(odd)
    proxy = RunningProxy(make_plan(upstream, limits=Limits(header_s=10, body_s=10)))
    yield proxy, upstream
    proxy.close()
    upstream.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TURN = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "x"]), "content": JSON})
NAMES = ["model", "messages", "stream", "stream_options", "temperature", "tools", "n", "user", "system", "metadata",
         "seed", "store", "modalities"]  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from(NAMES), JSON | st.lists(TURN, max_size=3))
HEADERS = ["", "max-age=x", "no-cache, , =", "\xff"]
PIECES = [b"POST ",
          b"GET ", b"/v1/chat/completions", b" HTTP/1.1", b"\r\n", b"Host: x", b"Content-Length: ", b"5", b"{}",
          b"\r\n\r\n", b"Transfer-Encoding: chunked", b"0\r\n\r\n", b"\n", b"Connection: close", b"\x00"]  # fmt: skip


@settings(max_examples=60)
@given(
    body=JSON | FIELDS,
    route=st.sampled_from(ROUTES),
    header=st.sampled_from(["", "max-age=x", "no-cache, , =", "\xff"]),
)
def test_no_body_makes_the_proxy_fail(pair: Any, body: Any, route: str, header: str) -> None:
    proxy, upstream = pair
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    before = len(upstream.seen)
    raw = json.dumps(body).encode()
    try:
        connection.request("POST", route, raw, {"Cache-Control": header} if header else {})
        response = connection.getresponse()
        response.read()
    finally:
        connection.close()
    assert response.status in (200, 400)
    told = response.getheader("x-recall") or ""
    assert "fault" not in told
    if told.startswith("BYPASS"):
        assert upstream.seen[before].body == raw
    assert proxy.server.metrics.faults == {}


@settings(max_examples=40)
@given(data=st.binary(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))
def test_no_bytes_make_a_connection_hang(pair: Any, data: bytes) -> None:
    proxy, _ = pair
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass
    assert talk(proxy.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(
        b"HTTP/1.1 200"
    )
