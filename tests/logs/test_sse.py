"""Recorded event streams back to bodies, both providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recall_cli.logs import answer
from recall_cli.logs.sse import collapse_text, data_fields, looks_like_sse


def openai_stream(*, end: str = "data: [DONE]\n\n", finish: str | None = "stop") -> str:
    def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1729464476, "model": "gpt-4o-2024-08-06"}
        return "data: " + json.dumps({**head, "choices": choices, "usage": None, **more}) + "\n\n"

    def delta(finish_reason: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": fields, "finish_reason": finish_reason}]

    return (
        ": keep-alive\n\n"
        + chunk(delta(role="assistant", content=""))
        + chunk(delta(content="Hel"))
        + chunk(delta(content="lo\u2028"))
        + chunk(delta(finish))
        + chunk([], usage={"prompt_tokens": 9, "completion_tokens": 2})
        + end
    )


def anthropic_stream(*, stop: bool = True) -> str:
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "m1",
                "model": "claude-3-haiku-20240307",
                "content": [],
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 1165, "output_tokens": 3},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo\u2028"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 171}},
        *([{"type": "message_stop"}] if stop else []),
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_openai(newline: str) -> None:
    body, complete = collapse_text(openai_stream().replace("\n", newline))
    assert complete
    assert body["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello\u2028"},
        "finish_reason": "stop",
    }
    assert body["usage"] == {"prompt_tokens": 9, "completion_tokens": 2}
    assert (body["model"], body["created"]) == ("gpt-4o-2024-08-06", 1729464476)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_anthropic_counts_replace_those_of_the_start(newline: str) -> None:
    body, complete = collapse_text(anthropic_stream().replace("\n", newline))
    assert complete
    assert body["content"] == [{"type": "text", "text": "Hello\u2028"}]
    assert body["usage"] == {"input_tokens": 4, "cache_read_input_tokens": 1165, "output_tokens": 171}
    assert body["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(openai_stream(end=""), id="openai-without-done"),
        pytest.param(openai_stream(finish=None), id="openai-without-finish"),
        pytest.param(anthropic_stream(stop=False), id="anthropic-without-stop"),
        pytest.param(anthropic_stream() + "event: error\ndata: {tru", id="broken-event"),
    ],
)
def test_a_stream_without_its_end_is_cut_off(stream: str) -> None:
    assert answer.read(stream).flaw == "stream_cut_off"


@pytest.mark.parametrize("stream", [openai_stream(), anthropic_stream()], ids=["openai", "anthropic"])
def test_every_prefix_is_cut_off_or_whole(stream: str) -> None:
    last = stream.rindex("[DONE]") + 6 if "[DONE]" in stream else stream.rindex("}") + 1
    for end in range(len(stream) + 1):
        flaw = answer.read(stream[:end]).flaw
        assert (flaw == "") == (end >= last), stream[:end][-40:]


@pytest.mark.parametrize(
    "stream",
    [
        openai_stream().replace("data: [DONE]", 'data: {"error": {"message": "overloaded"}}'),
        anthropic_stream() + 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
    ],
    ids=["openai", "anthropic"],
)
def test_an_error_event_is_an_error(stream: str) -> None:
    assert answer.read(stream).flaw == "error"


def test_tool_calls_and_refusals_survive_the_stream() -> None:
    call = '{"tool_calls": [{"index": 0, "id": "x"}]}'
    stream = openai_stream(finish="tool_calls").replace('{"content": "Hel"}', call)
    assert answer.read(stream).flaw == "tool_calls"
    assert answer.read(openai_stream().replace('{"content": "Hel"}', '{"refusal": "No."}')).flaw == "refusal"
    block = '{"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "x"}}'
    assert answer.read(anthropic_stream().replace('{"type": "ping"}', block)).flaw == "tool_calls"


def test_logged_chunks_need_no_done_mark() -> None:
    chunks = [json.loads(d) for d in data_fields(openai_stream()) if d != "[DONE]"]
    assert answer.read(chunks).flaw == ""
    assert answer.read(chunks[:-2]).flaw == "stream_cut_off"


def test_data_of_several_lines_is_one_event() -> None:
    assert list(data_fields("data: {\ndata: }\n\ndata:x")) == ["{\n}", "x"]


@pytest.mark.parametrize("before", ["\ufeff", "\ufeff\r\n", " \n"])
def test_what_stands_before_the_first_event_loses_nothing(before: str) -> None:
    assert collapse_text(before + openai_stream().removeprefix(": keep-alive\n\n")) == collapse_text(openai_stream())
    assert collapse_text(before + anthropic_stream()) == collapse_text(anthropic_stream())
    assert list(data_fields(before + "data: one\n\ndata: two")) == ["one", "two"]
    first = {"choices": [{"index": 0, "delta": {"content": "Yo"}, "finish_reason": "stop"}]}
    assert answer.read(f"{before}data: {json.dumps(first)}\n\ndata: [DONE]\n\n").text == "Yo"


@pytest.mark.parametrize("choices", [5, True, {"a": 1}, "x", [5, None], [[]]])
def test_choices_that_are_no_choices(choices: Any) -> None:
    stream = f"data: {json.dumps({'choices': choices})}\n\ndata: [DONE]\n\n"
    assert answer.read(stream).flaw == "stream_cut_off"
    assert answer.read([{"choices": choices}]).flaw == "stream_cut_off"
    assert answer.read({"choices": choices}).flaw == "answer_unreadable"


def test_plain_text_is_no_stream() -> None:
    assert not looks_like_sse("The data: is in")
    assert looks_like_sse("\n: ping\n\ndata: {}\n\n")


@pytest.mark.shared
def test_a_recorded_stream(shared_data: Path) -> None:
    with open(shared_data / "logs/openai-raw/request_response_pairs.jsonl", "rb") as log:
        read = answer.read(json.loads(log.readline())["response"], status=200)
    assert read.flaw == ""
    assert read.body["usage"] == {"input_tokens": 17, "output_tokens": 171}
    assert read.text is not None
    assert read.text.startswith("Here's an OpenTelemetry-themed joke")
    assert read.text.endswith("-themed jokes!")
