"""From columns to a month, groups, clusters and a rate over time: known logs, exact sums."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.measure.pricing.book import price_book
from recall_cli.measure.savings.money import MONTH_DAYS, OTHERS, PERIODS, SHOWN, by_group, clusters, monthly, over_time
from recall_cli.measure.savings.replay import NO_HIT
from recall_cli.measure.savings.rows import PICO
from recall_cli.measure.savings.tiers import BY_EXACT, BY_SEMANTIC, MISSED
from recall_cli.measure.savings.totals import Labels, Traffic, blocks_of, group_totals, total
from recall_cli.types import Usage

DAY_S = 86_400.0
DOLLAR = int(PICO)
NEW_YEAR = 1_767_225_600.0


def traffic(n: int, *, every: int = 2, step: float = 3_600.0, names: list[str] | None = None) -> Traffic:
    """Return n cacheable rows of a dollar each, of which every second is answered by the row before it."""
    at = np.arange(n)
    hit = at % every == every - 1
    return Traffic(
        start=NEW_YEAR + at * step,
        spent=np.full(n, DOLLAR, np.int64),
        priced=np.ones(n, np.bool_),
        outcome=np.where(hit, np.where(at % 4 == 1, BY_EXACT, BY_SEMANTIC), MISSED).astype(np.uint8),
        source=np.where(hit, at - 1, NO_HIT).astype(np.int32),
        labels={"tenant": labels(names or [f"t{i % 3}" for i in range(n)])},
    )


def labels(names: list[str]) -> Labels:
    numbers = {name: at for at, name in enumerate(dict.fromkeys(names))}
    # As in a log, number 0 of tenants may be nobody's.
    return Labels(np.array([numbers[name] + 1 for name in names]), ["", *numbers])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9 * 10**18)), max_size=60))
def test_sums_are_exact_beyond_what_one_number_holds(rows: list[tuple[int, int]]) -> None:
    group = np.array([g for g, _ in rows], np.int64)
    amounts = np.array([a for _, a in rows], np.int64)
    expected = [sum(a for g, a in rows if g == at) / PICO for at in range(5)]
    assert group_totals(group, amounts, 5) == expected
    assert total(amounts) == sum(a for _, a in rows) / PICO


def test_a_month_is_the_rate_after_the_warm_up() -> None:
    """Ten days, nothing saved in the first five; then an hourly dollar, half of them saved."""
    log = traffic(241)
    cold = np.arange(241) < 120
    log = replace(log, outcome=np.where(cold, MISSED, log.outcome))
    found = monthly(log, forced=False, seed=0)
    assert found["reason"] == ""
    days = MONTH_DAYS / 5
    assert found["same_corpus"]["saved_usd"] == pytest.approx(60 * days)
    assert found["same_corpus"]["spend_usd"] == pytest.approx(121 * days)
    assert found["with_growth"]["saved_usd"] == pytest.approx(60 * days / 2)
    for way in ("same_corpus", "with_growth"):
        low, high = found[way]["saved_usd_interval"]
        assert low <= found[way]["saved_usd"] <= high
    # All hours of the later half are alike, those of the whole log are not.
    width = [high - low for low, high in (found[way]["saved_usd_interval"] for way in ("same_corpus", "with_growth"))]
    assert width[0] < width[1]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (traffic(20), "spans 19.0 hours, under a day"),
        (traffic(1), "all requests have one time"),
        (replace(traffic(50), start=np.full(50, np.nan)), "has no times"),
        (replace(traffic(50), start=np.array([np.nan, *(NEW_YEAR + np.arange(49) * DAY_S)])), "some requests"),
    ],
)  # fmt: skip
def test_no_month_from_what_does_not_carry_one(log: Traffic, reason: str) -> None:
    found = monthly(log, forced=False, seed=0)
    assert reason in found["reason"]
    assert found["same_corpus"] is None


def test_a_month_can_be_asked_for() -> None:
    found = monthly(traffic(20), forced=True, seed=0)
    assert found["forced"]
    assert found["with_growth"]["saved_usd"] == pytest.approx(10 * MONTH_DAYS * 24 / 19)


def test_groups_add_up() -> None:
    rows = by_group(traffic(30), "tenant")
    assert [row["tenant"] for row in rows] == ["t0", "t1", "t2"]
    assert [row["requests"] for row in rows] == [10, 10, 10]
    assert sum(row["spend_usd"] for row in rows) == 30
    assert sum(row["saved_usd"] for row in rows) == 15
    assert sum(row["hits_exact"] + row["hits_semantic"] for row in rows) == 15


def test_many_groups_are_named_up_to_a_limit_and_none_is_lost() -> None:
    names = [f"t{i:03d}" for i in range(200)]
    log = traffic(200, names=names)
    log.spent[7] = 5 * DOLLAR
    rows = by_group(log, "tenant")
    assert len(rows) == SHOWN + 1
    assert rows[0]["tenant"] == "t007"
    assert rows[-1]["tenant"] == OTHERS
    assert rows[-1]["requests"] == 200 - SHOWN
    assert sum(row["spend_usd"] for row in rows) == 204
    assert sum(row["saved_usd"] for row in rows) == 104


def test_a_group_without_a_price_has_no_dollars() -> None:
    log = traffic(6, names=["a", "b"] * 3)
    log.priced[:] = [True, False] * 3
    log.spent[1::2] = 0
    priced, unpriced = by_group(log, "tenant")
    assert priced["spend_usd"] == 3
    assert unpriced["spend_usd"] is None
    assert unpriced["saved_usd"] is None


def test_hours_of_the_day_in_order() -> None:
    log = traffic(50)
    log.start[49] = np.nan
    rows = by_group(log, "hour")
    assert [row["hour"] for row in rows] == [*(f"{h:02d}:00" for h in range(24)), "no time"]
    assert [row["requests"] for row in rows] == [*([3] + [2] * 23), 1]


def test_the_rate_over_time() -> None:
    parts = over_time(traffic(240))
    assert len(parts) == PERIODS
    assert sum(part["n"] for part in parts) == 240
    assert all(part["hit_rate"] == pytest.approx(0.5, abs=0.06) for part in parts)
    assert all(part["hit_rate_interval"][0] < 0.5 < part["hit_rate_interval"][1] for part in parts)
    assert sum(part["saved_usd"] for part in parts) == 120
    assert parts[1]["start"] > parts[0]["start"] == NEW_YEAR


def test_no_rate_where_nothing_was_asked_and_none_without_times() -> None:
    log = traffic(3)
    log.start[2] += 100 * DAY_S
    assert [part["n"] for part in over_time(log)] == [2, *[0] * 22, 1]
    assert over_time(log)[5]["hit_rate"] is None
    assert over_time(replace(log, start=np.full(3, np.nan))) == []
    assert over_time(replace(log, start=np.full(3, NEW_YEAR))) == []


def test_clusters_by_what_they_save() -> None:
    """Row 0 answers three times a dollar, row 1 once ten; eleven more answer one each."""
    source = np.array([-1, -1, 0, 0, 0, 1, *([-1] * 11), *range(6, 17)])
    n = len(source)
    log = replace(traffic(n), source=source, outcome=np.where(source >= 0, BY_EXACT, MISSED))
    log.spent[5] = 10 * DOLLAR
    found = clusters(log, lambda row: f"prompt   {row}\n" + "x" * 300)
    assert (found["n"], found["largest_hits"]) == (13, 3)
    assert [(one["row"], one["hits"], one["saved_usd"]) for one in found["top"][:3]] == [
        (1, 1, 10),
        (0, 3, 3),
        (6, 1, 1),
    ]
    assert found["top_share_of_saved"] == pytest.approx((10 + 3 + 8) / 24)
    assert found["top_share_of_hits"] == pytest.approx((1 + 3 + 8) / 15)
    assert found["top"][0]["example"].startswith("prompt 1 xxx")
    assert len(found["top"][0]["example"]) == 200
    assert all(one["example"] is None for one in clusters(log)["top"])


def test_no_hit_has_no_cluster() -> None:
    log = traffic(4)
    log.source[:] = -1
    found = clusters(replace(log, outcome=np.full(4, MISSED)))
    assert found == {"n": 0, "largest_hits": 0, "top_share_of_hits": None, "top_share_of_saved": None, "top": []}


@pytest.mark.shared
def test_the_share_of_input_in_a_public_trace(shared_data: Path) -> None:
    """Azure's conversation trace of 2023 at 1:4 (a dollar in, four out).

    Input is 58 % of the cost of all 19,366 rows, whose means are 1,155 and 211 tokens. The first 6,000, which are what
    is beside this checkout, have longer answers: 53 %.
    """
    (path,) = (shared_data / "traces" / "azure").glob("*conv*.csv")
    book = price_book(flags=["trace=1,4"])
    spent = {"input": Decimal(0), "output": Decimal(0)}
    lines = path.read_text().splitlines()[1:]
    for line in lines:
        _, context, generated = line.split(",")
        cost = book.cost("", "trace", Usage(int(context), int(generated)), when=NEW_YEAR)
        assert cost is not None
        spent["input"] += cost.input
        spent["output"] += cost.output
    counts = np.array([line.split(",")[1:] for line in lines], np.int64).sum(axis=0)
    assert len(lines) == 6000
    assert float(spent["input"] / sum(spent.values())) == pytest.approx(counts[0] / (counts[0] + 4 * counts[1]))
    assert float(spent["input"] / sum(spent.values())) == pytest.approx(0.5325, abs=5e-5)
    mean = book.cost("", "trace", Usage(1155, 211), when=NEW_YEAR)
    assert mean is not None
    assert float(mean.input / mean.total) == pytest.approx(0.58, abs=0.005)


def test_blocks_are_tenants_where_days_are_too_few() -> None:
    hours = NEW_YEAR + 3600.0 * np.arange(40)
    tenant = np.arange(40) % 6
    where, block = blocks_of(hours, tenant)
    assert (where.unit, where.count, block.tolist()) == ("tenant", 6, tenant.tolist())
    assert blocks_of(np.full(40, np.nan), tenant)[0].unit == "tenant"
    assert blocks_of(NEW_YEAR + DAY_S * np.arange(40), tenant)[0].unit == "day"
    assert blocks_of(hours, np.arange(40) % 4)[0].unit == "hour"
    assert blocks_of(np.full(40, np.nan))[0].unit == "consecutive rows"
