"""The published samples of each format, their calls and counts worked out by hand from the files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from recall_cli.errors import InputError
from recall_cli.logs.read import read_logs
from recall_cli.logs.report import ReadReport
from recall_cli.types import LogRecord, Usage

pytestmark = pytest.mark.shared


def read(*paths: Path) -> tuple[list[LogRecord], ReadReport]:
    tally = ReadReport()
    records = list(read_logs([str(path) for path in paths], tally))
    assert tally.lines == tally.records + tally.skipped.total() + tally.merged.total()
    assert tally.faults == []
    return records, tally


# The seven calls of three recorded sessions, as pairs and as HAR: (model, usage, start, finish).
RECORDED = [
    ("claude-3-haiku-20240307", Usage(17, 171), 1729464476.0, "end_turn"),
    # A prompt of 4 tokens behind a cached prefix of 1,165: written by the first call, read by the second.
    ("claude-3-5-sonnet-20240620", Usage(1169, 207, cache_write=1165), 1742031502.0, "end_turn"),
    ("claude-3-5-sonnet-20240620", Usage(1169, 224, cache_read=1165), 1742031507.0, "end_turn"),
    ("gpt-3.5-turbo-0125", Usage(15, 19), 1709819154.0, "stop"),
    ("gpt-3.5-turbo-0125", Usage(15, 21), 1774962778.0, "stop"),
    ("gpt-3.5-turbo-0125", Usage(15, 27), 1774963256.0, "stop"),
    ("gpt-3.5-turbo-0125", Usage(15, 19), 1774963459.0, "stop"),
]


@pytest.mark.parametrize(
    ("file", "name"), [("openai-raw/request_response_pairs.jsonl", "pairs"), ("har/from_vcr_cassettes.har", "har")]
)
def test_recorded_calls(shared_data: Path, file: str, name: str) -> None:
    records, tally = read(shared_data / "logs" / file)
    assert [(r.model, r.usage, r.start, r.finish) for r in records] == RECORDED
    assert [r.provider for r in records] == ["anthropic"] * 3 + ["openai"] * 4
    assert all(r.answer and r.flaw == "" and r.status == 200 and r.format == name for r in records)
    # The four jokes were asked for in the same words; the two long prompts are one text.
    texts = [str(r.request["messages"][-1]["content"]) for r in records]
    assert len(set(texts)) == 3
    assert tally.usage_read == {("anthropic", "exclusive"): 3, ("openai", "inclusive"): 4}


def test_claude_code_transcripts(shared_data: Path) -> None:
    folder = shared_data / "logs/claude-code"
    records, tally = read(folder / "daaain_representative_messages.jsonl")
    assert [r.usage for r in records] == [Usage(25, 120), Usage(45, 85), Usage(78, 95), Usage(25, 35), Usage(45, 110)]
    assert [r.flaw for r in records] == ["hidden_prompt", "tool_calls", "hidden_prompt", "tool_calls", "hidden_prompt"]
    # Asked at 10:00:00, answered at 10:00:30; the second answer to a tool's result came 29 s after it.
    assert [(r.start, r.end) for r in records[:1]] == [(1749895200.0, 1749895230.0)]
    assert records[2].end is not None
    assert records[2].start == records[2].end - 29
    assert tally.merged == {"claude-code": 6}  # six turns of the user's
    assert tally.skipped == {"not_a_turn": 1}  # the summary

    records, tally = read(folder / "daaain_edge_cases.jsonl")
    assert [r.usage for r in records] == [Usage(35, 145), Usage(200, 25), Usage(85, 180), Usage(168, 85)]
    # A bare string, a number and a list; then "message": "error", {"silly": "this"} and the summary.
    assert tally.skipped == {"not_an_object": 3, "not_a_turn": 3}

    records, _ = read(folder / "ccusage_session-beta.jsonl")
    # 50 + 5 written + 15 read, 80 + 10 + 25.
    assert [r.usage for r in records] == [Usage(70, 25, 15, 5), Usage(115, 35, 25, 10)]
    assert [r.cost for r in records] == [Decimal("0.03"), Decimal("0.04")]
    assert {r.session for r in records} == {"session-beta"}
    assert {(r.flaw, r.answer) for r in records} == {("no_text", None)}


def test_codex_rollout(shared_data: Path) -> None:
    (record,), tally = read(shared_data / "logs/codex/rollout_SYNTHETIC_rows.jsonl")
    assert (record.model, record.usage) == ("gpt-5.2-codex", Usage(840, 42, cache_read=128))
    assert (record.start, record.end) == (1767607202.0, 1767607205.0)
    assert (record.session, record.flaw) == ("s-0001", "hidden_prompt")
    assert tally.merged == {"codex": 4}


@pytest.mark.parametrize(
    ("file", "model", "usage", "start", "end"),
    [
        ("py_wrap_openai_", "gpt-4o-mini-2024-07-18", Usage(9, 9), 1728680303.298773, 1728680304.417106),
        ("py_wrap_openai_stream", "gpt-4o-mini-2024-07-18", Usage(9, 9), 1728680300.695375, 1728680302.023816),
        ("js_wrap_openai_reasoning", "o1-mini-2024-09-12", Usage(43, 1901), 1728803138.291, 1728803148.73),
    ],
)
def test_langsmith_runs(shared_data: Path, file: str, model: str, usage: Usage, start: float, end: float) -> None:
    (record,), tally = read(shared_data / f"logs/langsmith/langsmith_{file}.json")
    assert (record.model, record.usage, record.start, record.end) == (model, usage, start, end)
    assert (record.finish, record.flaw, len(record.request["messages"])) == ("stop", "", 1)
    assert tally.merged == {"langsmith": 1}


def test_gateways(shared_data: Path) -> None:
    logs = shared_data / "logs"
    records, tally = read(logs / "litellm/standard_logging_payload.jsonl", logs / "litellm/spend_logs.jsonl")
    for record in records:
        assert (record.model, record.usage, record.cost) == ("gpt-4o", Usage(10, 20), Decimal("0.00022500000000000002"))
        # 09:20:46.847371 without a zone, taken as UTC.
        assert (record.start, record.end) == (1737710446.847371, 1737710446.851954)
    assert [(r.answer, r.flaw) for r in records] == [("hi", ""), (None, "no_text")]
    assert (records[1].session, tally.naive_times) == ("1234567890", 2)

    (record,), tally = read(logs / "langfuse/ingestion_batch.json")
    assert (record.model, record.usage, record.cost) == (
        "gpt-3.5-turbo",
        Usage(10, 20),
        Decimal("0.000054999999999999995"),
    )
    # 07:31 at -08:00.
    assert (record.start, record.end) == (1737559888.960749, 1737559888.962389)
    assert tally.skipped == {"not_a_generation": 1}

    records, _ = read(logs / "openrouter/activity_SYNTHETIC_rows.csv")
    assert [r.usage for r in records] == [Usage(10389, 137), Usage(10389, 137, cache_read=9216)]
    assert [r.cost for r in records] == [Decimal("0.0123"), Decimal("0.0031")]
    assert {(r.model, r.flaw) for r in records} == {("openrouter/openai/gpt-oss-120b", "no_text")}


def test_a_header_alone_is_no_log(shared_data: Path) -> None:
    with pytest.raises(InputError, match="holds no line"):
        read(shared_data / "logs/helicone/export_SYNTHETIC_rows.csv")


def test_a_batch_that_was_sent_and_not_answered(shared_data: Path) -> None:
    records, tally = read(shared_data / "logs/openai-batch/litellm_batch_input.jsonl")
    assert [(r.model, r.answer, r.flaw, r.tier, r.usage) for r in records] == [
        ("gpt-4o-mini", None, "no_answer", "batch", None)
    ] * 2
    assert (tally.lines, len({str(r.request["messages"][0]) for r in records})) == (2, 2)


def test_llm_database(shared_data: Path) -> None:
    records, tally = read(shared_data / "logs/simonw-llm/logs.db")
    assert [(r.model, r.usage, r.start, r.end) for r in records] == [
        ("gpt-4o-mini-2024-07-18", Usage(14, 2), 1793491200.0 + i, 1793491200.5 + i) for i in range(3)
    ]
    assert records[0].request == {**records[1].request}
    assert {(r.request["temperature"], r.session, r.flaw) for r in records} == {(0, "c1", "")}
    assert tally.naive_times == 0


def test_vllm_lines(shared_data: Path) -> None:
    (record,), tally = read(shared_data / "logs/vllm/received_request.log")
    assert (record.request["temperature"], record.start, record.flaw) == (0.0, None, "no_answer")
    assert len(record.request["messages"][0]["content"]) == 17
    assert tally.skipped == {"no_prompt": 1}


def test_traces(shared_data: Path) -> None:
    records, _ = read(shared_data / "traces/azure/AzureLLMInferenceTrace_conv_6000.csv")
    assert (len(records), records[0].usage, records[0].start) == (6000, Usage(374, 44), 1700158546.68059)
    lines = (shared_data / "traces/azure/AzureLLMInferenceTrace_conv_6000.csv").read_text().splitlines()[1:]
    cells = [line.split(",") for line in lines]
    assert sum(r.usage.input for r in records if r.usage) == sum(int(c[1]) for c in cells)
    assert sum(r.usage.output for r in records if r.usage) == sum(int(c[2]) for c in cells)

    records, _ = read(shared_data / "traces/mooncake/conversation_trace_6000.jsonl")
    assert (len(records), records[0].usage, records[0].start, records[-1].start) == (
        6000,
        Usage(6758, 500),
        0.0,
        1872.0,
    )
    assert {r.flaw for r in records} == {"no_text"}
    # Equal prompts, found another way: the line's own text without its time and its answer's length.
    text = (shared_data / "traces/mooncake/conversation_trace_6000.jsonl").read_text().splitlines()
    prompts = [
        (line.partition('"input_length": ')[2].partition(",")[0], line.partition('"hash_ids"')[2]) for line in text
    ]
    assert len({r.key for r in records}) == len(set(prompts)) < 6000
    assert all(len(r.key) == 16 for r in records)
