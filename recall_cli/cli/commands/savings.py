"""`recall savings`: what a cache would have saved on the traffic of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.commands import savings_view as money
from recall_cli.cli.commands.savings_options import (
    Capacity,
    Confidence,
    Fields,
    LogFormat,
    PolicyName,
    Sample,
    Target,
    Tiers,
    Ttl,
    VerifySample,
    named_columns,
)
from recall_cli.cli.commands.savings_view import charts, column, duration, replay_tables, tier_tables
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, Line, count, percent, table
from recall_cli.cli.render.html import Page
from recall_cli.logs.report import words
from recall_cli.measure.savings.wording import REASONS, model_names, usd
from recall_cli.types import Result

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Files, folders or patterns of any known log format; .gz and .zst too; - is stdin.",
        show_default=False,
    ),
]


def savings(
    logs: Logs,
    log_format: LogFormat = "",
    fields: Fields = None,
    tau: options.Tau = 0.8,
    embedder: options.Embedder = "static",
    allow_sampled: options.AllowSampled = False,
    tiers: Tiers = "exact,normalised,semantic",
    policy: PolicyName = "static",
    target: Target = 0.01,
    confidence: Confidence = 0.9,
    verify_sample: VerifySample = None,
    ttl: Ttl = "5m,1h,1d,7d,inf",
    capacity: Capacity = "100,1000,10000,100000,1000000,inf",
    sample: Sample = 1.0,
    no_text: money.NoText = False,
    prices: money.Prices = "",
    price: money.Price = None,
    embed_price: money.EmbedPrice = None,
    cpu_price: money.CpuPrice = None,
    verify_on_hit: money.VerifyOnHit = "auto",
    false_hit_rate: money.FalseHitRate = None,
    false_hit_cost: money.FalseHitCost = None,
    invoice: money.Invoice = None,
    monthly: money.Monthly = False,
    count_tokens: money.CountTokens = False,
    seed: options.Seed = 0,
    format: options.Format = options.FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
    report: options.Report = None,
) -> None:
    """Say what an exact and a semantic cache would have saved on the traffic of a log.

    Example: recall savings requests.jsonl.gz --tau 0.9 --out savings.json

    The format is found out: --log-format names the known ones. One line of the
    simplest, broken here to fit (a pair of Anthropic messages does as well):

    {"timestamp":"2026-01-05T09:00:00Z","request":{"model":"gpt-4o",
    "temperature":0,"messages":[{"role":"user","content":"Hi"}]},
    "response":{"choices":[{"message":{"content":"Hello!"},
    "finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}}
    """
    from recall_cli.measure.savings.savings import SavingsPlan, run
    from recall_cli.measure.store_logs import spooled

    costs = money.cost_plan(embed_price, cpu_price, verify_sample, verify_on_hit, false_hit_rate, false_hit_cost)
    # The file that standard input comes from is read too.
    read = ["/dev/stdin" if log == "-" else log for log in logs] + ([prices] if prices else [])
    with Output(format, json, out, report=report, inputs=read) as output, spooled(logs) as files:
        plan = SavingsPlan(
            files,
            log_format=log_format,
            fields=named_columns(fields or []),
            tau=tau,
            embedder=embedder,
            allow_sampled=allow_sampled,
            tiers=tiers,
            policy=policy,
            target=target,
            confidence=confidence,
            verify_sample=0.05 if verify_sample is None else float(verify_sample),
            verify_on_hit=verify_on_hit if verify_on_hit in money.LOCAL else "auto",
            ttl=ttl,
            capacity=capacity,
            sample=sample,
            seed=seed,
            money=money.money_plan(
                prices, price, costs, invoice=invoice, monthly=monthly, count_tokens=count_tokens, text=not no_text
            ),
        )
        result = run(plan, progress=output.progress)
        result.params["logs"] = logs
        output.emit(result, view, PAGE)


def view(result: Result) -> list[Block]:
    """Return the tables of a savings report, and its verdict last."""
    return [*_tables(result, whole=False), Line(""), Line(result.summary["verdict"])]


def _tables(result: Result, *, whole: bool) -> list[Block]:
    """Return all tables, or those that a terminal has room for."""
    s = result.summary
    blocks: list[Block] = [Line(_opening(s))]
    if s["cacheable"]:
        blocks += tier_tables(s)
    if s["exact_hits_displaced"]:
        blocks.append(Line(_displaced(s)))
    if s["to_check"]:
        blocks.append(Line(_to_check(len(s["to_check"]))))
    if s["excluded"]:
        blocks.append(_excluded(s))
    if s["skipped"]:
        blocks.append(_skipped(s))
    if s["cacheable"]:
        blocks += replay_tables(s)
    blocks += [_models(result), _tokens(result), *money.money_blocks(s, len(result.rows), whole=whole)]
    return [*blocks, *map(Line, _basis(s))]


PAGE = Page(
    "What a cache would save on this traffic",
    lambda result: str(result.summary["verdict"]),
    lambda result: _tables(result, whole=True),
    lambda result: charts(result, REASONS),
)


def _opening(s: Mapping[str, Any]) -> str:
    span = "" if s["span_s"] is None else f" over {duration(s['span_s'])}"
    order = {"time": "in time order", "file position": "by file position"}.get(
        s["order"], "in time order as far as known"
    )
    spent = ""
    if s["priced_requests"]:
        some = s["priced_requests"] < s["requests"]
        priced = f" on the {count(s['priced_requests'])} with a known price" if some else ""
        spent = f" Spent: {usd(s['spend_usd'])}{priced}."
    return f"{count(s['requests'])} requests{span}, replayed {order}; {count(s['cacheable'])} can be cached.{spent}"


def _formats(s: Mapping[str, Any]) -> str:
    """Return which formats the records came in, and what came second where that was close."""
    found = ", ".join(f"{name} ({count(rows)} requests)" for name, rows in s["formats"].items())
    merged = sum(s["merged"].values())
    parts = f" {count(merged)} lines were parts of other lines' calls." if merged else ""
    close = sorted({
        f"{entry['runner_up']} in {entry['file']}"
        for entry in s["sniffed"] if 2 * entry["runner_up_score"] > entry["score"]
    })  # fmt: skip
    doubt = f" Next likely: {', '.join(close[:3])}; --log-format NAME decides." if close else ""
    return f"Read as: {found}.{parts}{doubt}"


def _displaced(s: Mapping[str, Any]) -> str:
    return (
        "Matching more than equal requests has a cost too: "
        f"{count(s['exact_hits_displaced'])} requests that exact matching answers as logged get another stored answer "
        "once it is on."
    )


def _to_check(n: int) -> str:
    pairs = f"{n} pairs of requests" if n > 1 else "1 pair of requests"
    return (
        f"{pairs} whose semantic answer differs from the logged one, to check by hand: their line numbers are in the "
        "document (--out FILE), under to_check."
    )


def _excluded(s: Mapping[str, Any]) -> Block:
    groups = s["excluded"]
    spent = column([group["usd"] or None for group in groups.values()])
    rows = [
        (REASONS.get(reason, reason), count(group["requests"]), cell)
        for (reason, group), cell in zip(groups.items(), spent, strict=True)
    ]
    return table("What no cache may answer, and why", ("reason", "requests", "spent"), rows)


def _skipped(s: Mapping[str, Any]) -> Block:
    most = sorted(s["skipped"].items(), key=lambda reason: (-reason[1], reason[0]))
    return table(
        f"Of {count(s['lines'])} lines, those that are no call, and why",
        ("reason", "lines"),
        [(words(reason), count(n)) for reason, n in most],
    )


def _models(result: Result) -> Block:
    rows = result.rows
    spent = column([row["spend_usd"] for row in rows])
    saved = column([row["saved_usd"] or None for row in rows])
    hits = [count(row["hits_exact"] + row["hits_normalised"] + row["hits_semantic"]) for row in rows]
    requests = [count(row["requests"]) for row in rows]
    cells = zip(model_names(rows), requests, hits, spent, saved, strict=True)
    return table(
        "By model; hits and saved are of all tiers", ("model", "requests", "hits", "spent", "saved"), list(cells)
    )


def _tokens(result: Result) -> Block:
    rows = [
        (name, *(count(row[key]) for key in ("input_tokens", "cached_input_tokens", "output_tokens")))
        for name, row in zip(model_names(result.rows), result.rows, strict=True)
    ]
    return table("Tokens by model, hit or not", ("model", "input", "of it cached", "output"), rows)


def _basis(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the dollars rest on: formats, prices, how input tokens were read, what cached input does to them."""
    yield _formats(s)
    if s["priced_requests"]:
        yield from money.price_lines(s["price_source"])
    if s["spend_usd"]:
        share = percent(s["spend_usd_input"] / s["spend_usd"])
        yield f"Of the {usd(s['spend_usd'])} spent {share} went for input tokens, the rest for output."
    read = "; ".join(
        f"{provider} {how} ({count(rows)} requests)"
        for provider, ways in s["usage_read"].items()
        for how, rows in ways.items()
    )
    if read:
        yield f"How input tokens were read (inclusive: cached ones are counted in): {read}."
    saved, naive = usd(s["saved_usd"]), usd(s["saved_usd_naive"])
    if saved != naive:
        yield (
            f"Cached input is priced at the provider's discount: at the full input price the {saved} of all tiers "
            f"would read {naive}."
        )
