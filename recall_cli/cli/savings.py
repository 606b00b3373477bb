"""`recall savings`: what a cache would have saved on the traffic of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.blocks import NONE, Block, Line, count, dollars, percent, table
from recall_cli.cli.render import Output
from recall_cli.types import Result

REASONS = {
    "sampled": "sampled: temperature unset or above 0",
    "tools": "tools offered in the request",
    "tool_calls": "answer calls tools",
    "tool_result": "last turn is a tool result",
    "last_turn_not_user": "last turn is not the user's",
    "media": "images, files or audio",
    "server_state": "relies on state at the provider",
    "truncated": "answer cut off by a token limit",
    "stream_cut_off": "stream without its end",
    "refusal": "answer refused or filtered",
    "error": "failed call",
    "no_answer": "no answer in the log",
    "answer_unreadable": "answer not readable",
    "empty_answer": "empty answer",
    "already_cached": "already served by a cache",
}

Log = Annotated[
    str, typer.Argument(metavar="LOG", help="JSON Lines of request/response pairs; .gz and .zst too; - is stdin.")
]
AllowSampled = Annotated[
    bool,
    typer.Option(
        "--allow-sampled",
        envvar="RECALL_ALLOW_SAMPLED",
        help="Count calls at a temperature unset or above 0 as cacheable too.",
    ),
]


def savings(
    log: Log,
    tau: options.Tau = 0.8,
    embedder: options.Embedder = "static",
    allow_sampled: AllowSampled = False,
    seed: options.Seed = 0,
    format: options.Format = options.FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Say what an exact and a semantic cache would have saved on the traffic of a log."""
    from recall_cli.measure.savings import Plan, run

    with Output(format, json, out) as output:
        plan = Plan(log, tau=tau, embedder=embedder, allow_sampled=allow_sampled, seed=seed)
        output.emit(run(plan, progress=output.progress), view)


def view(result: Result) -> list[Block]:
    """Return the tables of a savings report, and its verdict last."""
    s = result.summary
    blocks: list[Block] = [Line(_opening(s)), _tiers(s)]
    if s["excluded"]:
        blocks.append(_excluded(s))
    return [*blocks, _models(result), Line(_basis(s)), Line(""), Line(s["verdict"])]


def _opening(s: Mapping[str, Any]) -> str:
    span = "" if s["span_s"] is None else f" over {_duration(s['span_s'])}"
    order = "in time order" if s["order"] == "time" else f"by {s['order'].removeprefix('partly by ')}"
    return f"{count(s['requests'])} requests{span}, replayed {order}; {count(s['cacheable'])} can be cached."


def _tiers(s: Mapping[str, Any]) -> Block:
    tiers = [s["tiers"][name] for name in ("exact", "semantic", "combined")]
    rates = [t["hit_rate_interval"] if t["n"] else None for t in tiers]
    digits = _digits(s)
    rows = [
        ("hits", *(count(t["hits"]) for t in tiers)),
        ("hit rate", *(percent(t["hit_rate"]) for t in tiers)),
        ("  90 %: from", *(percent(r[0]) if r else NONE for r in rates)),
        ("  90 %: to", *(percent(r[1]) if r else NONE for r in rates)),
        ("input tokens", *(count(t["input_tokens"]) for t in tiers)),
        ("output tokens", *(count(t["output_tokens"]) for t in tiers)),
        ("$ input", *(dollars(t["usd_input"], digits) for t in tiers)),
        ("$ output", *(dollars(t["usd_output"], digits) for t in tiers)),
        ("$ saved", *(dollars(t["usd"], digits) for t in tiers)),
        ("  90 %: from", *(dollars(t["usd_interval"][0], digits) for t in tiers)),
        ("  90 %: to", *(dollars(t["usd_interval"][1], digits) for t in tiers)),
    ]
    tau = s["tiers"]["semantic"]["tau"]
    title = f"What a cache would have answered, tau {tau:g}"
    return table(title, ("", "exact", "semantic adds", "together"), rows)


def _digits(s: Mapping[str, Any]) -> int:
    """Return decimals for dollars: as many as the log's spend needs, the same in every table."""
    return 2 if s["spend_usd"] >= 100 else 4 if s["spend_usd"] >= 1 else 6


def _excluded(s: Mapping[str, Any]) -> Block:
    rows = [
        (REASONS.get(reason, reason), count(group["requests"]), dollars(group["usd"], _digits(s)))
        for reason, group in s["excluded"].items()
    ]
    return table("What no cache may answer, and why", ("reason", "requests", "spent"), rows)


def _models(result: Result) -> Block:
    digits = _digits(result.summary)
    rows = [
        (
            (row["model"] or "(no model)") + (" (no known price)" if row["requests_without_price"] else ""),
            count(row["requests"]),
            count(row["hits_exact"] + row["hits_semantic"]),
            count(row["input_tokens"]),
            count(row["output_tokens"]),
            dollars(row["spend_usd"], digits),
            dollars(row["saved_usd"], digits),
        )
        for row in result.rows
    ]
    columns = ("model", "requests", "hits", "tokens in", "tokens out", "spent", "saved")
    return table("By model", columns, rows)


def _basis(s: Mapping[str, Any]) -> str:
    """Return what the dollars rest on: prices, how input tokens were read, what a naive count would say."""
    source, digits = s["price_source"], _digits(s)
    read = "; ".join(
        f"{provider} input tokens read as {how} of cached ones ({count(rows)} requests)"
        for provider, ways in s["usage_read"].items()
        for how, rows in ways.items()
    )
    saved, spent, naive = (dollars(s[name], digits) for name in ("saved_usd", "spend_usd", "saved_usd_naive"))
    total = f"Saved {saved} of {spent} spent ({percent(s['saved_share'])}); {naive} with cached input at full price. "
    return f"{total}Prices: {source['name']} {source['version']}" + (f"; {read}." if read else ".")


def _duration(seconds: float) -> str:
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
