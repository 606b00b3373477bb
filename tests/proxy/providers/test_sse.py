"""Frames at every split, and bodies to streams and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.proxy.providers import anthropic, openai, sse
from recall_cli.proxy.providers.sse import Frames, events, read_frame
from tests.proxy.answers import chat, chat_stream, message, message_stream

STREAMS = [
    b"".join(chat_stream(chat("Use the link: a\u2028b \U0001f600."), usage=True)),
    b"".join(message_stream(message("Use the link: a\u2028b \U0001f600."))),
    b": hello\r\n\r\nevent: x\r\ndata: 1\r\ndata: 2\r\n\r\n\r\ndata:3\r\n\r\n",
    b"\xef\xbb\xbfdata: 1\r\rdata: 2\r\r",
    b"\n\ndata\n\nid: 4\nretry: 1\ndata: {}\n\ndata: unfinished",
]


def read_all(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    frames = Frames()
    found: list[bytes] = []
    for piece in pieces:
        found += frames.feed(piece)
    said = [(event, data) for event, data in map(read_frame, found) if data is not None]
    return said, b"".join(found) + frames.rest


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_reads_the_same_at_every_split(stream: bytes) -> None:
    whole, _ = read_all([stream])
    assert whole == list(events(stream))
    assert whole
    for at in range(len(stream) + 1):
        said, kept = read_all([stream[:at], stream[at:]])
        assert said == whole, at
        assert kept == stream, at
    assert read_all([stream[at : at + 1] for at in range(len(stream))]) == (whole, stream)


def test_what_stands_behind_the_last_whole_frame_is_kept() -> None:
    assert read_all([b"\n\n\n"]) == ([], b"\n\n\n")
    assert read_all([b"\n\n\n", b"data: 1\n\n"]) == ([(b"", b"1")], b"\n\n\ndata: 1\n\n")


def test_line_ends_of_every_kind_are_read_as_the_standard_says() -> None:
    assert list(events(STREAMS[2])) == [(b"x", b"1\n2"), (b"", b"3")]
    assert list(events(STREAMS[3])) == [(b"", b"1"), (b"", b"2")]
    assert list(events(STREAMS[4])) == [(b"", b""), (b"", b"{}")]


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"event: y", b":", b"data:", b"z"])), st.data())
def test_no_byte_is_lost_whatever_comes(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    said, kept = read_all(pieces)
    assert kept == stream
    assert said == read_all([stream])[0]


def test_a_frame_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_HELD", 100)
    frames = Frames()
    frames.feed(b"data: " + b"x" * 90)
    with pytest.raises(OverflowError):
        frames.feed(b"x" * 20)


TEXT = st.text(max_size=20)
LOGPROBS = st.none() | st.fixed_dictionaries({"content": st.lists(st.fixed_dictionaries({"token": TEXT}), max_size=3)})
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text("abc", min_size=1),
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": st.text("fg", min_size=1), "arguments": TEXT}),
        }
    ),
    min_size=1,
    max_size=3,
)
CHOICES = st.lists(
    st.fixed_dictionaries(
        {
            "message": st.fixed_dictionaries(
                {"role": st.just("assistant"), "content": st.none() | TEXT, "refusal": st.none() | st.text(min_size=1)},
                optional={
                    "tool_calls": CALLS,
                    "reasoning_content": st.text(min_size=1),
                    "annotations": st.just([{"a": 1}]),
                },
            ),
            "logprobs": LOGPROBS,
            "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
        }
    ),
    min_size=1,
    max_size=3,
)


@given(CHOICES, st.booleans())
def test_openai_bodies_survive_the_stream(choices: list[dict[str, Any]], usage: bool) -> None:
    body = chat() | {"choices": [{"index": at, **choice} for at, choice in enumerate(choices)]}
    found, whole = openai.join(events(openai.split(body, usage=usage)))
    assert whole
    expected = body if usage else {k: v for k, v in body.items() if k != "usage"}
    assert found == expected


BLOCKS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXT, "citations": st.just([{"type": "c", "n": 1}])}),
        st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXT, "signature": st.text("ab")}),
        st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": TEXT}),
        st.fixed_dictionaries(
            {
                "type": st.just("tool_use"),
                "id": st.just("toolu_1"),
                "name": st.just("f"),
                "input": st.dictionaries(TEXT, TEXT | st.integers(0, 9), max_size=2),
            }
        ),
    ),
    max_size=4,
)


@given(BLOCKS, st.sampled_from(["end_turn", "tool_use", "refusal", "max_tokens"]))
def test_anthropic_bodies_survive_the_stream(blocks: list[dict[str, Any]], reason: str) -> None:
    body = message() | {"content": blocks, "stop_reason": reason}
    found, whole = anthropic.join(events(anthropic.split(body)))
    assert whole
    assert found == body


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_providers_own_stream_gives_its_body(size: int) -> None:
    body = chat("Use the link, then wait.")
    del body["choices"][0]["message"]["annotations"]
    assert openai.join(events(b"".join(chat_stream(body, usage=True, size=size)))) == (body, True)
    said = message() | {
        "content": [
            {"type": "thinking", "thinking": "Hm, let me see.", "signature": "sig"},
            {"type": "text", "text": "Use the link."},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, 2], "b": "\u00e9"}},
        ]
    }
    assert anthropic.join(events(b"".join(message_stream(said, size=size)))) == (said, True)


@pytest.mark.parametrize(("join", "stream"), [(openai.join, STREAMS[0]), (anthropic.join, STREAMS[1])])
def test_a_stream_without_its_end_is_not_whole(join: Any, stream: bytes) -> None:
    frames = Frames().feed(stream)
    assert join(events(b"".join(frames)))[1]
    for n in range(len(frames)):
        assert not join(events(b"".join(frames[:n])))[1], n
    assert not join([])[1]


@pytest.mark.parametrize("kind", ["new_delta", "input_json_delta"])
def test_what_is_not_understood_is_not_whole(kind: str) -> None:
    stream = STREAMS[1].replace(b'"text_delta", "text"', f'"{kind}", "partial_json"'.encode(), 1)
    assert stream != STREAMS[1]
    assert not anthropic.join(events(stream))[1]


@given(
    st.lists(
        st.binary(max_size=30) | st.sampled_from([b'{"choices":[{"delta":1}]}', b'{"type":"message_delta"}', b"[1]"])
    )
)
def test_no_stream_makes_the_reader_fail(lines: list[bytes]) -> None:
    stream = b"".join(b"data: " + line + b"\n\n" for line in lines)
    for join in (openai.join, anthropic.join):
        assert not join(events(stream))[1]


@given(st.booleans(), st.text(max_size=30))
def test_asking_for_the_usage_leaves_the_rest(ends: bool, text: str) -> None:
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
    raw = json.dumps(asked).encode() + (b" \n" if ends else b"")
    told = openai.ask_usage(raw, asked)
    assert told is not None
    assert json.loads(told) == {**asked, "stream_options": {"include_usage": True}}
    assert told.startswith(raw.rstrip()[:-1])
    more = {**asked, "stream_options": {"include_obfuscation": False}}
    told = openai.ask_usage(json.dumps(more).encode(), more)
    assert told is not None
    assert json.loads(told)["stream_options"] == {"include_obfuscation": False, "include_usage": True}


@pytest.mark.parametrize("text", ["Use it.", 'say ,"usage":null twice', "usage", '"choices":[],"usage":{}'])
def test_the_usage_chunk_alone_is_taken_out(text: str) -> None:
    frames = chat_stream(chat(text), usage=True, size=100)
    without = openai.WithoutUsage()
    made = [without.take(frame, read_frame(frame)[1]) for frame in frames]
    assert b"".join(made) + without.end(b"") == b"".join([*frames[:-2], frames[-1]])


@pytest.mark.parametrize(
    ("rest", "event"),
    [
        (b'data: {"a": 1}', (b"", b'{"a": 1}')),
        (b'event: x\r\ndata: {"a": 1}\r', (b"x", b'{"a": 1}')),
        (b"data: [DONE]\n", (b"", b"[DONE]")),
        (b"data: [DONE", None),
        (b'data: {"a": 1', None),
        (b"data: 5", None),
        (b"event: message_stop", None),
        (b": bye", None),
        (b"", None),
    ],
)
def test_an_event_may_lack_its_blank_line_and_no_byte_more(rest: bytes, event: Any) -> None:
    assert sse.read_rest(rest) == event
    assert list(events(b"data: 1\n\n" + rest))[1:] == ([] if event is None else [event])


def test_without_done_the_choices_tell_whether_a_clean_end_is_whole() -> None:
    stream = b"".join(chat_stream(chat(), usage=False)[:-1])
    assert openai.join(events(stream), choices=1)[1]
    assert not openai.join(events(stream), choices=2)[1], "fewer than were asked for"
    assert not openai.join(events(stream))[1], "nobody knows that it ended cleanly"
