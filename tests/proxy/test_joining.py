"""A caller that joins another's call gets the answer and nothing else of it; and it can join until the answer hits."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recall_cli.errors import StoreError
from recall_cli.proxy.settings import Limits
from recall_cli.types import Lookup
from tests.proxy.answers import SSE, chat, chat_stream, message, message_stream, provider, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Answer, FakeUpstream, Reply, RunningProxy, Seen, ask, make_plan
from tests.proxy.test_rules import ROUTES, wait_for

LEADERS = {
    "Set-Cookie": "session=of-the-leader",
    "OpenAI-Organization": "org-leader",
    "OpenAI-Processing-Ms": "123",
    "OpenAI-Project": "proj_leader",
    "Anthropic-Organization-Id": "org-leader",
    "Anthropic-RateLimit-Requests-Remaining": "7",
    "X-RateLimit-Remaining-Requests": "7",
    "Retry-After": "9",
    "Request-Id": "req_leader",
    "X-Request-Id": "req_leader",
    "CF-Ray": "8f-leader",
    "WWW-Authenticate": "Bearer realm=leader",
    "Via": "1.1 leader",
    "X-Of-Tomorrow": "leader",
    "Cache-Control": "private",
    "ETag": '"leader"',
}
OURS = {"content-type", "content-length", "transfer-encoding", "connection", "x-recall", "x-request-id", "request-id"}


def answer_of(to: str) -> dict[str, Any]:
    return message() if "messages" in to else chat()


def prove(proxy: RunningProxy, upstream: FakeUpstream, *keys: str, to: str = ROUTES[0]) -> None:
    """Let the upstream take each credential once, as `--share-scope all` wants it, with a prompt of its own."""
    for key in keys:
        assert ask(proxy, f"Is {key} a good key?", to=to, key=key).status == 200
    proxy.settle()
    upstream.seen.clear()


class Leading:
    """One caller that asks, and others that join it before the upstream goes on."""

    def __init__(self, start: Start, then: Any, *, to: str = ROUTES[0], keys: Any = ("k-1", "k-2", "k-3"), **more: Any):
        self.go = threading.Event()
        self.first = True
        self.then, self.to, self.keys = then, to, keys
        self.is_proving = True
        self.proxy, self.upstream = start(self.handle, **{"share_scope": "all", **more})
        prove(self.proxy, self.upstream, *dict.fromkeys(keys), to=to)
        self.is_proving = False

    def handle(self, seen: Seen) -> Reply:
        if self.is_proving:
            return reply_with(answer_of(self.to), seen)
        first, self.first = self.first, False
        reply: Reply = self.then(seen, first)
        if first:
            reply.pieces.insert(0, self.go)
        return reply

    def run(self, *, streams: Any = (False,)) -> list[Answer]:
        """Return what the leader and the others got."""
        joined = self.proxy.server.metrics.joined
        with ThreadPoolExecutor(len(self.keys)) as pool:
            asked = [pool.submit(ask, self.proxy, to=self.to, key=self.keys[0], stream=streams[0])]
            wait_for(lambda: len(self.upstream.seen) == 1)
            for at, key in enumerate(self.keys[1:], 1):
                stream = streams[at % len(streams)]
                asked.append(pool.submit(ask, self.proxy, to=self.to, key=key, stream=stream))
            wait_for(lambda: self.proxy.server.metrics.joined - joined == len(self.keys) - 1)
            self.go.set()
            return [one.result(20) for one in asked]

    def calls(self) -> Counter[str]:
        """Return the calls by key."""
        return Counter((seen.header("authorization") or "").removeprefix("Bearer ") for seen in self.upstream.seen)


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("scope", ["all", "credential"])
@pytest.mark.parametrize("streams", [(False,), (True,), (False, True), (True, False)])
def test_a_follower_gets_the_answer_and_no_header_of_the_leader(
    to: str, scope: str, streams: Any, start: Start
) -> None:
    def then(seen: Seen, first: bool) -> Reply:
        reply = reply_with(answer_of(to), seen)
        kind = [pair for pair in reply.headers if pair[0] == "Content-Type"]
        return Reply(reply.pieces, headers=[*kind, *LEADERS.items()], chunked=reply.chunked)

    keys = ("k-1", "k-2", "k-3") if scope == "all" else ("k-1",) * 3
    leading = Leading(start, then, to=to, keys=keys, share_scope=scope)
    leader, *followers = leading.run(streams=streams)
    for name, value in LEADERS.items():
        assert leader.header(name.lower()) == value
    assert sum(leading.calls().values()) == 1
    for got in followers:
        assert got.text == "Use the link."
        assert {name.lower() for name, _ in got.headers if not name.startswith("x-recall-")} <= OURS
        assert b"leader" not in repr(got.headers).encode()
    ids = [got.header("request-id" if "messages" in to else "x-request-id") for got in followers]
    assert len(set(ids)) == 2, "each has an id of its own, where its SDK looks for one"


REFUSALS = [300, 400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504, 529]


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("streams", [(False,), (True,)])
def test_a_follower_of_a_refused_call_asks_with_its_own_key(status: int, streams: Any, start: Start) -> None:
    words = json.dumps({"error": {"message": "org-leader may not"}}).encode()

    def then(seen: Seen, first: bool) -> Reply:
        if seen.header("authorization") == "Bearer k-1":
            return Reply([words], status=status, headers=[("Content-Type", "application/json"), *LEADERS.items()])
        return reply_with(chat(), seen)

    leading = Leading(start, then)
    leader, *followers = leading.run(streams=streams)
    assert (leader.status, leader.body, leader.header("retry-after")) == (status, words, "9")
    assert [(got.status, got.text, got.outcome) for got in followers] == [(200, "Use the link.", "MISS")] * 2
    assert {key: n for key, n in leading.calls().items() if key != "k-1"} == {"k-2": 1, "k-3": 1}
    leading.proxy.settle()
    assert ask(leading.proxy, key="k-2").outcome == "EXACT", "what a follower brought is stored like any other"


def test_each_follower_is_told_its_own_refusal_and_asks_once(start: Start) -> None:
    keys = ("k-401", "k-429", "k-403", "k-500")

    def then(seen: Seen, first: bool) -> Reply:
        said = (seen.header("authorization") or "").removeprefix("Bearer k-")
        return Reply([b'{"error": {"message": "%s"}}' % said.encode()], status=int(said))

    leading = Leading(start, then, keys=keys)
    answers = leading.run()
    assert [got.status for got in answers] == [401, 429, 403, 500]
    assert leading.calls() == Counter(keys)


@pytest.mark.parametrize("scope", ["all", "credential"])
def test_followers_that_are_one_caller_ask_as_one(scope: str, start: Start) -> None:
    leading = Leading(start, lambda seen, first: Reply([b"{}"], status=429), keys=("k-1",) * 12, share_scope=scope)
    held = threading.Event()
    again = leading.handle

    def gated(seen: Seen) -> Reply:
        first = leading.first
        reply = again(seen)
        if not first:
            reply.pieces.insert(0, held)
        return reply

    leading.upstream.handler = gated
    threading.Thread(
        target=lambda: (wait_for(lambda: leading.proxy.server.metrics.joined == 21), held.set()), daemon=True
    ).start()
    assert [got.status for got in leading.run()] == [429] * 12
    assert sum(leading.calls().values()) == 2


def test_a_call_that_is_cut_before_its_head_is_asked_again_by_who_waited(start: Start) -> None:
    def then(seen: Seen, first: bool) -> Reply:
        if seen.header("authorization") == "Bearer k-1":
            return Reply([], end="reset")
        return reply_with(chat(), seen)

    leader, *followers = Leading(start, then).run()
    assert leader.status == 502
    assert [got.text for got in followers] == ["Use the link."] * 2


def test_nobody_waits_twice_for_an_upstream_that_is_silent(start: Start) -> None:
    never = threading.Event()
    leading = Leading(start, lambda seen, first: Reply([never]), limits=Limits(upstream_s=1.0))
    assert [got.status for got in leading.run()] == [504] * 3
    assert sum(leading.calls().values()) == 1


SECRET = b"org-of-the-leader"


def error_frame(to: str) -> bytes:
    said = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": SECRET.decode()}}).encode()
    return (b"event: error\n" if "messages" in to else b"") + b"data: " + said + b"\n\n"


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_inside_a_200_is_the_leaders_alone(to: str, stream: bool, start: Start) -> None:
    def then(seen: Seen, first: bool) -> Reply:
        if seen.header("authorization") != "Bearer k-1":
            return reply_with(answer_of(to), seen)
        if stream:
            return Reply([b": hello\n\n", error_frame(to)], headers=SSE, chunked=True)
        return Reply([error_frame(to).split(b"data: ")[1]])

    leader, *followers = Leading(start, then, to=to).run(streams=(stream,))
    assert SECRET in leader.body
    assert [got.text for got in followers] == ["Use the link."] * 2


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize("usage", [True, False])
def test_an_error_in_mid_stream_tells_followers_nothing_of_the_leader(
    to: str, size: int, usage: bool, start: Start
) -> None:
    frames = message_stream(message()) if "messages" in to else chat_stream(chat(), usage=False)
    begun, failed = b"".join(frames[:5]), error_frame(to)
    go_on = threading.Event()

    def then(seen: Seen, first: bool) -> Reply:
        behind = [failed[at : at + size] for at in range(0, len(failed), size)]
        return Reply([begun + behind[0][:-1], go_on, behind[0][-1:], *behind[1:]], headers=SSE, chunked=True)

    leading = Leading(start, then, to=to, keys=("k-1", "k-2"), learn_usage=usage)
    loop = threading.Thread(target=lambda: (_until_sent(leading), go_on.set()), daemon=True)
    loop.start()
    leader, follower = leading.run(streams=(True,))
    loop.join(20)
    assert SECRET in leader.body
    assert follower.body.startswith(begun)
    assert SECRET not in follower.body
    assert b"org-" not in follower.body
    assert b"upstream_error" in follower.body[len(begun) :], "and it ends with an error all the same"


def _until_sent(leading: Leading) -> None:
    """Wait until the follower has had what came before the error."""

    def has_had() -> bool:
        flights = list(leading.proxy.server.proxy.relay._all)
        return any(seat.joined and seat._sent for flight in flights for seat in list(flight.seats))

    wait_for(has_had)


def test_joining_proves_no_credential(start: Start) -> None:
    leading = Leading(start, lambda seen, first: reply_with(chat(), seen))
    proven = dict(leading.proxy.server.proxy._proven)
    leading.run()
    changed = [key for key, at in leading.proxy.server.proxy._proven.items() if proven[key] != at]
    assert len(changed) == 1, "the leader's: what the upstream would say to the others' now, nobody knows"


class Disk:
    """A store whose writes wait until they are let go, and may fail then."""

    def __init__(self, proxy: RunningProxy, fault: Exception | None = None) -> None:
        self.go, self.waits = threading.Event(), threading.Event()
        self._store = proxy.server.keeper.cache.store
        self._append, self._fault = self._store.append, fault
        self._store.append = self.append  # type: ignore[method-assign]

    def append(self, *args: Any, **more: Any) -> Any:
        self.waits.set()
        assert self.go.wait(20)
        if self._fault is not None:
            raise self._fault
        return self._append(*args, **more)


def flights(proxy: RunningProxy) -> int:
    return len(proxy.server.proxy.relay._flights)


@pytest.mark.parametrize("to", ROUTES)
@pytest.mark.parametrize("streams", [(False, True), (True, False)])
def test_a_call_can_be_joined_until_its_answer_can_be_hit(to: str, streams: Any, start: Start) -> None:
    proxy, upstream = start(provider())
    disk = Disk(proxy)
    assert ask(proxy, to=to, stream=streams[0]).outcome == "MISS"
    assert disk.waits.wait(20)
    late = [ask(proxy, to=to, stream=streams[at % 2]) for at in range(6)]
    assert {(got.status, got.text) for got in late} == {(200, "Use the link.")}
    assert not disk.go.is_set(), "nobody waited for the disk"
    assert len(upstream.seen) == 1
    disk.go.set()
    proxy.settle()
    assert ask(proxy, to=to).outcome == "EXACT"
    assert len(upstream.seen) == 1
    wait_for(lambda: flights(proxy) == 0)


def test_who_joins_late_is_no_other_tenant(start: Start) -> None:
    proxy, upstream = start(provider())
    disk = Disk(proxy)
    ask(proxy)
    assert disk.waits.wait(20)
    ask(proxy, key="k-2")
    ask(proxy, model="another")
    disk.go.set()
    assert len(upstream.seen) == 3


@pytest.mark.parametrize("fault", [StoreError("the disk is full"), OSError("no space"), RuntimeError("odd")])
def test_a_store_that_fails_leaves_no_call_behind(fault: Exception, start: Start) -> None:
    proxy, upstream = start(provider())
    disk = Disk(proxy, fault)
    ask(proxy)
    assert disk.waits.wait(20)
    assert ask(proxy).status == 200
    disk.go.set()
    proxy.settle()
    wait_for(lambda: flights(proxy) == 0)
    assert len(upstream.seen) == 1
    assert ask(proxy).text == "Use the link."
    proxy.settle()
    assert len(upstream.seen) == 2
    wait_for(lambda: flights(proxy) == 0)


@pytest.mark.parametrize(
    "answer",
    [chat(""), chat(choices=[{"index": 0, "message": {"content": "x"}, "finish_reason": "length"}]), {"choices": []}],
)
def test_an_answer_that_is_not_stored_cannot_be_joined_late(answer: Any, start: Start) -> None:
    proxy, upstream = start(lambda seen: reply_with(answer, seen))
    held = threading.Event()
    proxy.server.keeper.ask_writer(lambda: held.wait(20))
    ask(proxy)
    ask(proxy)
    held.set()
    assert len(upstream.seen) == 2, "a retry for a better answer gets one"
    proxy.settle()
    wait_for(lambda: flights(proxy) == 0)


@pytest.mark.parametrize(
    "more", [{"headers": {"Cache-Control": "no-cache"}}, {"headers": {"Cache-Control": "no-store"}}]
)
def test_who_wants_a_fresh_answer_joins_none_late(more: Any, start: Start) -> None:
    proxy, upstream = start(provider())
    disk = Disk(proxy)
    ask(proxy)
    assert disk.waits.wait(20)
    ask(proxy, **more)
    disk.go.set()
    assert len(upstream.seen) == 2


@pytest.mark.parametrize(
    ("after", "options", "headers"),
    [(3_600.0, {}, {}), (3.0, {"ttl": 2.0}, {}), (3.0, {}, {"Cache-Control": "max-age=2"})],
)
def test_a_disk_that_hangs_keeps_no_answer_alive(after: float, options: Any, headers: Any, start: Start) -> None:
    proxy, upstream = start(provider(), **options)
    disk = Disk(proxy)
    ask(proxy)
    assert disk.waits.wait(20)
    keeper = proxy.server.keeper
    keeper.now = lambda: time.time() + after  # type: ignore[method-assign]
    ask(proxy, headers=headers)
    disk.go.set()
    assert len(upstream.seen) == 2
    proxy.settle()
    wait_for(lambda: flights(proxy) == 0)


def test_too_many_writes_leave_no_call_behind(start: Start) -> None:
    proxy, _ = start(provider(), limits=Limits(writes=1))
    disk = Disk(proxy)
    ask(proxy)
    assert disk.waits.wait(20)
    for at in range(5):
        ask(proxy, f"What does article {at} cost?")
    assert flights(proxy) <= 2
    disk.go.set()
    proxy.settle()
    wait_for(lambda: flights(proxy) == 0)


def test_one_odd_answer_does_not_cost_the_others(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, _ = start(provider())
    learn, said = proxy.server.verifier.learn, []

    def fails(answers: Any) -> None:
        said.append(len(answers))
        if len(said) == 1:
            raise RuntimeError("odd")
        learn(answers)

    monkeypatch.setattr(proxy.server.verifier, "learn", fails)
    monkeypatch.setattr("recall_cli.proxy.lookup.BATCH", 1)
    held = threading.Event()
    proxy.server.keeper.ask_writer(lambda: held.wait(20))
    for at in range(3):
        ask(proxy, f"What does article {at} cost?")
    held.set()
    proxy.settle()
    wait_for(lambda: flights(proxy) == 0)
    assert len(proxy.server.keeper.cache) == 2
    assert proxy.server.metrics.faults["write"] == 1


def test_who_looked_before_the_answer_came_looks_again(start: Start) -> None:
    """A lookup in a thread misses; before it says so, the same request's call has ended and its answer is stored."""
    proxy, upstream = start(provider(), limits=Limits(lookup_s=20.0))
    keeper, go, looks = proxy.server.keeper, threading.Event(), threading.Event()
    match = keeper._match
    prompt = "How do I reset my password? " * 60  # long enough for a thread

    def slow(request: Any) -> Lookup:
        found = match(request)
        if not looks.is_set():
            looks.set()
            assert go.wait(20)
        return found

    keeper._match = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        slowly = pool.submit(ask, proxy, prompt)
        assert looks.wait(20)
        assert ask(proxy, prompt).outcome == "MISS"
        proxy.settle()
        go.set()
        got = slowly.result(20)
    assert (got.outcome, got.text) == ("EXACT", "Use the link.")
    assert len(upstream.seen) == 1


def test_what_waits_when_the_server_ends_is_stored_and_nothing_fails() -> None:
    upstream = FakeUpstream(provider())
    proxy = RunningProxy(make_plan(upstream))
    try:
        disk = Disk(proxy)
        ask(proxy)
        assert disk.waits.wait(20)
        ended = threading.Thread(target=lambda: (proxy._thread.join(20), disk.go.set()), daemon=True)
        ended.start()
    finally:
        proxy.close()
        upstream.close()
    assert proxy.server.metrics.stored == 1
    assert proxy.server.metrics.faults["write"] == 0
