"""Intervals over blocks, and the sentence at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.measure.savings_verdict import (
    DAY_S,
    HOUR_S,
    Facts,
    blocks,
    rate_interval,
    total_interval,
    verdict,
)
from recall_cli.stats import Z_90, wilson

GOOD = Facts(
    requests=1000,
    cacheable=800,
    priced=800,
    spend=100.0,
    cacheable_spend=80.0,
    hits=200,
    saved=20.0,
    saved_interval=[15.0, 25.0],
    exact_saved=10.0,
    exact_interval=[5.0, 15.0],
    main_exclusion="sampled",
    tau=0.8,
    answers=100,
    answers_equal=40,
    ordered=True,
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "Worth it: exact matching alone saves 10.0% of the spend; semantic matching at tau 0.8 would bring it to "
             "20.0% if its answers hold (40 of 100 equal the logged answer)."),
        ({"saved": 10.0}, "Worth it: exact matching alone saves 10.0% of the spend."),
        ({"ordered": False, "saved": 10.0}, "Worth it: exact matching alone saves 10.0% of the spend at most "
                                            "(the log has no times, so this is an upper bound)."),
        ({"exact_saved": 0.5}, "Worth it only if the semantic answers hold: exact matching alone saves 0.5% "),
        ({"exact_interval": [0.0, 15.0]}, "Worth it only if the semantic answers hold: "),
        ({"saved_interval": [0.0, 25.0]}, "Not worth it: the interval of the saved $20.00 includes 0."),
        ({"saved": 0.99, "exact_saved": 0.0}, "Not worth it: it would save 0.99% of the spend ($0.99 of $100.00)."),
        ({"hits": 0}, "Not worth it: none of 800 cacheable requests was close to an earlier one."),
        ({"cacheable": 199, "priced": 199}, "Not enough data: 199 of 1,000 requests could be cached, and a verdict "
                                            "needs 200; most are kept out as sampled."),
        ({"requests": 7, "cacheable": 7, "priced": 7, "main_exclusion": ""},
         "Not enough data: 7 of 7 requests could be cached, and a verdict needs 200."),
        ({"priced": 399}, "Not enough data: only 399 of 800 cacheable requests have both token counts and a known "),
        ({"spend": 0.0, "priced": 0}, "Not enough data: only 0 of 800 "),
        ({"cacheable": 0, "priced": 0, "cacheable_spend": 0.0},
         "Not worth it: a cache could serve at most 0 of 1,000 requests, 0.00% of the spend; most are kept out as "),
        ({"cacheable": 50, "priced": 50, "cacheable_spend": 0.9},
         "Not worth it: a cache could serve at most 50 of 1,000 requests, 0.90% of the spend; most are kept out as "),
        # No price for what could be cached: its share of the spend is unknown, not small.
        ({"cacheable": 800, "priced": 0, "cacheable_spend": 0.0}, "Not enough data: only 0 of 800 "),
    ],
)  # fmt: skip
def test_sentences(change: dict[str, object], says: str) -> None:
    assert verdict(replace(GOOD, **change)).startswith(says)  # type: ignore[arg-type]


def test_blocks_are_days_then_hours_then_rows() -> None:
    days = [i * DAY_S / 2 for i in range(12)]
    assert (blocks(days).unit, blocks(days).of) == ("day", [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    hours = [i * HOUR_S for i in range(7)]
    assert (blocks(hours).unit, blocks(hours).count) == ("hour", 7)
    few = blocks([1.0, 2.0, 3.0])
    assert (few.unit, few.of) == ("consecutive rows", [0, 1, 2])
    many = blocks([None, *[1.0] * 99])
    assert (many.unit, many.count, many.of[0], many.of[4], many.of[5], many.of[99]) == (
        "consecutive rows",
        20,
        0,
        0,
        1,
        19,
    )


def test_totals_of_blocks() -> None:
    where = blocks([0.0, DAY_S, DAY_S, 2 * DAY_S, 3 * DAY_S, 4 * DAY_S])
    assert where.totals([1, 2, 3, 4, 5, 6]) == [1, 5, 4, 5, 6]


def test_no_hit_is_not_certainty() -> None:
    where = blocks([float(i) for i in range(50)])
    assert rate_interval([0.0] * 50, [1.0] * 50, where, seed=0) == list(wilson(0, 50, Z_90))


def test_hits_in_one_burst_widen_the_interval() -> None:
    starts = [i * DAY_S / 100 for i in range(1000)]
    where = blocks(starts)
    burst = [1.0 if i < 100 else 0.0 for i in range(1000)]
    spread = [1.0 if i % 10 == 0 else 0.0 for i in range(1000)]
    wide, narrow = (rate_interval(hits, [1.0] * 1000, where, seed=0) for hits in (burst, spread))
    assert narrow == pytest.approx(wilson(100, 1000, Z_90))
    assert wide[0] == 0.0
    assert wide[1] > 2 * narrow[1]
    assert total_interval(burst, where, seed=0)[0] == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60), st.integers(0, 3))
def test_intervals_hold_the_rate(rows: list[tuple[bool, bool]], seed: int) -> None:
    chances = [float(chance) for chance, _ in rows]
    hits = [float(chance and hit) for chance, hit in rows]
    low, high = rate_interval(hits, chances, blocks([None] * len(rows)), seed=seed)
    assert 0 <= low <= high <= 1
    if sum(chances):
        assert low <= sum(hits) / sum(chances) <= high
