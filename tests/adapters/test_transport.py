"""The cache inside the official clients, before an upstream of ours on a real socket."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from recall_cli import AsyncCachedTransport, CachedTransport, open_cache
from recall_cli.cache.cache import Cache
from recall_cli.errors import StoreError
from recall_cli.types import Completion, Evidence, Json, Verdict
from tests.proxy.answers import SSE, chat, chat_stream, message, provider, reply_with
from tests.proxy.fake import EMBEDDER, FakeUpstream, Handler, Reply
from tests.proxy.test_sdks import PROMPT, chat_streamed, chat_whole, claude_streamed, claude_whole, told

NEAR = "How can I reset my password?"
Serve = Callable[..., FakeUpstream]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[FakeUpstream] = []

    def make(handler: Handler | None = None) -> FakeUpstream:
        running.append(FakeUpstream(handler or provider()))
        return running[-1]

    yield make
    for one in running:
        one.close()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with closing(open_cache(tmp_path / "cache.db", embedder=EMBEDDER)) as opened:
        yield opened


def chats(upstream: FakeUpstream, cache: Cache, *, key: str = "k-1", **options: Any) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(transport=CachedTransport(cache, **options))
    return openai.OpenAI(base_url=upstream.url + "/v1", api_key=key, max_retries=0, timeout=20, http_client=http)


def claudes(upstream: FakeUpstream, cache: Cache, **options: Any) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(transport=CachedTransport(cache, **options))
    return anthropic.Anthropic(base_url=upstream.url, api_key="k-1", max_retries=0, timeout=20, http_client=http)


def ask(client: openai.OpenAI, prompt: str = PROMPT, **more: Any) -> str:
    """Return what was decided."""
    asked: dict[str, Any] = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    raw = client.chat.completions.with_raw_response.create(**{**asked, **more})
    return str(raw.headers["x-recall"])


@pytest.mark.parametrize("first", [chat_whole, chat_streamed])
@pytest.mark.parametrize("then", [chat_whole, chat_streamed])
def test_openai_miss_then_hit_in_either_mode(first: Any, then: Any, serve: Serve, cache: Cache) -> None:
    answer = chat("Use the link, über all.")
    del answer["choices"][0]["message"]["annotations"]
    upstream = serve(lambda seen: reply_with(answer, seen))
    with chats(upstream, cache) as client:
        missed, outcome = first(client)
        assert outcome == "MISS"
        hit, outcome = then(client)
        assert outcome == "EXACT"
    assert told(missed) == told(hit) == told(answer)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("first", [claude_whole, claude_streamed])
@pytest.mark.parametrize("then", [claude_whole, claude_streamed])
def test_anthropic_miss_then_hit_in_either_mode(first: Any, then: Any, serve: Serve, cache: Cache) -> None:
    answer = message("Use the link.")
    upstream = serve(lambda seen: reply_with(answer, seen))
    with claudes(upstream, cache) as client:
        missed, outcome = first(client)
        assert outcome == "MISS"
        hit, outcome = then(client)
        assert outcome == "EXACT"
    assert told(missed) == told(hit) == told(answer)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("streams", [False, True])
def test_asynchronous_clients(streams: bool, serve: Serve, cache: Cache) -> None:
    answer = chat("Use the link.")
    upstream = serve(lambda seen: reply_with(answer, seen))

    async def twice() -> list[str]:
        http = openai.DefaultAsyncHttpxClient(transport=AsyncCachedTransport(cache))
        outcomes = []
        async with openai.AsyncOpenAI(base_url=upstream.url + "/v1", api_key="k", max_retries=0, http_client=http) as c:
            for _ in range(2):
                raw = await c.chat.completions.with_raw_response.create(
                    model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], stream=streams
                )
                parsed = raw.parse()
                if streams:
                    text = "".join([part.choices[0].delta.content or "" async for part in parsed])
                else:
                    text = parsed.choices[0].message.content
                assert text == "Use the link."
                outcomes.append(raw.headers["x-recall"])
        return outcomes

    assert asyncio.run(twice()) == ["MISS; reason=empty_partition", "EXACT"]
    assert len(upstream.seen) == 1


def test_a_near_prompt_is_answered_within_its_walls_alone(serve: Serve, cache: Cache) -> None:
    upstream = serve()
    with chats(upstream, cache) as client, chats(upstream, cache, key="k-2") as other:
        assert ask(client).startswith("MISS")
        assert ask(client, NEAR) == "SEMANTIC"
        assert ask(client, NEAR, model="m-2").startswith("MISS")
        assert ask(client, NEAR, max_tokens=5).startswith("MISS")
        system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": NEAR}]
        assert ask(client, messages=system).startswith("MISS")
        assert ask(other, NEAR).startswith("MISS"), "another key is another tenant"
        assert ask(client, extra_headers={"x-recall-namespace": "b"}).startswith("MISS")
    with chats(serve(), cache) as elsewhere:
        assert ask(elsewhere, NEAR).startswith("MISS"), "another host is another answer"


def test_tenants_may_share(serve: Serve, cache: Cache) -> None:
    upstream = serve()
    with chats(upstream, cache, share_scope="all") as one, chats(upstream, cache, key="k-2", share_scope="all") as two:
        assert ask(one).startswith("MISS")
        assert ask(two) == "EXACT"


def test_usage_that_nobody_asked_for_is_kept_from_the_caller(serve: Serve, cache: Cache) -> None:
    upstream = serve(lambda seen: reply_with(chat(), seen))
    with chats(upstream, cache) as client:
        parts = list(
            client.chat.completions.create(
                model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], stream=True
            )
        )
        assert all(part.choices and part.usage is None for part in parts)
        assert upstream.seen[0].json["stream_options"] == {"include_usage": True}
        hit, outcome = chat_whole(client)
    assert outcome == "EXACT"
    assert hit["usage"]["total_tokens"] == 19


def test_a_server_that_refuses_stream_options_is_not_asked_for_the_usage(serve: Serve, cache: Cache) -> None:
    upstream = serve(lambda seen: reply_with(chat(), seen))
    with chats(upstream, cache, learn_usage=False) as client:
        turns: Any = [{"role": "user", "content": PROMPT}]
        assert list(client.chat.completions.create(model="m", temperature=0, messages=turns, stream=True))
        assert "stream_options" not in upstream.seen[0].json
        assert ask(client) == "EXACT"


def test_texts_longer_than_the_embedder_reads_are_matched_by_identity(serve: Serve, cache: Cache) -> None:
    long = "word " * 600
    with chats(serve(), cache) as client:
        assert ask(client, f"{long} one").startswith("MISS")
        assert ask(client, f"{long} two") == "MISS; reason=exact_only"
        assert ask(client, f"{long} one") == "EXACT"


def test_an_answer_that_cannot_be_replayed_is_asked_for_and_replaced(
    serve: Serve, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = serve()
    with chats(upstream, cache) as client:
        ask(client)
        (entry,) = cache.store.entries()
        broken = Completion(b"{", "m")
        monkeypatch.setattr(cache.store, "get", lambda id, identity=None: broken)
        turns: Any = [{"role": "user", "content": PROMPT}]
        assert list(client.chat.completions.create(model="m", temperature=0, messages=turns, stream=True))
        monkeypatch.undo()
        assert [row.id for row in cache.store.entries()] != [entry.id]
        assert ask(client) == "EXACT"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"temperature": 1}, "sampled"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"extra_headers": {"cache-control": "no-store"}}, "no_store"),
    ],
)
def test_what_bypasses(more: dict[str, Any], reason: str, serve: Serve, cache: Cache) -> None:
    upstream = serve()
    with chats(upstream, cache) as client:
        for _ in range(2):
            assert ask(client, **more) == f"BYPASS; reason={reason}"
    assert len(upstream.seen) == 2
    assert not len(cache)


def test_sampled_calls_when_they_are_allowed(serve: Serve, cache: Cache) -> None:
    with chats(serve(), cache, allow_sampled=True) as client:
        assert ask(client, temperature=1).startswith("MISS")
        assert ask(client, temperature=1) == "EXACT"


@pytest.mark.parametrize("reply", [
    Reply([b'{"error": {"message": "busy"}}'], status=500),
    Reply([json.dumps(chat(choices=[{**chat()["choices"][0], "finish_reason": "length"}])).encode()]),
    Reply([gzip.compress(json.dumps(chat()).encode())],
          headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip")]),
], ids=["error", "cut off", "compressed"])  # fmt: skip
def test_what_is_not_stored(reply: Reply, serve: Serve, cache: Cache) -> None:
    upstream = serve(lambda seen: reply)
    with chats(upstream, cache) as client:
        for _ in range(2):
            if reply.status == 500:
                with pytest.raises(openai.InternalServerError):
                    ask(client)
            else:
                assert ask(client).startswith("MISS")
    assert len(upstream.seen) == 2
    assert not len(cache)


def test_a_stream_that_the_caller_leaves_is_not_stored(serve: Serve, cache: Cache) -> None:
    pieces = chat_stream(chat("A long answer. " * 4_000), usage=True)
    headers = [("Content-Type", "text/event-stream")]
    with chats(serve(lambda seen: Reply(list(pieces), headers=headers)), cache) as client:
        for part in client.chat.completions.create(
            model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], stream=True
        ):
            assert part
            break
        assert not len(cache)
        with client.chat.completions.create(
            model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], stream=True
        ) as whole:
            assert sum(1 for _ in whole) > 100
    assert len(cache) == 1


def test_a_stream_that_breaks_off_raises_and_is_not_stored(serve: Serve, cache: Cache) -> None:
    pieces = chat_stream(chat(), usage=True)[:2]
    broken = Reply(pieces, headers=[("Content-Type", "text/event-stream")], chunked=True, end="reset")
    with chats(serve(lambda seen: broken), cache) as client, pytest.raises(Exception, match=r".") as caught:
        list(
            client.chat.completions.create(
                model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], stream=True
            )
        )
    assert not isinstance(caught.value, AssertionError)
    assert not len(cache)


CHATS = chat_stream(chat(), usage=False)
STREAMS = {
    "no [DONE]": CHATS[:-1],
    "no last blank line": [*CHATS[:-2], CHATS[-2].removesuffix(b"\n\n")],
    "carriage returns": [frame.replace(b"\n", b"\r\n") for frame in CHATS],
    "usage in the last chunk": [*CHATS[:-2], CHATS[-2].replace(b'"choices"', b'"usage":{"total_tokens":1},"choices"')],
    "usage in every chunk": [frame.replace(b'"choices"', b'"usage":{"total_tokens":1},"choices"') for frame in CHATS],
}


def post(library: Any, upstream: FakeUpstream, cache: Cache, mode: str, **more: Any) -> tuple[int, bytes]:
    """Return (status, body) of one streamed call, by a synchronous or an asynchronous client."""
    said: Any = {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    options = {name: more.pop(name) for name in ("learn_usage",) if name in more}
    url = upstream.url + "/v1/chat/completions"
    if mode == "sync":
        with library.Client(transport=CachedTransport(cache, **options)) as client:
            got = client.post(url, json={**said, **more})
            return got.status_code, got.content

    async def once() -> tuple[int, bytes]:
        async with library.AsyncClient(transport=AsyncCachedTransport(cache, **options)) as client:
            got = await client.post(url, json={**said, **more})
            return got.status_code, got.content

    return asyncio.run(once())


MODES = pytest.mark.parametrize("mode", ["sync", "async"])


@MODES
@pytest.mark.parametrize("way", [{}, {"temperature": 1}], ids=["miss", "bypass"])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_whole_stream_passes_to_the_byte(kind: str, way: Any, mode: str, serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip("httpx")
    upstream = serve(lambda seen: Reply(list(STREAMS[kind]), headers=SSE, chunked=True))
    assert post(library, upstream, cache, mode, **way) == (200, b"".join(STREAMS[kind]))
    assert len(cache) == (not way)


@MODES
@pytest.mark.parametrize("end", ["clean", "close", "reset"])
def test_a_stream_that_is_cut_raises_and_is_not_stored(end: str, mode: str, serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip("httpx")
    for frames in (CHATS[:-2], CHATS) if end != "clean" else (CHATS[:-2],):
        upstream = serve(lambda seen, frames=frames: Reply(list(frames), headers=SSE, chunked=True, end=end))
        with pytest.raises(library.TransportError):
            post(library, upstream, cache, mode)
    assert not len(cache)
    torn = serve(lambda seen: Reply(CHATS[:-2], headers=SSE, chunked=True))
    assert post(library, torn, cache, mode, temperature=1) == (200, b"".join(CHATS[:-2])), "a bypass is what came"


def test_a_caller_that_leaves_before_the_end_is_said_leaves_nothing_behind(serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip("httpx")
    frames = [*CHATS[:-1], b": " + b"x" * 1_000_000 + b"\n\n"]
    upstream = serve(lambda seen: Reply(list(frames), headers=SSE, chunked=True))
    said = {"model": "m", "temperature": 0, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    with (
        library.Client(transport=CachedTransport(cache)) as client,
        client.stream("POST", upstream.url + "/v1/chat/completions", json=said) as got,
    ):
        next(line for line in got.iter_lines() if '"finish_reason":"stop"' in line)
    assert not len(cache), "it may have been cut"


@MODES
@pytest.mark.parametrize(("words", "status"), [(b"no stream_options", 422), (b"unknown field", 400)])
def test_a_server_that_refuses_stream_options_is_asked_without(
    words: bytes, status: int, mode: str, serve: Serve, cache: Cache
) -> None:
    library = pytest.importorskip("httpx")
    upstream = serve(
        lambda seen: Reply([words], status=status) if "stream_options" in seen.json else reply_with(chat(), seen)
    )
    assert post(library, upstream, cache, mode) == (200, b"".join(CHATS))
    assert ["stream_options" in seen.json for seen in upstream.seen] == [True, False]
    assert len(cache) == 1
    options = {"stream_options": {"include_usage": False}, "user": "u", "seed": 7}
    assert post(library, upstream, cache, mode, **options) == (status, words), "the caller's own is the caller's"
    assert len(upstream.seen) == 3


def test_what_a_transport_was_refused_is_remembered(serve: Serve, cache: Cache) -> None:
    upstream = serve(
        lambda seen: Reply([b"no"], status=400) if "stream_options" in seen.json else reply_with(chat(), seen)
    )
    turns: Any = [{"role": "user", "content": PROMPT}]
    with chats(upstream, cache) as client:
        for seed in range(3):
            assert list(
                client.chat.completions.create(model="m", temperature=0, messages=turns, stream=True, seed=seed)
            )
    assert ["stream_options" in seen.json for seen in upstream.seen] == [True, False, False, False]


@MODES
def test_a_refusal_for_another_reason_reaches_the_caller(mode: str, serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip("httpx")
    for status, calls in ((400, 2), (401, 1), (429, 1), (500, 1)):
        upstream = serve(lambda seen, status=status: Reply([b'{"error": "x"}'], status=status))
        assert post(library, upstream, cache, mode) == (status, b'{"error": "x"}')
        assert len(upstream.seen) == calls


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["error", "abort", "SAFETY", "MAX_TOKENS", "insufficient_system_resource", ""])
def test_only_known_good_endings_are_stored(reason: str, stream: bool, serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip("httpx")
    answer = chat(choices=[{**chat()["choices"][0], "finish_reason": reason}])
    upstream = serve(lambda seen: reply_with(answer, seen))
    if reason or not stream:
        assert post(library, upstream, cache, "sync", stream=stream)[0] == 200
    assert not len(cache)


def test_only_if_cached(serve: Serve, cache: Cache) -> None:
    upstream = serve()
    with chats(upstream, cache) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(client, extra_headers={"cache-control": "only-if-cached"})
        assert caught.value.status_code == 504
        assert not upstream.seen
        ask(client)
        assert ask(client, extra_headers={"cache-control": "only-if-cached"}) == "EXACT"


def test_other_routes_pass_untouched(serve: Serve, cache: Cache) -> None:
    models = Reply([b'{"object": "list", "data": []}'])
    upstream = serve(lambda seen: models)
    with chats(upstream, cache) as client:
        assert client.models.list().data == []
    assert upstream.seen[0].target == "/v1/models"


def test_what_is_meant_for_recall_stays_here(serve: Serve, cache: Cache) -> None:
    upstream = serve()
    with chats(upstream, cache) as client:
        ask(client, extra_headers={"x-recall-namespace": "b", "x-mine": "kept"})
    (seen,) = upstream.seen
    assert seen.header("x-recall-namespace") is None
    assert seen.header("x-mine") == "kept"
    assert seen.header("accept-encoding") == "identity"


def test_a_fault_of_the_cache_fails_no_call(
    serve: Serve, cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is gone")

    upstream = serve()
    transport = CachedTransport(cache)
    http = openai.DefaultHttpxClient(transport=transport)
    with openai.OpenAI(base_url=upstream.url + "/v1", api_key="k", max_retries=0, http_client=http) as client:
        monkeypatch.setattr(cache, "get", fail)
        monkeypatch.setattr(cache, "learn", fail)
        assert ask(client) == "MISS; reason=cache_fault"
        assert ask(client) == "MISS; reason=cache_fault"
    assert transport.exchange.faults == {"lookup": 2, "learn": 2}
    assert [record.message.count("once") for record in caplog.records if "cache failed" in record.message] == [1, 1]


class Checking:
    """A policy that serves everything near and has every hit checked."""

    name, candidates, learns = "checking", 2, True

    def __init__(self) -> None:
        self.labels: list[bool] = []

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        return Verdict(evidence.similarity > 0.8, 0.8, audit=True)

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        pass

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        self.labels.append(same)

    def state(self) -> Json:
        return {}

    def load(self, state: Json) -> None:
        pass


def test_a_hit_that_is_to_be_checked_brings_the_fresh_answer(serve: Serve) -> None:
    policy = Checking()
    said = iter(["Use the link on page 7.", "Use the link on page 9.", "Use the link on page 9."])
    upstream = serve(lambda seen: reply_with(chat(next(said)), seen))
    with closing(Cache(embedder=EMBEDDER, policy=policy)) as cache, chats(upstream, cache) as client:
        assert ask(client).startswith("MISS")
        assert ask(client, NEAR) == "MISS; reason=audited"
        assert policy.labels == [False], "the pages differ"
        assert ask(client, NEAR) == "EXACT", "the fresh answer has taken its place"


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_both_generations_of_the_client_library(name: str, serve: Serve, cache: Cache) -> None:
    library = pytest.importorskip(name)
    upstream = serve()
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": PROMPT}]}
    with library.Client(transport=CachedTransport(cache)) as client:
        answers = [client.post(upstream.url + "/v1/chat/completions", json=body) for _ in range(2)]
    assert [answer.headers["x-recall"].partition(";")[0] for answer in answers] == ["MISS", "EXACT"]
    assert answers[0].json() == answers[1].json()


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, recall_cli\n"
        "assert 'numpy' not in sys.modules\n"
        "from recall_cli import CachedTransport, open_cache\n"
        "heavy = {'httpx', 'httpx2', 'openai', 'anthropic', 'langchain_core', 'litellm', 'aiohttp', 'uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nothing_such"):
        importlib.import_module("recall_cli").nothing_such  # noqa: B018
