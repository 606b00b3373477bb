"""What a reader of a savings report must know of the log, the figures and the replay, each with a next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recall_cli.logs.report import told
from recall_cli.logs.rows import ODDITIES
from recall_cli.logs.times import MAX_DURATION_S
from recall_cli.measure.columns import Names
from recall_cli.measure.pricing.book import PriceBook
from recall_cli.measure.savings.rows import MOST, Rows
from recall_cli.measure.savings.wording import NO_MODEL, model_names, percent, usd
from recall_cli.types import Warn


def replay_warnings(summary: Mapping[str, Any]) -> list[Warn]:
    """Return the warnings about what was sampled, left out, or not believed."""
    sample, semantic = summary["sample"], summary["tiers"].get("semantic", {})
    found = [
        Warn(
            "sampled_namespaces",
            f"{sample['requests_left_out']:,} requests of other namespaces are not measured: all figures but those "
            "said to be of all are of the sample, and their intervals are as wide as namespaces differ",
            "raise --sample to narrow them",
        )
        if sample
        else None,
        Warn(
            "texts_left_out",
            f"{summary['texts_left_out']:,} requests are only found by their keys: the log has more distinct prompts "
            "than are embedded, so the semantic hits are a lower bound",
            "measure a share of the namespaces whole: --sample 0.1",
        )
        if summary["texts_left_out"]
        else None,
        Warn(
            "absurd_costs",
            f"{summary['absurd_costs']:,} requests log token counts that would cost over ${MOST:,} each; they count as "
            "requests without a price",
            "check the token counts of the log",
        )
        if summary["absurd_costs"]
        else None,
        Warn(
            "names_merged",
            f"{summary['names_merged']:,} times a model, tenant or namespace came after {Names.LIMIT:,} others: in "
            f"break-downs these are one, {Names.OTHER}; who may serve whom does not depend on it",
        )
        if summary["names_merged"]
        else None,
        Warn(
            "policy_still_learning",
            "the adaptive policy served nothing: the logged answers did not give it the labels its promise takes",
            "replay a longer log, or raise --target",
        )
        if semantic.get("policy") == "adaptive" and not semantic["hits"]
        else None,
    ]
    return [warning for warning in found if warning is not None]


NO_TIER = {"hits": 0, "answers_equal": {"n": 0, "equal": 0}, "tau": 0.0}
"""Stands for a tier that was left out."""
GAP = 0.02
"""Our prices and the bill may part by this much before it is said: rounding and a price change explain less."""
SHORT_SPAN_S = 86_400.0
"""A log of under a day shows neither the next morning's repeats nor a weekend."""


def warnings(found: Rows, summary: dict[str, Any], models: list[dict[str, Any]]) -> list[Warn]:
    """Return the warnings of a report, those about its main figures first."""
    return [
        warn
        for warn in (
            *_about_tiers(found, summary),
            *_about_times(found, summary),
            *_about_dollars(found, summary, models),
            *_about_reading(found),
        )
        if warn is not None
    ]


def _about_tiers(found: Rows, summary: dict[str, Any]) -> list[Warn | None]:
    semantic = summary["tiers"].get("semantic", NO_TIER)
    sampled = summary["excluded"].get("sampled", {"requests": 0})["requests"]
    equal = semantic["answers_equal"]
    how = " of the adaptive policy" if semantic["tau"] is None else f" at tau {semantic['tau']:g}"
    hint = (
        f"of {equal['n']:,} such answers {equal['equal']:,} equal the logged one; unequal need not mean wrong: "
        "recall eval --log LOG compares what they say, and counts the wrong ones at this cutoff and at others"
    )
    allowed = summary["if_sampled_allowed"]
    return [
        Warn(
            "keys_alone",
            f"{found.keyed:,} requests have no text but a key that equal ones share: what other wordings of a question "
            "would add is not known",
        )
        if found.keyed
        else None,
        Warn("semantic_unverified", f"nobody has checked the semantic hits{how}", hint) if semantic["hits"] else None,
        Warn(
            "sampled_excluded",
            f"{sampled:,} of {summary['requests']:,} requests let the model vary its answer "
            "(temperature unset, which is the API's 1.0, or above 0) and are left out",
            "--allow-sampled counts them too, if one answer is as good as another to you"
            + (f": exact matching alone would then answer {allowed['exact']['hits']:,} requests" if allowed else ""),
        )
        if sampled
        else None,
        Warn(
            "sampled_included",
            f"{found.sampled_admitted:,} requests at a temperature unset or above 0 are included: a cache would repeat "
            "one answer where the model varied it",
            "leave out --allow-sampled to see what is safe to repeat",
        )
        if found.sampled_admitted
        else None,
    ]


def _about_times(found: Rows, summary: dict[str, Any]) -> list[Warn | None]:
    untimed = summary["untimed"]
    tally = found.tally
    order = summary["order"]
    span = summary["span_s"]
    return [
        Warn(
            "unordered",
            "the log has no times: this is an unordered upper bound, in which every line could answer all later lines",
            "add a timestamp field (ISO 8601 or an epoch) to each line",
        )
        if order == "file position"
        else None,
        Warn(
            "partly_unordered",
            f"{untimed:,} of {summary['requests']:,} requests have no time and keep their place in the file",
            "add a timestamp field (ISO 8601 or an epoch) to each line",
        )
        if order == "partly by file position"
        else None,
        Warn("naive_times", f"{tally.naive_times:,} times name no zone and were read as UTC")
        if tally.naive_times
        else None,
        Warn(
            "relative_times",
            f"{found.relative:,} times count from the start of a trace and name no day"
            + ("; they are taken to come before all others" if found.relative < len(found) - untimed else ""),
        )
        if found.relative
        else None,
        Warn("bad_times", f"{tally.bad_times:,} time fields could not be read as a time") if tally.bad_times else None,
        Warn(
            "day_only_times",
            f"{tally.day_only_times:,} times name a day and no time of day: they count as its first second",
            "log the time of day too, in the same field or in one named time",
        )
        if tally.day_only_times
        else None,
        *_about_ties(summary),
        Warn(
            "bad_durations",
            f"{tally.bad_durations:,} durations are negative or over {MAX_DURATION_S / 3600:.0f} hour and were not "
            "used: those requests take the median of the others",
            "check the end times (end_time) and the unit of the durations (latency_ms)",
        )
        if tally.bad_durations
        else None,
        Warn(
            "latency_unknown",
            "no request says how long it took, so each answer counts as there at once: bursts of equal requests "
            "look better than they are",
            "log an end time (end_time) or a duration (latency_ms)",
        )
        if summary["median_latency_s"] is None and summary["cacheable"]
        else None,
        Warn(
            "short_span",
            f"the log spans {span / 3600:.1f} hours: it shows neither the next day's repeats nor a quiet weekend",
            "take a log of a week or more",
        )
        if span is not None and span < SHORT_SPAN_S
        else None,
    ]


def _about_ties(summary: dict[str, Any]) -> list[Warn | None]:
    same = summary["same_instant"]
    exact = summary["tiers"]["exact"]["hits"]
    hint = "log the start of each call to the millisecond"
    return [
        Warn(
            "coarse_times",
            f"{same['hits']:,} of {summary['tiers']['combined']['hits']:,} hits are served by a call of the same time "
            f"({_step(same['step_s'])}), which came first only by the order of the file: this is an upper bound; "
            f"exact matching answers between {same['exact_hits_at_least']:,} and {exact:,}",
            hint,
        )
        if same["hits"]
        else None,
        Warn(
            "same_instant",
            f"{same['misses']:,} requests repeat one of the very same start time and count as misses: by their "
            "durations both were under way at once",
            f"if the times are no start times, these figures are a lower bound: {hint}",
        )
        if same["misses"]
        else None,
    ]


def _step(seconds: float) -> str:
    """Return how a log cuts its times, in words."""
    if seconds < 1:
        return "to the millisecond"
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            n = round(seconds / length)
            return f"cut to the {unit}" if n == 1 else f"cut to {n} {unit}s"
    return "cut to the second"


def _about_dollars(found: Rows, summary: dict[str, Any], models: list[dict[str, Any]]) -> list[Warn | None]:
    unknown = [row for row in models if row["requests_without_price"]]
    without = summary["requests_without_usage"]
    named = [name for name, row in zip(model_names(models), models, strict=True) if row["requests_without_price"]]
    names = ", ".join(named[:5]) + (", ..." if len(named) > 5 else "")
    rows = sum(row["requests_without_price"] for row in unknown)
    return [
        Warn(
            "unknown_models",
            f"{rows:,} requests have no known price and so no dollars here; models: {names}",
            "their tokens are listed by model; give a price with --price MODEL=IN,OUT or --prices FILE",
        )
        if unknown
        else None,
        Warn(
            "no_usage",
            f"{without:,} of {summary['requests']:,} requests carry no token counts that can be used: they are "
            "counted, not priced",
            "log the response's usage; for OpenAI streams send stream_options.include_usage",
        )
        if without
        else None,
        Warn(
            "service_tier",
            f"{found.odd_tiers:,} requests were billed in a special tier (flex, priority, batch): "
            "priced so where the table knows that tier, else at the standard price",
        )
        if found.odd_tiers
        else None,
        Warn("undated_prices", f"{found.undated:,} requests without a date are priced as of today")
        if found.undated
        else None,
    ]


def money_warnings(prices: PriceBook, summary: dict[str, Any]) -> list[Warn]:
    """Return what a reader must know of prices, estimates and the bill."""
    found: list[Warn | None] = []
    for tier, calls in prices.at_standard().items():
        text = (
            f"{calls:,} requests of the service tier {tier!r} are priced at the standard price: no list has that tier"
        )
        found.append(Warn("tier_at_standard", text, "give its prices with --prices FILE"))
    if halved := prices.halved():
        named = ", ".join([model or NO_MODEL for model in halved][:5]) + (", ..." if len(halved) > 5 else "")
        text = (
            f"{sum(halved.values()):,} batch requests are priced at half, as OpenAI and Anthropic bill theirs; that "
            f"nobody vouches for: {named}"
        )
        found.append(Warn("batch_halved", text, 'give their price with --prices FILE, under "tier": "batch"'))
    if unused := prices.unused():
        named = ", ".join(unused)
        hint = "name the model as the log does; the table by model shows how"
        found.append(Warn("price_unused", f"--price names {named}, which no request has", hint))
    estimated = summary["estimated_usage"]
    if estimated and estimated["requests"]:
        spreads = [model["input_spread"] for model in estimated["models"] if model["input_spread"] is not None]
        off = f", off by {percent(max(spreads), 0)} a request at the worst model" if spreads else ""
        uncalibrated = sum(model["requests"] for model in estimated["models"] if model["input_ratio"] is None)
        more = f"; {uncalibrated:,} of them with nothing to calibrate on" if uncalibrated else ""
        text = (
            f"{estimated['requests']:,} requests ({percent(estimated['share'])}) have token counts estimated from "
            f"their texts by {estimated['counter']}{off}{more}"
        )
        found.append(Warn("estimated_usage", text, "log the response's usage to have it exactly"))
    return [warn for warn in (*found, *_about_the_bill(summary["reconciliation"])) if warn is not None]


def _about_the_bill(bill: dict[str, Any] | None) -> list[Warn | None]:
    if bill is None:
        return []
    gap, ratio = bill["gap"], bill["invoice_over_priced"]
    hint = "look at the tiers, the date and the discounts: --prices FILE or --price MODEL=IN,OUT take your own"
    return [
        Warn(
            "prices_differ_from_log",
            f"over {bill['rows']:,} requests our prices give {usd(float(bill['priced_usd']))} where the log says "
            f"{usd(float(bill['logged_usd']))} ({100 * gap:+.1f} %)",
            hint,
        )
        if gap is not None and abs(gap) > GAP
        else None,
        Warn(
            "invoice_differs",
            f"the invoice is {percent(float(ratio), 0)} of what the log's requests cost by our prices",
            "the log may hold a part of the traffic, or another span than the bill; else " + hint,
        )
        if ratio is not None and abs(ratio - 1) > GAP
        else None,
    ]


def _about_reading(found: Rows) -> list[Warn | None]:
    tally = found.tally
    skipped = sum(tally.skipped.values())
    odd = ", ".join(f"{count:,} with {ODDITIES[oddity]}" for oddity, count in tally.repaired.most_common())
    return [
        *(Warn("damaged_log", fault) for fault in tally.faults),
        Warn("skipped_lines", f"{skipped:,} of {tally.lines:,} lines are no call: {told(tally.skipped)}")
        if skipped
        else None,
        Warn("repaired_lines", f"{sum(tally.repaired.values()):,} lines are not strict JSON but were read: {odd}")
        if tally.repaired
        else None,
    ]
