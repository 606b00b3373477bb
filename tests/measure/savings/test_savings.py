"""`savings.run` on whole logs: totals worked by hand, and every fault said."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
import typer

from recall_cli.cli.app import app
from recall_cli.errors import EmbedderError, InputError, UsageError
from recall_cli.measure.savings.savings import SavingsPlan, run
from recall_cli.stats import Z_95, wilson
from recall_cli.types import Result

NEW_YEAR = 1_767_225_600.0  # 2026-01-01 00:00 UTC
DAY = 86_400.0


def line(
    text: str, at: float | str | None = NEW_YEAR, *, answer: str = "An answer.", model: str = "gpt-4o", **more: Any
) -> dict[str, Any]:
    """Return a pair: 1,000 tokens in and 100 out, $0.0035 at gpt-4o's $2.50 and $10."""
    request = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": text}]}
    response = {
        "model": model,
        "choices": [{"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
    }
    request |= more.pop("request", {})
    response |= more.pop("response", {})
    return {"timestamp": at, "latency_ms": 1000, "request": request, "response": response, **more}


def measure(path: Path, lines: list[Any], **plan: Any) -> Result:
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines))
    return run(SavingsPlan([str(path)], **{"embedder": "hash-v1", **plan}))


def codes(result: Result) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.mark.shared
def test_the_sample_log(shared_data: Path) -> None:
    """Seven recorded calls. gpt-3.5-turbo: $0.50 in, $1.50 out; 3.5 Sonnet: $3, $0.30 cached, $3.75 written, $15.

    Repeats: three of the joke (45 in, 67 out: $0.0000225 + $0.0001005) and the cached summary
    (4 x 3 + 1,165 x 0.3 = $0.0003615 in, 224 x 15 = $0.00336 out; naively 1,169 x 3 = $0.003507 in).
    """
    path = str(shared_data / "logs/openai-raw/request_response_pairs.jsonl")
    result = run(SavingsPlan([path], allow_sampled=True))
    summary = result.summary
    exact = summary["tiers"]["exact"]
    assert (exact["hits"], exact["n"], exact["hit_rate"]) == (4, 7, 4 / 7)
    assert (exact["input_tokens"], exact["output_tokens"]) == (45 + 1169, 67 + 224)
    assert (exact["usd_input"], exact["usd_output"]) == (0.000384, 0.0034605)
    assert summary["tiers"]["semantic"]["hits"] == 0
    assert summary["saved_usd"] == 0.0038445
    assert summary["saved_usd_naive"] == 0.00699
    # Haiku 17 x 0.25 + 171 x 1.25; the written summary 4 x 3 + 1,165 x 3.75 + 207 x 15; the first joke.
    assert summary["spend_usd"] == 0.01158425
    assert summary["usage_read"] == {"anthropic": {"exclusive": 3}, "openai": {"inclusive": 4}}
    assert summary["verdict"].startswith("Not enough data: 7 of 7 requests")
    assert [row["saved_usd"] for row in result.rows] == [0.0037215, 0.0, 0.000123]

    plain = run(SavingsPlan([path])).summary
    assert plain["excluded"] == {"sampled": {"requests": 7, "usd": 0.01158425}}
    assert (plain["cacheable"], plain["tiers"]["combined"]["hit_rate"]) == (0, None)


def test_exact_semantic_and_money(log: Path) -> None:
    lines = [
        line("How do I reset my password?", NEW_YEAR, answer="Click  forgot."),
        line("How do I reset my password?", NEW_YEAR + 10),
        line("How can I reset my password?", NEW_YEAR + 20, answer="click forgot."),
        line("how do i reset  my password!", NEW_YEAR + 25, answer="Click forgot."),
        line("How do I reset my own password?", NEW_YEAR + 30, answer="Call us."),
        line("What is the capital of France?", NEW_YEAR + 40),
    ]
    result = measure(log, lines, embedder="static", tau=0.9)
    tiers = result.summary["tiers"]
    assert [tiers[name]["hits"] for name in ("exact", "normalised", "semantic", "combined")] == [1, 1, 2, 4]
    assert (tiers["normalised"]["answers_equal"]["equal"], tiers["normalised"]["usd"]) == (1, 0.0035)
    assert (tiers["semantic"]["answers_equal"]["equal"], tiers["semantic"]["answers_equal"]["n"]) == (1, 2)
    assert (tiers["exact"]["answers_equal"]["equal"], tiers["exact"]["answers_equal"]["n"]) == (0, 1)
    assert "answers_equal" not in tiers["combined"]
    assert tiers["semantic"]["verified"] is False
    assert (tiers["semantic"]["usd_input"], tiers["semantic"]["usd_output"]) == (0.005, 0.002)
    assert result.summary["spend_usd"] == 0.021
    assert result.summary["saved_share"] == pytest.approx(4 / 6)
    assert "semantic_unverified" in codes(result)
    assert result.rows[0]["hits_semantic"] == 2


def test_agreement_is_that_of_the_hits_the_semantic_tier_adds(log: Path) -> None:
    """The last call is an exact repeat that the semantic cache serves from its neighbour: it added nothing."""
    lines = [
        line("How do I reset my password?", NEW_YEAR, answer="Click forgot."),
        line("How can I reset my password?", NEW_YEAR + 10, answer="Call us."),
        line("How can I reset my password?", NEW_YEAR + 20, answer="Call us."),
        line("How can I reset my password?", NEW_YEAR + 30, answer="Write to us."),
    ]
    summary = measure(log, lines, embedder="static", tau=0.9).summary
    assert (summary["tiers"]["exact"]["hits"], summary["tiers"]["semantic"]["hits"]) == (2, 1)
    answers = summary["tiers"]["semantic"]["answers_equal"]
    assert (answers["n"], answers["equal"], answers["share"]) == (1, 0, 0.0)
    assert answers["interval"] == list(wilson(0, 1, Z_95))
    # Exact keys serve "Call us." to the third call, as logged, and to the fourth, which got another answer then.
    assert (summary["tiers"]["exact"]["answers_equal"]["n"], summary["tiers"]["exact"]["answers_equal"]["equal"]) == (
        2,
        1,
    )
    assert summary["exact_hits_displaced"] == 1


def test_a_neighbour_with_the_logged_answer_displaces_nothing(log: Path) -> None:
    texts = ("How do I reset my password?", "how do i reset my password", "how do i reset my password")
    lines = [line(text, NEW_YEAR + 10 * i, answer="Click forgot.") for i, text in enumerate(texts)]
    assert measure(log, lines, embedder="static", tau=0.9).summary["exact_hits_displaced"] == 0


def wordings(n: int) -> list[dict[str, Any]]:
    """Return questions in many wordings, each with an answer drawn by chance."""
    noise = random.Random(0)
    things = ("bank", "phone", "router", "car", "house", "garden", "camera", "bicycle", "boat", "oven")
    ways = product(("do", "can", "could", "should", "might"), ("the", "a"), ("", " please", " now"), things)
    return [
        line(f"How {may} I check {which} {thing}{end}?", NEW_YEAR + i * DAY / 50, answer=f"{noise.randrange(9)}")
        for i, (may, which, end, thing) in enumerate(islice(ways, n))
    ]


def test_semantic_hits_that_agree_by_chance_are_not_worth_it(log: Path) -> None:
    summary = measure(log, wordings(300), embedder="static", tau=0.8).summary
    answers = summary["tiers"]["semantic"]["answers_equal"]
    assert answers["n"] == summary["tiers"]["semantic"]["hits"] > 200
    assert answers["interval"][1] < 0.2
    assert summary["tiers"]["semantic"]["few_answers_equal"] is True
    assert summary["verdict"].startswith("Not worth it on this evidence: exact matching alone saves nothing; ")
    assert f"{answers['equal']:,} of {answers['n']:,} (" in summary["verdict"]


@pytest.mark.parametrize("model", ["gpt-4o", "our-llama"])
def test_what_allowing_sampled_calls_would_bring(log: Path, model: str) -> None:
    unset = {"temperature": None}
    lines = [
        line(f"{i % 200}", NEW_YEAR + i * DAY / 80, request=unset, model=model, latency_ms=1e5) for i in range(400)
    ]
    # Also what is cacheable as it is: of four slow calls, the second starts before the first has ended.
    lines += [line("0", NEW_YEAR + 7 * DAY + at, model=model, latency_ms=3e6) for at in (0, 1, DAY, 1.5 * DAY)]
    # What says no latency takes the median of all, here 100 s: the second of these is no hit.
    lines += [line("z", NEW_YEAR + 9 * DAY + at, request=unset, model=model, latency_ms=None) for at in (0, 60)]
    # And what no flag admits.
    lines.append(line("0", NEW_YEAR + 10 * DAY, request={**unset, "tools": [{"type": "function"}]}, model=model))
    plain = measure(log, lines)
    allowed = measure(log, lines, allow_sampled=True)
    exact = plain.summary["if_sampled_allowed"]["exact"]
    tier = allowed.summary["tiers"]["exact"]
    assert (exact["hits"], exact["usd"]) == (tier["hits"], tier["usd"])
    assert exact["hits"] == 202
    assert allowed.summary["if_sampled_allowed"] is None
    if model == "gpt-4o":
        assert exact["share"] == pytest.approx(202 / 407)
        assert plain.summary["verdict"].endswith(
            ", unless repeating a sampled answer is acceptable to you: with --allow-sampled exact matching alone would "
            "save 49.6 % of the spend."
        )
        assert "if repeating sampled answers is acceptable to you" in allowed.summary["verdict"]
    else:
        assert exact["share"] is None
        assert "would answer 202 of 407 requests" in plain.summary["verdict"]
    hints = {w.code: w.hint for w in plain.warnings}
    assert hints["sampled_excluded"].endswith("exact matching alone would then answer 202 requests")
    assert "sampled_included" in codes(allowed)


def test_only_sampled_calls_are_said_to_be_included(log: Path) -> None:
    result = measure(log, [line("a"), line("b")], allow_sampled=True)
    assert "sampled_included" not in codes(result)
    assert measure(log, [line("a"), line("b", status=500)]).summary["if_sampled_allowed"] is None


def test_no_hint_names_what_does_not_exist(log: Path) -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    untimed = [{**line("a"), "timestamp": None}, line("a?", None, request={"temperature": 1}, latency_ms=None)]
    for result in (measure(log, wordings(40), embedder="static", tau=0.4), measure(log, untimed)):
        for warning in result.warnings:
            said = f"{warning.message} {warning.hint}"
            assert "project" not in said
            assert set(re.findall(r"recall ([a-z-]+)", said)) <= commands
    warnings = measure(log, wordings(40), embedder="static", tau=0.4).warnings
    hint = next(w.hint for w in warnings if "semantic" in w.code)
    assert "recall eval --log LOG" in hint


def test_a_model_of_two_providers_is_named_apart(log: Path) -> None:
    claude = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "choices": None}
    lines = [line("a", model="my-llm"), line("b", model="my-llm", response=claude), line("c", model="other")]
    result = measure(log, lines)
    message = next(w.message for w in result.warnings if w.code == "unknown_models")
    assert message.endswith("models: my-llm (anthropic), my-llm (openai), other")


def test_each_exclusion_is_counted_with_its_dollars(log: Path) -> None:
    def finished(finish: str) -> dict[str, Any]:
        return {"choices": [{"message": {"content": "Hi"}, "finish_reason": finish}]}

    lines = [
        line("a"),
        line("b", request={"temperature": None}),
        line("c", request={"temperature": 0.7}),
        line("d", request={"tools": [{"type": "function"}]}),
        line("e", response=finished("length")),
        line("f", response=finished("content_filter")),
        line("g", response=finished("tool_calls")),
        line("h", status=500),
        {**line("i"), "response": None},
        line("j", cache_hit=True),
        # Sampled and truncated: what no flag would admit comes first.
        line("k", request={"temperature": 1}, response=finished("length")),
        line("l", request={"tools": [{"type": "function"}]}, status=429),
    ]
    result = measure(log, lines)
    excluded = result.summary["excluded"]
    assert excluded == {
        "sampled": {"requests": 2, "usd": 0.007},
        "truncated": {"requests": 2, "usd": 0.007},
        "error": {"requests": 2, "usd": 0.007},
        "refusal": {"requests": 1, "usd": 0.0035},
        "tool_calls": {"requests": 1, "usd": 0.0035},
        "tools": {"requests": 1, "usd": 0.0035},
        "already_cached": {"requests": 1, "usd": 0.0},
        "no_answer": {"requests": 1, "usd": 0.0},
    }
    assert result.summary["cacheable"] == 1
    assert result.summary["requests"] == 12 == 1 + sum(group["requests"] for group in excluded.values())
    assert result.summary["spend_usd"] == 0.035
    assert measure(log, lines, allow_sampled=True).summary["cacheable"] == 3


def test_an_excluded_call_neither_serves_nor_is_served(log: Path) -> None:
    failed = line("a", NEW_YEAR + 10, status=500)
    summary = measure(log, [failed, line("a", NEW_YEAR + 20), {**failed, "timestamp": NEW_YEAR + 30}]).summary
    assert summary["tiers"]["combined"]["hits"] == 0


def test_tenants_models_and_system_prompts_are_walls(log: Path) -> None:
    system = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]}
    lines = [
        line("a", NEW_YEAR, team="red"),
        line("a", NEW_YEAR + 10, team="blue"),
        line("a", NEW_YEAR + 20, team="red", model="gpt-4o-mini"),
        line("a", NEW_YEAR + 30, team="red", request=system),
        line("a", NEW_YEAR + 40, team="red"),
    ]
    summary = measure(log, lines).summary
    assert summary["tiers"]["combined"]["hits"] == 1
    assert summary["tenants"] == {"n": 2, "fields": {"team": 5}}


def test_a_cached_prompt_is_saved_at_what_it_cost(log: Path) -> None:
    usage = {"input_tokens": 500, "cache_read_input_tokens": 9500, "output_tokens": 300}
    body = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "usage": usage, "choices": None}
    lines = [line("a", NEW_YEAR + i, model="claude-sonnet-4-5", response=body) for i in (0, 10)]
    summary = measure(log, lines).summary
    assert (summary["saved_usd"], summary["saved_usd_naive"]) == (0.00885, 0.0345)
    assert summary["tiers"]["exact"]["input_tokens"] == 10_000


def test_each_call_is_priced_at_its_own_date(log: Path) -> None:
    """O3 cost $10 a million input tokens in May 2025 and $2 from June; output $40, then $8."""
    lines = [line("a", "2025-05-01T00:00:00Z", model="o3"), line("a", "2026-01-01T00:00:00Z", model="o3")]
    summary = measure(log, lines).summary
    assert summary["saved_usd"] == 0.0028
    assert summary["spend_usd"] == 0.0028 + 0.014


def test_unknown_models_have_tokens_and_no_dollars(log: Path) -> None:
    result = measure(log, [line("a", NEW_YEAR + i, model="our-llama") for i in (0, 10)])
    (row,) = result.rows
    assert (row["requests"], row["requests_without_price"], row["input_tokens"]) == (2, 2, 2000)
    assert (row["spend_usd"], row["saved_usd"]) == (None, None)
    assert result.summary["tiers"]["exact"]["hits_without_price"] == 1
    assert result.summary["saved_share"] is None
    assert "our-llama" in next(w.message for w in result.warnings if w.code == "unknown_models")


def test_calls_without_usage_are_counted_and_not_priced(log: Path) -> None:
    result = measure(log, [line("a", NEW_YEAR + i, response={"usage": None}) for i in (0, 10)])
    assert result.summary["requests_without_usage"] == 2
    assert result.summary["priced_requests"] == 0
    assert result.rows[0]["spend_usd"] is None
    assert "no_usage" in codes(result)
    assert "unknown_models" not in codes(result)


def test_a_log_without_times_is_an_upper_bound(log: Path) -> None:
    result = measure(log, [line("a", None), line("a", None)])
    assert result.summary["order"] == "file position"
    assert result.summary["span_s"] is None
    assert result.summary["tiers"]["exact"]["hits"] == 1
    assert {"unordered", "undated_prices"} <= set(codes(result))
    mixed = measure(log, [line("a", NEW_YEAR), line("a", None)])
    assert mixed.summary["order"] == "partly by file position"
    assert "partly_unordered" in codes(mixed)


def test_what_was_odd_about_the_log_is_said(log: Path) -> None:
    lines: list[Any] = [
        line("a", "2026-01-01T00:00:00"),
        line("b", "2026-01-01T01:00:00", latency_ms=None, response={"service_tier": "flex"}),
        b'{"request": {"mess',
        b"\xef\xbb\xbf" + json.dumps(line("c")).encode(),
    ]
    result = measure(log, lines)
    assert set(codes(result)) == {"naive_times", "service_tier", "tier_at_standard", "skipped_lines", "repaired_lines",
                                  "short_span"}  # fmt: skip
    assert result.summary["skipped"] == {"malformed_json": 1}
    assert (result.summary["lines"], result.summary["requests"]) == (4, 3)
    assert "latency_unknown" in codes(measure(log, [line("a", latency_ms=None)]))


def test_a_truncated_archive_still_reports(log: Path) -> None:
    noise = random.Random(0)
    lines = [line(noise.randbytes(200).hex(), NEW_YEAR + i) for i in range(300)]
    packed = gzip.compress("\n".join(map(json.dumps, lines)).encode())
    log.write_bytes(packed[: len(packed) // 2])
    result = run(SavingsPlan([str(log)], embedder="hash-v1"))
    assert 50 < result.summary["requests"] < 299
    assert "damaged_log" in codes(result)


def test_the_order_of_lines_changes_nothing(log: Path) -> None:
    # Each question is asked another number of times: of equal clusters the first in the file is named first.
    lines = [line(f"question {math.isqrt(i)}", NEW_YEAR + 60 * i, answer=f"{i % 2}") for i in range(40)]
    straight = measure(log, lines, embedder="static").summary
    random.Random(1).shuffle(lines)
    shuffled = measure(log, lines, embedder="static").summary
    for summary in (straight, shuffled):
        # But the numbers of the lines, and what was measured.
        del summary["to_check"], summary["cache_costs"]["embed_cpu_s"]
        for top in summary["clusters"]["top"]:
            del top["line"]
    assert shuffled == straight
    assert straight["tiers"]["combined"]["hits"] > 0


def test_progress_is_told(log: Path) -> None:
    log.write_text(json.dumps(line("a")))
    seen: list[tuple[int, int, str]] = []
    run(
        SavingsPlan([str(log)], embedder="hash-v1"), progress=lambda done, total, what: seen.append((done, total, what))
    )
    assert seen[0] == (log.stat().st_size, log.stat().st_size, "reading")
    assert seen[-1][1:] == (1, "replaying")


def test_bad_plans(tmp_path: Path, log: Path) -> None:
    log.write_text(json.dumps(line("a")))
    with pytest.raises(UsageError, match="tau"):
        run(SavingsPlan([str(log)], tau=1.5))
    with pytest.raises(EmbedderError):
        run(SavingsPlan([str(log)], embedder="none"))
    with pytest.raises(InputError, match="there is no file"):
        run(SavingsPlan([str(tmp_path / "none")]))


def test_verdicts_of_whole_logs(log: Path) -> None:
    unique = [line(f"{i}", NEW_YEAR + i * DAY / 20) for i in range(300)]
    assert measure(log, unique).summary["verdict"].startswith("Not worth it: none of 300 cacheable")
    repeats = [line(f"{i % 50}", NEW_YEAR + i * DAY / 20) for i in range(300)]
    result = measure(log, repeats)
    said = "Worth it: exact matching alone saves $0.875 of the $1.05 spent (83.3 %) for certain."
    assert result.summary["verdict"] == said
    assert result.summary["saved_usd_interval_blocks"]["unit"] == "day"
    assert result.summary["tiers"]["exact"]["hits"] == 250
    low, high = result.summary["saved_usd_interval"]
    assert low < result.summary["saved_usd"] == 0.875 < high


def hinted(result: Result, code: str) -> str:
    return next(f"{w.message} {w.hint}" for w in result.warnings if w.code == code)


@pytest.mark.parametrize(
    "bad", [{"end_time": "2100-01-01"}, {"end_time": 4e9}, {"latency_ms": 8e8}, {"latency_ms": -5}]
)
def test_one_bad_duration_decides_nothing(log: Path, bad: dict[str, Any]) -> None:
    lines = [line("a", NEW_YEAR + i * DAY / 20, latency_ms=None) for i in range(300)]
    lines[299] |= bad
    result = measure(log, lines)
    assert result.summary["tiers"]["exact"]["hits"] == 299
    assert result.summary["verdict"].startswith("Worth it")
    assert ("bad_durations" in codes(result)) == (bad != {"end_time": "2100-01-01"})


def test_bad_durations_are_said(log: Path) -> None:
    result = measure(log, [line("a", latency_ms=1e9), line("b", latency_ms=-1), line("c", latency_ms=900)])
    assert result.summary["median_latency_s"] == pytest.approx(0.9)
    assert hinted(result, "bad_durations").startswith("2 durations are negative or over 1 hour and were not used")


def test_days_without_a_time_of_day_are_an_upper_bound(log: Path) -> None:
    """Ten questions, 150 times a day: over two days each is a hit but for its first time."""
    lines = [line(f"{i % 10}", f"2026-01-0{1 + i // 150}") for i in range(300)]
    result = measure(log, lines)
    summary = result.summary
    assert summary["tiers"]["exact"]["hits"] == 290
    assert summary["same_instant"] == {"step_s": DAY, "hits": 140, "exact_hits_at_least": 150, "misses": 0}
    assert summary["verdict"].startswith("Worth it: exact matching alone saves at most $")
    assert "upper bound" in summary["verdict"]
    assert hinted(result, "day_only_times").startswith("300 times name a day and no time of day")
    said = hinted(result, "coarse_times")
    assert said.startswith("140 of 290 hits are served by a call of the same time (cut to the day)")
    assert "exact matching answers between 150 and 290" in said


def test_a_day_and_a_time_of_day_in_two_fields_are_one_time(log: Path) -> None:
    lines = [line(f"{i % 10}", None, date="2026-01-01", time=f"12:{i // 60:02}:{i % 60:02}") for i in range(300)]
    result = measure(log, lines)
    assert result.summary["tiers"]["exact"]["hits"] == 290
    assert result.summary["span_s"] == 299
    assert not {"bad_times", "day_only_times", "coarse_times"} & set(codes(result))
    assert result.summary["verdict"].startswith("Worth it")
    assert "upper bound" not in result.summary["verdict"]


def test_calls_of_one_instant_are_never_called_not_worth_it(log: Path) -> None:
    """All 300 carry the time of the export: by their durations they ran at once."""
    result = measure(log, [line("a", NEW_YEAR + 0.123) for _ in range(300)])
    assert result.summary["tiers"]["exact"]["hits"] == 0
    assert result.summary["same_instant"]["misses"] == 299
    assert result.summary["verdict"].startswith(
        "Not enough data: none of 300 cacheable requests could be answered by one"
    )
    assert "299 repeat a call of the same start time" in result.summary["verdict"]
    assert "lower bound" in hinted(result, "same_instant")
    # Without durations each answer counts as there at once.
    silent = measure(log, [line("a", NEW_YEAR + 0.123, latency_ms=None) for _ in range(300)])
    assert silent.summary["tiers"]["exact"]["hits"] == 299
    assert {"latency_unknown", "coarse_times"} <= set(codes(silent))
    assert "to the millisecond" in hinted(silent, "coarse_times")


def test_sampled_calls_are_ordered_alike(log: Path) -> None:
    lines = [line("a", "2026-01-01", request={"temperature": 1}) for _ in range(4)]
    assert measure(log, lines).summary["if_sampled_allowed"]["exact"]["hits"] == 3
    assert measure(log, lines, allow_sampled=True).summary["tiers"]["exact"]["hits"] == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tenant": {"id": "a"}}, {"tenant": {"id": "b"}}),
        ({"tenant": 1.0}, {"tenant": 2.0}),
        ({"tenant": 0}, {"tenant": False}),
        ({"tenant": "7"}, {"user": "7"}),
        ({"tenant": "7"}, {"tenant": 7}),
    ],
)
def test_no_wall_is_crossed(log: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    lines = [line("a", NEW_YEAR + 10 * i, **(one if i % 2 else other)) for i in range(4)]
    summary = measure(log, lines, embedder="static").summary
    assert (summary["tiers"]["combined"]["hits"], summary["tenants"]["n"]) == (2, 2)


def test_a_free_model_has_nothing_to_save(log: Path) -> None:
    usage = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    lines = [line(f"{i % 9}", NEW_YEAR + 60 * i, response=usage) for i in range(300)]
    assert (
        measure(log, lines).summary["verdict"].startswith("Not enough data: the 300 cacheable requests with a known ")
    )


def test_pairs_to_check_by_hand(log: Path) -> None:
    ways = ("How do I reset my password?", "How can I reset my password?")
    lines: list[Any] = [b"no record"]
    lines += [
        line(way, NEW_YEAR + 100 * i + 50 * j, tenant=i, answer="Click." if i % 6 == 0 else f"Click {j}.")
        for i in range(30)
        for j, way in enumerate(ways)
    ]
    result = measure(log, lines, embedder="static", tau=0.98)
    assert result.summary["tiers"]["semantic"]["hits"] == 30
    pairs = result.summary["to_check"]
    assert len(pairs) == 20
    for pair in pairs:
        # Line 1 is no record; of each two lines the second is served from the first, and one in six agrees.
        assert pair["line"] % 2 == 1
        assert pair["served_from_line"] == pair["line"] - 1
        assert (pair["line"] // 2 - 1) % 6 != 0
        assert 0.99 <= pair["similarity"] <= 1
    assert [pair["line"] for pair in pairs] == sorted({pair["line"] for pair in pairs})
    assert measure(log, lines, embedder="static", tau=0.99).summary["to_check"] == pairs
    assert measure(log, lines, embedder="static", tau=0.99, seed=1).summary["to_check"] != pairs
