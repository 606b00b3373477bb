"""`recall savings`: replay a log through the cache and say what it would have saved, and how surely."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from recall_cli.core.embed import DEFAULT_EMBEDDER, make_embedder
from recall_cli.core.policy import DEFAULT_TAU, StaticPolicy
from recall_cli.logs.pairs import Tally, read_log
from recall_cli.measure import savings_verdict as judge
from recall_cli.measure.prices import PriceBook
from recall_cli.measure.replay import (
    Call,
    Hit,
    leaning,
    median_latency,
    replay,
    replay_exact,
    tied,
    time_order,
    time_step,
)
from recall_cli.measure.result import new_result
from recall_cli.measure.savings_rows import SAMPLED, Rows, collect
from recall_cli.measure.savings_tables import (
    Served,
    added_pairs,
    answers_equal,
    by_model,
    displaced,
    dollars,
    exact_pairs,
    excluded_by_reason,
    if_sampled_allowed,
    tier,
    to_check,
    total_usd,
)
from recall_cli.measure.savings_warnings import warnings
from recall_cli.types import Progress, Result


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    log: str
    """A path, or "-" for standard input."""
    tau: float = DEFAULT_TAU
    embedder: str = DEFAULT_EMBEDDER
    allow_sampled: bool = False
    """Also cache calls whose temperature is unset or above 0: their answers would have differed."""
    seed: int = 0


def run(plan: Plan, *, progress: Progress | None = None) -> Result:
    """Return the savings document of a log. Raises InputError when the log cannot be read."""
    policy = StaticPolicy(plan.tau)
    embedder = make_embedder(plan.embedder)
    result = new_result("savings", asdict(plan))
    prices = PriceBook()
    tally = Tally()
    records = read_log(plan.log, tally, on_bytes=reading(plan.log, progress))
    found = collect(records, tally, embedder=embedder, prices=prices, allow_sampled=plan.allow_sampled)
    calls = [row.call for row in found.rows if row.call]
    latency = median_latency(calls)
    step = time_step([call.start for call in calls])
    hits = replay(calls, found.vectors, policy, latency=latency or 0.0, step=step, progress=progress)
    served = _in_order(found, hits)
    result.summary = _summary(plan, found, served, calls, hits, latency, step)
    result.summary["price_source"] = prices.source()
    result.summary["embedder"] = {"name": embedder.name, "fingerprint": embedder.fingerprint}
    result.rows = by_model(served)
    result.warnings = warnings(found, result.summary, result.rows)
    return result


def reading(log: str, progress: Progress | None) -> Callable[[int], None] | None:
    """Return what `read_log` tells how far it is; None where nobody wants to know."""
    if progress is None:
        return None
    total = os.path.getsize(log) if log != "-" and os.path.isfile(log) else 0
    return lambda done: progress(done, total, "reading")


def _in_order(found: Rows, hits: Sequence[Hit | None]) -> list[Served]:
    """Return all rows, cacheable or not, in the order of the replay."""
    hit_of = iter(hits)
    paired = [Served(row, next(hit_of) if row.call else None) for row in found.rows]
    return [paired[at] for at in time_order([row.start for row in found.rows])]


def _summary(
    plan: Plan,
    found: Rows,
    served: list[Served],
    calls: Sequence[Call],
    hits: Sequence[Hit | None],
    latency: float | None,
    step: float,
) -> dict[str, Any]:
    starts = [s.row.start for s in served]
    timed = [start for start in starts if start is not None]
    where = judge.blocks(starts)
    cacheable = [s for s in served if s.row.call]
    spend = total_usd(s.row for s in served)
    tiers = {
        "exact": tier(served, [s.exact for s in served], where, plan.seed),
        "semantic": tier(served, [s.semantic for s in served], where, plan.seed),
        "combined": tier(served, [s.hit is not None for s in served], where, plan.seed),
    }
    tiers["exact"] |= {"answers_equal": answers_equal(exact_pairs(calls, hits))}
    tiers["semantic"] |= {
        "tau": plan.tau,
        "verified": False,
        "answers_equal": answers_equal(added_pairs(calls, hits)),
    }
    same_instant = _same_instant(calls, hits, latency, step)
    exact_answers, semantic_answers = (
        judge.Answers(tiers[name]["answers_equal"]["n"], tiers[name]["answers_equal"]["equal"])
        for name in ("exact", "semantic")
    )
    tiers["semantic"]["few_answers_equal"] = semantic_answers.few_equal
    both = tiers["combined"]
    excluded = excluded_by_reason(served)
    main_exclusion = max(excluded, key=lambda reason: excluded[reason]["requests"], default="")
    sampled = if_sampled_allowed(found.rows, spend) if main_exclusion == SAMPLED else None
    order = "time" if len(timed) == len(starts) else "partly by file position" if timed else "file position"
    coarse = judge.COARSE_TIMES if judge.leans(both["hits"], same_instant) else ""
    unordered = coarse if timed else judge.NO_TIMES
    facts = judge.Facts(
        requests=len(served),
        cacheable=len(cacheable),
        priced=sum(s.row.cost is not None for s in cacheable),
        spend=float(spend),
        cacheable_spend=float(total_usd(s.row for s in cacheable)),
        hits=both["hits"],
        saved=both["usd"],
        saved_interval=both["usd_interval"],
        exact_saved=tiers["exact"]["usd"],
        exact_interval=tiers["exact"]["usd_interval"],
        main_exclusion=main_exclusion,
        tau=plan.tau,
        exact_answers=exact_answers,
        semantic_answers=semantic_answers,
        unordered=unordered,
        tied=same_instant["misses"],
        tokens=sum(s.row.usage.input + s.row.usage.output for s in cacheable if s.row.usage),
        repeats_sampled=found.sampled_admitted > 0,
        sampled=judge.Sampled(sampled["exact"]["hits"], sampled["exact"]["share"]) if sampled else None,
    )
    return {
        "verdict": judge.verdict(facts),
        "requests": len(served),
        "order": order,
        "span_s": max(timed) - min(timed) if timed else None,
        "median_latency_s": latency,
        "same_instant": same_instant,
        "cacheable": len(cacheable),
        "excluded": excluded,
        "if_sampled_allowed": sampled,
        "tiers": tiers,
        "to_check": to_check(calls, hits, plan.seed),
        "exact_hits_displaced": displaced(calls, hits),
        "spend_usd": dollars(spend),
        "saved_usd": both["usd"],
        "saved_usd_interval": both["usd_interval"],
        "saved_usd_interval_blocks": {"unit": where.unit, "n": where.count, "level": judge.INTERVAL_LEVEL},
        "saved_usd_naive": dollars(sum((s.row.cost.naive for s in cacheable if s.hit and s.row.cost), Decimal(0))),
        "saved_share": both["usd"] / float(spend) if spend else None,
        "priced_requests": sum(s.row.cost is not None for s in served),
        "requests_without_usage": sum(s.row.usage is None for s in served),
        "tenants": {"n": len(found.tenants), "fields": dict(found.tally.tenant_fields)},
        "lines": found.tally.lines,
        "skipped": dict(found.tally.skipped),
        "usage_read": _usage_read(found.tally),
    }


def _same_instant(
    calls: Sequence[Call], hits: Sequence[Hit | None], latency: float | None, step: float
) -> dict[str, Any]:
    """Return what rests on the order of calls that the log gives one time, which only the file knows."""
    leaning_hits = leaning(calls, hits)
    at_least = sum(replay_exact(calls, latency=latency or 0.0)) if leaning_hits else None
    return {"step_s": step, "hits": leaning_hits, "exact_hits_at_least": at_least, "misses": tied(calls, hits)}


def _usage_read(tally: Tally) -> dict[str, dict[str, int]]:
    """Return provider -> how its input tokens were read -> rows: the decision that moves most dollars."""
    read: dict[str, dict[str, int]] = {}
    for (provider, how), rows in sorted(tally.usage_read.items()):
        read.setdefault(provider, {})[how] = rows
    return read
