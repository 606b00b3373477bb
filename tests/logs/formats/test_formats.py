"""Every format under one contract: what was written is what is read, and nothing is lost unsaid."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.logs.formats.registry import NAMES
from recall_cli.logs.read import read_log, read_logs
from recall_cli.logs.report import ReadReport
from recall_cli.types import LogRecord, Usage
from tests.logs.log_writers import CALLS, WRITERS, Known, Written, money, pairs

Writer = Callable[[Sequence[Known], Path], Written]
CASES = [pytest.param(name, writer, id=writer.__name__) for name, writers in WRITERS.items() for writer in writers]


CONTAINED = ("llm_db", "llm_turns_db", "recall_store", "langfuse_events", "langsmith", "har", "helicone_csv", "azure",
             "litellm_spend_csv", "openrouter", "plain_csv", "plain_array", "plain_parquet",
             "openinference_table")  # fmt: skip
"""Writers of documents, tables and databases, which are no lines."""


def balanced(tally: ReadReport) -> bool:
    return tally.lines == tally.records + tally.skipped.total() + tally.merged.total()


def wanted(call: Known, facts: set[str]) -> Usage | None:
    if "usage" in facts:
        return Usage(call.input, call.output, call.cached, call.written)
    if "usage_read" in facts:
        return Usage(call.input, call.output, call.cached)
    return Usage(call.input, call.output) if "tokens" in facts else None


def last_text(record: LogRecord) -> str:
    content = record.request["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def in_order(records: Sequence[LogRecord], calls: Sequence[Known], facts: set[str]) -> list[LogRecord]:
    """Return the records in the order of their calls: batches are answered in any."""
    if "text" not in facts or "start" in facts or "at" in facts:
        return sorted(records, key=lambda r: r.start or 0.0)
    left = list(records)
    found = []
    for call in calls:
        at = next(i for i, r in enumerate(left) if last_text(r) == call.text and r.usage in (wanted(call, facts), None))
        found.append(left.pop(at))
    return found


def test_every_format_has_a_writer() -> None:
    assert set(WRITERS) == set(NAMES)


@pytest.mark.parametrize(("name", "write"), CASES)
def test_round_trip(name: str, write: Writer, tmp_path: Path) -> None:
    written = write(CALLS, tmp_path)
    tally = ReadReport()
    records = list(read_logs([str(path) for path in written.paths], tally))
    assert (tally.faults, tally.repaired, tally.bad_times, tally.bad_durations) == ([], {}, 0, 0)
    assert balanced(tally)
    assert tally.skipped.total() == written.others
    assert tally.formats == {name: len(CALLS)}
    assert {sniffed.format for sniffed in tally.sniffed} == {name}
    facts = written.facts
    for record, call in zip(in_order(records, CALLS, facts), CALLS, strict=True):
        assert record.format == name
        assert record.model == written.model(call)
        assert (record.flaw, record.tier) == (written.flaw, written.tier)
        if "text" in facts:
            assert last_text(record) == call.text
        else:
            assert record.request == {}
        if "system" in facts:
            turns = record.request["messages"]
            assert record.request.get("system", turns[0]["content"]) == call.system
        if "temperature" in facts:
            assert record.request["temperature"] == call.temperature
        assert record.answer == (call.answer if "answer" in facts else None)
        assert record.usage == wanted(call, facts)
        assert record.start == (
            pytest.approx(call.start, abs=1e-3) if "start" in facts else call.at if "at" in facts else None
        )
        assert record.end == (pytest.approx(call.end, abs=1e-3) if "end" in facts else None)
        assert record.session == (call.session if "session" in facts else "")
        assert record.cost == (money(call) if "cost" in facts else None)
        if "tenant" in facts:
            assert json.loads(record.tenant)[0][1] == call.tenant
        elif "walls" not in facts:
            assert record.tenant == ""
    if "walls" in facts:
        # Two tenants, and one of their calls at another temperature.
        assert len({record.tenant for record in records}) == 3


@pytest.mark.parametrize(("name", "write"), CASES)
def test_a_format_can_be_named(name: str, write: Writer, tmp_path: Path) -> None:
    """What sniffing found is what the name gives; another name finds no call, and says so."""
    paths = [str(path) for path in write(CALLS, tmp_path).paths]
    sniffed, named = ReadReport(), ReadReport()
    assert list(read_logs(paths, sniffed)) == list(read_logs(paths, named, format=name))
    assert (sniffed.skipped, sniffed.merged) == (named.skipped, named.merged)


@pytest.mark.parametrize(("name", "write"), [case for case in CASES if case.id not in CONTAINED])
def test_formats_mix_in_one_file(name: str, write: Writer, tmp_path: Path) -> None:
    """Lines of a format between lines of another are read by their own adapter."""
    written = write(CALLS, tmp_path)
    own = [line for path in written.paths if path.suffix != ".json" for line in path.read_bytes().splitlines()]
    (folder := tmp_path / "more").mkdir()
    other = pairs(CALLS, folder).paths[0].read_bytes().splitlines()
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"\n".join(other[:3] + own + other[3:]))
    tally = ReadReport()
    list(read_log(str(mixed), tally))
    assert balanced(tally)
    assert tally.formats["pairs"] >= len(CALLS)
    # A batch's answers without its questions, or two sessions in one file, still give a record a call.
    assert tally.records >= 2 * len(CALLS) - (name == "anthropic-batch")


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean langfuse") as caught:
        list(read_logs(["x"], ReadReport(), format="langfues"))
    assert "helicone" in caught.value.hint


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6),
    st.sampled_from(["{}", '{"a": [1]}', "[1]", "GENERATION", "llm", "generation-create", "user", "assistant",
                     "response_item", "event_msg", "token_count", "message", "tool_use", "2026-01-01T00:00:00Z",
                     "Received request x: prompt: 'a', params: (n=1)", "LLM", "chat", "ai.x.doGenerate"]),
)  # fmt: skip
KEYS = st.sampled_from(
    ["request", "response", "body", "custom_id", "params", "result", "messages", "message", "content", "choices",
     "usage", "model", "model_parameters",
     "call_type", "startTime", "metadata", "spend", "usage_object", "type", "input",
     "output", "usage_details", "trace_id", "id", "request_created_at", "request_body", "run_type", "inputs", "outputs",
     "dotted_order", "extra", "attributes", "gen_ai.request.model", "gen_ai.prompt", "gen_ai.input.messages", "events",
     "llm.model_name", "openinference.span.kind", "ai.operationId", "ai.prompt", "uuid", "parentUuid", "sessionId",
     "payload", "info", "last_token_usage", "role", "startedDateTime", "url", "postData", "text", "encoding", "log",
     "entries", "resourceSpans", "scopeSpans", "spans", "key", "value", "batch", "post", "patch", "model_permaslug",
     "vllm_line", "recall_entry", "llm_response", "input_length", "output_length", "hash_ids", "timestamp", "prompt",
     "question", "status", "parts", "kwargs", "generations", "cost", "temperature", "prompt_tokens", "input_tokens"]
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=20,
)


@given(
    rows=st.lists(st.dictionaries(KEYS, TREES, max_size=6), min_size=1, max_size=6),
    format=st.sampled_from(("", *NAMES)),
)
def test_rows_of_any_shape_are_counted(
    rows: list[dict[str, Any]], format: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("shapes") / "log.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8", errors="surrogatepass")
    check(path, format)


@pytest.mark.parametrize(("name", "write"), CASES)
def test_damage_anywhere_is_counted(name: str, write: Writer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A log cut off or overwritten at any place is read as far as it goes."""
    folder = tmp_path_factory.mktemp("damaged")
    path = write(CALLS, folder).paths[0]
    whole = path.read_bytes()

    @given(at=st.integers(0, len(whole)), junk=st.binary(max_size=8), cut=st.booleans())
    def damaged(at: int, junk: bytes, cut: bool) -> None:
        path.write_bytes(whole[:at] + junk + (b"" if cut else whole[at + len(junk) :]))
        check(path, "")

    damaged()


def check(path: Path, format: str) -> None:
    tally = ReadReport()
    records = []
    # Nothing but "there is no call in it" may end a reading.
    with contextlib.suppress(InputError):
        records = list(read_logs([str(path)], tally, format=format))
    assert len(records) == tally.records
    assert balanced(tally)
    for record in records:
        assert record.usage is None or record.usage.input >= record.usage.cache_read + record.usage.cache_write
        assert record.source.rpartition(":")[2].isdecimal()
        assert record.request or record.flaw
