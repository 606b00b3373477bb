"""Lines to records: spellings, faults, and nothing lost unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError
from recall_cli.logs import files
from recall_cli.logs.formats.pairs import Pairs
from recall_cli.logs.read import read_log
from recall_cli.logs.record import to_record
from recall_cli.logs.report import ReadReport
from recall_cli.types import LogRecord, Usage

T = 1_729_464_476.0
REQUEST = {"model": "gpt-4o", "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {
    "created": int(T) + 5,
    "model": "gpt-4o-2024-08-06",
    "choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
CLAUDE = {"type": "message", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "Hello"}]}


def row(**fields: Any) -> dict[str, Any]:
    return {"timestamp": T, "request": REQUEST, "response": RESPONSE, **fields}


def read(path: Path, *lines: bytes | dict[str, Any]) -> tuple[list[LogRecord], ReadReport]:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    tally = ReadReport()
    return list(read_log(str(path), tally)), tally


def _record(fields: dict[str, Any], source: str, tally: ReadReport) -> LogRecord | str:
    (found,) = Pairs().read(fields, source)
    assert not isinstance(found, str)
    return to_record(found, "pairs", tally)


def one(fields: dict[str, Any]) -> LogRecord:
    found = _record(fields, "log:1", ReadReport())
    assert isinstance(found, LogRecord)
    return found


def test_one_record(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records, tally = read(path, row())
    assert records == [
        LogRecord(
            f"{path}:1", "openai", "gpt-4o-2024-08-06", REQUEST, "Hello", Usage(9, 2), T, finish="stop", format="pairs"
        )
    ]
    assert (tally.lines, tally.records, tally.usage_read) == (1, 1, {("openai", "inclusive"): 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"request": json.dumps(REQUEST), "response": json.dumps(RESPONSE)},
        {"request": None, "response": None, "request_body": REQUEST, "response_body": RESPONSE},
        {"request": None, "response": None, "requestBody": json.dumps(REQUEST), "responseBody": RESPONSE},
        {"request": {"method": "POST", "body": REQUEST}, "response": {"status_code": 200, "body": RESPONSE}},
        {"request": {"body": json.dumps(REQUEST)}, "response": {"body": json.dumps(RESPONSE)}},
    ],
)
def test_spellings_of_the_bodies(fields: dict[str, Any]) -> None:
    found = one(row(**fields))
    assert (found.request, found.answer, found.usage, found.flaw) == (REQUEST, "Hello", Usage(9, 2), "")


@pytest.mark.parametrize("name", ["ts", "timestamp", "date", "time", "created_at", "start_time", "startTime"])
def test_spellings_of_the_time(name: str) -> None:
    assert one({**row(timestamp=None), name: "2024-10-20T22:47:56Z"}).start == T


def test_the_answers_own_time_is_the_last_resort() -> None:
    assert one(row(timestamp=None)).start == T + 5
    tally = ReadReport()
    found = _record(row(timestamp="soon"), "log:1", tally)
    assert isinstance(found, LogRecord)
    assert (found.start, tally.bad_times) == (T + 5, 1)
    assert one({"request": REQUEST, "response": CLAUDE}).start is None


def test_a_time_without_a_zone_is_counted() -> None:
    tally = ReadReport()
    _record(row(timestamp="2024-10-20T22:47:56"), "log:1", tally)
    assert tally.naive_times == 1


@pytest.mark.parametrize(
    ("fields", "end", "bad"),
    [
        ({"end_time": T + 2}, T + 2, 0),
        ({"latency_ms": 2000}, T + 2, 0),
        ({"duration_s": 2}, T + 2, 0),
        ({"latency_ms": 3.6e6}, T + 3600, 0),
        ({"latency": 2}, None, 0),
        ({"latency_ms": True}, None, 0),
        # A day says nothing of seconds.
        ({"end_time": "2024-10-20"}, None, 0),
        ({}, None, 0),
        ({"end_time": T - 5}, None, 1),
        ({"latency_ms": -1}, None, 1),
        ({"end_time": "2100-01-01T00:00:00Z"}, None, 1),
        ({"latency_ms": 8e8}, None, 1),
        ({"latency_ms": 10**400}, None, 1),
        ({"end_time": "2100-01-01T00:00:00Z", "latency_ms": 2000}, T + 2, 1),
        ({"latency_ms": float("nan"), "duration_s": 2}, T + 2, 1),
    ],
)
def test_ends(fields: dict[str, Any], end: float | None, bad: int) -> None:
    tally = ReadReport()
    found = _record(row(**fields), "log:1", tally)
    assert isinstance(found, LogRecord)
    assert (found.end, tally.bad_durations) == (end, bad)


DAY = "2024-10-20"
MIDNIGHT = T - T % 86_400


@pytest.mark.parametrize(
    ("fields", "start", "end"),
    [
        ({"date": DAY, "time": "22:47:56"}, T, None),
        ({"date": DAY, "time": "22:47:56Z", "latency_ms": 500}, T, T + 0.5),
        ({"timestamp": DAY, "time": "22:47"}, T - 56, None),
        ({"date": DAY, "start_time": "22:47:56", "end_time": "22:47:58"}, T, T + 2),
        ({"date": DAY}, MIDNIGHT, None),
        # The day's first second is no start, so an end tells no duration; a duration does.
        ({"date": DAY, "end_time": T}, MIDNIGHT, None),
        ({"date": DAY, "latency_ms": 500}, MIDNIGHT, MIDNIGHT + 0.5),
        # Whatever says more than the day is better.
        ({"date": DAY, "created_at": T}, T, None),
        ({"date": DAY, "response": {**RESPONSE, "created": int(T)}}, T, None),
        ({"date": "2020-01-01", "response": {**RESPONSE, "created": int(T)}}, 1_577_836_800.0, None),
    ],
)
def test_a_day_and_a_time_of_day(fields: dict[str, Any], start: float, end: float | None) -> None:
    tally = ReadReport()
    bare = {**RESPONSE, "created": None}
    found = _record({"request": REQUEST, "response": bare, **fields}, "log:1", tally)
    assert isinstance(found, LogRecord)
    assert (found.start, found.end) == (start, end)
    assert tally.day_only_times == (start % 86_400 == 0)
    assert (tally.bad_times, tally.bad_durations) == (0, 0)


@pytest.mark.parametrize("fields", [{"time": "12:00:07"}, {"date": DAY, "time": "25:00:00"}, {"time": "soon"}])
def test_a_time_of_day_without_its_day_is_counted(fields: dict[str, Any]) -> None:
    tally = ReadReport()
    _record({"request": REQUEST, "response": CLAUDE, **fields}, "log:1", tally)
    assert tally.bad_times == 1


@pytest.mark.parametrize(
    ("fields", "provider"),
    [
        ({}, "openai"),
        ({"response": CLAUDE}, "anthropic"),
        ({"response": {"content": [{"type": "text", "text": "Hi"}]}}, "anthropic"),
        ({"response": None, "uri": "https://gw.example/v1/messages?beta=true"}, "anthropic"),
        ({"response": None, "url": "/v1/chat/completions", "request": {**REQUEST, "model": "claude-x"}}, "openai"),
        ({"response": None, "provider": "anthropic"}, "anthropic"),
        ({"response": None, "request": {**REQUEST, "model": "claude-sonnet-4-5"}}, "anthropic"),
        ({"response": None}, "openai"),
    ],
)
def test_dialects(fields: dict[str, Any], provider: str) -> None:
    assert one(row(**fields)).provider == provider


@pytest.mark.parametrize(
    ("asked", "answered", "uri", "billed"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", "", "gpt-4o-2024-08-06"),
        ("azure/gpt-4o", "gpt-4o-2024-08-06", "", "azure/gpt-4o-2024-08-06"),
        ("my-deployment", "gpt-4o", "https://me.openai.azure.com/x", "azure/gpt-4o"),
        ("openai/gpt-4o", "openai/gpt-4o", "https://openrouter.ai/api/v1/chat/completions", "openrouter/openai/gpt-4o"),
        ("meta-llama/x", "meta-llama/x", "http://localhost:8000/", "meta-llama/x"),
        ("gpt-4o", "", "http://[bad", "gpt-4o"),
        ("gpt-4o", "gpt-4o", "https://notopenrouter.ai/", "gpt-4o"),
    ],
)
def test_who_bills(asked: str, answered: str, uri: str, billed: str) -> None:
    fields = row(request={**REQUEST, "model": asked}, response={**RESPONSE, "model": answered}, uri=uri)
    assert one(fields).model == billed


def test_tenants_are_fields_of_the_row_alone() -> None:
    tally = ReadReport()
    found = _record(row(team="red", user="ann"), "log:1", tally)
    assert isinstance(found, LogRecord)
    assert (found.tenant, tally.tenant_fields) == ('[["team","red"]]', {"team": 1})
    assert one(row(request={**REQUEST, "user": "ann"})).tenant == ""


@pytest.mark.parametrize("value", [True, "True", "HIT", "hit", 1, 1.0, "1"])
def test_cached_already(value: object) -> None:
    assert one(row(cache_hit=value)).flaw == "already_cached"


@pytest.mark.parametrize("value", [False, None, "None", "False", "MISS", "", 0, 2, "0", [], {}])
def test_not_cached_yet(value: object) -> None:
    assert one(row(cache_hit=value)).flaw == ""


@pytest.mark.parametrize("fields", [{"status": 429}, {"status_code": "500"}, {"status": "failure"},
                                    {"status": 500.0}, {"status": "500.0"}, {"status": "503 Service Unavailable"},
                                    {"response": {"status": "429", "body": RESPONSE}}])  # fmt: skip
def test_failures(fields: dict[str, Any]) -> None:
    assert one(row(**fields)).flaw == "error"


@pytest.mark.parametrize(
    "value", ["1" * 5000, 10**400, float("inf"), 500.5, True, 99, 600, "5000", "5", "", [], {}, "ok"]
)
def test_what_is_no_status(value: object) -> None:
    assert one(row(status=value)).status is None
    assert one(row(status=value)).flaw == ""


def test_a_byte_order_mark_before_a_body_that_was_logged_as_text() -> None:
    found = one(row(request="\ufeff" + json.dumps(REQUEST), response="\ufeff\r\n" + json.dumps(RESPONSE)))
    assert (found.request, found.answer, found.usage) == (REQUEST, "Hello", Usage(9, 2))


def test_usage_of_the_row_when_the_body_has_none() -> None:
    body = {**RESPONSE, "usage": None}
    assert one(row(response=body, usage={"prompt_tokens": 3, "completion_tokens": 1})).usage == Usage(3, 1)
    assert one(row(response=body)).usage is None


def test_every_bad_line_is_counted_and_none_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2000)
    good = json.dumps(row()).encode()
    records, tally = read(
        tmp_path / "log",
        b"\xef\xbb\xbf" + good,
        b"",
        b"   \r",
        good[:-20],
        good.replace(b'"temperature": 0', b'"temperature": NaN'),
        good.replace(b"Hello", b"Hell\xff"),
        b"[1, 2]",
        b'"text"',
        b"null",
        b'{"hello": 1}',
        b'{"request": "not json"}',
        b'{"request": {"model": "x", "input": "embed me"}}',
        b'{"request": {"messages": []}}',
        b'{"x": "' + b"x" * 3000 + b'"}',
        b"[" * 1000,
        good,
    )
    assert tally.skipped == {
        "malformed_json": 2,
        "not_an_object": 3,
        "no_request": 1,
        "request_not_an_object": 1,
        "no_messages": 2,
        "line_too_long": 1,
    }
    assert tally.repaired == {"byte_order_mark": 1, "not_strict_json": 1, "invalid_utf8": 1}
    assert [int(r.source.rpartition(":")[2]) for r in records] == [1, 5, 6, 16]
    assert tally.lines == len(records) + sum(tally.skipped.values()) == 14


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n"])
def test_an_empty_log(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="holds no line") as caught:
        read(tmp_path / "log", content)
    assert caught.value.hint


def test_a_log_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the 2 lines .*1 no JSON") as caught:
        read(tmp_path / "log", b"2024-10-20 INFO started", b'{"level": "info"}')
    assert "messages" in caught.value.hint


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
names = st.sampled_from(
    ["request", "response", "body", "messages", "choices", "message", "content", "usage", "timestamp", "end_time",
     "latency_ms", "model", "uri", "status", "error", "type", "delta", "prompt_tokens", "user", "finish_reason"]
)  # fmt: skip
trees = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4))
)


@given(st.dictionaries(names, trees, max_size=5), trees)
def test_no_shape_of_row_raises(fields: dict[str, Any], response: Any) -> None:
    for candidate in (fields, {**fields, "request": {"messages": [fields]}, "response": response}):
        found = _record(candidate, "log:1", ReadReport())
        assert isinstance(found, (str, LogRecord))
