"""What a cache costs, and our prices beside the bill: sums worked by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import UsageError
from recall_cli.measure.savings.costs import CostPlan, Embedded, Metered, Reconciliation, cache_costs

NOTHING = Embedded(0, 0, 0.0, 0)


def costs(plan: CostPlan, embedded: Embedded = NOTHING, semantic: str = "40", hits: int = 100) -> dict[str, Any]:
    return cache_costs(plan, embedded, saved=Decimal(100), semantic=Decimal(semantic), hits=hits)


def test_each_cost_by_hand() -> None:
    """50 distinct texts of 10,000 tokens took 3.6 CPU seconds; a cache embeds 500 look-ups: ten times that."""
    plan = CostPlan(
        embed_price=Decimal("2"),
        cpu_price=Decimal("0.5"),
        verify_sample=Decimal("0.05"),
        judge_price=Decimal("0.001"),
        false_hit_rate=Decimal("0.02"),
        false_hit_cost=Decimal("0.3"),
    )
    found = costs(plan, Embedded(50, 10_000, 3.6, 500))
    assert found["embedded_tokens"] == 100_000
    assert found["embed_cpu_s"] == pytest.approx(36)
    assert float(found["embed_usd"]) == pytest.approx(0.2 + 0.005)
    assert found["verify_sample_usd"] == 2
    assert found["judge_usd"] == Decimal("0.1")
    assert found["false_hits_usd"] == Decimal("0.02") * (40 + 30)
    assert float(found["total_usd"]) == pytest.approx(0.205 + 2 + 0.1 + 1.4)
    assert float(found["saved_net_usd"]) == pytest.approx(100 - 3.705)
    assert float(found["break_even_false_hit_rate"]) == pytest.approx((40 - 2.305) / 70)


def test_what_was_not_named_is_none_and_costs_nothing() -> None:
    found = costs(CostPlan(), Embedded(50, 10_000, 3.6, 500))
    assert found["embed_usd"] is None
    assert found["false_hits_usd"] is None
    assert found["total_usd"] == 0
    assert found["saved_net_usd"] == 100
    # Nothing but the call paid again: every hit may be wrong before the tier loses money.
    assert found["break_even_false_hit_rate"] == 1
    # (40 / 0.01 - 40) / 100
    assert found["bearable_harm_usd_at_1_percent"] == Decimal("39.6")


money = st.decimals(0, 1000, places=4)


@given(money, money, st.integers(1, 10_000), st.decimals(0, 1, places=3))
def test_at_the_break_even_rate_the_tier_is_worth_nothing(
    semantic: Decimal, harm: Decimal, hits: int, sampled: Decimal
) -> None:
    plan = CostPlan(verify_sample=sampled, false_hit_cost=harm)
    rate = costs(plan, semantic=str(semantic), hits=hits)["break_even_false_hit_rate"]
    if rate is None:
        assert semantic == harm == 0
        return
    at = cache_costs(CostPlan(verify_sample=sampled, false_hit_cost=harm, false_hit_rate=rate), NOTHING,
                     saved=semantic, semantic=semantic, hits=hits)  # fmt: skip
    assert float(at["semantic_net_usd"]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [{"verify_sample": Decimal(2)}, {"false_hit_rate": Decimal("-0.1")}, {"false_hit_cost": Decimal(-1)},
     {"cpu_price": Decimal(-1)}, {"embed_price": Decimal(-1)}, {"judge_price": Decimal(-1)}],
)  # fmt: skip
def test_bad_costs(wrong: dict[str, Decimal]) -> None:
    with pytest.raises(UsageError):
        CostPlan(**wrong)


def test_a_metered_embedder_is_the_embedder_and_counts() -> None:
    plain = make_embedder("hash-v1")
    metered = Metered(plain)
    assert (metered.embed_many(["one", "two words"]) == plain.embed_many(["one", "two words"])).all()
    assert (metered.embed("three") == plain.embed("three")).all()
    found = metered.embedded(30)
    assert (found.texts, found.lookups, found.scale) == (3, 30, 10)
    assert found.tokens == round((3 + 9 + 5) / 4)
    assert found.cpu_s >= 0


def test_the_bill_beside_our_prices() -> None:
    bill = Reconciliation()
    for priced, logged in (("1", "1.005"), ("2", "3"), ("0", "0"), (None, "5"), ("7", None), (None, None)):
        bill.add(*(None if usd is None else Decimal(usd) for usd in (priced, logged)))
    found = bill.summary(spend=Decimal(10), saved=Decimal(4), invoice=Decimal("12.5"))
    assert found is not None
    assert (found["rows"], found["rows_differing"]) == (3, 1)
    assert (found["priced_usd"], found["logged_usd"]) == (3, Decimal("4.005"))
    assert float(found["gap"]) == pytest.approx(3 / 4.005 - 1)
    assert found["logged_without_price"] == {"rows": 1, "usd": 5}
    assert found["invoice_over_priced"] == Decimal("1.25")
    assert found["saved_usd_at_invoice"] == 5


def test_no_bill_is_none() -> None:
    bill = Reconciliation()
    bill.add(Decimal(1), None)
    assert bill.summary(spend=Decimal(1), saved=Decimal(0), invoice=None) is None
    found = bill.summary(spend=Decimal(0), saved=Decimal(0), invoice=Decimal(3))
    assert found is not None
    assert found["invoice_over_priced"] is None
