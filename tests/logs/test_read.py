"""The one call: files, folders, patterns, pipes; what a file is; what goes wrong and how it is said."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from recall_cli.errors import InputError, UsageError
from recall_cli.logs import files, rows
from recall_cli.logs.formats.base import Found
from recall_cli.logs.formats.claude_code import ClaudeCode
from recall_cli.logs.read import read_log, read_logs
from recall_cli.logs.report import ReadReport, Sniffed
from recall_cli.types import LogRecord, Usage
from tests.logs.log_writers import (
    CALLS,
    azure,
    chat,
    claude_code,
    helicone,
    lines,
    openai_batch,
    openinference,
    otel,
    pairs,
    plain_csv,
    plain_jsonl,
    vercel,
)


def read(*paths: Path | str, **options: Any) -> tuple[list[LogRecord], ReadReport]:
    tally = ReadReport()
    records = list(read_logs([str(path) for path in paths], tally, **options))
    assert tally.lines == tally.records + tally.skipped.total() + tally.merged.total()
    return records, tally


def answers(records: Sequence[LogRecord]) -> list[str | None]:
    return [record.answer for record in records]


SAID = [call.answer for call in CALLS]


def test_a_folder_with_a_pattern_a_pipe_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = pairs(CALLS, tmp_path).paths[0].read_bytes()
    deep = tmp_path / "logs" / "2026" / "11"
    deep.mkdir(parents=True)
    (deep / "a.jsonl.gz").write_bytes(gzip.compress(log))
    (deep / "b.ndjson.zst").write_bytes(zstandard.compress(log))
    (deep / "c.JSONL").write_bytes(log)
    (deep / "notes.md").write_bytes(b"# not a log")
    (deep / ".hidden.jsonl").write_bytes(log)
    records, tally = read(tmp_path / "logs")
    assert answers(records) == SAID * 3
    (fault,) = tally.faults
    assert ".md 1" in fault
    records, _ = read(tmp_path / "logs" / "**" / "*.zst")
    assert answers(records) == SAID
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))
    records, _ = read("-", deep / "c.JSONL", deep / "c.JSONL")
    # Named twice, read once.
    assert answers(records) == SAID * 2
    assert records[0].source == "stdin:1"


def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    log = pairs(CALLS, tmp_path).paths[0].read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(log,))
    writer.start()
    records, _ = read(pipe)
    writer.join()
    assert answers(records) == SAID


def test_a_table_of_one_column(tmp_path: Path) -> None:
    path = tmp_path / "asked.csv"
    path.write_text('"prompt"\nHi\n"Yo, you"\n')
    records, _ = read(path)
    assert [r.request["messages"][0]["content"] for r in records] == ["Hi", "Yo, you"]


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    one, two = pairs(CALLS, tmp_path).paths[0], azure(CALLS, tmp_path).paths[0]
    told: list[int] = []
    read(one, two, on_bytes=told.append)
    assert told == sorted(told)
    assert told[-1] == one.stat().st_size + two.stat().st_size


def test_a_file_that_cannot_be_read_among_several_is_a_fault(tmp_path: Path) -> None:
    good = pairs(CALLS, tmp_path).paths[0]
    (tmp_path / "odd.jsonl").write_bytes(b"\0binary")
    records, tally = read(tmp_path / "odd.jsonl", good, tmp_path / "gone.jsonl")
    assert answers(records) == SAID
    assert len(tally.faults) == 2
    assert "is a binary file" in tally.faults[0]
    assert "there is no file" in tally.faults[1]


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the 2 files holds no line that can be read: there is no file"):
        read(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    with pytest.raises(InputError, match="there is no file"):
        read(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="no file matches"):
        read(tmp_path / "*.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="holds no log"):
        read(tmp_path / "folder")


def test_what_a_file_was_taken_for_is_said(tmp_path: Path) -> None:
    path = helicone(CALLS, tmp_path).paths[0]
    _, tally = read(path)
    # Seven columns of its own a row; the bodies in them would do for a pair, too.
    assert tally.sniffed == [Sniffed(str(path), "helicone", 7 * len(CALLS), "pairs", 2 * len(CALLS))]


def test_one_line_of_another_format_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    other = plain_jsonl(CALLS[:1], tmp_path).paths[0].read_bytes()
    path.write_bytes(other + pairs(CALLS, tmp_path).paths[0].read_bytes())
    records, tally = read(path)
    assert tally.sniffed[0].format == "pairs"
    assert tally.formats == {"plain": 1, "pairs": len(CALLS)}
    assert answers(records) == [SAID[0], *SAID]


def test_spans_of_several_emitters_have_the_same_keys_and_each_its_reader(tmp_path: Path) -> None:
    spans = [write(CALLS, tmp_path).paths[0].read_bytes() for write in (otel, openinference, vercel)]
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(spans))
    _, tally = read(path)
    assert tally.formats == dict.fromkeys(("otel", "openinference", "vercel-ai"), len(CALLS))


def test_a_named_format_reads_nothing_else(tmp_path: Path) -> None:
    path = pairs(CALLS, tmp_path).paths[0]
    with pytest.raises(InputError, match="5 of another kind than a model's call"):
        read(path, format="otel")


def test_documents_of_one_line_and_of_many(tmp_path: Path) -> None:
    found = [json.loads(line) for line in pairs(CALLS, tmp_path).paths[0].read_bytes().splitlines()]
    path = tmp_path / "log.json"
    for text in (
        json.dumps(found),
        json.dumps(found, indent=2),
        "[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n",
        "\ufeff" + json.dumps({"data": found, "has_more": False}, indent=1),
        json.dumps({"data": found}),
    ):
        path.write_text(text, encoding="utf-8")
        records, _ = read(path)
        assert answers(records) == SAID
        assert [r.source for r in records] == [f"{path}:{i}" for i in range(1, 6)]


def test_a_document_that_breaks_off_gives_its_whole_lines(tmp_path: Path) -> None:
    text = "[\n" + pairs(CALLS, tmp_path).paths[0].read_text().replace("\n", ",\n")
    path = tmp_path / "log.json"
    path.write_text(text[:-60])
    records, tally = read(path)
    assert answers(records) == SAID[:-1]
    assert (tally.skipped, tally.repaired) == ({"malformed_json": 1}, {"comma_at_its_end": 4})


def test_a_document_over_the_cap_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_DOCUMENT_BYTES", 2 << 20)
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"x": "y" * 1000}] * 3000, indent=1))
    with pytest.raises(InputError, match="one JSON document of more than 2 MiB") as caught:
        read(path)
    assert "jq" in caught.value.hint


def test_a_document_on_one_line_over_the_cap_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2 << 20)
    path = tmp_path / "log.har"
    path.write_text(json.dumps({"log": {"entries": [{"x": "y" * (3 << 20)}]}}) + "\n\n")
    with pytest.raises(InputError, match="one line of more than 2 MiB") as caught:
        read(path)
    assert "jq" in caught.value.hint


def test_wrappers_without_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = pairs(CALLS, tmp_path).paths[0].read_bytes()
    path.write_bytes(b'{"data": [' * 900 + b"]}" * 900 + b"\n" + b"[" * 900 + b"{}" + b"]" * 900 + b"\n" + good)
    records, tally = read(path)
    assert answers(records) == SAID
    assert tally.skipped.total() == 2


def test_what_waits_at_the_end_cannot_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ClaudeCode) -> Iterator[Found]:
        raise KeyError("x")
        yield

    monkeypatch.setattr(ClaudeCode, "end_file", broken)
    records, tally = read(*claude_code(CALLS, tmp_path).paths, pairs(CALLS, tmp_path).paths[0])
    assert answers(records) == SAID
    assert "claude-code" in tally.faults[0]


def test_a_broken_first_line_does_not_make_a_document(tmp_path: Path) -> None:
    log = pairs(CALLS, tmp_path).paths[0].read_bytes()
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"request": {"mod\n' + log)
    records, tally = read(path)
    assert answers(records) == SAID
    assert tally.skipped == {"malformed_json": 1}


def test_a_line_over_the_cap_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2000)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"x": "' + b"y" * 3000 + b'"}\n' + pairs(CALLS, tmp_path).paths[0].read_bytes())
    records, tally = read(path)
    assert answers(records) == SAID
    assert tally.skipped == {"line_too_long": 1}


def test_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(
        'Frage;Antwort;wann;in;out;wer\n"Was ist, bitte, das?\n\nUnd das?";'
        '"Ein\n""Ding"";";2026-11-02 09:15:00;14;9;ann\n'
    )
    fields = {
        "prompt": "Frage",
        "answer": "Antwort",
        "ts": "wann",
        "input_tokens": "in",
        "output_tokens": "out",
        "tenant": "wer",
    }
    (record,), tally = read(path, fields=fields)
    assert record.request["messages"] == [{"role": "user", "content": "Was ist, bitte, das?\n\nUnd das?"}]
    assert (record.answer, record.usage, record.source) == ('Ein\n"Ding";', Usage(14, 9), f"{path}:2")
    assert (record.start, json.loads(record.tenant)[0][1]) == (1793610900.0, "ann")
    assert tally.naive_times == 1
    with pytest.raises(InputError, match="no row has a column 'frage'") as wrong:
        read(path, fields={"prompt": "frage"})
    assert "header" in wrong.value.hint
    _, tally = read(path, fields={"prompt": "Frage", "cost": "Preis"})
    assert tally.faults == ["no row has a column 'Preis' (named as cost)"]
    _, tally = read(pairs(CALLS, tmp_path).paths[0], fields={"tenant": "tenant"})
    assert tally.faults == ["named columns count in plain tables only, and no row was read as one"]
    with pytest.raises(UsageError, match="no field 'promt'") as caught:
        read(path, fields={"promt": "Frage"})
    assert "prompt" in caught.value.hint


def test_rows_of_a_table_are_numbered_by_their_first_line(tmp_path: Path) -> None:
    records, _ = read(plain_csv(CALLS, tmp_path).paths[0])
    # The third row has a line end in its prompt and one in its answer.
    assert [int(r.source.rpartition(":")[2]) for r in records] == [2, 3, 4, 7, 8]


def test_anthropics_names_in_a_plain_table_mean_anthropics_counts(tmp_path: Path) -> None:
    row = {"prompt": "Hi", "model": "claude-sonnet-4-5", "input_tokens": 4, "cache_read_input_tokens": 1165}
    (record,), tally = read(*lines(tmp_path / "log.jsonl", [row]))
    assert record.usage == Usage(1169, 0, cache_read=1165)
    assert tally.usage_read == {("anthropic", "exclusive"): 1}


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}], "model": "m"}, "Yo"),
        ({"messages": [{"role": "user", "content": "Hi"}], "choices": [{"message": {"content": "Yo"}}], "ts": 1}, "Yo"),
        ({"prompt": '[{"role": "user", "content": "Hi"}]', "completion": "Yo"}, "Yo"),
        ({"prompt": "Hi"}, None),
    ],
)
def test_shapes_of_plain_rows(tmp_path: Path, row: dict[str, Any], answer: str | None) -> None:
    (record,), _ = read(*lines(tmp_path / "log.jsonl", [row]))
    assert (record.request["messages"], record.answer) == ([{"role": "user", "content": "Hi"}], answer)


def test_parameters_in_columns_stay_part_of_the_request(tmp_path: Path) -> None:
    row = {"prompt": "Hi", "answer": "Yo", "tools": '[{"type": "function"}]', "top_p": 0.5, "temperature": "0"}
    (record,), _ = read(*lines(tmp_path / "log.jsonl", [row]))
    assert record.request["tools"] == [{"type": "function"}]
    assert (record.request["top_p"], record.request["temperature"]) == (0.5, 0.0)


def test_a_batchs_id_that_was_used_twice(tmp_path: Path) -> None:
    """Two batches with the same ids: nobody can tell whose answer is whose, but their tokens were paid for."""
    (one := tmp_path / "1").mkdir()
    (two := tmp_path / "2").mkdir()
    first, second = openai_batch(CALLS[:1], one), openai_batch(CALLS[2:3], two)
    inputs = [first.paths[1], second.paths[1]]
    records, tally = read(*inputs, first.paths[0], second.paths[0])
    assert [(r.flaw, r.usage and r.usage.output) for r in records] == [("no_text", 20), ("no_text", 33)]
    assert tally.skipped == {"id_used_twice": 2}
    # One batch after the other, each with its answers, is no riddle.
    records, _ = read(*first.paths, *second.paths)
    assert answers(records) == [CALLS[0].answer, CALLS[2].answer]


def test_a_failed_request_of_a_batch(tmp_path: Path) -> None:
    asked = {"custom_id": "a", "url": "/v1/chat/completions", "body": chat(CALLS[0])}
    failed = {"custom_id": "a", "response": None, "error": {"code": "batch_expired", "message": "too late"}}
    (record,), _ = read(*lines(tmp_path / "in.jsonl", [asked]), *lines(tmp_path / "out.jsonl", [failed]))
    assert (record.flaw, record.status, record.tier) == ("error", 500, "batch")


def test_a_transcripts_turns_are_the_chain_of_parents(tmp_path: Path) -> None:
    """Lines of one call are one turn, whichever of them has the counts; a resumed session's old lines count once."""

    def line(uuid: str, parent: str | None, role: str, **message: Any) -> dict[str, Any]:
        return {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "requestId": message.get("id", ""),
                "timestamp": "2026-11-02T09:15:00Z", "message": {"role": role, **message}}  # fmt: skip

    def block(text: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text}]

    full, early = {"input_tokens": 10, "output_tokens": 7}, {"input_tokens": 10, "output_tokens": 2}
    rows = [
        line("1", None, "user", content="One?"),
        line("2", "1", "assistant", id="m", model="claude-x", content=block("A"), usage=full),
        line("3", "2", "assistant", id="m", model="claude-x", content=block("B"), usage=early),
        line("4", "3", "user", content="Two?"),
        line("5", "4", "assistant", id="n", model="claude-x", content=block("C"), usage=full, stop_reason="end_turn"),
        line("6", "5", "assistant", id="p", model="<synthetic>", content=block("an error")),
    ]
    records, tally = read(*lines(tmp_path / "a.jsonl", rows), *lines(tmp_path / "b.jsonl", rows[:5]))
    assert [(r.answer, r.usage) for r in records] == [("AB", Usage(10, 7)), ("C", Usage(10, 7))]
    assert records[1].request["messages"] == [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": block("A") + block("B")},
        {"role": "user", "content": "Two?"},
    ]
    assert tally.skipped == {"not_a_call": 1, "duplicate": 3}


def test_an_emitter_that_counts_cached_tokens_apart_is_corrected_and_said(tmp_path: Path) -> None:
    path = otel(CALLS[:1], tmp_path).paths[0]
    name = '"gen_ai.usage.cache_read.input_tokens", "value": '
    path.write_text(path.read_text().replace(name + '{"intValue": "0"}', name + '{"intValue": "5758"}'))
    (record,), tally = read(path)
    assert record.usage == Usage(100 + 5758, 20, cache_read=5758)
    assert [read for _, read in tally.usage_read] == ["exclusive, against its API: cached tokens exceeded the input"]


@pytest.mark.parametrize(
    ("fields", "flaw"),
    [
        ({"outcome": "EXACT", "text": "Hi"}, "already_cached"),
        ({"outcome": "SEMANTIC"}, "already_cached"),
        ({"outcome": "SHADOW"}, "no_text"),
        ({"outcome": "BYPASS", "status": 502}, "error"),
    ],
)
def test_what_serve_decided(tmp_path: Path, fields: dict[str, Any], flaw: str) -> None:
    row = {"time": 1.79e9, "provider": "openai", "ms": 2.5, "status": 200, "model": "gpt-4o", **fields}
    (record,), _ = read(*lines(tmp_path / "access.jsonl", [row]))
    assert (record.flaw, record.format, record.model) == (flaw, "recall-serve", "gpt-4o")


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE songs (id)")
    db.commit()
    db.close()
    with pytest.raises(InputError, match="tables: songs"):
        read(path)
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 500)
    with pytest.raises(InputError, match="cannot read the database"):
        read(path)


def test_read_log_is_the_form_for_one(tmp_path: Path) -> None:
    path = pairs(CALLS, tmp_path).paths[0]
    tally = ReadReport()
    assert answers(list(read_log(str(path), tally))) == SAID
