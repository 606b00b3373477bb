"""Savings of logs with known answers, in every format: hits and dollars are worked out here, from the calls alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from log_writers import CLAUDE, WRITERS, Known, Written

from recall_cli.measure.savings import Plan, run
from recall_cli.measure.savings_money import MoneyPlan
from recall_cli.types import Result

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
        Plan(
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
