"""What `recall savings` shows: the tables of the replay, of the tiers and of money, and the pictures of its report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recall_cli.cli.commands.savings_options import amount
from recall_cli.cli.render.blocks import NONE, Block, Line, count, percent, table
from recall_cli.cli.render.svg import OTHER, Bar, BarChart, Chart, LineChart, Point, Series
from recall_cli.errors import UsageError
from recall_cli.logs.report import clean
from recall_cli.logs.times import dated
from recall_cli.measure.judged import Judged
from recall_cli.measure.savings.wording import percent as share_of
from recall_cli.measure.savings.wording import usd, usd_digits
from recall_cli.types import Result

if TYPE_CHECKING:
    from recall_cli.measure.savings.costs import CostPlan
    from recall_cli.measure.savings.money import MoneyPlan

NAMES = {"exact": "exact", "normalised": "+ normalised", "semantic": "+ semantic", "combined": "all, at best"}
"""A row a tier; each holds what it adds to the one before it."""
UNITS = {"d": 86_400, "h": 3_600, "min": 60}


def tier_tables(s: Mapping[str, Any]) -> list[Block]:
    """Return what each tier would have answered, what that is worth, and how far the log vouches for the answers."""
    tiers = {name: s["tiers"][name] for name in NAMES if name in s["tiers"]}
    how, pooled = _how(tiers.get("semantic")), _pooled(s)
    blocks: list[Block] = [
        table(
            f"Answered{how}, of {count(s['cacheable'])} cacheable; low, high: 95 % interval",
            ("", "hits", "hit rate", "low", "high", "walls ignored"),
            [(NAMES[name], *_hits(t), pooled[name]) for name, t in tiers.items()],
        )
    ]
    equal = [(NAMES[name], *_equal(t["answers_equal"])) for name, t in tiers.items() if _compared(t)]
    if equal:
        blocks.append(
            table("Its answers, compared with the logged ones", ("", "hits", "equal", "share", "low", "high"), equal)
        )
    blocks.append(
        table(
            "Tokens and dollars of what it would have answered",
            ("", "input", "output", "$ input", "$ output"),
            [(NAMES[name], count(t["input_tokens"]), count(t["output_tokens"]), *_dollars(t)[:2])
             for name, t in tiers.items()],
        )
    )  # fmt: skip
    blocks.append(
        table(
            "Dollars saved; low, high: 90 % interval",
            ("", "$ saved", "low", "high", "of all spent"),
            [(NAMES[name], *_dollars(t)[2:], _share(t, s["spend_usd"])) for name, t in tiers.items()],
        )
    )
    return [*blocks, *map(Line, (*_judged(tiers.get("semantic", {})), *_walls(s), *_sample(s)))]


def replay_tables(s: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the sweeps and the cold start: of the keys, without neighbours, where there is anything to see."""
    if not s["tiers"]["combined"]["hits"]:
        return
    kinds = "exact and normalised matching" if "normalised" in s["tiers"] else "exact matching"
    if s["ttl"]:
        yield table(
            f"By lifetime of an answer ({kinds})",
            ("kept for", "hits", "hit rate", "$ saved"),
            [(_lifetime(row["ttl_s"]), *cells) for row, cells in zip(s["ttl"], _sweep(s["ttl"]), strict=True)],
        )
    if s["capacity"]:
        sizes = ["all" if row["entries"] is row["bytes"] is None else _size(row) for row in s["capacity"]]
        held = [size_of(row["held_bytes"]) for row in s["capacity"]]
        yield table(
            f"By size; the least recently used goes first ({kinds})",
            ("entries", "about", "hits", "hit rate", "$ saved"),
            [(size, about, *cells) for size, about, cells in zip(sizes, held, _sweep(s["capacity"]), strict=True)],
        )
    cold = s["cold_start"]
    if cold is not None:
        yield table(
            f"By sixth of the {'span' if cold['by'] == 'time' else 'requests'}: a cache starts empty",
            ("sixth", "cacheable", "hits", "hit rate", "low", "high"),
            [(str(at), count(part["n"]), *_hits(part)) for at, part in enumerate(cold["sixths"], start=1)]
            + [("last three", count(cold["steady"]["n"]), *_hits(cold["steady"]))],
        )


def _how(semantic: Mapping[str, Any] | None) -> str:
    if semantic is None:
        return ""
    return " by the adaptive policy" if semantic["tau"] is None else f" at tau {semantic['tau']:g}"


def _hits(t: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = t["hit_rate_interval"] if t["n"] else (None, None)
    return count(t["hits"]), percent(t["hit_rate"]), percent(low), percent(high)


def _pooled(s: Mapping[str, Any]) -> dict[str, str]:
    """Return the hits of each tier if prompts met across tenants, models and system prompts."""
    cells, before = {}, 0
    for name in NAMES:
        if name in s["tiers"] and name != "combined":
            total = s["pooled"].get(name)
            cells[name] = count(None if total is None else total - before)
            before = before if total is None else total
    return cells | {"combined": NONE if NONE in cells.values() else count(before)}


def _judged(semantic: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the semantic tier learnt, and what rules make of its answers."""
    unsure = semantic.get("unlabelled", 0)
    if semantic.get("policy") == "adaptive":
        yield (
            f"The adaptive policy learnt from {count(semantic['labels'])} logged answers, for at most "
            f"{percent(semantic['target'], 1)} wrong, and checked {count(semantic['audits'])} hits: each costs a call."
            + (f" {count(unsure)} more answers could not be judged and are no label." if unsure else "")
        )
    found = semantic.get("judged")
    if found and found["n"]:
        said = Judged(found["same"], found["different"], found["unsure"])
        yield (
            f"Of {count(found['n'])} semantic answers, compared by rules with the logged ones, {count(found['same'])} "
            f"say the same, {count(found['different'])} another thing, {count(found['unsure'])} cannot be told. "
            f"Share that is wrong: {said.said()}."
        )


def _sample(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a sample stands for."""
    sample = s["sample"]
    if sample is not None:
        saved = sample["saved_usd_of_all"]
        low, high = map(usd, sample["saved_usd_interval_of_all"])
        yield (
            f"Measured: {percent(sample['share'])} of the namespaces, {percent(sample['requests_share'])} of the "
            f"requests. All of them would have spent about {usd(sample['spend_usd_of_all'])}, and saved {usd(saved)} "
            f"[{low}, {high}]."
        )


def _walls(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what ignoring the walls would seem to add."""
    total = max(s["pooled"].values(), default=0)
    hits = s["tiers"]["combined"]["hits"]
    if NONE not in _pooled(s).values() and total > hits:
        yield (
            f"A count of prompts alone would read {count(total)} hits instead of {count(hits)}: the last column, where "
            "tenants, models, system prompts, earlier turns and parameters are ignored. No cache may serve those."
        )


def _compared(t: Mapping[str, Any]) -> bool:
    return bool(t.get("answers_equal", {"n": 0})["n"])


def _equal(found: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = found["interval"]
    return count(found["n"]), count(found["equal"]), percent(found["share"]), percent(low), percent(high)


def _priced(t: Mapping[str, Any]) -> bool:
    return bool(t["hits"] > t["hits_without_price"])


def _dollars(t: Mapping[str, Any]) -> list[str]:
    """Return the dollars of a tier: input, output, saved, and the interval of that; dashes when there is no sum."""
    amounts = [t["usd_input"], t["usd_output"], t["usd"], *t["usd_interval"]]
    return column(amounts if _priced(t) else [None] * len(amounts))


def _share(t: Mapping[str, Any], spend: float) -> str:
    return percent(t["usd"] / spend if _priced(t) and spend else None)


def _sweep(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    saved = column([row["usd"] or None for row in rows])
    for row, cell in zip(rows, saved, strict=True):
        yield count(row["hits"]), percent(row["hit_rate"]), cell


def _lifetime(seconds: float | None) -> str:
    """Return a lifetime as it is written with --ttl."""
    if seconds is None:
        return "ever"
    unit, length = next(((unit, n) for unit, n in UNITS.items() if seconds >= n), ("s", 1))
    return f"{seconds / length:g} {unit}"


def _size(row: Mapping[str, Any]) -> str:
    return count(row["entries"]) if row["bytes"] is None else size_of(row["bytes"])


def size_of(n: int) -> str:
    """Return bytes in the unit that fits them."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= length:
            return f"{n / length:,.1f} {unit}"
    return f"{n} B"


def column(amounts: Sequence[float | None]) -> list[str]:
    """Return a column of dollars, with as many decimals as its largest needs."""
    digits = usd_digits(amounts)
    return [NONE if amount is None else usd(amount, digits) for amount in amounts]


def duration(seconds: float) -> str:
    """Return a span of time in the unit that fits it."""
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


DAY_S = 86_400
TICKS = 6
MAX_BARS = 8
CHART_NAMES = {"exact": "exact keys", "normalised": "normalised keys", "semantic": "the semantic tier",
         "combined": "all tiers, if every answer holds"}  # fmt: skip
"""Of each tier; all but the last stand for what they add to the ones before them."""
COLOURS = {"exact": 0, "normalised": 3, "semantic": 1, "combined": 2}


def charts(result: Result, reasons: Mapping[str, str]) -> list[Chart]:
    """Return the charts that the result has figures for.

    :param reasons: what each reason for an exclusion is called.
    """
    s = result.summary
    found: list[Chart] = []
    if s["cacheable"]:
        found.append(_tiers(s))
    if s["spend_usd"]:
        found.append(_spend(s, reasons))
    if len([part for part in s["over_time"] if part["n"]]) > 1:
        found.append(_over_time(s["over_time"]))
    if len(s["capacity"]) > 1 and s["tiers"]["combined"]["hits"]:
        found.append(_misses(s["capacity"]))
    return found


def _tiers(s: Mapping[str, Any]) -> BarChart:
    tiers = {name: s["tiers"][name] for name in CHART_NAMES if name in s["tiers"]}
    if any(tier["usd"] for tier in tiers.values()):
        digits = usd_digits(tier["usd"] for tier in tiers.values())
        sums = [Bar(CHART_NAMES[name], t["usd"], _pair(t["usd_interval"]), COLOURS[name]) for name, t in tiers.items()]
        note = f"Of {usd(s['spend_usd'])} spent; each tier adds to the one before it. Whiskers: 90 % intervals."
        return BarChart("Saved by tier", tuple(sums), lambda value: usd(value, digits), note=note)
    rates = [
        Bar(CHART_NAMES[name], t["hit_rate"] or 0.0, _pair(t["hit_rate_interval"]), COLOURS[name])
        for name, t in tiers.items()
    ]
    note = f"Of {count(s['cacheable'])} cacheable requests. No dollars: no price is known, or nothing is saved."
    return BarChart("Answered by tier", tuple(rates), _percent, note=note)


def _spend(s: Mapping[str, Any], reasons: Mapping[str, str]) -> BarChart:
    """Return where the dollars go: saved, missed, kept out and why."""
    answered = [(f"answered by {CHART_NAMES[name]}", s["tiers"][name]["usd"], COLOURS[name])
                for name in CHART_NAMES if name in s["tiers"] and name != "combined"]  # fmt: skip
    out = [(reasons.get(reason, reason), group["usd"]) for reason, group in s["excluded"].items()]
    missed = s["spend_usd"] - sum(part[1] for part in answered) - sum(amount for _, amount in out)
    parts = [
        *answered,
        ("cacheable, and not answered before", max(0.0, missed), OTHER),
        *((f"kept out: {name}", amount, OTHER) for name, amount in out),
    ]
    # What is left of sums that were rounded is no part of the spend.
    digits = usd_digits(part[1] for part in parts)
    shown = [part for part in parts if part[1] >= 10.0**-digits / 2]
    rest = shown[MAX_BARS:]
    if rest:
        shown = [*shown[:MAX_BARS], ("kept out: other reasons", sum(part[1] for part in rest), OTHER)]
    bars = tuple(Bar(name, amount, None, colour) for name, amount, colour in shown)
    return BarChart("Where the spend goes", bars, lambda value: usd(value, digits))


def _over_time(parts: Sequence[Mapping[str, Any]]) -> LineChart:
    width = parts[1]["start"] - parts[0]["start"]
    middle = [part["start"] + width / 2 for part in parts]
    named = [f"{moment(part['start'])}, {count(part['n'])} requests" for part in parts]
    rates = [Point(at, part["hit_rate"], _pair(part["hit_rate_interval"]), name)
             for at, part, name in zip(middle, parts, named, strict=True)]  # fmt: skip
    keys = [Point(at, part["hit_rate_exact"], None, name)
            for at, part, name in zip(middle, parts, named, strict=True)]  # fmt: skip
    every = Series("all tiers", tuple(rates), COLOURS["combined"])
    exact = Series("exact keys alone", tuple(keys), COLOURS["exact"])
    days = width * len(parts) >= 2 * DAY_S
    step = max(1, len(parts) // TICKS)
    ticks = tuple((middle[at], moment(parts[at]["start"], days=days)) for at in range(0, len(parts), step))
    clock = "UTC" if dated(parts[0]["start"]) else "from the start of the trace"
    note = f"Cacheable requests in 24 equal parts of the span, {clock}. The band shows how few requests a point has."
    return LineChart("Hit rate over time", (every, exact), ticks, _percent, note=note)


def _misses(sweep: Sequence[Mapping[str, Any]]) -> LineChart:
    """Return the miss ratio of keys by the size of the cache, on a scale of powers."""
    known = sorted((row["held_bytes"], 1 - row["hit_rate"]) for row in sweep if row["hit_rate"] is not None)
    points = tuple(Point(math.log10(max(1, held)), miss, None, size_of(held)) for held, miss in known)
    ticks = tuple((point.x, point.label) for point in points)
    note = (
        "Of cacheable requests, keys alone; the least recently used answer goes first. The last point holds them all."
    )
    return LineChart("Miss ratio by size of the cache", (Series("misses", points),), ticks, _percent, note=note)


def moment(seconds: float, *, days: bool | None = None) -> str:
    """Return a time (UTC): its day and minute, or the one of them that tells points apart.

    A time that counts from the start of a trace is told as such.
    """
    if not dated(seconds):
        return f"{seconds / DAY_S:.1f} days" if days else f"{seconds / 60:.0f} min"
    form = "%Y-%m-%d %H:%M" if days is None else "%b %d" if days else "%H:%M"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _pair(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0], interval[1])


def _percent(value: float) -> str:
    shown = 100 * value
    return f"{shown:.0f} %" if shown == round(shown) else f"{shown:.1f} %"


MONEY = "Money"
TIERS = ("exact", "normalised", "semantic")
SHOWN = 8
"""Groups of a kind listed on a terminal."""
EXAMPLE, MAX_EXAMPLE = 48, 200
"""Letters of a prompt shown on a terminal, and on a page."""


def _amount(flag: str, variable: str, metavar: str, help: str) -> Any:
    return typer.Option(
        flag, envvar=f"RECALL_{variable}", metavar=metavar, help=help, parser=amount, rich_help_panel=MONEY
    )


Prices = Annotated[
    str,
    typer.Option(
        "--prices",
        envvar="RECALL_PRICES",
        metavar="FILE",
        rich_help_panel=MONEY,
        help="Prices to use before the bundled ones: LiteLLM's model_prices JSON, or "
        '{"source": ..., "date": ..., "prices": [{"model", "input", "output", "cache_read", "cache_write", '
        '"cache_write_1h", "tier", "from", "above"}]} in dollars per million tokens.',
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        envvar="RECALL_PRICE",
        metavar="MODEL=IN,OUT[,READ,WRITE]",
        rich_help_panel=MONEY,
        help="Dollars per million tokens of one model; may be given several times, and wins over --prices. "
        "(no model) stands for calls that name none.",
    ),
]
EmbedPrice = Annotated[
    Decimal | None, _amount("--embed-price", "EMBED_PRICE", "USD", "Of a million tokens embedded by an API.")
]
CpuPrice = Annotated[
    Decimal | None, _amount("--cpu-price", "CPU_PRICE", "USD", "Of an hour of one core that embeds on your machine.")
]
VerifyOnHit = Annotated[
    str,
    typer.Option(
        "--verify-on-hit",
        envvar="RECALL_VERIFY_ON_HIT",
        metavar="USD|evidence|none|model",
        rich_help_panel=MONEY,
        help="What a semantic hit must pass: evidence (the default of static), none, model; or in dollars, "
        "of a judge's check.",
        show_default=False,
    ),
]
LOCAL = ("auto", "evidence", "none", "model")
"""Second opinions that cost no dollars a check: the other values of --verify-on-hit are amounts."""
FalseHitRate = Annotated[
    Decimal | None,
    _amount("--false-hit-rate", "FALSE_HIT_RATE", "0..1", "Share of semantic hits taken to be wrong."),
]
FalseHitCost = Annotated[
    Decimal | None,
    _amount("--false-hit-cost", "FALSE_HIT_COST", "USD", "Harm of one wrong answer, beyond the call paid again."),
]
Invoice = Annotated[
    Decimal | None, _amount("--invoice", "INVOICE", "USD", "What was billed for the log's span, to compare with.")
]
Monthly = Annotated[
    bool,
    typer.Option(
        "--monthly",
        envvar="RECALL_MONTHLY",
        help="Give a figure a month also from a log of under a day.",
        rich_help_panel=MONEY,
    ),
]
CountTokens = Annotated[
    bool,
    typer.Option(
        "--count-tokens",
        envvar="RECALL_COUNT_TOKENS",
        help="Count missing tokens with a tokenizer (extra `tokens`) instead of by their characters.",
        rich_help_panel=MONEY,
    ),
]
NoText = Annotated[
    bool, typer.Option("--no-text", envvar="RECALL_NO_TEXT", help="Show no prompt of the log, not even one a cluster.")
]


def cost_plan(
    embed_price: Decimal | None,
    cpu_price: Decimal | None,
    verify_sample: Decimal | None,
    verify_on_hit: str,
    false_hit_rate: Decimal | None,
    false_hit_cost: Decimal | None,
) -> CostPlan:
    """Return what the flags say of costs. Raises UsageError when one makes no sense."""
    from recall_cli.measure.savings.costs import CostPlan

    none = Decimal(0)
    try:
        judge = none if verify_on_hit in LOCAL else Decimal(verify_on_hit)
    except ArithmeticError:
        hint = "give dollars, as in 0.002, or one of evidence, none, model"
        raise UsageError(f"--verify-on-hit {verify_on_hit!r} is no amount", hint=hint) from None
    return CostPlan(embed_price, cpu_price, verify_sample or none, judge, false_hit_rate, false_hit_cost or none)


def money_plan(prices: str, price: Sequence[str] | None, costs: CostPlan, **more: Any) -> MoneyPlan:
    """Return what the flags say of money. Raises UsageError when one makes no sense."""
    from recall_cli.measure.savings.money import MoneyPlan

    return MoneyPlan(prices, tuple(price or ()), costs, **more)


def money_blocks(summary: Mapping[str, Any], models: int, *, whole: bool) -> Iterator[Block]:
    """Yield what a report says of costs, a month, the bill, groups and clusters.

    :param whole: every group and whole prompts, instead of what a terminal has room for.
    """
    semantic = summary["tiers"].get("semantic")
    if semantic and semantic["hits"] and semantic["usd"]:
        yield _costs(summary["cache_costs"], summary["saved_usd"], semantic["usd"])
        yield Line(_break_even(summary["cache_costs"]))
    if summary["saved_usd"]:
        yield from _monthly(summary["monthly"])
    if summary["reconciliation"]:
        yield from _bill(summary["reconciliation"])
    if summary["clusters"]["n"]:
        yield _clusters(summary["clusters"], MAX_EXAMPLE if whole else EXAMPLE)
    for kind, title in (("tenant", "By tenant"), ("namespace", "By namespace"), ("hour", "By hour of the day (UTC)")):
        group = summary["groups"].get(kind, [])
        # A model with one system prompt is one namespace: the table by model says it already.
        repeats = kind == "namespace" and len(group) == models
        if group and not repeats and (whole or kind != "hour"):
            yield _group(kind, title, group if whole else group[:SHOWN])
            if not whole and len(group) > SHOWN:
                yield Line(
                    f"{count(len(group) - SHOWN)} more are in the document (--out FILE) and the page (--report)."
                )


def price_lines(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the prices come from."""
    named = [
        " ".join(part for part in (one["name"], one["version"], f"of {one['date']}" if one["date"] else "") if part)
        + (f" ({count(one['requests'])} requests)" if len(source["lists"]) > 1 else "")
        for one in source["lists"]
    ]
    yield f"Prices: {'; '.join(named)}."


def _costs(c: Mapping[str, Any], saved: float, semantic: float) -> Block:
    cells = column([saved, semantic, c["embed_usd"], c["verify_sample_usd"], c["judge_usd"], c["false_hits_usd"],
                    c["total_usd"], c["saved_net_usd"]])  # fmt: skip
    names = ("saved by all tiers", "  of it by the semantic tier", "embedding", "sampled hits answered by the model",
             "a judge's check of each hit", "false hits", "costs together", "saved after costs")  # fmt: skip
    # A minus sign, where costs eat more than is saved, stands before the dollar.
    rows = [(name, cell.replace("$-", "-$")) for name, cell in zip(names, cells, strict=True)]
    return table("What the semantic tier takes (a dash: no price named)", ("", "$"), rows)


def _break_even(c: Mapping[str, Any]) -> str:
    cpu = f"Embedding takes {c['embed_cpu_s']:,.3g} CPU seconds for {count(c['lookups_embedded'])} look-ups. "
    rate = c["break_even_false_hit_rate"]
    if rate is None:
        return cpu.rstrip()
    if c["false_hit_cost_usd"]:
        harm = usd(c["false_hit_cost_usd"])
        return f"{cpu}At {harm} of harm a wrong answer the semantic tier breaks even at {share_of(rate)} false hits."
    bearable = usd(c["bearable_harm_usd_at_1_percent"])
    return f"{cpu}With 1 % false hits the semantic tier pays while a wrong answer does under {bearable} of harm."


def _monthly(m: Mapping[str, Any]) -> Iterator[Block]:
    if m["reason"]:
        yield Line(f"No figure a month: {m['reason']}.")
        return
    ways = (("same corpus, cache warm", m["same_corpus"]), ("with growth, as in the log", m["with_growth"]))
    rows = [(name, *column([way["spend_usd"], way["saved_usd"], *way["saved_usd_interval"]])) for name, way in ways]
    title = "A month at this traffic, if every answer holds; low, high: 90 % interval"
    yield table(title, ("", "spent", "saved", "low", "high"), rows)
    days = m["window"]["span_s"] / 86_400
    yield Line(
        f"Same corpus: the prompts stay those of the log, as in its last {days:.1f} days, after the warm-up. With "
        f"growth: they go on changing, cold start included.{' Less than a day was seen.' if m['forced'] else ''}"
    )


def _bill(bill: Mapping[str, Any]) -> Iterator[Block]:
    if bill["rows"]:
        yield Line(
            f"Logged costs: our prices give {usd(bill['priced_usd'])} for {count(bill['rows'])} requests that the log "
            f"says cost {usd(bill['logged_usd'])}; {count(bill['rows_differing'])} differ by over 1 %."
        )
    if left := bill["logged_without_price"]["rows"]:
        cost = usd(bill["logged_without_price"]["usd"])
        yield Line(f"{count(left)} more requests have a logged cost ({cost}) and no price here.")
    if bill["invoice_usd"] is not None and bill["saved_usd_at_invoice"] is not None:
        yield Line(
            f"Invoice: {usd(bill['invoice_usd'])} is {share_of(bill['invoice_over_priced'])} of our sum; in that ratio "
            f"{usd(bill['saved_usd_at_invoice'])} would be saved."
        )


def _clusters(c: Mapping[str, Any], longest: int) -> Block:
    saved = column([one["saved_usd"] for one in c["top"]])
    shown = any(one["example"] for one in c["top"])
    rows = [
        (_clipped(one["example"] or NONE, longest) if shown else f"line {one['line']}", count(one["hits"]), cell)
        for one, cell in zip(c["top"], saved, strict=True)
    ]
    share = "" if c["top_share_of_saved"] is None else f", {percent(c['top_share_of_saved'])} of all saved"
    some = f"The {len(rows)} of {count(c['n'])} answers" if c["n"] > len(rows) else f"All {len(rows)} answers"
    return table(f"{some} that would be served most{share}", ("first asked as", "hits", "saved"), rows)


def _clipped(words: str, longest: int) -> str:
    return words if len(words) <= longest else words[: longest - 1] + "…"


def _name(kind: str, name: str) -> str:
    """Return a group's name for people; a tenant is a list of the fields that tell it apart and their values."""
    if kind != "tenant" or not name.startswith("[["):
        return name or "(none)"
    try:
        return clean(", ".join(f"{field} {value}" for field, value in json.loads(name)))
    except (ValueError, TypeError):
        return name


def _group(kind: str, title: str, group: Sequence[Mapping[str, Any]]) -> Block:
    spent, saved = column([r["spend_usd"] for r in group]), column([r["saved_usd"] or None for r in group])
    rows = [
        (_name(kind, row[kind]), count(row["requests"]), count(sum(row[f"hits_{tier}"] for tier in TIERS)), a, b)
        for row, a, b in zip(group, spent, saved, strict=True)
    ]
    return table(title, (kind, "requests", "hits", "spent", "saved"), rows)
