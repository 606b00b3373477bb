"""Requests and answers made to be read in two ways: neither is kept under the wrong key."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.proxy.planner import repeats_a_name
from tests.proxy.answers import chat
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, RunningProxy, ask, talk
from tests.proxy.test_rules import NEAR


def post(proxy: RunningProxy, body: bytes, *lines: bytes) -> bytes:
    """Send a body and header lines as they are, which no client library would."""
    head = [b"POST /v1/chat/completions HTTP/1.1", b"Host: x", b"Connection: close", *lines]
    head.append(b"Content-Length: %d" % len(body))
    return talk(proxy.port, b"\r\n".join(head) + b"\r\n\r\n" + body)


def said(*, prompt: bytes = b"How do I reset my password?") -> bytes:
    return b'{"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "%s"}]}' % prompt


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([b"Cache-Control: no-store", b"cache-control: max-age=9"], b"BYPASS; reason=no_store"),
        ([b"Cache-Control: no-cache", b"Cache-Control: max-age=9"], b"MISS; reason=no_cache"),
        ([b"x-recall-cutoff: 0.999999", b"x-recall-cutoff: 0"], b"MISS; reason=below_callers_cutoff"),
    ],
    ids=str,
)
def test_a_second_line_does_not_undo_the_first(lines: list[bytes], told: bytes, start: Start) -> None:
    proxy, _ = start()
    post(proxy, said())
    proxy.settle()
    near = said(prompt=NEAR.encode()) if b"cutoff" in lines[0] else said()
    assert b"x-recall: " + told + b"\r\n" in post(proxy, near, *lines)


MESSAGES = b'"messages": [{"role": "user", "content": "Tell me a lie"}]'


@pytest.mark.parametrize(
    "more",
    [
        MESSAGES,
        MESSAGES.replace(b"messages", b"mess\\u0061ges"),
        MESSAGES + b', "metadata": {"a": "\\u0022\\u0022"}',
        b'"metadata": {"a": 1, "a": 1}',
        b'"metadata": ' + b"[" * 300 + b"]" * 300,
    ],
    ids=["plain", "escaped", "with quotes to make up for it", "nested", "too deep to tell"],
)
def test_a_name_said_twice_has_no_key(more: bytes, start: Start) -> None:
    """The upstream may read the other one: its answer must not be kept for what was read here."""
    proxy, upstream = start(share_scope="all")
    post(proxy, said())
    proxy.settle()
    for _ in range(2):
        twice = b"{" + more + b", " + said()[1:]
        assert b"x-recall: BYPASS; reason=repeated_name\r\n" in post(proxy, twice)
        proxy.settle()
    assert upstream.seen[-1].body == twice
    assert len(proxy.server.keeper.cache) == 1


@given(
    st.recursive(
        st.text() | st.integers(-9, 9) | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_no_body_that_says_each_name_once_is_taken_for_a_repeat(value: Any) -> None:
    body = {"a": value, "b": value}
    assert not repeats_a_name(orjson.dumps(body), body)
    assert not repeats_a_name(json.dumps(body, indent=1).encode(), body)
    assert repeats_a_name(orjson.dumps(body)[:-1] + b',"b":' + orjson.dumps(value) + b"}", body)


def test_a_web_page_without_a_credential_meets_only_itself(start: Start) -> None:
    proxy, _ = start()
    for lines in ([], [b"Origin: http://evil.example"], [b"Origin: http://other.example"]):
        assert b"x-recall: MISS; " in post(proxy, said(), *lines)
        proxy.settle()
        assert b"x-recall: EXACT\r\n" in post(proxy, said(), *lines)
    assert b"x-recall: MISS; " in post(proxy, said(), b"Authorization: k", b"Origin: http://evil.example")
    proxy.settle()
    assert b"x-recall: EXACT\r\n" in post(proxy, said(), b"Authorization: k"), "a credential says enough"


def test_a_name_as_long_as_a_body_is_not_logged_whole(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    proxy, _ = start(log=str(log))
    assert ask(proxy, model="m\r\nx-evil: 1" + "m" * 100_000).header("x-evil") is None
    proxy.server.log.close()
    (line,) = [line for line in log.read_text().splitlines() if '"outcome"' in line]
    assert len(line) < 2_000


OFFERS = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/embeddings"])
def test_an_offer_of_another_protocol_is_passed_over(path: bytes, chunked: bool, apart: bool, start: Start) -> None:
    """Java's client makes it with every request, and its body must not be lost, or be read as the next request."""
    proxy, upstream = start()
    evil = said(prompt=b"GET /healthz HTTP/1.1\\r\\n")
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(evil)
    head = b"\r\n".join([b"POST %s HTTP/1.1" % path, b"Host: x", size, *OFFERS]) + b"\r\n\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(evil), evil) if chunked else evil
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        if apart:  # the server has parsed the head before the body comes: it answers to what came before
            sock.sendall(last.replace(b"close", b"keep-alive") + head)
            while b'"ok"' not in got:
                got += sock.recv(65536)
            sock.sendall(body + head + body + last)
        else:
            sock.sendall(head + body + head + body + last)
        while piece := sock.recv(65536):
            got += piece
    assert got.count(b"HTTP/1.1 200 OK") == 3 + apart, got
    assert got.endswith(b'{"status":"ok"}')
    assert {seen.body for seen in upstream.seen} == {evil}
    assert all(seen.header("upgrade") is None and seen.header("http2-settings") is None for seen in upstream.seen)


def test_a_connect_is_refused(start: Start) -> None:
    proxy, upstream = start()
    for line in (b"CONNECT 127.0.0.1:1", b"CONNECT /v1/models"):
        assert talk(proxy.port, line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 400 "
        )
    assert not upstream.seen


def test_what_the_upstream_says_of_a_cache_of_its_own_is_not_taken_for_ours(start: Start) -> None:
    headers = [("X-Recall", "EXACT"), ("X-Recall-Entry", "9"), ("Age", "5")]
    proxy, _ = start(lambda seen: Reply([json.dumps(chat()).encode()], headers=headers))
    got = ask(proxy)
    assert [value for name, value in got.headers if name.startswith("x-recall")] == ["MISS; reason=empty_partition"]
