"""Where a stream ends, what of it reaches the caller, and what is kept: on every way that an answer takes."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.proxy.providers import openai
from recall_cli.proxy.providers.dialect import ANTHROPIC, OPENAI, Dialect
from recall_cli.proxy.replay import read_body
from recall_cli.proxy.single_flight import Seat, Sent, UpstreamCall
from recall_cli.proxy.stream_options import KNOWN, Options
from tests.proxy.answers import SSE, chat, chat_stream, message, message_stream, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, RunningProxy, Seen, ask
from tests.proxy.test_rules import wait_for

TWO = chat(choices=[{**chat(text)["choices"][0], "index": at} for at, text in enumerate(["One way.", "Another."])])
LINES = b"".join(chat_stream(chat("Use the \U0001f600 link."), usage=True))
CHATS = {
    "plain": b"".join(chat_stream(chat(), usage=False)),
    "usage": LINES,
    "carriage returns": b": hello\r\n\r\n" + LINES.replace(b"\n", b"\r\n"),
    "comments and names": b"".join(b": ping\n\nevent: chunk\nid: 1\n" + f + b"\n\n" for f in LINES.split(b"\n\n")[:-1]),
    "no [DONE]": LINES.removesuffix(b"data: [DONE]\n\n"),
    "no last blank line": LINES.removesuffix(b"data: [DONE]\n\n").removesuffix(b"\n\n"),
    "two answers": b"".join(chat_stream(TWO, usage=True)),
}
MESSAGES = {
    "plain": b"".join(message_stream(message())),
    "carriage returns": b"".join(message_stream(message())).replace(b"\n", b"\r\n"),
    "no names": b"\n".join(
        line for line in b"".join(message_stream(message())).split(b"\n") if not line.startswith(b"event:")
    ),
    "no last blank line": b"".join(message_stream(message())).removesuffix(b"\n\n"),
}
FIXTURES = [
    *[pytest.param(OPENAI, stream, 2 if "two" in name else 1, id=f"chat {name}") for name, stream in CHATS.items()],
    *[pytest.param(ANTHROPIC, stream, 1, id=f"messages {name}") for name, stream in MESSAGES.items()],
]


def whole_from(dialect: Dialect, stream: bytes, choices: int) -> int:
    """Return the number of bytes from which on a stream is whole, found without what is tested."""
    if dialect is ANTHROPIC:
        return stream.rindex(b"}") + 1
    at = 0
    for _ in range(choices):
        at = stream.index(b'"finish_reason":"stop"', at) + 1
    return (
        stream.index(b"\n", at) - (stream[stream.index(b"\n", at) - 1 :][:1] == b"\r")
        if b"\n" in stream[at:]
        else len(stream)
    )


async def fly(dialect: Dialect, pieces: list[bytes], choices: int, *, lost: bool) -> tuple[UpstreamCall, bytes, bytes]:
    """Return a call that brings these pieces, and what a caller gets with the usage and without."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if lost:
            raise ConnectionResetError

    response: Any = SimpleNamespace(
        status=200,
        raw_headers=[(b"Content-Type", b"text/event-stream")],
        content=SimpleNamespace(iter_any=body),
        close=lambda: None,
    )

    async def send() -> Sent:
        return Sent(response, [], dialect is OPENAI)

    one = UpstreamCall(
        dialect, send, raw=b"", stream=True, counts=dialect is OPENAI, choices=choices, held_bytes=1 << 20
    )
    seats = Seat(one, plain=False), Seat(one, plain=True)
    one.start()
    got = []
    for seat in seats:
        await seat.head()
        got.append(b"".join([data async for data in seat.pieces()]))
    return one, got[0], got[1]


@pytest.mark.parametrize("lost", [False, True], ids=["ended", "lost"])
@pytest.mark.parametrize(("dialect", "stream", "choices"), FIXTURES)
def test_a_stream_cut_at_any_byte_is_never_whole_unless_the_protocol_says_so(
    dialect: Dialect, stream: bytes, choices: int, lost: bool
) -> None:
    enough = whole_from(dialect, stream, choices)

    async def cut_everywhere() -> None:
        for at in range(len(stream) + 1):
            one, got, _ = await fly(dialect, [stream[:at]], choices, lost=lost)
            is_whole = at >= enough and not lost
            assert (not one.fault) == is_whole, stream[:at][-40:]
            assert got == stream[:at]
            if not one.fault:
                body, whole = read_body(dialect, one.body(), is_sse=True)
                assert whole, stream[:at][-40:]
                assert body is not None

    asyncio.run(cut_everywhere())


@pytest.mark.parametrize(("dialect", "stream", "choices"), FIXTURES)
def test_a_stream_fed_byte_by_byte_is_the_same_as_fed_whole(dialect: Dialect, stream: bytes, choices: int) -> None:
    whole = asyncio.run(fly(dialect, [stream], choices, lost=False))
    single = asyncio.run(fly(dialect, [stream[at : at + 1] for at in range(len(stream))], choices, lost=False))
    assert whole[1:] == single[1:]
    assert (whole[0].fault, single[0].fault) == ("", "")
    assert b'"usage":{' not in whole[2] or dialect is ANTHROPIC
    frames = [frame for frame in whole[1].split(b"\n\n") if b'"usage":{' not in frame]
    if dialect is OPENAI and b"\r" not in stream:
        assert whole[2].rstrip() == b"\n\n".join(frames).rstrip(), "one chunk is missing and nothing else"


def test_an_event_too_long_to_be_held_costs_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recall_cli.proxy.providers.sse.MAX_HELD", 300)
    usage = b'data: {"choices":[],"usage":{"total_tokens":1}}\n\n'
    pieces = [b"data: {}\n\n", usage, b"data: " + b"x" * 200, b"x" * 200, b"\n\ndata: [DONE]\n\n"]
    one, got, plain = asyncio.run(fly(OPENAI, pieces, 1, lost=False))
    assert got == plain == b"".join(pieces)
    assert one.too_long


def frames_of(to: str) -> list[bytes]:
    return message_stream(message()) if "messages" in to else chat_stream(chat(), usage=False)


ROUTES = ["/v1/chat/completions", "/v1/messages"]
ENDINGS: dict[str, tuple[str, Any]] = {
    "whole": (ROUTES[0], lambda frames: frames),
    "no [DONE]": (ROUTES[0], lambda frames: frames[:-1]),
    "no last blank line": (ROUTES[0], lambda frames: [*frames[:-2], frames[-2].removesuffix(b"\n\n")]),
    "only one line end": (ROUTES[0], lambda frames: [*frames[:-2], frames[-2].removesuffix(b"\n")]),
    "carriage returns": (ROUTES[0], lambda frames: [frame.replace(b"\n", b"\r\n") for frame in frames[:-1]]),
    "comments": (ROUTES[0], lambda frames: [b": ping\n\n", *frames[:-1], b": bye\n\n"]),
    "named": (ROUTES[0], lambda frames: [b"event: chunk\n" + frame for frame in frames[:-1]]),
    "messages whole": (ROUTES[1], lambda frames: frames),
    "messages no last blank line": (ROUTES[1], lambda frames: [*frames[:-1], frames[-1].removesuffix(b"\n\n")]),
}
WAYS: dict[str, dict[str, Any]] = {
    "miss": {},
    "bypass": {"temperature": 1},
    "tools": {"tools": [{"name": "f"}]},
    "no-store": {"headers": {"Cache-Control": "no-store"}},
}


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "with a length"])
@pytest.mark.parametrize("way", [*WAYS, "shadow", "pass"])
@pytest.mark.parametrize("kind", ENDINGS)
def test_a_stream_that_ends_cleanly_passes_to_the_byte(kind: str, way: str, chunked: bool, start: Start) -> None:
    to, make = ENDINGS[kind]
    frames = make(frames_of(to))
    proxy, _ = start(lambda seen: Reply(list(frames), headers=SSE, chunked=chunked), shadow=way == "shadow")
    to = "/v1/responses" if way == "pass" else to
    got = ask(proxy, to=to, stream=True, **WAYS.get(way, {}))
    assert got.body == b"".join(frames)
    assert got.status == 200
    proxy.settle()
    kept = way in ("miss", "shadow")
    assert len(proxy.server.keeper.cache) == kept
    assert not proxy.server.metrics.faults
    if way == "miss":
        again = ask(proxy, to=to)
        assert (again.outcome, again.text) == ("EXACT", "Use the link.")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("end", ["clean", "close", "reset"])
def test_a_stream_that_stops_in_mid_answer(end: str, to: str, way: str, start: Start) -> None:
    """Even after its stop_reason: with Anthropic message_stop is the end."""
    frames = frames_of(to)[:-1] if "messages" in to else frames_of(to)[:-2]
    go = threading.Event()
    proxy, _ = start(lambda seen: Reply([*frames, go, b": x"], headers=SSE, chunked=True, end=end))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(pieces_of, proxy, to, **WAYS[way])
        wait_for(lambda: proxy.server.metrics.in_flight() == 1)
        go.set()
        body, clean = asked.result(20)
    if way == "miss":
        assert b'"upstream_error"' in body, "the API's own error"
    elif end == "clean":
        assert (body, clean) == (b"".join(frames) + b": x", True), "what the upstream sent, and no more"
    else:
        assert not clean
        assert b"".join(frames).startswith(body.removesuffix(b": x"))
    proxy.settle()
    assert not len(proxy.server.keeper.cache)


def pieces_of(proxy: RunningProxy, to: str, *, headers: Any = None, **more: Any) -> tuple[bytes, bool]:
    """Return what came of an answer, and whether it ended cleanly."""
    body = {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": "How is it?"}]}
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    try:
        connection.request("POST", to, json.dumps({**body, **more}), headers or {})
        return connection.getresponse().read(), True
    except http.client.IncompleteRead as cut:
        return cut.partial, False
    finally:
        connection.close()


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "application/x-ndjson", "audio/mpeg"])
def test_a_bypass_passes_anything_as_it_arrives(kind: str, status: int, start: Start) -> None:
    go = threading.Event()
    reply = Reply([b"one\n", go, b"two"], status=status, headers=[("Content-Type", kind)], chunked=True)
    proxy, _ = start(lambda seen: reply)
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    body = {"model": "m", "stream": True, "tools": [{}], "messages": [{"role": "user", "content": "How is it?"}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    assert response.status == status
    assert response.read1(100) == b"one\n", "before the second piece is even sent"
    go.set()
    assert response.read() == b"two"
    connection.close()


def test_fewer_answers_than_asked_for_are_a_part(start: Start) -> None:
    proxy, _ = start(lambda seen: Reply(chat_stream(chat(), usage=False)[:-1], headers=SSE, chunked=True))
    assert b'"upstream_error"' in ask(proxy, stream=True, n=2).body
    proxy.settle()
    assert not len(proxy.server.keeper.cache)


@pytest.mark.parametrize("words", [b"", b"null", b'""'], ids=["left out", "null", "empty"])
def test_an_ending_that_is_not_said_is_none(words: bytes, start: Start) -> None:
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"Use"}%s}]}\n\n'
    torn = frame % (b',"finish_reason":' + words if words else b"")
    proxy, _ = start(lambda seen: Reply([torn], headers=SSE, chunked=True))
    assert b'"upstream_error"' in ask(proxy, stream=True).body
    done, _ = start(lambda seen: Reply([torn, b"data: [DONE]\n\n"], headers=SSE, chunked=True))
    assert ask(done, stream=True).body == torn + b"data: [DONE]\n\n", "the upstream says that this is all"
    for one in (proxy, done):
        one.settle()
        assert not len(one.server.keeper.cache)


BAD: list[Any] = ["error", "insufficient_system_resource", "model_length", "abort", "MAX_TOKENS", "SAFETY",
                  "recitation", "malformed_function_call", "length", "max_tokens", "Stop", "STOP",
                  "stop ", "end_turn.", "", None, True, 0, ["stop"], {"stop": 1},
                  "content_filter", "tool_calls", "pause_turn"]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("way", ["miss", "shadow", "follower"])
def test_only_known_good_endings_are_stored(way: str, to: str, stream: bool, start: Start) -> None:
    said: list[Any] = [None]
    go = threading.Event()

    def handle(seen: Seen) -> Reply:
        bad = message(stop_reason=said[0]) if "messages" in to else chat()
        if "choices" in bad:
            bad["choices"][0]["finish_reason"] = said[0]
        reply = reply_with(bad, seen)
        return Reply([go, *reply.pieces], headers=reply.headers, chunked=reply.chunked)

    proxy, upstream = start(handle, shadow=way == "shadow")
    for said[0] in BAD:
        go.clear()
        before, joined = len(upstream.seen), proxy.server.metrics.joined
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(ask, proxy, to=to, stream=stream)]
            wait_for(lambda before=before: len(upstream.seen) > before)
            if way == "follower":
                asked.append(pool.submit(ask, proxy, to=to, stream=stream))
                wait_for(lambda joined=joined: proxy.server.metrics.joined > joined)
            go.set()
            assert {one.result(20).status for one in asked} == {200}
        proxy.settle()
        assert not len(proxy.server.keeper.cache), said[0]
    good = "end_turn" if "messages" in to else "stop"
    said[0] = good
    ask(proxy, to=to, stream=stream)
    proxy.settle()
    assert len(proxy.server.keeper.cache) == 1


def test_of_two_endings_the_worse_counts(start: Start) -> None:
    def chunk(reason: str) -> bytes:
        return (
            b"data: "
            + json.dumps({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": reason}]}).encode()
            + b"\n\n"
        )

    for reasons in (("stop", "error"), ("error", "stop")):
        proxy, _ = start(lambda seen, said=reasons: Reply([*map(chunk, said), b"data: [DONE]\n\n"], headers=SSE))
        ask(proxy, stream=True)
        proxy.settle()
        assert not len(proxy.server.keeper.cache)


COUNTS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def counted(where: str) -> list[bytes]:
    """Return a stream whose upstream sends its usage unasked."""
    frames = [json.loads(frame[6:]) for frame in chat_stream(chat(), usage=False)[:-1]]
    if where == "every chunk":
        frames = [{**frame, "usage": {**COUNTS, "completion_tokens": at}} for at, frame in enumerate(frames)]
        frames[-1]["usage"] = COUNTS
    elif where == "last chunk":
        frames = [{**frame, "usage": None} for frame in frames]
        frames[-1]["usage"] = COUNTS
    else:
        frames.append({**frames[-1], "choices": [], "usage": COUNTS})
    if where == "own chunk first":
        frames.insert(1, frames.pop())
    return [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames]


@pytest.mark.parametrize("done", [[b"data: [DONE]\n\n"], []], ids=["done", "no done"])
@pytest.mark.parametrize("way", [*WAYS, "unasked", "asked by the caller"])
@pytest.mark.parametrize("where", ["every chunk", "last chunk", "own chunk", "own chunk first"])
def test_usage_that_the_upstream_sends_by_itself_is_the_callers(
    where: str, way: str, done: list[bytes], start: Start
) -> None:
    frames = [*counted(where), *done]
    proxy, _ = start(lambda seen: Reply(list(frames), headers=SSE), learn_usage=way != "unasked")
    more = {"stream_options": {"include_usage": True}} if way == "asked by the caller" else WAYS.get(way, {})
    got = ask(proxy, stream=True, **more)
    sent = [frame for frame in frames if way != "miss" or where != "own chunk" or b'"choices": []' not in frame]
    assert got.body == b"".join(sent), "only the chunk that was asked for on recall's account goes out"
    proxy.settle()
    if way not in WAYS or way == "miss":
        assert len(proxy.server.keeper.cache) == 1
        assert json.loads(ask(proxy).body)["usage"] == COUNTS


def test_the_usage_chunk_asked_for_goes_out_wherever_it_stands_before_the_end(start: Start) -> None:
    own = counted("own chunk")
    behind = [b": ping\n\n", b"data: [DONE]\n\n"]
    for frames, left in (
        ([*own, *behind], [*own[:-1], *behind]),
        ([*own[:-1], own[-1].removesuffix(b"\n\n")], own[:-1]),
        ([*own, own[-1], *behind], [*own, *behind]),
    ):
        proxy, _ = start(lambda seen, frames=frames: Reply(list(frames), headers=SSE, chunked=True))
        assert ask(proxy, stream=True).body == b"".join(left)


def refusing(words: bytes, status: int, *, when: str = "stream_options") -> Any:
    def handle(seen: Seen) -> Reply:
        if when in seen.json:
            return Reply([words], status=status)
        return reply_with(chat(), seen)

    return handle


REFUSALS = [(b'{"detail":[{"loc":["body","stream_options"]}]}', 422), (b"unknown field", 400), (b"", 422),
            (b"include_usage is not supported", 404), (b"x" * 100_000 + b"stream_options", 400)]  # fmt: skip


@pytest.mark.parametrize(("words", "status"), REFUSALS, ids=["names it", "bare", "empty", "404", "long"])
def test_an_upstream_that_refuses_stream_options_is_asked_without(words: bytes, status: int, start: Start) -> None:
    proxy, upstream = start(refusing(words, status))
    got = ask(proxy, stream=True)
    assert (got.status, got.text) == (200, "Use the link.")
    assert got.body == b"".join(chat_stream(chat(), usage=False))
    assert [("stream_options" in seen.json) for seen in upstream.seen] == [True, False]
    proxy.settle()
    assert ask(proxy, stream=True).outcome == "EXACT"
    for at in range(3):
        assert ask(proxy, f"Where is invoice {at} of last month?", stream=True).status == 200
    assert len(upstream.seen) == 5, "it is remembered"
    assert not any("stream_options" in seen.json for seen in upstream.seen[1:])
    assert ask(proxy, "What is a barn owl?", stream=True, model="other").status == 200
    assert "stream_options" in upstream.seen[5].json, "another model may take it"


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}, {}, None], ids=str)
def test_a_caller_that_sets_stream_options_itself_gets_what_comes(options: Any, start: Start) -> None:
    words = b'{"error": {"message": "stream_options?"}}'
    proxy, upstream = start(refusing(words, 422))
    got = ask(proxy, stream=True, stream_options=options)
    assert (got.status, got.body) == (422, words)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500])
def test_what_is_refused_for_another_reason_reaches_the_caller_unchanged(kind: str, status: int, start: Start) -> None:
    words = b'{"error": {"message": "the context is too long"}}'
    proxy, upstream = start(
        lambda seen: Reply([words], status=status, headers=[("Content-Type", kind), ("Retry-After", "7")])
    )
    for _ in range(3):
        before = len(upstream.seen)
        got = ask(proxy, stream=True)
        assert (got.status, got.body, got.header("retry-after")) == (status, words, "7")
        assert len(upstream.seen) - before == (2 if status in (400, 422) else 1), "asked again once at most"
    assert "stream_options" in upstream.seen[-2 if status in (400, 422) else -1].json, "nothing was learned from that"


def test_where_it_was_taken_before_a_refusal_of_the_whole_is_not_doubted(start: Start) -> None:
    refuses = threading.Event()
    proxy, upstream = start(
        lambda seen: Reply([b"too long"], status=400) if refuses.is_set() else reply_with(chat(), seen)
    )
    assert ask(proxy, stream=True).status == 200
    refuses.set()
    assert ask(proxy, "What is a barn owl?", stream=True).status == 400
    assert len(upstream.seen) == 2


def test_followers_of_a_refused_call_get_the_answer(start: Start) -> None:
    go = threading.Event()

    def handle(seen: Seen) -> Reply:
        reply = refusing(b"stream_options?", 400)(seen)
        return Reply([go, *reply.pieces], status=reply.status, headers=reply.headers, chunked=reply.chunked)

    proxy, upstream = start(handle)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, proxy, stream=bool(at % 2)) for at in (1, 1, 0, 0)]
        wait_for(lambda: proxy.server.metrics.joined + len(upstream.seen) >= 4)
        go.set()
        assert {one.result(20).text for one in asked} == {"Use the link."}


def test_what_only_the_leader_wrote_is_not_refused_to_its_followers(start: Start) -> None:
    go = threading.Event()

    def handle(seen: Seen) -> Reply:
        reply = refusing(b"stream_options?", 400)(seen)
        return Reply([go, *reply.pieces], status=reply.status, headers=reply.headers, chunked=reply.chunked)

    proxy, upstream = start(handle, learn_usage=False)
    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(ask, proxy, stream=True, stream_options={"include_usage": True})
        wait_for(lambda: len(upstream.seen) == 1)
        followers = [pool.submit(ask, proxy, stream=stream) for stream in (True, False)]
        wait_for(lambda: proxy.server.metrics.joined == 2)
        go.set()
        assert leader.result(20).status == 400
        assert [one.result(20).text for one in followers] == ["Use the link."] * 2


def test_who_wants_the_usage_joins_no_call_that_does_not_ask_for_it(start: Start) -> None:
    go = threading.Event()

    def handle(seen: Seen) -> Reply:
        reply = reply_with(chat(), seen)
        return Reply([go, *reply.pieces], headers=reply.headers, chunked=reply.chunked)

    proxy, upstream = start(handle, learn_usage=False)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(ask, proxy, stream=True)
        wait_for(lambda: len(upstream.seen) == 1)
        wanting = pool.submit(ask, proxy, stream=True, stream_options={"include_usage": True})
        wait_for(lambda: len(upstream.seen) == 2)
        go.set()
        assert b'"usage":{' in wanting.result(20).body
        assert b'"usage"' not in plain.result(20).body


def test_what_is_remembered_of_upstreams_is_bounded() -> None:
    options = Options()
    for at in range(KNOWN + 10):
        options.learn("u", str(at), 200, added=False)
    assert options.may_add("u", "0")
    assert not options.may_add("u", str(KNOWN + 9))
    assert len(options._takes) == KNOWN


CHUNK = st.builds(
    lambda index, finish, text, error, more, spaced: json.dumps(
        {
            "choices": [
                {"index": index, "delta": {"content": text}, "finish_reason": finish},
                *([{"index": 1, "delta": {}, "finish_reason": None}] if more else []),
            ]
        }
        | ({"error": error} if error is not None else {}),
        separators=(", ", ": ") if spaced else (",", ":"),
    ).encode(),
    st.integers(0, 11),
    st.sampled_from([None, None, None, "stop", "length", ""]),
    st.sampled_from(["hi", '"finish_reason":null', '{"error": 1}', '"index":0', '\\"index":0,"finish_reason":null']),
    st.sampled_from([None, None, None, {"message": "no"}]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(CHUNK, max_size=8), st.integers(1, 2))
def test_the_end_is_found_alike_with_and_without_decoding_each_chunk(chunks: list[bytes], choices: int) -> None:
    quick, slow = openai.Ending(choices), openai.Ending(choices)
    for data in chunks:
        quick.take(b"", data)
        slow.take(b"", b" " + data.replace(b'"finish_reason":null', b'"finish_reason": null'))
        assert (quick.is_said, quick.is_whole) == (slow.is_said, slow.is_whole)
