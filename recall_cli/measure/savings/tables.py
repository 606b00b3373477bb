"""The figures of a savings report: by tier, by reason for exclusion, by model."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.verdict import Same
from recall_cli.measure.judged import Judged
from recall_cli.measure.savings import verdict as judge
from recall_cli.measure.savings.replay import NO_HIT
from recall_cli.measure.savings.rows import Rows
from recall_cli.measure.savings.tiers import (
    BY_EXACT,
    BY_NORMALISED,
    BY_SEMANTIC,
    EXCLUDED,
    NORMALISED,
    SEMANTIC,
    Replayed,
    exact_if_sampled,
)
from recall_cli.measure.savings.totals import Sums, dollars_of
from recall_cli.stats import Z_95, wilson

if TYPE_CHECKING:
    from recall_cli.measure.columns import Column

TO_CHECK = 20
"""Pairs listed to be read by hand: what somebody really does read."""
MOST_JUDGED = 2_000
"""Semantic hits whose answers are compared by rules: enough to tell 1 % from 2 %, done in well under a second."""
SMALLEST = Decimal("1e-8")
"""Dollars are kept to a hundred-millionth: a token of the cheapest model costs about that."""
OUTCOMES = BY_SEMANTIC + 1


class GroupedSums:
    """Sums by outcome and block of time: what the tiers, the totals and their intervals are read from."""

    def __init__(self, rows: Rows, found: Replayed, where: judge.Blocks, block: Column, seed: int) -> None:
        self.where = where
        self.seed = seed
        self.sums = Sums(rows.columns, found.outcome.astype(np.int64) * where.count + block, OUTCOMES * where.count)

    def widen(self, figures: dict[str, Any], *outcomes: int) -> dict[str, Any]:
        """Return the figures of a tier with intervals that also reach as far as these blocks put them."""
        other = self.tier(*outcomes)
        for name in ("hit_rate_interval", "usd_interval"):
            figures[name] = [min(figures[name][0], other[name][0]), max(figures[name][1], other[name][1])]
        return figures

    def groups(self, *outcomes: int, block: int | None = None) -> list[int]:
        """Return the groups of some outcomes, in one block or in all."""
        blocks = range(self.where.count) if block is None else (block,)
        return [outcome * self.where.count + at for outcome in outcomes for at in blocks]

    def cacheable(self) -> list[int]:
        """Return the groups of all rows that a cache could serve."""
        return self.groups(*range(EXCLUDED + 1, OUTCOMES))

    def tier(self, *outcomes: int) -> dict[str, Any]:
        """Return the figures of the rows with these outcomes."""
        sums, taken = self.sums, self.groups(*outcomes)
        n, hits = sums.count(self.cacheable()), sums.count(taken)
        blocks = range(self.where.count)
        hit = [float(sums.count(self.groups(*outcomes, block=b))) for b in blocks]
        chances = [float(sums.count(self.groups(*range(EXCLUDED + 1, OUTCOMES), block=b))) for b in blocks]
        saved = [float(sums.usd(self.groups(*outcomes, block=b))) for b in blocks]
        return {
            "hits": hits,
            "n": n,
            "hit_rate": hits / n if n else None,
            "hit_rate_interval": judge.rate_interval(hit, chances, seed=self.seed),
            "input_tokens": sums.of("input", taken),
            "output_tokens": sums.of("output", taken),
            "usd_input": dollars(dollars_of(sums.of("cost_input", taken))),
            "usd_output": dollars(dollars_of(sums.of("cost_output", taken))),
            "usd": dollars(sums.usd(taken)),
            "usd_interval": [dollars(Decimal(end)) for end in judge.total_interval(saved, seed=self.seed)],
            "hits_without_price": hits - sums.of("priced", taken),
        }

    def tiers(self, found: Replayed, also: GroupedSums | None = None) -> dict[str, dict[str, Any]]:
        """Return each tier and what it adds to the one before it, with how often its answers equal the logged ones.

        :param also: other blocks, whose intervals count where they are wider.
        """

        def tier(*outcomes: int) -> dict[str, Any]:
            figures = self.tier(*outcomes)
            return figures if also is None else also.widen(figures, *outcomes)

        tiers = {"exact": tier(BY_EXACT) | {"answers_equal": answers_equal(found, BY_EXACT, found.exact_by)}}
        for name, outcome, by in (
            (NORMALISED, BY_NORMALISED, found.normal_by),
            (SEMANTIC, BY_SEMANTIC, found.served_by),
        ):
            if name in found.tiers:
                tiers[name] = tier(outcome) | {"answers_equal": answers_equal(found, outcome, by)}
        return tiers | {"combined": tier(BY_EXACT, BY_NORMALISED, BY_SEMANTIC)}


def answers_equal(found: Replayed, outcome: int, by: Column) -> dict[str, Any]:
    """Return how often the answer that a tier would serve equals the one the call really got.

    :param by: whom the tier serves; a pair without both answers in the log is not counted.
    """
    at = np.flatnonzero(found.tier == outcome)
    answer = found.answer
    given, served = answer[at], answer[by[at]]
    known = (given != 0) & (served != 0)
    n, equal = int(known.sum()), int(np.sum(known & (given == served)))
    return {"n": n, "equal": equal, "share": equal / n if n else None, "interval": list(wilson(equal, n, Z_95))}


def judged(rows: Rows, found: Replayed, compare: Comparator, seed: int) -> dict[str, Any]:
    """Return what the rules of `cache.answers.compare` make of the answers the semantic tier would serve.

    Of up to MOST_JUDGED hits, drawn by chance. The rate is of those that could be told; the bounds are of all of them,
    with none and with all of the rest wrong, and None where nothing could be told.
    """
    answer = found.answer
    hits = np.flatnonzero((found.tier == BY_SEMANTIC) & (answer != 0) & (answer[found.served_by] != 0))
    drawn = random.Random(seed).sample(range(len(hits)), min(MOST_JUDGED, len(hits)))
    place, served = rows.columns.read("answer_at")[found.row], found.served_by
    verdicts = Counter(
        compare(rows.answers.read(int(place[at])), rows.answers.read(int(place[served[at]]))).verdict
        for at in hits[sorted(drawn)].tolist()
    )
    same, different, unsure = (verdicts[verdict] for verdict in (Same.SAME, Same.DIFFERENT, Same.UNSURE))
    told = same + different
    found_so = Judged(same, different, unsure)
    return {
        "n": len(drawn),
        "same": same,
        "different": different,
        "unsure": unsure,
        "different_rate": different / told if told else None,
        "different_interval": list(wilson(different, told, Z_95)),
        "different_bounds": list(found_so.bounds),
        "different_bounds_interval": list(found_so.interval),
        "comparator": compare.name,
    }


def to_check(rows: Rows, found: Replayed, seed: int) -> list[dict[str, Any]]:
    """Return up to TO_CHECK of the answers that only the semantic tier would serve and that differ from the logged.

    Drawn by chance, not the least similar ones: the share that a reader finds wrong then holds for all that differ.
    """
    if found.walked is None:
        return []
    served, answer = found.served_by, found.answer
    differ = np.flatnonzero((found.tier == BY_SEMANTIC) & (answer != answer[served]))
    # In the order of the log: whatever time the rows were replayed at, the draw is the same.
    differ = differ[np.argsort(found.row[differ])]
    drawn = random.Random(seed).sample(range(len(differ)), min(TO_CHECK, len(differ)))
    picks = [int(differ[at]) for at in sorted(drawn)]
    line, source = rows.columns.read("line"), rows.columns.read("source")
    names = rows.sources.all()
    several = len(names) > 1

    def where(prefix: str, call: int) -> dict[str, Any]:
        row = int(found.row[call])
        return {f"{prefix}line": int(line[row])} | ({f"{prefix}file": names[source[row]]} if several else {})

    return [
        where("", at) | where("served_from_", int(served[at])) | {"similarity": float(found.walked.similarity[at])}
        for at in picks
    ]


def displaced(found: Replayed) -> int:
    """Return how many answers exact keys alone would get right that the cache with all tiers replaces by another.

    It happens when a neighbour was served first: a hit stores nothing, so the exact key is never there.
    """
    answer = found.answer
    at = np.flatnonzero((found.exact_by != NO_HIT) & (answer != 0))
    given = answer[at]
    right = answer[found.exact_by[at]] == given
    return int(np.sum(right & (answer[found.served_by[at]] != given)))


def if_sampled_allowed(rows: Rows, spend: Decimal) -> dict[str, Any]:
    """Return what exact keys would answer if calls kept out for being sampled were admitted."""
    taken = np.zeros(len(rows), dtype=np.int64)
    taken[exact_if_sampled(rows)] = 1
    sums = Sums(rows.columns, taken, 2, ("cost_input", "cost_output"))
    saved = sums.usd([1])
    return {"exact": {"hits": sums.count([1]), "usd": dollars(saved), "share": float(saved / spend) if spend else None}}


def excluded_by_reason(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return requests and dollars of each reason, dearest first."""
    names = rows.reasons.all()
    sums = Sums(rows.columns, rows.columns.read("reason").astype(np.int64), len(names), ("cost_input", "cost_output"))
    found = [(name, sums.rows[at], sums.usd([at])) for at, name in enumerate(names) if name and sums.rows[at]]
    ordered = sorted(found, key=lambda reason: (-reason[2], -reason[1], reason[0]))
    return {name: {"requests": n, "usd": dollars(usd)} for name, n, usd in ordered}


def by_model(rows: Rows, found: Replayed) -> list[dict[str, Any]]:
    """Return one row a model, dearest first; a model without a known price has null dollars."""
    provider, model = rows.columns.read("provider").astype(np.int64), rows.columns.read("model").astype(np.int64)
    pairs, group = np.unique(provider << 32 | model, return_inverse=True)
    sums = Sums(rows.columns, group * OUTCOMES + found.outcome, len(pairs) * OUTCOMES)
    unpriced = rows.columns.read("counted") & ~rows.columns.read("priced")
    if "already_cached" in rows.reasons.all():
        unpriced &= rows.columns.read("reason") != rows.reasons.number("already_cached")
    without_price = np.bincount(group[unpriced], minlength=len(pairs)).tolist()
    providers, models = rows.providers.all(), rows.models.all()
    table = []
    for at, pair in enumerate(pairs.tolist()):
        every = [at * OUTCOMES + outcome for outcome in range(OUTCOMES)]
        hits = every[BY_EXACT:]
        priced = sums.of("priced", every)
        requests = sums.count(every)
        table.append(
            {
                "group": "model",
                "provider": providers[pair >> 32],
                "model": models[pair & 0xFFFFFFFF],
                "requests": requests,
                "cacheable": requests - sums.count(every[: EXCLUDED + 1]),
                "hits_exact": sums.count([every[BY_EXACT]]),
                "hits_normalised": sums.count([every[BY_NORMALISED]]),
                "hits_semantic": sums.count([every[BY_SEMANTIC]]),
                "input_tokens": sums.of("input", every),
                "cached_input_tokens": sums.of("cache_read", every),
                "output_tokens": sums.of("output", every),
                "requests_without_usage": requests - sums.of("counted", every),
                "requests_without_price": without_price[at],
                "spend_usd": dollars(sums.usd(every)) if priced else None,
                "saved_usd": dollars(sums.usd(hits)) if priced else None,
            }
        )
    return sorted(table, key=lambda row: (-(row["spend_usd"] or 0.0), -row["requests"], row["model"], row["provider"]))


def dollars(amount: Decimal) -> float:
    """Return an amount as the JSON number that is printed."""
    return float(amount.quantize(SMALLEST))
