"""How sure the figures are, and what they add up to: intervals over blocks of time, one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recall_cli.stats import BOOTSTRAP_RESAMPLES, Z_90, block_bootstrap, wilson

MIN_CACHEABLE = 200
"""Below this a hit rate of 1 % cannot be told from none: its 90 % interval still reaches 0.4 to 3.0 %."""
MIN_SHARE = 0.01
"""A cache that saves under 1 % of the spend does not pay for the person who runs it."""
MIN_PRICED = 0.5
"""With prices for under half of the cacheable calls, the dollars speak for the wrong half."""
MIN_BLOCKS = 5
"""Resampling fewer blocks mostly redraws the same log."""
ROW_BLOCKS = 20
"""Blocks of consecutive calls when the log is too short for days or hours."""
DAY_S, HOUR_S = 86_400.0, 3_600.0
INTERVAL_LEVEL = 0.90


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which block of time each row belongs to."""

    unit: str
    of: list[int]
    count: int

    def totals(self, values: Sequence[float]) -> list[float]:
        """Return the sum of the values in each block."""
        sums = [0.0] * self.count
        for block, value in zip(self.of, values, strict=True):
            sums[block] += value
        return sums


def blocks(starts: Sequence[float | None]) -> Blocks:
    """Return blocks of days, of hours when there are under five days, else of consecutive rows.

    :param starts: in the order in which the rows were replayed.
    """
    if None not in starts:
        for unit, length in (("day", DAY_S), ("hour", HOUR_S)):
            keys = [int((start or 0.0) // length) for start in starts]
            number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
            if len(number) >= MIN_BLOCKS:
                return Blocks(unit, [number[key] for key in keys], len(number))
    n = len(starts)
    count = min(n, ROW_BLOCKS)
    return Blocks("consecutive rows", [i * count // n for i in range(n)], count)


def total_interval(values: Sequence[float], where: Blocks, *, seed: int) -> list[float]:
    """Return the 90 % interval of a sum, resampling whole blocks."""
    return list(block_bootstrap(where.totals(values), seed=seed, level=INTERVAL_LEVEL))


def rate_interval(hits: Sequence[float], chances: Sequence[float], where: Blocks, *, seed: int) -> list[float]:
    """Return a 90 % interval of a hit rate: the wider of Wilson's and the block bootstrap's.

    Hits depend on each other, so Wilson's alone is too narrow on bursty logs; resampling alone claims
    certainty when there was no hit at all.
    """
    n, got = int(sum(chances)), int(sum(hits))
    low, high = wilson(got, n, Z_90)
    if n:
        a, b = np.asarray(where.totals(hits)), np.asarray(where.totals(chances))
        picks = np.random.default_rng(seed).integers(0, where.count, size=(BOOTSTRAP_RESAMPLES, where.count))
        below = b[picks].sum(axis=1)
        rates = a[picks].sum(axis=1)[below > 0] / below[below > 0]
        tail = (1 - INTERVAL_LEVEL) / 2
        low = min(low, float(np.quantile(rates, tail)))
        high = max(high, float(np.quantile(rates, 1 - tail)))
    return [low, high]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the verdict rests on."""

    requests: int
    cacheable: int
    priced: int
    """Cacheable requests with a price."""
    spend: float
    cacheable_spend: float
    hits: int
    saved: float
    saved_interval: list[float]
    exact_saved: float
    exact_interval: list[float]
    main_exclusion: str
    """The reason that keeps most requests out, "" when none does."""
    tau: float
    answers: int
    """Semantic hits whose own answer is in the log too."""
    answers_equal: int
    ordered: bool


def verdict(facts: Facts) -> str:
    """Return one sentence: worth it, not worth it, or not enough data, and why."""
    keeps_out = f"; most are kept out as {facts.main_exclusion}" if facts.main_exclusion else ""
    priced = facts.spend > 0 and facts.priced >= MIN_PRICED * facts.cacheable
    # Even if every cacheable call were free, this would be the ceiling: no amount of data lifts it.
    ceiling = facts.cacheable_spend / facts.spend if priced else None
    if facts.requests >= MIN_CACHEABLE and (facts.cacheable == 0 or (ceiling is not None and ceiling < MIN_SHARE)):
        return (
            f"Not worth it: a cache could serve at most {_n(facts.cacheable)} of {_n(facts.requests)} requests"
            f"{f', {ceiling:.2%} of the spend' if ceiling is not None else ''}{keeps_out}."
        )
    if facts.cacheable < MIN_CACHEABLE:
        return (
            f"Not enough data: {_n(facts.cacheable)} of {_n(facts.requests)} requests could be cached, "
            f"and a verdict needs {MIN_CACHEABLE}{keeps_out}."
        )
    if facts.hits == 0:
        return f"Not worth it: none of {_n(facts.cacheable)} cacheable requests was close to an earlier one."
    if not priced:
        return (
            f"Not enough data: only {_n(facts.priced)} of {_n(facts.cacheable)} cacheable requests have both "
            "token counts and a known price."
        )
    share, low = facts.saved / facts.spend, facts.saved_interval[0]
    if low <= 0:
        return f"Not worth it: the interval of the saved {_usd(facts.saved)} includes 0."
    if share < MIN_SHARE:
        return f"Not worth it: it would save {share:.2%} of the spend ({_usd(facts.saved)} of {_usd(facts.spend)})."
    bound = "" if facts.ordered else " at most (the log has no times, so this is an upper bound)"
    if facts.exact_interval[0] > 0 and facts.exact_saved >= MIN_SHARE * facts.spend:
        exact = facts.exact_saved / facts.spend
        more = (
            f"; semantic matching at tau {facts.tau:g} would bring it to {share:.1%} if its answers hold{_hint(facts)}"
            if facts.saved > facts.exact_saved
            else ""
        )
        return f"Worth it: exact matching alone saves {exact:.1%} of the spend{bound}{more}."
    return (
        f"Worth it only if the semantic answers hold: exact matching alone saves {facts.exact_saved / facts.spend:.1%} "
        f"of the spend{bound}; unverified matches at tau {facts.tau:g} bring it to {share:.1%}{_hint(facts)}."
    )


def _hint(facts: Facts) -> str:
    """Return how many semantic answers equal the logged ones: no proof either way, but the reader should see it."""
    return f" ({_n(facts.answers_equal)} of {_n(facts.answers)} equal the logged answer)" if facts.answers else ""


def _n(count: int) -> str:
    return f"{count:,}"


def _usd(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4g}"
