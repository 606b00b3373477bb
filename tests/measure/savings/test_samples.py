"""`recall savings` on the published samples: requests, tokens and dollars worked out by hand from the files."""

from __future__ import annotations

import csv
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from recall_cli.cli.app import main

pytestmark = pytest.mark.shared

PRICES = (
    "claude-3-haiku-20240307=0.25,1.25", "claude-3-5-sonnet-20240620=3,15,0.3,3.75", "claude-3-sonnet-20240229=3,15",
    "claude-sonnet-4=3,15", "claude-haiku-4-5-20251001=1,5,0.1,1.25", "gpt-3.5-turbo-0125=0.5,1.5",
    "gpt-3.5-turbo=0.5,1.5", "gpt-4o=2.5,10", "gpt-4o-mini=0.15,0.6", "gpt-4o-mini-2024-07-18=0.15,0.6",
    "o1-mini-2024-09-12=3,12", "gpt-5.2-codex=1.75,14,0.175", "openrouter/openai/gpt-oss-120b=0.1,0.5,0.01",
    "(no model)=1,4",
)  # fmt: skip
"""Dollars per million tokens: in, out, read from the cache, written to it."""


def measured(capsys: pytest.CaptureFixture[str], *paths: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    flags = [flag for price in PRICES for flag in ("--price", price)]
    assert main(["savings", *map(str, paths), "--tiers", "exact,normalised", "--json", *flags, *more]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def tokens(document: dict[str, Any]) -> tuple[int, int, int]:
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    return tuple(sum(row[name] for row in document["rows"]) for name in names)  # type: ignore[return-value]


RECORDED = (
    17 * Decimal("0.25") + 171 * Decimal("1.25")  # haiku
    + 1165 * Decimal("3.75") + 4 * 3 + 207 * 15  # the prefix of 1,165 tokens is written,
    + 1165 * Decimal("0.3") + 4 * 3 + 224 * 15  # and read, each before a question of 4
    + 4 * 15 * Decimal("0.5") + (19 + 21 + 27 + 19) * Decimal("1.5")
)  # fmt: skip
"""Millionths of a dollar."""
REPEATED = (
    # Three of the four jokes, and the second question behind the long prefix.
    1165 * Decimal("0.3") + 4 * 3 + 224 * 15 + 3 * 15 * Decimal("0.5") + (21 + 27 + 19) * Decimal("1.5")
)


@pytest.mark.parametrize(
    ("file", "requests", "counts", "spent", "hits", "saved"),
    [
        ("openai-raw/request_response_pairs.jsonl", 7, (17 + 2 * 1169 + 60, 1165, 171 + 431 + 86), RECORDED, 4,
         REPEATED),
        ("har/from_vcr_cassettes.har", 7, (17 + 2 * 1169 + 60, 1165, 171 + 431 + 86), RECORDED, 4, REPEATED),
        ("claude-code/daaain_representative_messages.jsonl", 5, (25 + 45 + 78 + 25 + 45, 0, 120 + 85 + 95 + 35 + 110),
         218 * 3 + 445 * 15, 0, 0),
        ("claude-code/daaain_edge_cases.jsonl", 4, (35 + 200 + 85 + 168, 0, 145 + 25 + 180 + 85), 488 * 3 + 435 * 15, 0,
         0),
        # 50 + 80 fresh, 15 + 25 read, 5 + 10 written.
        ("claude-code/ccusage_session-beta.jsonl", 2, (185, 40, 60),
         130 + 40 * Decimal("0.1") + 15 * Decimal("1.25") + 60 * 5, 0, 0),
        ("codex/rollout_SYNTHETIC_rows.jsonl", 1, (840, 128, 42),
         712 * Decimal("1.75") + 128 * Decimal("0.175") + 42 * 14, 0, 0),
        ("langsmith/langsmith_py_wrap_openai_.json", 1, (9, 0, 9), 9 * Decimal("0.15") + 9 * Decimal("0.6"), 0, 0),
        ("langsmith/langsmith_py_wrap_openai_stream.json", 1, (9, 0, 9), 9 * Decimal("0.15") + 9 * Decimal("0.6"), 0,
         0),
        ("langsmith/langsmith_js_wrap_openai_reasoning.json", 1, (43, 0, 1901), 43 * 3 + 1901 * 12, 0, 0),
        ("litellm/spend_logs.jsonl", 1, (10, 0, 20), 10 * Decimal("2.5") + 200, 0, 0),
        ("litellm/standard_logging_payload.jsonl", 1, (10, 0, 20), 10 * Decimal("2.5") + 200, 0, 0),
        ("langfuse/ingestion_batch.json", 1, (10, 0, 20), 5 + 30, 0, 0),
        ("openrouter/activity_SYNTHETIC_rows.csv", 2, (2 * 10389, 9216, 2 * 137),
         (2 * 10389 - 9216) * Decimal("0.1") + 9216 * Decimal("0.01") + 274 * Decimal("0.5"), 0, 0),
        # No counts: nothing answered the batch, and vLLM logs none.
        ("openai-batch/litellm_batch_input.jsonl", 2, (0, 0, 0), 0, 0, 0),
        ("vllm/received_request.log", 1, (0, 0, 0), 0, 0, 0),
        # Three calls of 14 in and 2 out, of which two are equal.
        ("simonw-llm/logs.db", 3, (42, 0, 6), 42 * Decimal("0.15") + 6 * Decimal("0.6"), 1,
         14 * Decimal("0.15") + 2 * Decimal("0.6")),
    ],
)  # fmt: skip
def test_a_sample(
    shared_data: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    requests: int,
    counts: tuple[int, int, int],
    spent: Decimal,
    hits: int,
    saved: Decimal,
) -> None:
    document = measured(capsys, shared_data / "logs" / file, more=("--allow-sampled",))
    s = document["summary"]
    assert (s["requests"], tokens(document)) == (requests, counts)
    assert s["spend_usd"] == float(Decimal(spent) / 10**6)
    assert (s["tiers"]["exact"]["hits"], s["saved_usd"]) == (hits, float(Decimal(saved) / 10**6))
    assert s["verdict"].startswith("Not enough data")
    assert ("no_usage" in [warning["code"] for warning in document["warnings"]]) is (not any(counts))


def test_a_header_alone(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savings", str(shared_data / "logs/helicone/export_SYNTHETIC_rows.csv")]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert "holds no line" in err


def test_a_folder_of_all_samples(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sums are those of the files one by one, and what was not read is said."""
    samples = tmp_path / "logs"
    # Made logs stand beside the samples, and have tests of their own.
    copytree(shared_data / "logs", samples, ignore=ignore_patterns("made"))
    document = measured(capsys, samples)
    assert document["summary"]["requests"] == 40
    assert tokens(document)[0] == 2 * 2415 + 218 + 488 + 185 + 840 + 9 + 9 + 43 + 10 + 10 + 10 + 20778 + 42
    said = {warning["code"]: warning["message"] for warning in document["warnings"]}
    assert "other endings and were not read" in said["damaged_log"]
    # The 1,577 usage bodies are no calls.
    assert "1,577 without a request" in said["skipped_lines"]


def test_azures_conversations(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 1:4 input is 53 % of the cost of the 6,000 rows beside this checkout (of all 19,366 it is 58 %)."""
    path = shared_data / "traces/azure/AzureLLMInferenceTrace_conv_6000.csv"
    with path.open() as file:
        rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    asked, given = sum(a for a, _ in rows), sum(b for _, b in rows)
    document = measured(capsys, path)
    s = document["summary"]
    assert (s["requests"], tokens(document)) == (len(rows), (asked, 0, given))
    assert s["spend_usd"] == float(Decimal(asked + 4 * given) / 10**6)
    assert asked / (asked + 4 * given) == pytest.approx(0.5325, abs=5e-5)
    assert s["spend_usd_input"] == float(Decimal(asked) / 10**6)
    assert main(["savings", str(path), "--tiers", "exact", "--price", "(no model)=1,4"]) == 0
    assert "Of the $12.96 spent 53.3 % went for input tokens, the rest for output." in capsys.readouterr().out
    assert s["tiers"]["exact"]["hit_rate"] is None
    assert s["verdict"].startswith("Not enough data: whether 6,000 of 6,000 requests could be answered by a cache")


def test_mooncakes_conversations(shared_data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A request is identical when all blocks and the length are; its time counts from the trace's start."""
    path = shared_data / "traces/mooncake/conversation_trace_6000.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    seen: Counter[str] = Counter()
    spent = saved = 0
    for row in rows:
        cost = row["input_length"] + 4 * row["output_length"]
        key = f"{row['hash_ids']} {row['input_length']}"
        spent += cost
        saved += cost if seen[key] else 0
        seen[key] += 1
    repeats = len(rows) - len(seen)
    page = tmp_path / "page.html"
    s = measured(capsys, path, more=("--report", str(page)))["summary"]
    exact = s["tiers"]["exact"]
    assert (exact["hits"], exact["n"], repeats) == (repeats, 6000, 45)
    assert exact["hit_rate"] == repeats / 6000
    assert (s["spend_usd"], exact["usd"]) == (float(Decimal(spent) / 10**6), float(Decimal(saved) / 10**6))
    assert s["span_s"] == (rows[-1]["timestamp"] - rows[0]["timestamp"]) / 1e3
    assert "hour" not in s["groups"]
    assert main(["savings", str(path), "--tiers", "exact", "--price", "(no model)=1,4"]) == 0
    printed = capsys.readouterr()
    for shown in (printed.out, printed.err, page.read_text()):
        assert "1970" not in shown
    assert "6,000 times count from the start of a trace and name no day" in printed.err
    assert "By hour" not in page.read_text()
    assert "from the start of the trace" in page.read_text()
