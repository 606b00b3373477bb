"""`recall savings` on logs that lack something, are damaged, or are several: each is handled and said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.logs import files as reader
from recall_cli.measure.savings.savings import SavingsPlan, run

T = 1_767_225_600


def call(text: str, at: float | None, *, answer: str = "Yes.", usage: bool = True) -> dict[str, Any]:
    row: dict[str, Any] = {
        "request": {"model": "gpt-4o", "temperature": 0, "messages": [{"role": "user", "content": text}]},
        "response": {"model": "gpt-4o", "choices": [{"message": {"content": answer}, "finish_reason": "stop"}]},
    }
    if at is not None:
        row |= {"timestamp": T + at, "latency_ms": 500}
    if usage:
        row["response"]["usage"] = {"prompt_tokens": 1000, "completion_tokens": 100}
    return row


def unique(n: int) -> list[dict[str, Any]]:
    """Return calls that have nothing to do with each other, over four days."""
    return [call(f"{i * 7919:b} {i**5:x} {i * 104729:o}", 1200.0 * i, answer=f"{i}") for i in range(n)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def told(capsys: pytest.CaptureFixture[str], log: str, *more: str, code: int = 0) -> tuple[str, str]:
    assert main(["savings", log, "--tiers", "exact,normalised", *more]) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def document(capsys: pytest.CaptureFixture[str], log: str, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, log, "--json", *more)[0])
    return found


def test_unique_prompts_are_not_worth_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.jsonl", unique(300))
    verdict = "Not worth it: none of 300 cacheable requests could be answered by one before it."
    for tiers in ("exact,normalised", "exact,normalised,semantic"):
        assert told(capsys, log, "--tiers", tiers, "--tau", "0.99")[0].rstrip().splitlines()[-1] == verdict


def test_an_empty_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("", "\n\n", "[]", "{}"):
        (tmp_path / "log.jsonl").write_text(content)
        out, err = told(capsys, str(tmp_path / "log.jsonl"), code=4)
        assert out == ""
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 2


def test_a_log_without_text_prices_and_refuses_a_hit_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["created_at,model_permaslug,tokens_prompt,tokens_completion,tokens_cached,cost_total,generation_id"]
    rows += [f"2026-01-01 00:{i // 60:02}:{i % 60:02},openai/gpt-4o,1000,100,0,0,g{i}" for i in range(300)]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    out, _ = told(capsys, str(tmp_path / "log.csv"), "--price", "openrouter/openai/gpt-4o=2.5,10")
    assert "Answered" not in out
    assert out.rstrip().splitlines()[-1] == (
        "Not enough data: whether 300 of 300 requests could be answered by a cache cannot be told (no text in the log, "
        "nor a key of it); what they cost is known: $1.05."
    )


def test_a_log_without_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [call("Same?", None), call("Other.", None), call("Same?", None)]
    out, err = told(capsys, write(tmp_path / "log.jsonl", rows))
    assert "3 requests, replayed by file position; 3 can be cached. Spent: $0.0105." in out
    assert "unordered upper bound" in err
    assert "3 requests without a date are priced as of today" in err


def test_a_log_without_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [call(f"Same? {i % 200}", 600.0 * i, usage=False) for i in range(400)]
    out, err = told(capsys, write(tmp_path / "log.jsonl", rows))
    assert "400 of 400 requests carry no token counts that can be used: they are counted, not priced" in err
    assert out.rstrip().splitlines()[-1] == (
        "Not enough data: only 0 of 400 cacheable requests have both token counts and a known price."
    )
    found = document(capsys, write(tmp_path / "log.jsonl", rows))["summary"]
    assert (found["tiers"]["exact"]["hits"], found["spend_usd"]) == (200, 0.0)


def test_one_huge_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 1 << 20)
    log = write(tmp_path / "log.jsonl", [call("Same?", 0), call("x" * (2 << 20), 60), call("Same?", 120)])
    out, err = told(capsys, log)
    assert "2 requests over 2.0 minutes" in out
    assert "1 of 3 lines are no call: 1 longer than any request" in err
    # Alone it is no log.
    _, err = told(capsys, write(tmp_path / "log.jsonl", [call("x" * (2 << 20), 60)]), code=4)
    assert "one line of more than 1 MiB" in err


def test_a_long_line_within_the_limit_is_a_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.jsonl", [call("x" * (3 << 20), 0), call("x" * (3 << 20), 60), call("Other.", 90)])
    found = document(capsys, log)["summary"]
    assert (found["requests"], found["tiers"]["exact"]["hits"], found["skipped"]) == (3, 1, {})


def test_bytes_that_are_no_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps(call(f"caf{mark}?", 60.0 * at)).encode() for at, mark in enumerate("aabbab")]
    log = tmp_path / "log.jsonl"
    # One prompt in Latin-1, twice, and a line of noise.
    log.write_bytes(b"\n".join([line.replace(b"cafb", b"caf\xe9") for line in lines] + [b"\xff\xfe\x00{"]))
    _, err = told(capsys, str(log))
    assert "3 lines are not strict JSON but were read: 3 with bytes that are no UTF-8" in err
    assert "1 of 7 lines are no call: 1 no JSON" in err
    found = document(capsys, str(log))["summary"]
    assert (found["requests"], found["tiers"]["exact"]["hits"]) == (6, 4)


def test_an_anthropic_row_is_priced_with_its_cached_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Input 4 and 1,165 read from the cache are 1,169 tokens at their two prices: $3 and $0.30 a million."""
    request = {"model": "claude-sonnet-4-5", "max_tokens": 9, "temperature": 0,
               "messages": [{"role": "user", "content": "Same?"}]}  # fmt: skip
    response = {
        "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Yes."}],
        "usage": {"input_tokens": 4, "cache_read_input_tokens": 1165, "output_tokens": 224},
    }  # fmt: skip
    rows = [{"timestamp": T + at, "request": request, "response": response} for at in (0, 60)]
    found = document(capsys, write(tmp_path / "log.jsonl", rows))
    (row,) = found["rows"]
    assert (row["input_tokens"], row["cached_input_tokens"], row["output_tokens"]) == (2338, 2330, 448)
    one = round(4 * 3e-6 + 1165 * 0.3e-6, 8), round(224 * 15e-6, 8)
    exact = found["summary"]["tiers"]["exact"]
    assert (exact["usd_input"], exact["usd_output"], exact["usd"]) == (*one, round(sum(one), 8))
    assert found["summary"]["saved_usd_naive"] == round(1169 * 3e-6 + 224 * 15e-6, 8)
    assert found["summary"]["usage_read"] == {"anthropic": {"exclusive": 2}}


WAYS = ("How do I reset my password?", "My password, how do I reset it?", "How can I reset my password now?")


def several(folder: Path) -> list[str]:
    """Write three logs whose paraphrases get other answers, one of them packed, and a file that is no log."""
    folder.mkdir()
    rows = [call(WAYS[i % 3], 600.0 * i, answer=f"Answer {i}.") for i in range(30)]
    names = [write(folder / "a.jsonl", rows[::3]), write(folder / "b.jsonl", rows[1::3])]
    packed = folder / "c.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, rows[2::3])).encode()))
    (folder / "notes.md").write_text("# not a log\n" * 500)
    return [*names, str(packed)]


def test_two_logs_a_folder_and_a_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = several(tmp_path / "logs")
    ways = (files, [str(tmp_path / "logs")], [str(tmp_path / "logs" / "*.jsonl*")], [files[0], str(tmp_path / "logs")])
    found = []
    for logs in ways:
        assert main(["savings", *logs, "--tau", "0.5", "--json"]) == 0
        printed = capsys.readouterr()
        found.append(json.loads(printed.out))
    for one in found:
        s = one["summary"]
        assert s["requests"] == 30
        assert s["tiers"] == found[0]["summary"]["tiers"]
        assert s["to_check"]
        for pair in s["to_check"]:
            assert {pair["file"], pair["served_from_file"]} <= set(files)
            # Both lines hold paraphrases of one question: each file holds one of the ways.
            assert 1 <= min(pair["line"], pair["served_from_line"]) <= max(pair["line"], pair["served_from_line"]) <= 10
    alone = tmp_path / "alone.jsonl"
    write(alone, [call(WAYS[i % 3], 600.0 * i, answer=f"Answer {i}.") for i in range(30)])
    assert main(["savings", str(alone), "--tau", "0.5", "--json"]) == 0
    assert all("file" not in pair for pair in json.loads(capsys.readouterr().out)["summary"]["to_check"])


def test_files_are_named_by_what_they_hold(tmp_path: Path) -> None:
    """The named line of the named file is a way to ask that the other line is not."""
    files = several(tmp_path / "logs")
    texts = {}
    for name in files:
        with gzip.open(name, "rt") if name.endswith(".gz") else open(name) as file:
            texts[name] = [json.loads(line) for line in file]
    result = run(SavingsPlan(files, tau=0.5))
    for pair in result.summary["to_check"]:
        asked = texts[pair["file"]][pair["line"] - 1]
        served = texts[pair["served_from_file"]][pair["served_from_line"] - 1]
        assert asked["timestamp"] > served["timestamp"]
        assert asked["response"] != served["response"]


@pytest.mark.parametrize("how", ["files", "folder", "pattern", "one twice", "growing"])
def test_progress_ends_at_its_total_and_never_passes_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 512)
    monkeypatch.setattr(reader, "HEAD_BYTES", 64)
    files = several(tmp_path / "logs")
    logs = {"folder": [str(tmp_path / "logs")], "pattern": [str(tmp_path / "logs" / "*.jsonl*")],
            "one twice": [*files, files[0]]}.get(how, files)  # fmt: skip
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, what: str) -> None:
        if what == "reading":
            seen.append((done, total))
            if how == "growing" and len(seen) == 1:
                with open(files[0], "a") as file:
                    file.write("\n" + json.dumps(call("Late.", 9e5)))

    size = sum(Path(name).stat().st_size for name in files)
    run(SavingsPlan(logs, tiers="exact"), progress=progress)
    assert {total for _, total in seen} == {size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == size
    assert len(seen) > 3
