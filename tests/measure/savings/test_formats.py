"""Savings of logs with known answers, in every format: hits and dollars are worked out here, from the calls alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.logs.report import SKIPPED
from recall_cli.measure.savings.money import MoneyPlan
from recall_cli.measure.savings.savings import SavingsPlan, run
from recall_cli.measure.savings.wording import REASONS
from recall_cli.types import Result
from tests.logs.log_writers import CLAUDE, WRITERS, Known, Written, anthropic_batch, mooncake, openai_batch, pairs

Writer = Callable[[Sequence[Known], Path], Written]
CASES = [pytest.param(name, writer, id=writer.__name__) for name, writers in WRITERS.items() for writer in writers]

CENTS = {"input": 2, "output": 8, "read": Decimal("0.2"), "write": Decimal("2.4")}
"""Dollars per million tokens, of every model here."""
MODELS = ("gpt-4o", CLAUDE, "openrouter/openai/gpt-4o", "(no model)")
FLAGS = tuple(f"{model}=2,8,0.2,2.4" for model in MODELS)

RESET, SPELT = "How do I reset my password?", "  how do i RESET my   password"
CALLS = (
    Known(RESET, "Use the link.", 0, input=1_200, output=40),
    Known("What is 2 + 2?", "4", 30, input=300, output=3),
    # Another tenant, whose first it is; then one of each that repeats.
    Known(RESET, "Use the link.", 60, tenant="blue", input=1_201, cached=1_024),
    Known(RESET, "Use the link.", 90, input=1_202, output=41, cached=700, written=300),
    Known(RESET, "Use the link.", 120, tenant="blue", input=1_203, output=77),
    # Spelt another way: only the normalised tier knows it.
    Known(SPELT, "Use the link.", 150, input=1_198, output=39),
    Known(SPELT, "Use the link.", 180, tenant="green", input=1_199, output=39),
    # Another system prompt, another question, a model that was free to vary, twice.
    Known(RESET, "Utilise le lien.", 210, system="Be French.", input=1_230, output=44),
    Known("Name a colour.", "Red.", 240, temperature=0.7, input=250, output=2),
    Known("Name a colour.", "Blue.", 270, temperature=0.7, input=251, output=2, written=99),
    # Asked again while the first is under way, and once more when it is over.
    Known("Write an ode.", "O!", 300, took=25.0, input=420, output=900),
    Known("Write an ode.", "O!", 310, took=5.0, input=421, output=901),
    Known("Write an ode.", "O!", 340, input=422, output=902),
    Known("What is 2 + 2?", "4", 400, input=301, output=4),
)

# A session each: in a conversation the turns before it are part of a request.
CALLS = tuple(replace(call, session=f"s-{i}") for i, call in enumerate(CALLS))


def cost(call: Known, written: Written) -> tuple[Decimal, Decimal]:
    """Return dollars of input and output, by what the format tells of the counts."""
    facts = written.facts
    read = call.cached if facts & {"usage", "usage_read"} else 0
    write = call.written if "usage" in facts else 0
    if not facts & {"usage", "usage_read", "tokens"}:
        return Decimal(0), Decimal(0)
    fresh = call.input - read - write
    share = Decimal("0.5e-6") if written.tier == "batch" else Decimal("1e-6")
    dollars = CENTS["input"] * fresh + CENTS["read"] * read + CENTS["write"] * write
    return share * dollars, share * CENTS["output"] * call.output


def answered(name: str, written: Written, calls: Sequence[Known], allow_sampled: bool) -> tuple[list[int], ...]:
    """Return which calls could be cached, which an equal call answers, and which one but for spelling does."""
    facts = written.facts
    walls = [str((c.tenant, c.system, c.temperature)) if "walls" in facts else
             c.tenant if "tenant" in facts else "" for c in calls]  # fmt: skip
    systems = [c.system if "system" in facts else "" for c in calls]
    # A format without a temperature leaves it at the API's 1.0.
    sampled = [name != "mooncake" and (c.temperature > 0 or "temperature" not in facts) for c in calls]
    keys = [(walls[i], systems[i], c.temperature if "temperature" in facts else 0, c.text) for i, c in enumerate(calls)]
    if name == "mooncake":
        # Lengths stand for texts there.
        keys = [("", "", 0.0, f"{len(c.text)} {c.input}") for c in calls]
    can = [
        i
        for i in range(len(calls))
        if (name == "mooncake" or ("text" in facts and not written.flaw)) and (allow_sampled or not sampled[i])
    ]
    over = [c.at + (c.took if "end" in facts else 0.0) for c in calls]
    spelling = [(*key[:3], " ".join(key[3].lower().split()).strip("?!. ")) for key in keys]

    def before(i: int, key: Sequence[Any]) -> bool:
        return any(key[j] == key[i] and over[j] <= calls[i].at for j in can if calls[j].at < calls[i].at)

    exact = [i for i in can if before(i, keys)]
    return can, exact, [i for i in can if i not in exact and before(i, spelling)]


def measured(written: Written, allow_sampled: bool, tiers: str) -> Result:
    return run(
        SavingsPlan(
            [str(path) for path in written.paths],
            tiers=tiers,
            allow_sampled=allow_sampled,
            money=MoneyPlan(price=FLAGS),
        )
    )


def number(amount: Decimal) -> float:
    return float(amount)


@pytest.mark.parametrize("allow_sampled", [False, True])
@pytest.mark.parametrize(("name", "write"), CASES)
def test_hits_and_dollars(name: str, write: Writer, allow_sampled: bool, tmp_path: Path) -> None:
    written = write(CALLS, tmp_path)
    calls = CALLS
    if name == "anthropic-batch":
        # No times, and its answers stand in the opposite order.
        calls = tuple(replace(c, at=at) for at, c in enumerate(reversed(CALLS)))
    if name == "recall-store":
        # Of equal requests a store keeps the last answer alone.
        calls = tuple({(c.tenant, c.system, c.temperature, c.text): c for c in CALLS}.values())
        calls = tuple(sorted(calls, key=lambda c: c.at))
    can, exact, normal = answered(name, written, calls, allow_sampled)
    costs = [cost(c, written) for c in calls]
    for tiers in ("exact", "exact,normalised"):
        result = measured(written, allow_sampled, tiers)
        s = result.summary
        told = {"exact": exact} | ({"normalised": normal} if "normalised" in tiers else {})
        assert (s["requests"], s["cacheable"]) == (len(calls), len(can))
        assert s["formats"] == {name: len(calls)}
        assert s["spend_usd"] == number(sum((a + b for a, b in costs), Decimal(0)))
        for tier, hits in told.items():
            found = s["tiers"][tier]
            assert (tier, found["hits"], found["n"]) == (tier, len(hits), len(can))
            assert found["hit_rate"] == (len(hits) / len(can) if can else None)
            assert found["usd_input"] == number(sum((costs[i][0] for i in hits), Decimal(0)))
            assert found["usd_output"] == number(sum((costs[i][1] for i in hits), Decimal(0)))
        every = [i for hits in told.values() for i in hits]
        assert s["saved_usd"] == number(sum((sum(costs[i]) for i in every), Decimal(0)))


@pytest.mark.parametrize(("name", "write"), CASES)
def test_what_a_format_does_not_tell_is_said(name: str, write: Writer, tmp_path: Path) -> None:
    """No hit rate without texts or keys of them, no dollars without counts, and no verdict from a store."""
    written = write(CALLS, tmp_path)
    result = measured(written, True, "exact")
    s, codes = result.summary, [warning.code for warning in result.warnings]
    blind = written.flaw and name != "mooncake"
    assert (s["tiers"]["exact"]["hit_rate"] is None) is bool(blind)
    if blind:
        assert s["verdict"].startswith("Not enough data: whether 14 of 14 requests could be answered by a cache cannot")
        assert s["excluded"][written.flaw]["requests"] == len(CALLS)
    if name == "recall-store":
        assert s["verdict"].startswith("Not enough data: the 8 requests are those of recall's own store")
    counted = bool(written.facts & {"usage", "usage_read", "tokens"})
    assert (s["spend_usd"] > 0) is counted
    assert ("no_usage" in codes) is not counted
    assert ("unordered" in codes) is not bool(written.facts & {"start", "at"})
    assert ("keys_alone" in codes) is (name == "mooncake")


LINES = ("pairs", "anthropic_pairs", "responses_pairs", "litellm", "litellm_spend", "langfuse", "helicone", "otel",
         "otel_old", "otel_events", "openinference", "vercel", "plain_jsonl")  # fmt: skip
"""Writers of one file of lines that hold both texts and the counts."""


@pytest.mark.parametrize(("name", "write"), [case for case in CASES if case.id in LINES])
def test_rows_without_counts_are_estimated_from_those_with(name: str, write: Writer, tmp_path: Path) -> None:
    """25 rows teach what a call costs; the same call without counts is priced so."""
    known = tuple(Known(f"Question {i:02}", "Yes.", 60 * i, session=f"s-{i}", input=30, output=7) for i in range(26))
    written = write(known, tmp_path)
    (path,) = written.paths
    rows = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(without_counts(row) if "Question 25" in row else row for row in rows), encoding="utf-8")
    result = measured(written, True, "exact")
    assert result.summary["requests_without_usage"] == 0
    assert result.summary["estimated_usage"]["requests"] == 1
    assert result.summary["spend_usd"] == pytest.approx(26 * float(sum(cost(known[0], written))))
    assert "estimated_usage" in [warning.code for warning in result.warnings]


def without_counts(row: str) -> str:
    """Return a line of JSON without anything that counts tokens, however deep and in whatever string."""

    def counts(item: Any) -> bool:
        return isinstance(item, dict) and bool(COUNTS.search(str(item.get("key"))))

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: cut(held) for name, held in value.items() if not COUNTS.search(name)}
        if isinstance(value, list):
            return [cut(item) for item in value if not counts(item)]
        if isinstance(value, str) and value.startswith("{"):
            return json.dumps(cut(json.loads(value)))
        return value

    return json.dumps(cut(json.loads(row)))


COUNTS = re.compile("usage|token", re.IGNORECASE)


def test_a_traces_own_clock_dates_no_price(tmp_path: Path) -> None:
    """A list that begins in 2020 prices a trace that counts from its start: 1970 would have no price."""
    written = mooncake(CALLS, tmp_path)
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"prices": [{"model": "(no model)", "input": 2, "output": 8, "from": "2020-01-01"}]}))
    plan = SavingsPlan([str(written.paths[0])], tiers="exact", money=MoneyPlan(prices=str(prices)))
    result = run(plan)
    assert result.summary["spend_usd"] == number(sum((sum(cost(c, written)) for c in CALLS), Decimal(0)))
    said = {warning.code: warning.message for warning in result.warnings}
    assert said["relative_times"] == "14 times count from the start of a trace and name no day"
    assert said["undated_prices"] == "14 requests without a date are priced as of today"
    other = pairs(CALLS[:2], tmp_path)
    both = run(SavingsPlan([str(written.paths[0]), str(other.paths[0])], tiers="exact"))
    said = {warning.code: warning.message for warning in both.warnings}
    assert said["relative_times"].endswith("; they are taken to come before all others")
    assert [row["hour"] for row in both.summary["groups"]["hour"]] == ["14:00", "no time"]


@pytest.mark.parametrize(
    ("write", "model", "flags", "warned"),
    [
        (openai_batch, "gpt-4o", (), False),
        (anthropic_batch, CLAUDE, (), False),
        (openai_batch, "gpt-4o", ("gpt-4o=2,8",), False),
        (openai_batch, "ours", ("ours=2,8",), True),
        (openai_batch, "mistral/mistral-large-latest", (), True),
    ],
)
def test_a_batch_that_is_halved_for_want_of_a_price_is_said(
    write: Writer, model: str, flags: tuple[str, ...], warned: bool, tmp_path: Path
) -> None:
    written = write([replace(call, model=model) for call in CALLS], tmp_path)
    paths = [str(path) for path in written.paths]
    result = run(SavingsPlan(paths, tiers="exact", money=MoneyPlan(price=flags)))
    said = {warning.code: warning.message for warning in result.warnings}
    assert result.summary["spend_usd"] > 0
    assert ("batch_halved" in said) is warned
    if warned:
        assert said["batch_halved"].startswith("14 batch requests are priced at half, as OpenAI and Anthropic bill ")
        assert said["batch_halved"].endswith(f"that nobody vouches for: {model}")
    dear = tmp_path / "prices.json"
    dear.write_text(json.dumps({"prices": [{"model": model, "tier": "batch", "input": 3, "output": 3}]}))
    own = run(SavingsPlan(paths, tiers="exact", money=MoneyPlan(prices=str(dear))))
    assert "batch_halved" not in [warning.code for warning in own.warnings]
    assert own.summary["spend_usd"] == number(Decimal(sum(c.input + c.output for c in CALLS)) * 3 / 10**6)


@pytest.mark.parametrize(("name", "write"), CASES)
def test_every_format_prints_in_words(
    name: str, write: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tiers, as people run it: no name of a reason, no time of 1970, and no line without its reason."""
    written = write(CALLS, tmp_path)
    page = tmp_path / "page.html"
    flags = [flag for price in FLAGS for flag in ("--price", price)]
    assert main(["savings", *map(str, written.paths), "-e", "hash-v1", "--report", str(page), *flags]) == 0
    out, err = capsys.readouterr()
    for shown in (out, err, page.read_text(encoding="utf-8")):
        assert not set(re.findall(r"\b[a-z]+_[a-z_]+\b", shown)) & {*SKIPPED, *REASONS}
        assert "1970" not in shown
    assert ("those that are no call, and why" in out) is (written.others > 0)
