"""What may hit, what may be stored, and what a caller may ask of the cache."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recall_cli.proxy.forward import ForwardedCall
from recall_cli.proxy.planner import Controls, PlannedRequest, objection
from recall_cli.proxy.providers.dialect import OPENAI
from recall_cli.proxy.settings import Limits
from recall_cli.proxy.single_flight import Seat
from recall_cli.types import Decision, Lookup, Outcome
from tests.proxy.answers import SSE, chat, chat_stream, message, message_stream, provider, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, RunningProxy, Seen, ask

PROMPT = "How do I reset my password?"
NEAR = "how do i reset my password"
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-1\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
ROUTES = ["/v1/chat/completions", "/v1/messages"]


def fill(proxy: RunningProxy, *args: Any, **more: Any) -> None:
    assert ask(proxy, *args, **more).outcome == "MISS"
    proxy.settle()


def test_an_answer_of_the_future_is_older_than_any_limit() -> None:
    found = Lookup(Decision(Outcome.EXACT, 1.0, None, 1))
    ages = [objection(found, Controls(max_age=60.0), age) for age in (-3_600.0, -5.0, 60.0, 61.0)]
    assert ages == ["older_than_max_age", "", "", "older_than_max_age"]
    assert objection(found, Controls(), -3_600.0) == ""


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_near_prompt_hits_and_says_so(to: str, stream: bool, start: Start) -> None:
    proxy, upstream = start(provider(lambda prompt: f"to {prompt}"))
    fill(proxy, to=to)
    got = ask(proxy, NEAR, to=to, stream=stream)
    assert got.outcome == "SEMANTIC"
    assert got.text == "to How do I reset my password?"
    assert float(got.header("x-recall-similarity") or 0) > 0.99
    assert got.header("x-recall-cutoff") == "0.8000"
    assert got.header("x-recall-entry") == "1"
    assert got.header("age") == "0"
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"model": "other"},
        {"top_p": 0.5},
        {"max_tokens": 7},
        {"reasoning_effort": "low"},
        {"response_format": {"type": "json_object"}},
        {"parallel_tool_calls": False},
        {"seed": 4},
        {"key": "k-2"},
        {"headers": {"OpenAI-Organization": "o"}},
        {"headers": {"OpenAI-Project": "p"}},
        {"headers": {"anthropic-beta": "b"}},
        {"headers": {"x-recall-namespace": "n"}},
        {"to": "/v1/chat/completions?api-version=2"},
        {"to": "/v1/messages"},
    ],
    ids=str,
)
def test_what_differs_in_a_wall_never_hits(more: dict[str, Any], start: Start) -> None:
    proxy, upstream = start()
    fill(proxy)
    assert ask(proxy, **more).outcome == "MISS"
    assert ask(proxy, NEAR, **more).outcome in ("MISS", "SEMANTIC")
    assert len(upstream.seen) >= 2
    assert ask(proxy).outcome == "EXACT"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"temperature": 1}, "sampled"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"store": True}, "server_state"),
        ({"web_search_options": {}}, "web_search"),
        ({"prompt": [{"type": "image_url", "image_url": {"url": "x"}}]}, "media"),
        ({"headers": {"Cache-Control": "no-store"}}, "no_store"),
        ({"headers": {"Connection": "keep-alive, Anthropic-Beta", "anthropic-beta": "b"}}, "withheld_header"),
        ({"prompt": "x" * 3000}, "body_too_large"),
    ],
    ids=str,
)
def test_what_bypasses_is_neither_answered_nor_stored(more: dict[str, Any], reason: str, start: Start) -> None:
    proxy, upstream = start(limits=Limits(cached_body_bytes=2000))
    if "headers" not in more and "prompt" not in more:
        fill(proxy)
    for _ in range(2):
        got = ask(proxy, **more)
        assert (got.outcome, got.reason) == ("BYPASS", reason)
        proxy.settle()
    assert len(upstream.seen) == 2 + ("headers" not in more and "prompt" not in more)
    assert len(proxy.server.keeper.cache) <= 1


def test_a_bypassed_request_is_not_answered_by_what_is_stored(start: Start) -> None:
    proxy, upstream = start()
    fill(proxy)
    assert ask(proxy, headers={"Cache-Control": "no-store"}).outcome == "BYPASS"
    assert len(upstream.seen) == 2


def test_no_cache_asks_again_and_keeps_the_newer_answer(start: Start) -> None:
    answers = iter(["old", "new"])
    proxy, _ = start(provider(lambda prompt: next(answers)))
    fill(proxy)
    got = ask(proxy, headers={"Cache-Control": "no-cache"})
    assert (got.outcome, got.reason, got.text) == ("MISS", "no_cache", "new")
    proxy.settle()
    assert ask(proxy).text == "new"


def test_max_age(start: Start) -> None:
    proxy, _ = start()
    fill(proxy)
    assert ask(proxy, headers={"Cache-Control": "max-age=60"}).outcome == "EXACT"
    assert ask(proxy, headers={"Cache-Control": "max-age=0"}).reason == "older_than_max_age"
    assert ask(proxy, headers={"Cache-Control": "max-age=soon"}).reason == "no_cache"


@pytest.mark.parametrize("to", ROUTES)
def test_only_if_cached(to: str, start: Start) -> None:
    proxy, upstream = start()
    got = ask(proxy, to=to, headers={"Cache-Control": "only-if-cached"})
    assert got.status == 504
    assert got.header("x-should-retry") == "false"
    bypassed = ask(proxy, to=to, temperature=1, headers={"Cache-Control": "only-if-cached"})
    assert (bypassed.status, bypassed.reason) == (504, "only_if_cached")
    assert not upstream.seen
    fill(proxy, to=to)
    assert ask(proxy, to=to, headers={"Cache-Control": "only-if-cached"}).outcome == "EXACT"


@pytest.mark.parametrize(("cutoff", "outcome"), [("0.1", "SEMANTIC"), ("1", "MISS"), ("nonsense", "MISS")])
def test_a_caller_may_only_raise_the_cutoff(cutoff: str, outcome: str, start: Start) -> None:
    proxy, _ = start(tau=0.95)
    fill(proxy)
    assert ask(proxy, NEAR, headers={"x-recall-cutoff": cutoff}).outcome == outcome
    far = "Where is my invoice from last month?"
    assert ask(proxy, far, headers={"x-recall-cutoff": "0"}).reason == "below_cutoff"


@pytest.mark.parametrize("prompt", ["continue", "yes", "", "and the second one?"])
def test_what_means_nothing_alone_hits_by_identity_only(prompt: str, start: Start) -> None:
    proxy, _ = start(tau=0.0)
    fill(proxy)
    assert ask(proxy, prompt).outcome == "MISS"
    proxy.settle()
    assert ask(proxy, prompt).outcome == "EXACT"


def test_texts_that_differ_beyond_what_the_embedder_reads_never_meet(start: Start) -> None:
    proxy, upstream = start(provider(lambda prompt: prompt[-20:]))
    long = "Please sum up this letter in one sentence. " * 100
    fill(proxy, long + "It is about the garden.")
    other = ask(proxy, long + "It is about the money.")
    assert (other.outcome, other.reason) == ("MISS", "too_long_to_compare")
    assert other.text.endswith("the money.")
    proxy.settle()
    assert ask(proxy, long + "It is about the money.").outcome == "EXACT"
    assert len(upstream.seen) == 2


def broken(**message: Any) -> dict[str, Any]:
    return {**chat()["choices"][0], **message}


NEVER: list[tuple[str, Reply]] = [
    ("error", Reply([json.dumps(chat()).encode()], status=500)),
    ("error", Reply([json.dumps({"error": {"message": "x"}}).encode()])),
    ("truncated", Reply([json.dumps(chat(choices=[broken(finish_reason="length")])).encode()])),
    ("refusal", Reply([json.dumps(chat(choices=[broken(finish_reason="content_filter")])).encode()])),
    ("refusal", Reply([json.dumps(chat(choices=[broken(message={"content": "", "refusal": "no"})])).encode()])),
    ("tool_calls", Reply([json.dumps(chat(choices=[broken(message={"tool_calls": [{}]})])).encode()])),
    ("empty_answer", Reply([json.dumps(chat("")).encode()])),
    ("stream_cut_off", Reply([json.dumps(chat(choices=[broken(finish_reason=None)])).encode()])),
    ("stream_cut_off", Reply([b"no json"])),
    ("stream_cut_off", Reply(list(chat_stream(chat(), usage=False)[:-2]), headers=SSE, chunked=True)),
    ("unknown_ending", Reply([json.dumps(chat(choices=[broken(finish_reason="abort")])).encode()])),
    ("stream_cut_off", Reply(list(chat_stream(chat(), usage=False)[:-3]), headers=SSE, chunked=True, end="reset")),
    ("upstream_no_store", Reply([json.dumps(chat()).encode()], headers=[("Cache-Control", "no-store")])),
    (
        "upstream_no_store",
        Reply(
            [json.dumps(chat()).encode()],
            headers=[("Cache-Control", "private, No-Store"), ("cache-control", "max-age=9")],
        ),
    ),
    ("error", Reply([json.dumps(chat()).encode()], status=206)),
    ("answer_too_large", Reply([json.dumps(chat("x" * 70_000)).encode()])),
]


@pytest.mark.parametrize(("reason", "reply"), NEVER, ids=[f"{at} {reason}" for at, (reason, _) in enumerate(NEVER)])
def test_what_is_never_stored(reason: str, reply: Reply, start: Start) -> None:
    proxy, upstream = start(lambda seen: reply, limits=Limits(cached_body_bytes=64_000))
    stream = any(value == SSE[0][1] for _, value in reply.headers)
    for _ in range(2):
        ask(proxy, stream=stream)
        proxy.settle()
    assert len(upstream.seen) == 2
    assert proxy.server.metrics.not_stored == {reason: 2}
    assert len(proxy.server.keeper.cache) == 0


@pytest.mark.parametrize("reason", ["max_tokens", "pause_turn", "refusal", "model_context_window_exceeded", None])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_never_stored_of_anthropics(reason: str | None, stream: bool, start: Start) -> None:
    answer = message(stop_reason=reason)
    proxy, upstream = start(lambda seen: reply_with(answer, seen))
    for _ in range(2):
        ask(proxy, to="/v1/messages", stream=stream)
        proxy.settle()
    # Unstreamed, a body without a reason has not ended; a stream that ended says so by its last event.
    assert len(upstream.seen) == 2
    assert len(proxy.server.keeper.cache) == 0


def test_sampled_requests_hit_when_allowed(start: Start) -> None:
    proxy, _ = start(allow_sampled=True)
    fill(proxy, temperature=1)
    assert ask(proxy, temperature=1).outcome == "EXACT"
    assert ask(proxy, temperature=0.5).outcome == "MISS"


def test_an_end_user_is_a_tenant_where_told_so(start: Start) -> None:
    proxy, _ = start(share_scope="user")
    fill(proxy, user="a")
    assert ask(proxy, user="b").outcome == "MISS"
    assert ask(proxy, user="a").outcome == "EXACT"
    wide, _ = start()
    fill(wide, user="a")
    assert ask(wide, user="b").outcome == "EXACT"


def test_sharing_between_credentials_takes_a_credential_that_the_upstream_took(start: Start) -> None:
    def handle(seen: Seen) -> Reply:
        if seen.header("authorization") == "Bearer bad":
            return Reply([b'{"error": {"message": "no such key"}}'], status=401)
        return provider()(seen)

    proxy, upstream = start(handle, share_scope="all")
    fill(proxy, key="k-1")
    assert ask(proxy, key="k-1").outcome == "EXACT"
    for _ in range(2):
        got = ask(proxy, key="bad")
        assert (got.status, got.reason) == (401, "unproven_credential")
    other = ask(proxy, key="k-2")
    assert (other.status, other.reason) == (200, "unproven_credential")
    assert ask(proxy, key="k-2").outcome == "EXACT"
    assert len(upstream.seen) == 4


def test_a_repeated_credential_header_is_nobodys(start: Start) -> None:
    proxy, _ = start()
    from tests.proxy.fake import talk

    body = json.dumps(
        {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Hello there"}]}
    ).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Authorization: a\r\nAuthorization: b\r\n"
    got = talk(proxy.port, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b"x-recall: BYPASS; reason=repeated_header" in got


def test_shadow_decides_and_never_serves(start: Start) -> None:
    answers = iter(["one", "two", "three", "four"])
    proxy, upstream = start(provider(lambda prompt: next(answers)), shadow=True)
    fill(proxy)
    near = ask(proxy, NEAR)
    assert (near.outcome, near.reason, near.text) == ("SHADOW", "would_be_semantic", "two")
    again = ask(proxy)
    assert (again.outcome, again.reason, again.text) == ("SHADOW", "would_be_exact", "three")
    assert len(upstream.seen) == 3


def gated(go: threading.Event, frames: list[bytes], **more: Any) -> Reply:
    return Reply([frames[0], go, *frames[1:]], headers=SSE, chunked=True, **more)


def together(proxy: RunningProxy, n: int, **more: Any) -> Any:
    pool = ThreadPoolExecutor(n)
    return pool, [
        pool.submit(ask, proxy, stream=bool(at % 2) and more.get("mixed", False), to=more["to"]) for at in range(n)
    ]


def wait_for(condition: Any) -> None:
    """Wait without a fixed sleep for what another thread brings about."""
    done = threading.Event()
    for _ in range(4000):
        if condition():
            return
        done.wait(0.005)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("mixed", [False, True])
def test_sixteen_identical_requests_make_one_call(to: str, mixed: bool, start: Start) -> None:
    go = threading.Event()
    answer = message() if "messages" in to else chat()

    def handle(seen: Seen) -> Reply:
        reply = reply_with(answer, seen)
        return Reply([go, *reply.pieces], headers=reply.headers, chunked=reply.chunked)

    proxy, upstream = start(handle)
    pool, asked = together(proxy, 16, to=to, mixed=mixed)
    wait_for(lambda: proxy.server.metrics.joined == 15)
    go.set()
    got = [future.result(20) for future in asked]
    pool.shutdown()
    assert {answer.text for answer in got} == {"Use the link."}
    assert {answer.status for answer in got} == {200}
    assert len(upstream.seen) == 1
    kinds = {(answer.header("content-type") or "").split(";")[0] for answer in got}
    assert kinds == ({"application/json", "text/event-stream"} if mixed else {"application/json"})
    proxy.settle()
    assert ask(proxy, to=to).outcome == "EXACT"


def test_calls_are_not_shared_between_credentials_or_in_shadow_mode(start: Start) -> None:
    for options, keys in (({}, ["a", "b"]), ({"shadow": True}, ["a", "a"])):
        go = threading.Event()

        def handle(seen: Seen, go: threading.Event = go) -> Reply:
            return Reply([go, json.dumps(chat()).encode()])

        proxy, upstream = start(handle, **options)
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(ask, proxy, key=key) for key in keys]
            wait_for(lambda upstream=upstream: len(upstream.seen) == 2)
            go.set()
            assert [future.result(20).status for future in asked] == [200, 200]


def test_a_leader_that_leaves_harms_nobody(start: Start) -> None:
    go = threading.Event()
    frames = chat_stream(chat(), usage=True)
    proxy, upstream = start(lambda seen: gated(go, frames))
    body = {
        "model": "m",
        "temperature": 0,
        "stream": True,
        "messages": [{"role": "user", "content": "How do I reset my password?"}],
    }
    raw = json.dumps(body).encode()
    leader = socket.create_connection(("127.0.0.1", proxy.port))
    leader.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-1\r\nContent-Length: %d\r\n\r\n"
        % len(raw)
        + raw
    )
    assert b"200 OK" in leader.recv(1000)
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(ask, proxy, stream=True)
        wait_for(lambda: proxy.server.metrics.joined == 1)
        leader.close()
        go.set()
        assert follower.result(20).text == "Use the link."
    assert len(upstream.seen) == 1
    proxy.settle()
    assert ask(proxy).outcome == "EXACT"


@pytest.mark.parametrize("to", [*ROUTES, "/v1/responses"])
def test_a_caller_that_leaves_before_the_first_byte_ends_the_call(to: str, start: Start) -> None:
    never = threading.Event()
    proxy, upstream = start(lambda seen: Reply([never, b"{}"]))
    body = json.dumps(
        {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Where is my invoice?"}]}
    ).encode()
    with socket.create_connection(("127.0.0.1", proxy.port)) as caller:
        caller.sendall(f"POST {to} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(lambda: len(upstream.seen) == 1)
    assert upstream.hung_up.wait(20)


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("end", ["clean", "reset", "close"])
def test_a_stream_that_breaks_off_ends_with_the_apis_own_error(to: str, end: str, start: Start) -> None:
    frames = message_stream(message()) if "messages" in to else chat_stream(chat(), usage=True)
    go = threading.Event()
    proxy, _ = start(lambda seen: Reply([*frames[:3], go, frames[3][:9]], headers=SSE, chunked=True, end=end))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask, proxy, to=to, stream=True)
        wait_for(lambda: proxy.server.metrics.in_flight() == 1)
        go.set()
        got = future.result(20)
    last = got.body.split(b"\n\n")[-2]
    if "messages" in to:
        assert last.startswith(b"event: error\ndata: {")
        assert json.loads(last.split(b"data: ")[1])["error"]["type"] == "upstream_error"
    else:
        assert json.loads(last.removeprefix(b"data: "))["error"]["type"] == "upstream_error"
    proxy.settle()
    assert len(proxy.server.keeper.cache) == 0


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_body_that_breaks_off_is_an_error(end: str, start: Start) -> None:
    headers = [("Content-Type", "application/json"), ("Content-Length", "9999")]
    proxy, _ = start(lambda seen: Reply([b'{"choices":'], headers=headers, end=end))
    got = ask(proxy)
    assert got.status == 502
    assert json.loads(got.body)["error"]["type"] == "upstream_error"
    with pytest.raises(http.client.IncompleteRead):
        ask(proxy, tools=[{"name": "f"}])  # what bypasses is what the upstream sent: a part, and never whole
    assert len(proxy.server.keeper.cache) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_silent_upstream_is_a_timeout(stream: bool, start: Start) -> None:
    never = threading.Event()
    proxy, _ = start(lambda seen: Reply([never]), limits=Limits(upstream_s=0.2))
    got = ask(proxy, stream=stream)
    assert got.status == 504
    frames = chat_stream(chat(), usage=True)
    stalling, _ = start(lambda seen: gated(never, frames), limits=Limits(upstream_s=0.2))
    assert b'"error"' in ask(stalling, stream=True).body


def test_who_comes_when_everybody_has_left_gets_a_call_of_their_own(start: Start) -> None:
    """A call that is being given up takes nobody on, in the moment before it has ended too."""
    proxy, _ = start()
    relays = proxy.server.proxy.relay
    planner = proxy.server.proxy.planner
    raw = json.dumps({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": PROMPT}]}).encode()
    scope = {"raw_path": b"/v1/chat/completions", "query_string": b"", "headers": []}
    asked = planner.plan(OPENAI, raw, [], b"/v1/chat/completions?")
    assert isinstance(asked, PlannedRequest)

    async def come_and_go() -> list[bool]:
        first, _ = relays._flight(ForwardedCall(OPENAI, scope, raw, asked, joins=True))
        seat = Seat(first, plain=False)
        first.start()
        joined = [relays._flight(ForwardedCall(OPENAI, scope, raw, asked, joins=True))[1]]
        first.leave(seat)
        assert not first.done
        return [*joined, relays._flight(ForwardedCall(OPENAI, scope, raw, asked, joins=True))[1]]

    assert asyncio.run_coroutine_threadsafe(come_and_go(), proxy._loop).result(20) == [True, False]


def test_one_callers_trouble_with_the_form_is_not_the_others(start: Start) -> None:
    go = threading.Event()
    odd = [b'data: {"choices": [{"index": 0, "delta": {"content": 5}}, 7]}\n\n', go, b"data: [DONE]\n\n"]
    proxy, _ = start(lambda seen: Reply(list(odd), headers=SSE, chunked=True))
    with ThreadPoolExecutor(2) as pool:
        streamed = pool.submit(ask, proxy, stream=True, stream_options={"include_usage": True})
        wait_for(lambda: proxy.server.metrics.in_flight() == 1)
        whole = pool.submit(ask, proxy)
        wait_for(lambda: proxy.server.metrics.joined == 1)
        go.set()
        assert whole.result(20).status == 502
        assert streamed.result(20).body == odd[0] + odd[2]  # type: ignore[operator]
