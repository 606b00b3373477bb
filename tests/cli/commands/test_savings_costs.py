"""`recall savings` on money: prices of one's own, costs, the bill, a month, missing counts, texts hidden."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.measure.savings import savings as measured
from recall_cli.measure.savings.savings import SavingsPlan

WAYS = ("How do I reset my password?", "how do i reset my password", "How can I reset my password?")
DAY_S = 86_400


def line(text: str, at: float, *, usage: tuple[int, int] | None = (1000, 100), model: str = "ours") -> dict[str, Any]:
    counted = None if usage is None else {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return {
        "timestamp": 1_767_225_600 + at,
        "latency_ms": 500,
        "request": {"model": model, "temperature": 0, "messages": [{"role": "user", "content": text}]},
        "response": {"choices": [{"message": {"content": "Yes, so."}, "finish_reason": "stop"}], "usage": counted},
    }


def paraphrases(n: int, step: float = 3600, **more: Any) -> list[dict[str, Any]]:
    """Return one question asked over and over: the first alone is no hit, its repeats are exact, the rest semantic."""
    return [line(WAYS[i % 3], i * step, **more) for i in range(n)]


def summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], *more: str, code: int = 0
) -> dict[str, Any]:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert main(["savings", str(path), "--json", *more]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out or "{}")
    return document


def test_prices_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 in at $2, 100 out at $10 a million: $0.003 a call, and a flag wins over the file."""
    file = tmp_path / "prices.json"
    prices = [{"model": "ours", "input": 9, "output": 9}, {"model": "theirs", "input": 1, "output": 0}]
    file.write_text(json.dumps({"source": "contract", "version": "3", "date": "2026-01-01", "prices": prices}))
    lines = [*paraphrases(4), line("x", 1), line("y", 2, model="theirs"), line("z", 3, model="nobody's")]
    document = summary(tmp_path, capsys, lines, "--prices", str(file), "--price", "ours=2,10", "--price", "typo=1,1")
    s = document["summary"]
    assert s["spend_usd"] == pytest.approx(5 * 0.003 + 0.001)
    assert s["tiers"]["exact"]["usd"] == pytest.approx(0.003)
    assert [(one["name"], one["requests"]) for one in s["price_source"]["lists"]] == [("--price", 5), ("contract", 1)]
    codes = {warning["code"]: warning["message"] for warning in document["warnings"]}
    assert "models: nobody's" in codes["unknown_models"]
    assert "typo" in codes["price_unused"]
    assert main(["savings", str(tmp_path / "log.jsonl"), "--prices", str(file)]) == 0
    out = capsys.readouterr().out
    assert "Prices: contract 3 of 2026-01-01." in out


def test_a_cached_prompt_saves_what_it_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sonnet 4.5, 10,000 in of which 9,500 cached, 300 out: $0.00885, not $0.0345."""
    lines = paraphrases(1) + paraphrases(1, 0)
    for at, one in enumerate(lines):
        one["timestamp"] += 60 * at
        one["request"]["model"] = "claude-sonnet-4-5"
        one["request"]["max_tokens"] = 999
        one["response"] = {
            "type": "message", "role": "assistant", "stop_reason": "end_turn", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "Yes."}],
            "usage": {"input_tokens": 500, "cache_read_input_tokens": 9500, "output_tokens": 300},
        }  # fmt: skip
    s = summary(tmp_path, capsys, lines)["summary"]
    assert s["tiers"]["exact"]["usd"] == 0.00885
    assert s["saved_usd_naive"] == 0.0345


def test_costs_are_taken_off_and_the_verdict_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Of three calls one repeats itself, and one asks in other words what the one before it asked.
    asked = [
        f"{WAYS[i % 3]} It is about my laptop {'ABCDEFGHIJ'[i // 3 % 10]}{i // 30}." if i % 3 != 1 else WAYS[i % 2]
        for i in range(600)
    ]
    lines = [line(text, i * 3600) for i, text in enumerate(asked)]
    free = summary(tmp_path, capsys, lines, "--price", "ours=2,10")["summary"]
    assert free["cache_costs"]["total_usd"] == 0
    semantic = free["tiers"]["semantic"]
    assert semantic["hits"] > 100
    more = [
        "--verify-sample",
        "0.1",
        "--verify-on-hit",
        "0.0001",
        "--false-hit-rate",
        "0.05",
        "--false-hit-cost",
        "0.002",
    ]
    paid = summary(tmp_path, capsys, lines, "--price", "ours=2,10", *more)["summary"]
    costs = paid["cache_costs"]
    hits, usd = semantic["hits"], semantic["usd"]
    assert costs["verify_sample_usd"] == pytest.approx(0.1 * usd)
    assert costs["judge_usd"] == pytest.approx(0.0001 * hits)
    assert costs["false_hits_usd"] == pytest.approx(0.05 * (usd + 0.002 * hits))
    assert costs["saved_net_usd"] == pytest.approx(paid["saved_usd"] - costs["total_usd"])
    assert "the costs named take" in paid["verdict"]
    dear = summary(tmp_path, capsys, lines, "--price", "ours=2,10", "--verify-on-hit", "0.01")["summary"]
    assert dear["verdict"].endswith("so matching keys alone pays.")
    assert main(["savings", str(tmp_path / "log.jsonl"), "--price", "ours=2,10", *more]) == 0
    out = capsys.readouterr().out
    assert "What the semantic tier takes" in out
    assert "breaks even at" in out


def test_a_month_only_from_a_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = summary(tmp_path, capsys, paraphrases(20, 60), "--price", "ours=2,10")["summary"]["monthly"]
    assert "under a day" in short["reason"]
    forced = summary(tmp_path, capsys, paraphrases(20, 60), "--price", "ours=2,10", "--monthly")["summary"]["monthly"]
    assert forced["forced"]
    assert forced["same_corpus"]["saved_usd"] > 0
    long = summary(tmp_path, capsys, paraphrases(60), "--price", "ours=2,10")["summary"]["monthly"]
    assert not long["forced"]
    assert long["same_corpus"]["saved_usd"] == pytest.approx(0.003 * 730.5, rel=0.05)


def test_an_invoice_beside_our_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = summary(tmp_path, capsys, paraphrases(10), "--price", "ours=2,10", "--invoice", "0.06")
    bill = document["summary"]["reconciliation"]
    assert bill["invoice_over_priced"] == pytest.approx(2)
    assert bill["saved_usd_at_invoice"] == pytest.approx(2 * document["summary"]["saved_usd"])
    assert "invoice_differs" in [warning["code"] for warning in document["warnings"]]


def test_logged_costs_beside_our_prices(tmp_path: Path) -> None:
    """Of what the log says three calls cost, two sums agree with ours and one does not."""
    costs = (0.003, 0.003, 0.006, None)
    path = tmp_path / "log.jsonl"
    rows = [{**row, "cost_usd": cost} for row, cost in zip(paraphrases(4), costs, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))
    money = measured.MoneyPlan(price=("ours=2,10",))
    result = measured.run(SavingsPlan([str(path)], embedder="hash-v1", money=money))
    bill = result.summary["reconciliation"]
    assert (bill["rows"], bill["rows_differing"]) == (3, 1)
    assert bill["gap"] == pytest.approx(0.009 / 0.012 - 1)
    assert "prices_differ_from_log" in [warning.code for warning in result.warnings]


def test_missing_counts_are_estimated_and_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """40 rows teach that a character is a token; 10 without counts are priced so."""
    known = [line("k" * n, n * 60, usage=(n, 8)) for n in range(100, 140)]
    missing = [line("m" * 200, 9000 + n * 60, usage=None) for n in range(10)]
    other = [line("o" * 200, 99_000 + n * 60, usage=None, model="other") for n in range(3)]
    document = summary(tmp_path, capsys, [*missing, *known, *other], "--price", "ours=1,1", "-e", "hash-v1")
    s = document["summary"]
    assert (s["estimated_usage"]["requests"], s["estimated_usage"]["left_without"]) == (10, 3)
    (model,) = s["estimated_usage"]["models"]
    assert model["input_ratio"] == pytest.approx(4)
    assert model["input_spread"] == pytest.approx(0, abs=1e-6)
    assert s["spend_usd"] == pytest.approx((sum(range(100, 140)) + 320 + 10 * 208) / 1e6)
    assert s["requests_without_usage"] == 3
    codes = [warning["code"] for warning in document["warnings"]]
    assert "estimated_usage" in codes
    assert "no_usage" in codes


def test_count_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("bpe_openai")
    lines = [line("Hello there, how are you?", 0, usage=None)]
    found = summary(tmp_path, capsys, lines, "--count-tokens")["summary"]["estimated_usage"]
    assert (found["requests"], found["counter"]) == (1, "bpe-openai o200k")


def test_no_text_shows_no_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = paraphrases(9)
    shown = summary(tmp_path, capsys, lines)["summary"]["clusters"]
    assert shown["top"][0]["example"] == WAYS[0]
    for more in (["--no-text", "--json"], ["--no-text"], ["--no-text", "--format", "markdown"]):
        assert main(["savings", str(tmp_path / "log.jsonl"), *more]) == 0
        assert "password" not in capsys.readouterr().out


def test_groups_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [one | {"user_id": f"u{i % 3}"} for i, one in enumerate(paraphrases(12))]
    document = summary(tmp_path, capsys, lines, "--price", "ours=2,10")
    groups = document["summary"]["groups"]
    assert len(groups["tenant"]) == 3
    assert sum(row["spend_usd"] for row in groups["tenant"]) == pytest.approx(document["summary"]["spend_usd"])
    assert len(groups["hour"]) == 12
    assert "namespace" not in groups
    assert main(["savings", str(tmp_path / "log.jsonl")]) == 0
    assert "user_id u1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (["--price", "gpt-4o"], 2, "MODEL=IN,OUT"),
        (["--prices", "no-such-file.json"], 4, "cannot be read"),
        (["--verify-sample", "7"], 2, "--verify-sample 7 is no share"),
        (["--false-hit-cost", "much"], 2, "is no number"),
        (["--invoice", "0"], 2, "is no bill"),
        (["--cpu-price", "nan"], 2, "is no number"),
    ],
)
def test_bad_money(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, says: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(line("a", 0)))
    assert main(["savings", str(path), *more]) == code
    out, err = capsys.readouterr()
    assert out == ""
    # A usage error stands in a box, whose lines are short.
    assert says in " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
