"""The figures of a savings report: by tier, by reason for exclusion, by model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from recall_cli.measure import savings_verdict as judge
from recall_cli.measure.replay import Call, Hit, median_latency, replay_exact, time_step
from recall_cli.measure.savings_rows import Row
from recall_cli.stats import Z_95, wilson

TO_CHECK = 20
"""Pairs listed to be read by hand: what somebody really does read."""
SMALLEST = Decimal("1e-8")
"""Dollars are kept to a hundred-millionth: a token of the cheapest model costs about that."""


@dataclass(frozen=True, slots=True)
class Served:
    """A row in replay order and how it would have been served."""

    row: Row
    hit: Hit | None

    @property
    def exact(self) -> bool:
        """True when exact keys alone would have answered it."""
        return self.hit is not None and self.hit.exact

    @property
    def semantic(self) -> bool:
        """True when only the semantic tier would have answered it."""
        return self.hit is not None and not self.hit.exact

    def usd(self) -> float:
        """Return what the row cost, 0 when that is not known."""
        return float(self.row.cost.total) if self.row.cost else 0.0


def tier(served: Sequence[Served], taken: Sequence[bool], where: judge.Blocks, seed: int) -> dict[str, Any]:
    """Return the figures of one tier; `taken` marks the rows it would have answered."""
    rows = [s.row for s, hit in zip(served, taken, strict=True) if hit]
    chances = [1.0 if s.row.call else 0.0 for s in served]
    n, hits = int(sum(chances)), len(rows)
    saved = [s.usd() if hit else 0.0 for s, hit in zip(served, taken, strict=True)]
    return {
        "hits": hits,
        "n": n,
        "hit_rate": hits / n if n else None,
        "hit_rate_interval": judge.rate_interval([float(hit) for hit in taken], chances, where, seed=seed),
        "input_tokens": sum(row.usage.input for row in rows if row.usage),
        "output_tokens": sum(row.usage.output for row in rows if row.usage),
        "usd_input": dollars(sum((row.cost.input for row in rows if row.cost), Decimal(0))),
        "usd_output": dollars(sum((row.cost.output for row in rows if row.cost), Decimal(0))),
        "usd": dollars(total_usd(rows)),
        "usd_interval": [dollars(Decimal(end)) for end in judge.total_interval(saved, where, seed=seed)],
        "hits_without_price": sum(row.cost is None for row in rows),
    }


def answers_equal(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return how often the answer that would be served equals the one the call really got.

    :param pairs: of answers (served, really given); one without both in the log is not counted.
    """
    compared = [(served, given) for served, given in pairs if served and given]
    n, equal = len(compared), sum(served == given for served, given in compared)
    return {"n": n, "equal": equal, "share": equal / n if n else None, "interval": list(wilson(equal, n, Z_95))}


def exact_pairs(calls: Sequence[Call], hits: Sequence[Hit | None]) -> list[tuple[bytes, bytes]]:
    """Return (served, really given) for each answer that exact keys alone would serve."""
    return [(calls[hit.exact_by].answer, call.answer) for call, hit in zip(calls, hits, strict=True)
            if hit is not None and hit.exact_by is not None]  # fmt: skip


def added_pairs(calls: Sequence[Call], hits: Sequence[Hit | None]) -> list[tuple[bytes, bytes]]:
    """Return (served, really given) for each answer that only the semantic tier would serve."""
    return [(calls[hit.served_by].answer, call.answer) for call, hit in zip(calls, hits, strict=True)
            if hit is not None and hit.exact_by is None]  # fmt: skip


def to_check(calls: Sequence[Call], hits: Sequence[Hit | None], seed: int) -> list[dict[str, Any]]:
    """Return up to TO_CHECK of the answers that only the semantic tier would serve and that differ from the logged.

    Drawn by chance, not the least similar ones: the share that a reader finds wrong then holds for all that differ.
    """
    found = [
        {"line": call.line, "served_from_line": calls[hit.served_by].line, "similarity": hit.similarity}
        for call, hit in zip(calls, hits, strict=True)
        if hit is not None and hit.exact_by is None and call.answer != calls[hit.served_by].answer
    ]
    drawn = random.Random(seed).sample(found, min(TO_CHECK, len(found)))
    return sorted(drawn, key=lambda pair: pair["line"])


def displaced(calls: Sequence[Call], hits: Sequence[Hit | None]) -> int:
    """Return how many answers exact keys alone would get right that the semantic tier replaces by another.

    It happens when a neighbour was served first: a hit stores nothing, so the exact key is never there.
    """
    return sum(
        calls[hit.exact_by].answer == call.answer != calls[hit.served_by].answer
        for call, hit in zip(calls, hits, strict=True)
        if hit is not None and hit.exact_by is not None and call.answer
    )


def if_sampled_allowed(rows: Sequence[Row], spend: Decimal) -> dict[str, Any]:
    """Return what exact keys would answer if calls kept out for being sampled were admitted."""
    paired = [(row, call) for row in rows if (call := row.call or row.sampled)]
    calls = [call for _, call in paired]
    step = time_step([call.start for call in calls])
    hits = replay_exact(calls, latency=median_latency(calls) or 0.0, step=step)
    taken = [row for (row, _), hit in zip(paired, hits, strict=True) if hit]
    saved = total_usd(taken)
    return {"exact": {"hits": len(taken), "usd": dollars(saved), "share": float(saved / spend) if spend else None}}


def excluded_by_reason(served: Sequence[Served]) -> dict[str, dict[str, Any]]:
    """Return requests and dollars of each reason, dearest first."""
    groups: dict[str, list[Row]] = {}
    for s in served:
        if s.row.excluded:
            groups.setdefault(s.row.excluded, []).append(s.row)
    ordered = sorted(groups.items(), key=lambda group: (-total_usd(group[1]), -len(group[1]), group[0]))
    return {reason: {"requests": len(rows), "usd": dollars(total_usd(rows))} for reason, rows in ordered}


def by_model(served: Sequence[Served]) -> list[dict[str, Any]]:
    """Return one row a model, dearest first; a model without a known price has null dollars."""
    groups: dict[tuple[str, str], list[Served]] = {}
    for s in served:
        groups.setdefault((s.row.provider, s.row.model), []).append(s)
    rows = []
    for (provider, model), members in groups.items():
        priced = sum(s.row.cost is not None for s in members)
        counted = [s.row.usage for s in members if s.row.usage]
        unpriced = sum(s.row.unpriced for s in members)
        rows.append(
            {
                "group": "model",
                "provider": provider,
                "model": model,
                "requests": len(members),
                "cacheable": sum(s.row.call is not None for s in members),
                "hits_exact": sum(s.exact for s in members),
                "hits_semantic": sum(s.semantic for s in members),
                "input_tokens": sum(usage.input for usage in counted),
                "cached_input_tokens": sum(usage.cache_read for usage in counted),
                "output_tokens": sum(usage.output for usage in counted),
                "requests_without_usage": len(members) - len(counted),
                "requests_without_price": unpriced,
                "spend_usd": dollars(total_usd(s.row for s in members)) if priced else None,
                "saved_usd": dollars(total_usd(s.row for s in members if s.hit)) if priced else None,
            }
        )
    return sorted(rows, key=lambda row: (-(row["spend_usd"] or 0.0), -row["requests"], row["model"], row["provider"]))


def total_usd(rows: Iterable[Row]) -> Decimal:
    """Return what the rows cost together; those without a price add nothing and are counted elsewhere."""
    return sum((row.cost.total for row in rows if row.cost), Decimal(0))


def dollars(amount: Decimal) -> float:
    """Return an amount as the JSON number that is printed."""
    return float(amount.quantize(SMALLEST))
