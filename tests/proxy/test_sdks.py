"""The official SDKs before the proxy: both providers, both modes, miss and hit, and a hit in the other mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from recall_cli.proxy.providers import anthropic as messages_wire
from recall_cli.proxy.providers import openai as chat_wire
from tests.proxy.answers import SSE, chat, message, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, RunningProxy, Seen

PROMPT = "How do I reset my password?"
Ask = Callable[..., Any]


@pytest.fixture
def chats() -> Iterator[Callable[[RunningProxy], openai.OpenAI]]:
    made: list[openai.OpenAI] = []

    def make(proxy: RunningProxy) -> openai.OpenAI:
        made.append(openai.OpenAI(base_url=proxy.url + "/v1", api_key="k-1", max_retries=0, timeout=20))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def claudes() -> Iterator[Callable[[RunningProxy], anthropic.Anthropic]]:
    made: list[anthropic.Anthropic] = []

    def make(proxy: RunningProxy) -> anthropic.Anthropic:
        made.append(anthropic.Anthropic(base_url=proxy.url, api_key="k-1", max_retries=0, timeout=20))
        return made[-1]

    yield make
    for client in made:
        client.close()


def chat_whole(client: openai.OpenAI, **more: Any) -> tuple[dict[str, Any], str]:
    raw = client.chat.completions.with_raw_response.create(
        model="m", temperature=0, messages=[{"role": "user", "content": PROMPT}], **more
    )
    return raw.parse().to_dict(), raw.headers["x-recall"].split(";")[0]


def chat_streamed(client: openai.OpenAI, **more: Any) -> tuple[dict[str, Any], str]:
    """What the SDK's own stream helper rebuilds."""
    with client.chat.completions.stream(
        model="m",
        temperature=0,
        messages=[{"role": "user", "content": PROMPT}],
        stream_options={"include_usage": True},
        **more,
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().to_dict(), stream._response.headers["x-recall"].split(";")[0]


def claude_whole(client: anthropic.Anthropic, **more: Any) -> tuple[dict[str, Any], str]:
    raw = client.messages.with_raw_response.create(
        model="m",
        max_tokens=100,
        messages=[{"role": "user", "content": PROMPT}],
        **({"extra_body": {"temperature": 0}} | more),
    )
    return raw.parse().to_dict(), raw.headers["x-recall"].split(";")[0]


def claude_streamed(client: anthropic.Anthropic, **more: Any) -> tuple[dict[str, Any], str]:
    with client.messages.stream(
        model="m",
        max_tokens=100,
        messages=[{"role": "user", "content": PROMPT}],
        **({"extra_body": {"temperature": 0}} | more),
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_message().to_dict(), stream.response.headers["x-recall"].split(";")[0]


def told(body: dict[str, Any]) -> dict[str, Any]:
    """What both ways of asking must agree on: the SDK's helpers add empty fields of their own."""
    empty: tuple[Any, ...] = (None, [], {})
    # OpenAI's helper leaves a tool call's place in the stream in what it rebuilds.
    odd = {"index"} if "function" in body else set()
    return {key: told_value(value) for key, value in body.items() if value not in empty and key not in odd}


def told_value(value: Any) -> Any:
    if isinstance(value, dict):
        return told(value)
    if isinstance(value, list):
        return [told_value(item) for item in value]
    return value


@pytest.mark.parametrize("first", [chat_whole, chat_streamed])
@pytest.mark.parametrize("then", [chat_whole, chat_streamed])
def test_openai_miss_then_hit_in_either_mode(first: Ask, then: Ask, start: Start, chats: Any) -> None:
    answer = chat("Use the link, \u00fcber all.")
    del answer["choices"][0]["message"]["annotations"]
    proxy, upstream = start(lambda seen: reply_with(answer, seen))
    client = chats(proxy)
    missed, outcome = first(client)
    assert outcome == "MISS"
    proxy.settle()
    hit, outcome = then(client)
    assert outcome == "EXACT"
    assert told(missed) == told(hit) == told(answer)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("first", [claude_whole, claude_streamed])
@pytest.mark.parametrize("then", [claude_whole, claude_streamed])
def test_anthropic_miss_then_hit_in_either_mode(first: Ask, then: Ask, start: Start, claudes: Any) -> None:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "sig"}
    answer = message(content=[thinking, {"type": "text", "text": "Use the link."}])
    proxy, upstream = start(lambda seen: reply_with(answer, seen))
    client = claudes(proxy)
    missed, outcome = first(client)
    assert outcome == "MISS"
    proxy.settle()
    hit, outcome = then(client)
    assert outcome == "EXACT"
    assert told(missed) == told(hit) == told(answer)
    assert len(upstream.seen) == 1


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OTHER = {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": '{"b": [2]}'}}
SCORED = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}], "refusal": None}


def choice(index: int = 0, reason: str = "stop", logprobs: Any = None, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "Hi", "refusal": None} | message
    return {"index": index, "message": said, "logprobs": logprobs, "finish_reason": reason}


@pytest.mark.parametrize(
    "choices",
    [
        [choice(content=None, tool_calls=[CALL, OTHER], reason="tool_calls")],
        [choice(content=None, refusal="I cannot help with that.")],
        [choice(0, logprobs=SCORED), choice(1, content="Ho")],
        [choice(content="Hi", reasoning_content="Because.")],
    ],
    ids=["parallel tool calls", "refusal", "n=2, logprobs", "vendor field"],
)
def test_openais_helper_rebuilds_every_kind_of_answer(choices: Any, start: Start, chats: Any) -> None:
    """The replay itself is what the upstream sends here: what may be stored is another matter."""
    answer = chat() | {"choices": choices}
    replay = chat_wire.split(answer, usage=True)
    proxy, _ = start(lambda seen: Reply([replay], headers=SSE, chunked=True))
    # Tools would be parsed strictly if they were declared; the answer alone is enough to rebuild it.
    rebuilt, _ = chat_streamed(chats(proxy))
    assert told(rebuilt) == told(answer)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
         {"type": "tool_use", "id": "t2", "name": "g", "input": {}}],
        [{"type": "redacted_thinking", "data": "xyz"}, {"type": "text", "text": "Hi"}],
        [{"type": "text", "text": "Hi", "citations": [{"type": "char_location", "cited_text": "H", "document_index": 0,
          "document_title": "d", "start_char_index": 0, "end_char_index": 1}]}],
        [],
    ],
    ids=["tool use", "redacted thinking", "citations", "empty"],
)  # fmt: skip
def test_anthropics_helper_rebuilds_every_kind_of_answer(content: Any, start: Start, claudes: Any) -> None:
    answer = message(content=content, stop_reason="refusal" if not content else "end_turn")
    proxy, _ = start(lambda seen: Reply([messages_wire.split(answer)], headers=SSE, chunked=True))
    rebuilt, _ = claude_streamed(claudes(proxy))
    assert told(rebuilt) == told(answer)


def test_the_usage_chunk_is_there_only_when_asked_for(start: Start, chats: Any) -> None:
    proxy, upstream = start(lambda seen: reply_with(chat(), seen))
    client = chats(proxy)

    def chunks(**more: Any) -> list[Any]:
        return list(
            client.chat.completions.create(
                model="m", temperature=0, stream=True, messages=[{"role": "user", "content": PROMPT}], **more
            )
        )

    missed = chunks()
    assert upstream.seen[0].json["stream_options"] == {"include_usage": True}, "the usage is learned"
    assert all(chunk.choices and chunk.usage is None for chunk in missed), "and not seen by the caller"
    proxy.settle()
    assert all(chunk.choices and chunk.usage is None for chunk in chunks())
    asked = chunks(stream_options={"include_usage": True})
    assert asked[-1].choices == []
    assert asked[-1].usage.total_tokens == 19
    assert len(upstream.seen) == 1
    assert proxy.server.metrics.saved_input == 24


def test_errors_reach_the_sdk_as_its_own(start: Start, chats: Any, claudes: Any) -> None:
    def handle(seen: Seen) -> Reply:
        said = {"error": {"message": "slow down", "type": "rate_limit_error"}}
        if "messages" in seen.target and "chat" not in seen.target:
            said["type"] = "error"  # type: ignore[assignment]
        headers = [("Content-Type", "application/json"), ("retry-after", "7")]
        return Reply([json.dumps(said).encode()], status=429, headers=headers)

    proxy, upstream = start(handle)
    with pytest.raises(openai.RateLimitError) as told_openai:
        chat_whole(chats(proxy))
    assert told_openai.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.RateLimitError):
        claude_streamed(claudes(proxy))
    proxy.settle()
    with pytest.raises(openai.RateLimitError):
        chat_whole(chats(proxy))
    assert len(upstream.seen) == 3, "an error is not stored"
