"""How sure the figures are, and what they add up to: intervals over blocks of time, one plain sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recall_cli.measure.judged import Judged, between
from recall_cli.measure.savings.wording import MAX_DIGITS, REASONS, agreement, percent, usd
from recall_cli.stats import BOOTSTRAP_RESAMPLES, Z_95, block_bootstrap, wilson

MIN_CACHEABLE = 200
"""Below this a hit rate of 1 % cannot be told from none: its 95 % interval still reaches 0.3 to 3.6 %."""
MIN_SHARE = 0.01
"""A cache that saves under 1 % of the spend does not pay for the person who runs it."""
MIN_PRICED = 0.5
"""With prices for under half of the cacheable calls, the dollars speak for the wrong half."""
MIN_BLOCKS = 5
"""Resampling fewer blocks mostly redraws the same log."""
ROW_BLOCKS = 20
"""Blocks of consecutive calls when the log is too short for days or hours."""
DAY_S, HOUR_S = 86_400.0, 3_600.0
INTERVAL_LEVEL = 0.95
"""Of rates, as everywhere in recall; Z_95 is its quantile."""
USD_LEVEL = 0.90
"""Of dollars: a sum of few, unequal blocks has long tails, and a decision to spend needs no more."""
MIN_ESTIMATED = 0.1
"""Share of requests with estimated tokens from which on the verdict says so itself."""

SAME_AT_LEAST = 0.8
"""Logged answers that must equal the stored ones before the verdict may lean on semantic hits.

At temperature 0 equal prompts get equal answers, so equality letter by letter is a floor for sameness: where even the
upper end of its interval stays below this, the log does not show that the semantic answers hold. It does not show that
they are wrong either, since two right answers differ in wording: hence "not shown to be safe", and no more.
"""
INCLUDES_ZERO = f"its {100 * USD_LEVEL:.0f} % interval includes 0"
NO_TIMES = "the log has no times"
COARSE_TIMES = "calls of one time are taken in the order of the file"
MIN_ANSWERS = 30
"""Answers compared before that is said: fewer are a topic or two of the log, not a sample of it."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the rows were divided into, of which intervals resample whole ones."""

    unit: str
    count: int


def total_interval(sums: Sequence[float], *, seed: int) -> list[float]:
    """Return the 90 % interval of a sum of dollars, resampling whole blocks.

    :param sums: of each block.
    """
    return list(block_bootstrap(sums, seed=seed, level=USD_LEVEL))


def rate_interval(hits: Sequence[float], chances: Sequence[float], *, seed: int) -> list[float]:
    """Return a 95 % interval of a hit rate: the wider of Wilson's and the block bootstrap's.

    :param hits: in each block, as are the chances.

    Hits depend on each other, so Wilson's alone is too narrow on bursty logs; resampling alone claims
    certainty when there was no hit at all.
    """
    n, got = int(sum(chances)), int(sum(hits))
    low, high = wilson(got, n, Z_95)
    if n:
        a, b = np.asarray(hits), np.asarray(chances)
        picks = np.random.default_rng(seed).integers(0, len(a), size=(BOOTSTRAP_RESAMPLES, len(a)))
        below = b[picks].sum(axis=1)
        rates = a[picks].sum(axis=1)[below > 0] / below[below > 0]
        tail = (1 - INTERVAL_LEVEL) / 2
        low = min(low, float(np.quantile(rates, tail)))
        high = max(high, float(np.quantile(rates, 1 - tail)))
    return [low, high]


@dataclass(frozen=True, slots=True)
class Answers:
    """Hits whose own answer is in the log too, and how many of the served answers equal it."""

    n: int
    equal: int

    @property
    def few_equal(self) -> bool:
        """True when enough answers were compared and too few are equal: no proof of harm, but none of safety."""
        return self.n >= MIN_ANSWERS and wilson(self.equal, self.n, Z_95)[1] < SAME_AT_LEAST


@dataclass(frozen=True, slots=True)
class Sampled:
    """What exact matching would do if sampled calls were admitted."""

    hits: int
    share: float | None
    """Of the spend; None when no price is known."""


@dataclass(frozen=True, slots=True)
class VerdictInputs:
    """What the verdict rests on."""

    requests: int
    cacheable: int
    priced: int
    """Cacheable requests with a price."""
    spend: float
    cacheable_spend: float
    hits: int
    saved: float
    """By both tiers, if every semantic answer holds."""
    saved_interval: list[float]
    exact_saved: float
    exact_interval: list[float]
    main_exclusion: str
    """The reason that keeps most requests out, "" when none does."""
    tau: float | None
    """None: the adaptive policy decided."""
    exact_answers: Answers
    semantic_answers: Answers
    """Of the hits that the semantic tier adds."""
    judged: Judged | None = None
    """What rules make of these answers; None where none were compared."""
    normalised_saved: float = 0.0
    """By keys that ignore case, spaces and closing marks, beyond the exact ones."""
    normalised_interval: tuple[float, float] = (0.0, 0.0)
    unordered: str = ""
    """Why the sums are an upper bound, as a clause; "" when the log orders its calls."""
    tied: int = 0
    """Misses that repeat a call of the very same start time."""
    tokens: int = 1
    """Logged by the cacheable requests, in and out."""
    repeats_sampled: bool = False
    """Sampled calls were admitted: the model would have varied some of the answers counted as saved."""
    costs: float = 0.0
    """Dollars that running the cache takes, as far as the user named them."""
    estimated: float = 0.0
    """Share of the requests whose tokens are estimated."""
    sampled: Sampled | None = None
    """None unless being sampled is the main exclusion."""
    unseen: int = 0
    """Requests kept out because the log does not show them whole."""
    unseen_spend: float = 0.0
    unseen_as: str = ""
    """The most frequent reason for it."""
    kept_once: bool = False
    """The log is a store, which keeps one row of all equal requests."""


def leans(hits: int, same_instant: Mapping[str, Any]) -> bool:
    """Return whether enough hits rest on the order of the file to change what the sums mean."""
    return bool(same_instant["hits"] > MIN_SHARE * hits)


def verdict(facts: VerdictInputs) -> str:
    """Return one sentence: worth it, not worth it, or not enough data, and why."""
    without = _without_dollars(facts)
    if without:
        return without
    estimated = f" {percent(facts.estimated, 0)} of the requests have estimated token counts."
    return _by_dollars(facts) + (estimated if facts.estimated >= MIN_ESTIMATED else "")


def _without_dollars(facts: VerdictInputs) -> str:
    """Return the verdict when it needs no sum of what was saved, else ""."""
    if facts.kept_once:
        return (
            f"Not enough data: the {facts.requests:,} requests are those of recall's own store, which keeps equal ones "
            "once: what was asked again is not in it."
        )
    priced = facts.spend > 0 and facts.priced >= MIN_PRICED * facts.cacheable
    if unseen := _unseen(facts, priced):
        return unseen
    # Even if every cacheable call were free, this would be the ceiling: no amount of data lifts it.
    ceiling = facts.cacheable_spend / facts.spend if priced else None
    if facts.requests >= MIN_CACHEABLE and (facts.cacheable == 0 or (ceiling is not None and ceiling < MIN_SHARE)):
        return (
            f"Not worth it: a cache could serve at most {facts.cacheable:,} of {facts.requests:,} requests"
            f"{f', {_percent(ceiling)} of the spend' if ceiling is not None else ''}{_kept_out(facts)}."
        )
    if facts.cacheable < MIN_CACHEABLE:
        return (
            f"Not enough data: {facts.cacheable:,} of {facts.requests:,} requests could be cached, "
            f"and a verdict needs {MIN_CACHEABLE}{_kept_out(facts, '; if')}."
        )
    if facts.hits == 0:
        return (
            f"{_negative(facts)}: none of {facts.cacheable:,} cacheable requests could be answered by one "
            f"before it{_tied(facts)}{_kept_out(facts) if facts.sampled else ''}."
        )
    if facts.spend == 0 and facts.priced >= MIN_PRICED * facts.cacheable:
        if not facts.tokens:
            return f"Not enough data: the {facts.priced:,} cacheable requests with a known price log 0 tokens."
        return (
            f"Not worth it: the {facts.priced:,} cacheable requests with token counts and a known price cost nothing, "
            "so there is nothing to save."
        )
    if not priced:
        return (
            f"Not enough data: only {facts.priced:,} of {facts.cacheable:,} cacheable requests have both "
            "token counts and a known price."
        )
    return ""


def _unseen(facts: VerdictInputs, priced: bool) -> str:
    """Return the verdict where what the log does not show could turn any other, else ""."""
    few = facts.cacheable < MIN_CACHEABLE and 2 * facts.unseen >= facts.requests
    hidden = priced and facts.cacheable_spend < MIN_SHARE * facts.spend <= facts.cacheable_spend + facts.unseen_spend
    if not facts.unseen or not (few or hidden):
        return ""
    cost = f"; what they cost is known: {usd(facts.unseen_spend)}" if facts.unseen_spend else ""
    return (
        f"Not enough data: whether {facts.unseen:,} of {facts.requests:,} requests could be answered by a cache cannot "
        f"be told ({REASONS[facts.unseen_as]}){cost}."
    )


def _by_dollars(facts: VerdictInputs) -> str:
    exact_pays = facts.exact_interval[0] > 0 and facts.exact_saved >= MIN_SHARE * facts.spend
    both_pay = facts.saved_interval[0] > 0 and facts.saved >= MIN_SHARE * facts.spend
    if exact_pays:
        return f"Worth it: {_exact(facts)}{_semantic(facts)}{_costs(facts)}."
    only_sampled = _kept_out(facts) if facts.sampled else ""
    if _keys_pay(facts):
        means_nothing = "case, spaces and closing marks mean nothing to you"
        return f"Worth it if {means_nothing}: {_exact(facts)}{_semantic(facts)}{_costs(facts)}."
    if not both_pay:
        why = f" ({INCLUDES_ZERO})" if facts.saved_interval[0] <= 0 else ""
        even = _even(facts)
        return (
            f"{_negative(facts)}: {even}a cache would save "
            f"{_of_spend(facts.saved, facts)}{why}{_tied(facts)}{only_sampled}."
        )
    left = facts.saved - facts.costs
    if left < MIN_SHARE * facts.spend or facts.saved_interval[0] <= facts.costs:
        return (
            f"Not worth it: even if every semantic answer held, a cache would save {_of_spend(facts.saved, facts)}, "
            f"and running it takes {usd(facts.costs)} of that{only_sampled}."
        )
    if _doubtful(facts):
        return f"Not worth it on this evidence: {_exact(facts)}{only_sampled}{_semantic(facts)}."
    return f"Worth it only if the semantic answers hold: {_exact(facts)}{_semantic(facts)}{_costs(facts)}."


def _even(facts: VerdictInputs) -> str:
    """Return what a negative verdict already grants, by the most doubtful tier that adds anything."""
    if _added(facts) > 0:
        return "even if every semantic answer held, "
    return "even if case, spaces and closing marks meant nothing, " if facts.normalised_saved > 0 else ""


def _added(facts: VerdictInputs) -> float:
    """Return the dollars that the semantic tier adds; sums kept to MAX_DIGITS leave no dust behind."""
    return round(facts.saved - facts.exact_saved - facts.normalised_saved, MAX_DIGITS)


def _costs(facts: VerdictInputs) -> str:
    """Return what the semantic tier leaves once it is paid for; "" when no cost was named."""
    added = _added(facts)
    if not facts.costs or added <= 0:
        return ""
    if facts.costs >= added:
        keys = "matching keys" if facts.normalised_saved else "exact matching"
        return f"; but by the costs named it takes {usd(facts.costs)} to save {usd(added)}, so {keys} alone pays"
    return f"; of what it adds the costs named take {usd(facts.costs)}"


def _keys_pay(facts: VerdictInputs) -> bool:
    """Return whether keys that ignore spelling make the exact ones pay."""
    sure = max(facts.exact_interval[0], facts.normalised_interval[0]) > 0
    return sure and facts.exact_saved + facts.normalised_saved >= MIN_SHARE * facts.spend


def _exact(facts: VerdictInputs) -> str:
    if not facts.exact_saved:
        return "exact matching alone saves nothing"
    bound = "at most " if facts.unordered else ""
    known = "if repeating sampled answers is acceptable to you" if facts.repeats_sampled else "for certain"
    sure = f"({facts.unordered}, so this is an upper bound)" if facts.unordered else known
    wide = f", though {INCLUDES_ZERO}" if facts.exact_interval[0] <= 0 else ""
    return f"exact matching alone saves {bound}{_of_spend(facts.exact_saved, facts)} {sure}{wide}"


def _negative(facts: VerdictInputs) -> str:
    """Return the verdict when little or nothing is saved: it takes times that tell which call came first."""
    return "Not enough data" if _tied(facts) else "Not worth it"


def _tied(facts: VerdictInputs) -> str:
    """Return what a negative verdict would miss, were equal start times no sign that the calls ran at once."""
    if facts.tied < MIN_SHARE * facts.cacheable or not facts.tied:
        return ""
    return f"; {facts.tied:,} repeat a call of the same start time and would be answered had they come after it"


def _semantic(facts: VerdictInputs) -> str:
    """Return what the tiers add to exact matching, and how far the log vouches for the semantic one."""
    return _normalised(facts) + _neighbours(facts)


def _normalised(facts: VerdictInputs) -> str:
    share = facts.normalised_saved / facts.spend if facts.spend else 0.0
    added = f"{usd(facts.normalised_saved)} ({_percent(share)})"
    return f"; ignoring case, spaces and closing marks adds {added}" if facts.normalised_saved > 0 else ""


def _neighbours(facts: VerdictInputs) -> str:
    added, answers = _added(facts), facts.semantic_answers
    if added <= 0:
        return ""
    sum_added = f"{usd(added)} ({_percent(added / facts.spend)})"
    tier = f"; the semantic tier {'under the adaptive policy' if facts.tau is None else f'at tau {facts.tau:g}'}"
    if not answers.n:
        return f"{tier} adds up to {sum_added} if every one of its answers holds"
    unknown = "" if answers.equal == answers.n else _rest(facts.judged)
    exact = facts.exact_answers
    beside = f" (of exact hits {percent(exact.equal / exact.n, 0)})" if exact.n >= MIN_ANSWERS else ""
    equal = f"{agreement(answers.equal, answers.n)} equal the logged answer letter by letter{beside}{unknown}"
    if _doubtful(facts):
        return f"{tier} would add up to {sum_added} but is not shown to be safe: of its answers only {equal}"
    return f"{tier} adds up to {sum_added} if every one of its answers holds: {equal}"


def _doubtful(facts: VerdictInputs) -> bool:
    """Return whether the log shows that too many semantic answers are wrong, or fails to show that they are not.

    Where rules have judged the answers, what they found counts, and with it what they could not tell: that may be
    wrong. Few answers equal letter by letter are no doubt once enough of the others are known to say the same.
    """
    judged = facts.judged
    if judged is None or judged.n < MIN_ANSWERS:
        return facts.semantic_answers.few_equal
    low, high = judged.interval
    return low > 1 - SAME_AT_LEAST or (facts.semantic_answers.few_equal and high > 1 - SAME_AT_LEAST)


def _rest(judged: Judged | None) -> str:
    """Return what is known of the answers that are not equal letter by letter."""
    if judged is None or not judged.n:
        return ", and whether the rest say the same is not known from the log"
    low, high = judged.bounds
    if low is None:
        return f", and how many are wrong is not known: none of {judged.n:,} could be judged"
    unsure = f": {judged.unsure:,} of {judged.n:,} could not be judged" if judged.unsure else ""
    return f", and by rules {between(low, high)} are wrong{unsure}"


def _kept_out(facts: VerdictInputs, otherwise: str = ", unless") -> str:
    """Return what keeps requests out; for sampled ones also what admitting them would bring."""
    if facts.sampled is None:
        reason = facts.main_exclusion
        return f"; kept out mainly for this: {REASONS.get(reason, reason)}" if reason else ""
    hits, share = facts.sampled.hits, facts.sampled.share
    brings = (
        f"answer {hits:,} of {facts.requests:,} requests" if share is None else f"save {_percent(share)} of the spend"
    )
    if not hits:
        return "; kept out mainly as sampled, and even with --allow-sampled exact matching would answer none"
    if share is not None and share < MIN_SHARE:
        return f"; kept out mainly as sampled, and even with --allow-sampled exact matching alone would only {brings}"
    return (
        f"{otherwise} repeating a sampled answer is acceptable to you: "
        f"with --allow-sampled exact matching alone would {brings}"
    )


def _of_spend(amount: float, facts: VerdictInputs) -> str:
    return f"{usd(amount)} of the {usd(facts.spend)} spent ({_percent(amount / facts.spend)})"


def _percent(share: float) -> str:
    return percent(share, 2 if share < MIN_SHARE else 1)
