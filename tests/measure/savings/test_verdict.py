"""Intervals over blocks, and the sentence at the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.measure.savings.verdict import (
    COARSE_TIMES,
    MIN_ANSWERS,
    NO_TIMES,
    Answers,
    Sampled,
    VerdictInputs,
    leans,
    rate_interval,
    total_interval,
    verdict,
)
from recall_cli.stats import Z_95, block_bootstrap, wilson

GOOD = VerdictInputs(
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
    main_exclusion="tools",
    tau=0.8,
    exact_answers=Answers(50, 50),
    semantic_answers=Answers(102, 98),
)


EXACT = "exact matching alone saves $10.00 of the $100.00 spent (10.0 %)"
HEX = {"semantic_answers": Answers(200, 22)}
"""Agreement as random hex prompts have it."""
UNSURE = (
    "the semantic tier at tau 0.8 would add up to $10.00 (10.0 %) but is not shown to be safe: of its answers only 22 "
    "of 200 (11 %) equal the logged answer letter by letter (of exact hits 100 %), and whether the rest say the same "
    "is not known from the log."
)
ALLOWED = "repeating a sampled answer is acceptable to you: with --allow-sampled exact matching alone would "


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, f"Worth it: {EXACT} for certain; the semantic tier at tau 0.8 adds up to $10.00 (10.0 %) if every one of "
             "its answers holds: 98 of 102 (96 %) equal the logged answer letter by letter (of exact hits 100 %), and "
             "whether the rest say the same is not known from the log."),
        ({"semantic_answers": Answers(5, 5), "exact_answers": Answers(5, 1)},
         f"Worth it: {EXACT} for certain; the semantic tier at tau 0.8 adds up to $10.00 (10.0 %) if every one of its "
         "answers holds: 5 of 5 (100 %) equal the logged answer letter by letter."),
        ({"semantic_answers": Answers(0, 0)}, f"Worth it: {EXACT} for certain; the semantic tier at tau 0.8 adds up to "
                                              "$10.00 (10.0 %) if every one of its answers holds."),
        ({"saved": 10.0}, f"Worth it: {EXACT} for certain."),
        ({"saved": 10.0, "repeats_sampled": True},
         f"Worth it: {EXACT} if repeating sampled answers is acceptable to you."),
        ({"unordered": NO_TIMES, "saved": 10.0}, "Worth it: exact matching alone saves at most $10.00 of the $100.00 "
                                                 "spent (10.0 %) (the log has no times, so this is an upper bound)."),
        ({"unordered": COARSE_TIMES, "saved": 10.0},
         "Worth it: exact matching alone saves at most $10.00 of the $100.00 spent (10.0 %) (calls of one time are "
         "taken in the order of the file, so this is an upper bound)."),
        # Misses for the sake of equal times: enough of them, and the log does not say that it is not worth it.
        ({"hits": 0, "tied": 8}, "Not enough data: none of 800 cacheable requests could be answered by one before "
                                 "it; 8 repeat a call of the same start time and would be answered had they come after "
                                 "it."),
        ({"hits": 0, "tied": 7}, "Not worth it: none of 800 cacheable requests could be answered by one before it."),
        ({"saved": 0.99, "exact_saved": 0.99, "tied": 400},
         "Not enough data: a cache would save $0.990 of the $100.00 spent (0.99 %); 400 repeat a call of the same "
         "start time and would be answered had they come after it."),
        ({"saved": 10.0, "tied": 400}, f"Worth it: {EXACT} for certain."),
        # Nothing costs anything, or nothing was counted.
        ({"spend": 0.0, "cacheable_spend": 0.0}, "Not worth it: the 800 cacheable requests with token counts and a "
                                                 "known price cost nothing, so there is nothing to save."),
        ({"spend": 0.0, "cacheable_spend": 0.0, "tokens": 0},
         "Not enough data: the 800 cacheable requests with a known price log 0 tokens."),
        # What the cache costs, and what is estimated.
        ({"costs": 2.5, "semantic_answers": Answers(0, 0)},
         f"Worth it: {EXACT} for certain; the semantic tier at tau 0.8 adds up to $10.00 (10.0 %) if every one of its "
         "answers holds; of what it adds the costs named take $2.50."),
        ({"costs": 12.0, "semantic_answers": Answers(0, 0)},
         f"Worth it: {EXACT} for certain; the semantic tier at tau 0.8 adds up to $10.00 (10.0 %) if every one of its "
         "answers holds; but by the costs named it takes $12.00 to save $10.00, so exact matching alone pays."),
        ({"costs": 8.0, "normalised_saved": 4.0, "semantic_answers": Answers(0, 0)},
         f"Worth it: {EXACT} for certain; ignoring case, spaces and closing marks adds $4.00 (4.0 %); the semantic "
         "tier at tau 0.8 adds up to $6.00 (6.0 %) if every one of its answers holds; but by the costs named it takes "
         "$8.00 to save $6.00, so matching keys alone pays."),
        ({"exact_saved": 0.0, "exact_interval": [0.0, 0.0], "costs": 19.5},
         "Not worth it: even if every semantic answer held, a cache would save $20.00 of the $100.00 spent (20.0 %), "
         "and running it takes $19.50 of that."),
        ({"exact_saved": 0.0, "exact_interval": [0.0, 0.0], "costs": 15.0},
         "Not worth it: even if every semantic answer held, a cache would save $20.00 of the $100.00 spent (20.0 %), "
         "and running it takes $15.00 of that."),
        ({"saved": 10.0, "estimated": 0.25},
         f"Worth it: {EXACT} for certain. 25 % of the requests have estimated token counts."),
        ({"saved": 10.0, "estimated": 0.09}, f"Worth it: {EXACT} for certain."),
        # Low agreement: the verdict rests on exact matching alone.
        (HEX, f"Worth it: {EXACT} for certain; {UNSURE}"),
        ({"exact_saved": 0.5, **HEX}, "Not worth it on this evidence: exact matching alone saves $0.500 of the $100.00 "
                                      "spent (0.50 %) for certain; the semantic tier at tau 0.8 would add up to "),
        ({"exact_saved": 0.0, **HEX}, "Not worth it on this evidence: exact matching alone saves nothing; the "),
        ({"exact_interval": [0.0, 15.0], **HEX},
         f"Not worth it on this evidence: {EXACT} for certain, though its 90 % interval includes 0; {UNSURE}"),
        # Too few to call it low.
        ({"exact_saved": 0.0, "semantic_answers": Answers(29, 0)},
         "Worth it only if the semantic answers hold: exact matching alone saves nothing; the semantic tier at tau 0.8 "
         "adds up to $20.00 (20.0 %) if every one of its answers holds: 0 of 29 (0 %) equal the logged answer letter "),
        ({"exact_saved": 0.5}, "Worth it only if the semantic answers hold: exact matching alone saves $0.500 "),
        ({"exact_interval": [0.0, 15.0]}, "Worth it only if the semantic answers hold: "),
        ({"saved_interval": [0.0, 25.0], "exact_interval": [0.0, 9.0]},
         "Not worth it: even if every semantic answer held, a cache would save $20.00 of the $100.00 spent (20.0 %) "
         "(its 90 % interval includes 0)."),
        # Granted is what the most doubtful tier that adds anything rests on, and dust of sums adds nothing.
        ({"saved": 0.9, "exact_saved": 0.3, "normalised_saved": 0.6},
         "Not worth it: even if case, spaces and closing marks meant nothing, a cache would save $0.900 of the $100.00 "
         "spent (0.90 %)."),
        ({"saved": 0.9, "exact_saved": 0.3, "normalised_saved": 0.5},
         "Not worth it: even if every semantic answer held, a cache would save $0.900 of the $100.00 spent (0.90 %)."),
        ({"saved": 0.1 + 0.2, "exact_saved": 0.3}, "Not worth it: a cache would save $0.300 of the $100.00 "),
        ({"saved": 2.1 + 4.2, "exact_saved": 2.1, "normalised_saved": 4.2, "normalised_interval": (4.0, 5.0)},
         "Worth it: exact matching alone saves $2.10 of the $100.00 spent (2.1 %) for certain; ignoring case, spaces "
         "and closing marks adds $4.20 (4.2 %)."),
        ({"saved": 0.99, "exact_saved": 0.99},
         "Not worth it: a cache would save $0.990 of the $100.00 spent (0.99 %)."),
        ({"hits": 0}, "Not worth it: none of 800 cacheable requests could be answered by one before it."),
        ({"cacheable": 199, "priced": 199}, "Not enough data: 199 of 1,000 requests could be cached, and a verdict "
                                            "needs 200; kept out mainly for this: tools offered in the "
                                            "request."),
        ({"requests": 7, "cacheable": 7, "priced": 7, "main_exclusion": ""},
         "Not enough data: 7 of 7 requests could be cached, and a verdict needs 200."),
        ({"priced": 399}, "Not enough data: only 399 of 800 cacheable requests have both token counts and a known "),
        ({"spend": 0.0, "priced": 0}, "Not enough data: only 0 of 800 "),
        ({"cacheable": 0, "priced": 0, "cacheable_spend": 0.0},
         "Not worth it: a cache could serve at most 0 of 1,000 requests, 0.00 % of the spend; kept out mainly for "
         "this: tools"),
        ({"cacheable": 50, "priced": 50, "cacheable_spend": 0.9},
         "Not worth it: a cache could serve at most 50 of 1,000 requests, 0.90 % of the spend; kept out mainly for "
         "this: tools"),
        # What the log does not show could turn any verdict.
        ({"cacheable": 0, "priced": 0, "cacheable_spend": 0.0, "unseen": 500, "unseen_spend": 4.5,
          "unseen_as": "no_text"},
         "Not enough data: whether 500 of 1,000 requests could be answered by a cache cannot be told (no text in the "
         "log, nor a key of it); what they cost is known: $4.50."),
        ({"cacheable": 0, "priced": 0, "spend": 0.0, "cacheable_spend": 0.0, "unseen": 1000,
          "unseen_as": "hidden_prompt"},
         "Not enough data: whether 1,000 of 1,000 requests could be answered by a cache cannot be told (the log does "
         "not show all that was asked)."),
        ({"cacheable_spend": 0.9, "unseen": 20, "unseen_spend": 0.2, "unseen_as": "no_answer"},
         "Not enough data: whether 20 of 1,000 "),
        ({"cacheable_spend": 0.9, "unseen": 20, "unseen_spend": 0.09}, "Not worth it: a cache could serve at most "),
        ({"cacheable": 0, "priced": 0, "cacheable_spend": 0.0, "unseen": 499},
         "Not worth it: a cache could serve at most 0 of 1,000 requests"),
        ({"kept_once": True}, "Not enough data: the 1,000 requests are those of recall's own store, which keeps equal "
                              "ones once: what was asked again is not in it."),
        # No price for what could be cached: its share of the spend is unknown, not small.
        ({"cacheable": 800, "priced": 0, "cacheable_spend": 0.0}, "Not enough data: only 0 of 800 "),
        # Sampled: what the flag would bring.
        ({"cacheable": 0, "priced": 0, "cacheable_spend": 0.0, "sampled": Sampled(500, 0.5)},
         f"Not worth it: a cache could serve at most 0 of 1,000 requests, 0.00 % of the spend, unless {ALLOWED}save "
         "50.0 % of the spend."),
        ({"cacheable": 0, "priced": 0, "spend": 0.0, "cacheable_spend": 0.0, "sampled": Sampled(500, None)},
         f"Not worth it: a cache could serve at most 0 of 1,000 requests, unless {ALLOWED}answer 500 of 1,000 "
         "requests."),
        ({"cacheable": 9, "priced": 9, "sampled": Sampled(500, 0.5)},
         f"Not enough data: 9 of 1,000 requests could be cached, and a verdict needs 200; if {ALLOWED}save 50.0 % of "),
        ({"hits": 0, "sampled": Sampled(3, 0.004)},
         "Not worth it: none of 800 cacheable requests could be answered by one before it; kept out mainly as "
         "sampled, and even with --allow-sampled exact matching alone would only save 0.40 % of the spend."),
        ({"hits": 0, "sampled": Sampled(0, 0.0)},
         "Not worth it: none of 800 cacheable requests could be answered by one before it; kept out mainly as "
         "sampled, and even with --allow-sampled exact matching would answer none."),
        ({"exact_saved": 0.0, **HEX, "sampled": Sampled(500, 0.5)},
         f"Not worth it on this evidence: exact matching alone saves nothing, unless {ALLOWED}save 50.0 % of the "
         "spend; the semantic tier "),
    ],
)  # fmt: skip
def test_sentences(change: dict[str, object], says: str) -> None:
    sentence = verdict(replace(GOOD, **change))  # type: ignore[arg-type]
    assert sentence.startswith(says)
    assert len(sentence) == len(says) or not says.endswith(".")


@pytest.mark.parametrize(
    ("n", "equal", "few"),
    [(102, 22, True), (MIN_ANSWERS, 19, True), (MIN_ANSWERS, 20, False), (MIN_ANSWERS - 1, 0, False), (0, 0, False),
     (1000, 774, True), (1000, 780, False)],
)  # fmt: skip
def test_agreement_is_low_when_even_the_upper_end_of_its_interval_is(n: int, equal: int, few: bool) -> None:
    assert Answers(n, equal).few_equal is few
    assert n < MIN_ANSWERS or few is (wilson(equal, n, Z_95)[1] < 0.8)


def test_a_few_hits_by_file_order_do_not_make_it_an_upper_bound() -> None:
    assert not leans(200, {"hits": 2})
    assert leans(200, {"hits": 3})
    assert not leans(0, {"hits": 0})


DAY_OF = np.arange(1000) // 100
"""A thousand calls over ten days."""


def by_day(values: list[float]) -> list[float]:
    sums: list[float] = np.bincount(DAY_OF, weights=values).tolist()
    return sums


def test_no_hit_is_not_certainty() -> None:
    assert rate_interval([0.0] * 20, [2.5] * 20, seed=0) == list(wilson(0, 50, Z_95))


def test_hits_in_one_burst_widen_the_interval() -> None:
    burst = by_day([1.0 if i < 100 else 0.0 for i in range(1000)])
    spread = by_day([1.0 if i % 10 == 0 else 0.0 for i in range(1000)])
    wide, narrow = (rate_interval(hits, [100.0] * 10, seed=0) for hits in (burst, spread))
    assert narrow == pytest.approx(wilson(100, 1000, Z_95))
    assert wide[0] == 0.0
    assert wide[1] > 2 * narrow[1]
    assert total_interval(burst, seed=0)[0] == 0.0


def test_intervals_of_dollars_are_of_90_per_cent_and_those_of_rates_of_95() -> None:
    values = [float(i % 7) for i in range(30)]
    assert total_interval(values, seed=0) == list(block_bootstrap(values, seed=0, level=0.90))
    hits = [float(i % 10 < 5) for i in range(30)]
    low, high = rate_interval(hits, [1.0] * 30, seed=0)
    few, many = (total / 30 for total in block_bootstrap(hits, seed=0, level=0.95))
    wide = wilson(15, 30, Z_95)
    assert (low, high) == pytest.approx((min(few, wide[0]), max(many, wide[1])))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60), st.integers(0, 3))
def test_intervals_hold_the_rate(rows: list[tuple[bool, bool]], seed: int) -> None:
    chances = [float(chance) for chance, _ in rows]
    hits = [float(chance and hit) for chance, hit in rows]
    low, high = rate_interval(hits, chances, seed=seed)
    assert 0 <= low <= high <= 1
    if sum(chances):
        assert low <= sum(hits) / sum(chances) <= high
