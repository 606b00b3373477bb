"""`recall savings`: replay a log through the cache and say what it would have saved, and how surely."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.second_opinion import opinion_of
from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER, make_embedder
from recall_cli.cache.policy.registry import make_policy, vetoes_of
from recall_cli.cache.policy.static import DEFAULT_TAU, ExactPolicy
from recall_cli.errors import UsageError
from recall_cli.logs.files import log_files
from recall_cli.logs.report import ReadReport
from recall_cli.logs.worker import read_ahead
from recall_cli.measure.columns import Workspace
from recall_cli.measure.judged import Judged
from recall_cli.measure.pricing.book import price_book
from recall_cli.measure.pricing.tokens import Estimator
from recall_cli.measure.result import new_result
from recall_cli.measure.savings import verdict as judge
from recall_cli.measure.savings.costs import Metered, Reconciliation
from recall_cli.measure.savings.money import MoneyPlan, money, params
from recall_cli.measure.savings.replay import NO_HIT, leaning, served_by_key, tied, timing
from recall_cli.measure.savings.rows import SAMPLED, Rows, Uncounted, collect
from recall_cli.measure.savings.sweep import (
    CAPACITIES,
    TTLS,
    capacities,
    capacity_sweep,
    cold_start,
    durations,
    ttl_sweep,
)
from recall_cli.measure.savings.tables import (
    GroupedSums,
    by_model,
    displaced,
    dollars,
    excluded_by_reason,
    if_sampled_allowed,
    judged,
    to_check,
)
from recall_cli.measure.savings.tiers import (
    BY_EXACT,
    BY_NORMALISED,
    BY_SEMANTIC,
    EXACT,
    NORMALISED,
    SEMANTIC,
    TIERS,
    Replayed,
    Semantic,
    replay_rows,
)
from recall_cli.measure.savings.totals import blocks_of, dollars_of, groups_of
from recall_cli.measure.savings.warnings import money_warnings, replay_warnings, warnings
from recall_cli.measure.savings.wording import UNSEEN
from recall_cli.types import Progress, Result


@dataclass(frozen=True, slots=True)
class SavingsPlan:
    """What to measure."""

    logs: Sequence[str]
    """Files, folders, patterns; "-" is standard input."""
    log_format: str = ""
    """Name of the only log format to read; "" finds out by itself."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns of plain tables by what they mean, as in {"prompt": "question"}."""
    tau: float = DEFAULT_TAU
    embedder: str = DEFAULT_EMBEDDER
    allow_sampled: bool = False
    """Also cache calls whose temperature is unset or above 0: their answers would have differed."""
    tiers: str = ",".join(TIERS)
    policy: str = "static"
    """"static": serve from `tau` on; "adaptive": learn from the logged answers what may be served."""
    target: float = 0.01
    """Share of wrong answers among semantic hits that the adaptive policy promises to keep under."""
    confidence: float = 0.9
    verify_sample: float = 0.05
    """Share of its hits that the adaptive policy has checked; each costs a call."""
    verify_on_hit: str = "auto"
    """What a hit must pass beside the policy: see `cache.policy.registry.CHECKS`."""
    ttl: str = TTLS
    capacity: str = CAPACITIES
    sample: float = 1.0
    """Share of the namespaces (tenant, model, system prompt) that is measured."""
    seed: int = 0
    money: MoneyPlan = field(default_factory=MoneyPlan)


def run(plan: SavingsPlan, *, progress: Progress | None = None) -> Result:
    """Return the savings document of a log. Raises InputError when the log cannot be read."""
    tiers = _tiers(plan)
    ttls, limits = durations(plan.ttl), capacities(plan.capacity)
    embedder = Metered(make_embedder(plan.embedder)) if SEMANTIC in tiers else None
    opinion = opinion_of(plan.verify_on_hit) if embedder is not None else None
    policy = make_policy(
        plan.policy,
        tau=plan.tau,
        target_false_hit=plan.target,
        confidence=plan.confidence,
        verify_sample=plan.verify_sample,
        seed=plan.seed,
    )
    result = new_result("savings", params(asdict(plan)))
    prices = price_book(plan.money.prices, plan.money.price)
    uncounted = Uncounted(Estimator(exact=plan.money.count_tokens), Reconciliation())
    tally = ReadReport()
    with Workspace() as folder:
        records = read_ahead(
            plan.logs, tally, format=plan.log_format, fields=plan.fields, on_bytes=reading(plan.logs, progress)
        )
        rows = collect(
            records,
            tally,
            folder=folder,
            prices=prices,
            allow_sampled=plan.allow_sampled,
            uncounted=uncounted,
            texts=embedder is not None,
            sample=plan.sample,
        )
        semantic = (
            None
            if embedder is None
            else Semantic(embedder, policy, folder, opinion, vetoes_of(plan.verify_on_hit, policy))
        )
        found = replay_rows(rows, tiers=tiers, semantic=semantic, progress=progress)
        told = money(plan.money, rows, found, embedder, uncounted, seed=plan.seed)
        said = None if embedder is None else judged(rows, found, Comparator(embedder), plan.seed)
        result.summary = _summary(plan, rows, found, told, said) | told
        result.summary["cold_start"] = cold_start(rows, found)
        result.summary["ttl"] = ttl_sweep(rows, found, ttls)
        result.summary["capacity"] = capacity_sweep(rows, found, limits, 0 if embedder is None else embedder.dim)
        result.rows = by_model(rows, found)
    result.summary["price_source"] = prices.source()
    if embedder is not None:
        result.summary["embedder"] = {"name": embedder.name, "fingerprint": embedder.fingerprint}
    result.warnings = [
        *warnings(rows, result.summary, result.rows),
        *money_warnings(prices, result.summary),
        *replay_warnings(result.summary),
    ]
    return result


def _opinions(plan: SavingsPlan, found: Replayed) -> dict[str, Any] | None:
    """Return how often the second opinion was asked and refused, None without one."""
    if plan.verify_on_hit != "model" or found.walked is None:
        return None
    walked = found.walked
    return {"asked": walked.asked, "refused": walked.refused, "cpu_s": round(walked.opinion_cpu_s, 3)}


def _tiers(plan: SavingsPlan) -> tuple[str, ...]:
    named = [tier.strip() for tier in plan.tiers.split(",")]
    unknown = [tier for tier in named if tier not in TIERS]
    if unknown or EXACT not in named:
        said = f"there is no tier named {unknown[0]!r}" if unknown else "the exact tier cannot be left out"
        raise UsageError(said, hint="choose exact, exact,normalised or exact,normalised,semantic")
    if not 0 < plan.sample <= 1:
        raise UsageError(f"the share to sample must be above 0 and at most 1, not {plan.sample}", hint="0.1 is 10 %")
    if plan.policy == ExactPolicy.name:
        named = [tier for tier in named if tier != SEMANTIC]
    return tuple(tier for tier in TIERS if tier in named)


def reading(logs: Sequence[str], progress: Progress | None) -> Callable[[int], None] | None:
    """Return what a reader of logs tells how far it is; None where nobody wants to know."""
    if progress is None:
        return None
    files = log_files(logs, ReadReport())
    # How much comes through a pipe, nobody knows yet.
    total = sum(map(os.path.getsize, files)) if all(map(os.path.isfile, files)) else 0
    # A log that is still written to may give more than it had.
    return lambda done: progress(min(done, total) if total else done, total, "reading")


def _summary(
    plan: SavingsPlan, rows: Rows, found: Replayed, told: dict[str, Any], said: dict[str, Any] | None
) -> dict[str, Any]:
    start = rows.columns.read("start")
    timed = start[~np.isnan(start)]
    where, block = blocks_of(start, rows.columns.read("tenant"))
    sheet = GroupedSums(rows, found, where, block, plan.seed)
    by_namespace = None
    if plan.sample < 1:
        by_namespace = GroupedSums(rows, found, *groups_of(rows.columns.read("group")), plan.seed)
    sums, cacheable = sheet.sums, sheet.cacheable()
    spend = sums.usd()
    tiers = sheet.tiers(found, by_namespace)
    both = tiers["combined"]
    same_instant = _same_instant(found)
    answers = {
        name: judge.Answers(tiers[name]["answers_equal"]["n"], tiers[name]["answers_equal"]["equal"])
        for name in found.tiers
    }
    if SEMANTIC in tiers:
        tiers[SEMANTIC] |= {
            "tau": plan.tau if plan.policy == "static" else None,
            "policy": plan.policy,
            "target": plan.target if plan.policy == "adaptive" else None,
            "verified": False,
            "audits": found.walked.audits if found.walked else 0,
            "labels": found.walked.labels if found.walked else 0,
            "unlabelled": found.walked.unsure if found.walked else 0,
            "second_opinion": _opinions(plan, found),
            "few_answers_equal": answers[SEMANTIC].few_equal,
            "judged": said,
        }
    excluded = excluded_by_reason(rows)
    main_exclusion = max(excluded, key=lambda reason: excluded[reason]["requests"], default="")
    unseen = {reason: group for reason, group in excluded.items() if reason in UNSEEN}
    sampled = if_sampled_allowed(rows, spend) if main_exclusion == SAMPLED else None
    order = "time" if len(timed) == len(rows) else "partly by file position" if len(timed) else "file position"
    coarse = judge.COARSE_TIMES if judge.leans(both["hits"], same_instant) else ""
    facts = judge.VerdictInputs(
        requests=len(rows),
        cacheable=both["n"],
        priced=sums.of("priced", cacheable),
        spend=float(spend),
        cacheable_spend=float(sums.usd(cacheable)),
        hits=both["hits"],
        saved=both["usd"],
        saved_interval=both["usd_interval"],
        exact_saved=tiers[EXACT]["usd"],
        exact_interval=tiers[EXACT]["usd_interval"],
        normalised_saved=tiers[NORMALISED]["usd"] if NORMALISED in tiers else 0.0,
        normalised_interval=tuple(tiers[NORMALISED]["usd_interval"]) if NORMALISED in tiers else (0.0, 0.0),
        main_exclusion=main_exclusion,
        tau=plan.tau if plan.policy == "static" else None,
        exact_answers=answers[EXACT],
        semantic_answers=answers.get(SEMANTIC, judge.Answers(0, 0)),
        judged=Judged(said["same"], said["different"], said["unsure"]) if said and said["n"] else None,
        unordered=coarse if len(timed) else judge.NO_TIMES,
        tied=same_instant["misses"],
        tokens=sums.of("input", cacheable) + sums.of("output", cacheable),
        costs=told["cache_costs"]["total_usd"],
        estimated=(told["estimated_usage"] or {"share": 0.0})["share"],
        repeats_sampled=rows.sampled_admitted > 0,
        unseen=sum(group["requests"] for group in unseen.values()),
        unseen_spend=sum(group["usd"] for group in unseen.values()),
        unseen_as=max(unseen, key=lambda reason: unseen[reason]["requests"], default=""),
        kept_once=2 * rows.tally.formats["recall-store"] > rows.tally.records,
        sampled=judge.Sampled(sampled["exact"]["hits"], sampled["exact"]["share"]) if sampled else None,
    )
    return {
        "verdict": judge.verdict(facts),
        "requests": len(rows),
        "order": order,
        "untimed": len(rows) - len(timed),
        "span_s": float(timed.max() - timed.min()) if len(timed) else None,
        "median_latency_s": found.latency,
        "same_instant": same_instant,
        "cacheable": both["n"],
        "excluded": excluded,
        "if_sampled_allowed": sampled,
        "tiers": tiers,
        "pooled": found.pooled,
        "sample": _sample(plan, rows, spend, both) if plan.sample < 1 else None,
        "texts_left_out": found.texts_left_out,
        "absurd_costs": rows.absurd_costs,
        "names_merged": sum(names.merged for names in (rows.models, rows.tenants, rows.spaces)),
        "to_check": to_check(rows, found, plan.seed),
        "exact_hits_displaced": displaced(found),
        "spend_usd": dollars(spend),
        "spend_usd_input": dollars(dollars_of(sums.of("cost_input"))),
        "saved_usd": both["usd"],
        "saved_usd_interval": both["usd_interval"],
        "saved_usd_interval_blocks": {"unit": where.unit, "n": where.count, "level": judge.USD_LEVEL},
        "saved_usd_naive": dollars(
            dollars_of(sums.of("cost_naive", sheet.groups(BY_EXACT, BY_NORMALISED, BY_SEMANTIC)))
        ),
        "saved_share": both["usd"] / float(spend) if spend else None,
        "priced_requests": sums.of("priced"),
        "requests_without_usage": len(rows) - sums.of("counted"),
        "tenants": {"n": len(rows.tenants) - 1, "fields": dict(rows.tally.tenant_fields)},
        "lines": rows.tally.lines,
        "formats": dict(rows.tally.formats),
        "sniffed": [asdict(sniffed) for sniffed in rows.tally.sniffed],
        "merged": dict(rows.tally.merged),
        "skipped": dict(rows.tally.skipped),
        "usage_read": _usage_read(rows.tally),
    }


def _sample(plan: SavingsPlan, rows: Rows, spend: Decimal, both: dict[str, Any]) -> dict[str, Any]:
    """Return what the measured namespaces stand for: sums of all of them, each over the share."""
    return {
        "share": plan.sample,
        "requests_left_out": rows.left_out,
        "requests_share": len(rows) / (len(rows) + rows.left_out) if len(rows) + rows.left_out else None,
        "spend_usd_of_all": float(spend) / plan.sample,
        "saved_usd_of_all": both["usd"] / plan.sample,
        "saved_usd_interval_of_all": [end / plan.sample for end in both["usd_interval"]],
    }


def _same_instant(found: Replayed) -> dict[str, Any]:
    """Return what rests on the order of calls that the log gives one time, which only the file knows."""
    served = found.served_by
    leans = leaning(found.time, found.end, served, found.exact_by)
    at_least = None
    if leans:
        strict = timing(found.time.start, found.end, latency=found.latency or 0.0)
        at_least = int(np.sum(served_by_key(found.key, strict) != NO_HIT))
    misses = tied(found.key, found.time, served != NO_HIT)
    return {"step_s": found.step, "hits": leans, "exact_hits_at_least": at_least, "misses": misses}


def _usage_read(tally: ReadReport) -> dict[str, dict[str, int]]:
    """Return provider -> how its input tokens were read -> rows: the decision that moves most dollars."""
    read: dict[str, dict[str, int]] = {}
    for (provider, how), rows in sorted(tally.usage_read.items()):
        read.setdefault(provider, {})[how] = rows
    return read
