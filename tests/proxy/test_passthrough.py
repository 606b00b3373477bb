"""What is not cached reaches the upstream, and comes back, byte for byte."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading

import pytest

from tests.proxy.answers import SSE, chat_stream, provider
from tests.proxy.conftest import Start
from tests.proxy.fake import FakeUpstream, Reply, Seen, ask, talk


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/models", b""),
        ("GET", "/v1/models/a%2Fb%20c?x=1&x=2&y=%C3%A9&z", b""),
        ("DELETE", "/v1/files/f-1", b""),
        ("PUT", "/v1/x", b"\x00\xff\r\n\r\n"),
        ("PATCH", "/", b"{}"),
        ("OPTIONS", "/v1/chat/completions", b""),
        ("GET", "/v1/chat/completions", b""),
        ("POST", "/v1/responses", b'{"input": "hi", "stream": false}'),
        ("POST", "/v1/embeddings", b'{"input": "hi"}'),
        ("POST", "/v1/messages/count_tokens?beta=true", b'{"messages": []}'),
        ("POST", "/v1/messages/batches", b"{}"),
    ],
)
def test_every_method_and_path_reaches_the_upstream(method: str, target: str, body: bytes, start: Start) -> None:
    answer = gzip.compress(b'{"ok": 1}')
    back = [("Content-Encoding", "gzip"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Odd", "\u00e9")]
    proxy, upstream = start(lambda seen: Reply([answer], status=207, headers=back))
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    sent = {"Authorization": "Bearer k", "X-Custom": "v w", "User-Agent": "t/1", "Accept-Encoding": "br, gzip"}
    connection.request(method, target, body or None, sent)
    response = connection.getresponse()
    got = response.read()
    connection.close()
    seen = upstream.seen[0]
    assert (seen.method, seen.target, seen.body) == (method, target, body)
    for name, value in sent.items():
        assert seen.header(name.lower()) == value
    assert {name.lower() for name, _ in seen.headers} <= {
        *map(str.lower, sent),
        "host",
        "content-length",
    }, "nothing is added"
    assert response.status == 207
    assert got == answer
    assert [value for name, value in response.getheaders() if name == "set-cookie"] == ["a=1", "b=2"]
    assert response.getheader("content-encoding") == "gzip"
    assert response.getheader("x-recall") is None
    assert {name for name, _ in response.getheaders()} == {"content-encoding", "set-cookie", "x-odd", "content-length"}


@pytest.mark.parametrize("target", ["*@127.0.0.1:{port}/x", "*", "*.example/v1/models"])
def test_a_target_that_is_no_path_names_no_other_host(target: str, start: Start) -> None:
    proxy, _ = start()
    elsewhere = FakeUpstream(lambda seen: Reply([b"inside"]))
    try:
        line = f"OPTIONS {target.format(port=elsewhere.port)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        got = talk(proxy.port, line.encode())
    finally:
        elsewhere.close()
    assert not elsewhere.seen
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"the request target must be a path" in got


def test_a_chunked_upload_and_hop_by_hop_headers(start: Start) -> None:
    proxy, upstream = start()
    head = (
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close, X-Mine\r\n"
        b"X-Mine: 1\r\nKeep-Alive: 1\r\nX-Recall-Cutoff: 1\r\nX-Yours: 2\r\n\r\n"
    )
    got = talk(proxy.port, head + b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    seen = upstream.seen[0]
    assert seen.body == b"abcdefg"
    assert seen.header("x-yours") == "2"
    for name in ("x-mine", "keep-alive", "x-recall-cutoff"):
        assert seen.header(name) is None, name
    assert seen.header("host") == f"127.0.0.1:{upstream.port}"


def test_a_stream_passes_as_it_arrives(start: Start) -> None:
    go = threading.Event()
    first, second = b"event: a\ndata: 1\n\n", b"data: 2\n\n"
    proxy, _ = start(lambda seen: Reply([first, go, second], headers=SSE, chunked=True))
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    connection.request("POST", "/v1/responses", b"{}")
    response = connection.getresponse()
    assert response.read1(100) == first, "before the second is even sent"
    go.set()
    assert response.read() == second
    connection.close()


def test_a_cached_route_streams_as_it_arrives_too(start: Start) -> None:
    from tests.proxy.answers import chat

    go = threading.Event()
    frames = chat_stream(chat(), usage=True)
    proxy, _ = start(lambda seen: Reply([frames[0], frames[1], go, *frames[2:]], headers=SSE, chunked=True))
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    body = {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": "How is it?"}]}
    body["stream_options"] = {"include_usage": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    got = b""
    while len(got) < len(frames[0] + frames[1]):
        got += response.read1(1000)
    assert got == frames[0] + frames[1]
    go.set()
    assert got + response.read() == b"".join(frames), "byte for byte"
    connection.close()


def test_a_bypassed_request_passes_unchanged(start: Start) -> None:
    def handle(seen: Seen) -> Reply:
        return Reply(
            [gzip.compress(b"{}")], headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
        )

    proxy, upstream = start(handle)
    raw = b'{ "model":"m",  "tools":[{"x":1.0}], "stream": true, "messages":[{"role":"user","content":"\\u00e9"}]}\n'
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    connection.request("POST", "/v1/chat/completions", raw, {"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    assert gzip.decompress(response.read()) == b"{}"
    assert response.getheader("x-recall") == "BYPASS; reason=tools"
    assert upstream.seen[0].body == raw
    assert upstream.seen[0].header("accept-encoding") == "gzip"
    connection.close()


def test_a_miss_reaches_the_upstream_as_it_was_sent(start: Start) -> None:
    proxy, upstream = start()
    raw = b'{ "model":"m",  "temperature": 0.0,'
    raw += b'"messages":[{"role":"user","content":"How do I reset \\u00e9 passwords?"}]}\n'
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    connection.request("POST", "/v1/chat/completions?q=1", raw)
    response = connection.getresponse()
    response.read()
    assert response.getheader("x-recall") == "MISS; reason=empty_partition"
    assert upstream.seen[0].body == raw
    assert upstream.seen[0].target == "/v1/chat/completions?q=1"
    connection.close()


def test_anthropics_routes_go_to_anthropic(start: Start) -> None:
    _, theirs = start(provider("theirs"))
    proxy, ours = start(provider("ours"), anthropic=theirs.url)
    assert ask(proxy, to="/v1/messages").text == "theirs"
    assert ask(proxy).text == "ours"
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    for headers, upstream in (({"anthropic-version": "2023-06-01"}, theirs), ({}, ours)):
        before = len(upstream.seen)
        connection.request("GET", "/v1/models", headers=headers)
        connection.getresponse().read()
        assert len(upstream.seen) == before + 1
    connection.close()


def test_a_base_url_with_its_version_takes_paths_with_theirs(start: Start) -> None:
    _, upstream = start()
    proxy, _ = start(openai=upstream.url + "/deep/v1/")
    ask(proxy)
    assert upstream.seen[-1].target == "/deep/v1/chat/completions"


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_failing_upstream_never_looks_like_the_end_of_an_answer(end: str, start: Start) -> None:
    proxy, _ = start(lambda seen: Reply([b"data: 1\n\n"], headers=SSE, chunked=True, end=end))
    got = talk(proxy.port, b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    assert b"data: 1" in got or got == b""
    assert not got.endswith(b"0\r\n\r\n"), "the last chunk would say that all is there"


def test_an_upstream_that_is_not_there(start: Start) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy, _ = start(openai=f"http://127.0.0.1:{unused.getsockname()[1]}")
        for to in ("/v1/chat/completions", "/v1/embeddings"):
            answer = ask(proxy, to=to)
            assert answer.status == 502
            assert json.loads(answer.body)["error"]["type"] == "upstream_error"
