"""Options of `recall savings` that are about money, and the tables and sentences that show it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recall_cli.cli.commands.savings_options import amount
from recall_cli.cli.commands.savings_tables import column
from recall_cli.cli.render.blocks import NONE, Block, Line, count, percent, table
from recall_cli.errors import UsageError
from recall_cli.logs.clean import clean
from recall_cli.measure.savings.wording import percent as share_of
from recall_cli.measure.savings.wording import usd

if TYPE_CHECKING:
    from recall_cli.measure.savings.costs import CostPlan
    from recall_cli.measure.savings.money import MoneyPlan

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
