"""`recall savings`: what a cache would have saved on the traffic of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.blocks import NONE, Block, Line, count, percent, table
from recall_cli.cli.render import Output
from recall_cli.measure.savings_words import model_names, usd, usd_digits
from recall_cli.types import Result

REASONS = {
    "sampled": "sampled: temperature unset or above 0",
    "tools": "tools offered in the request",
    "tool_calls": "answer calls tools",
    "tool_result": "last turn is a tool result",
    "last_turn_not_user": "last turn is not the user's",
    "media": "images, files or audio",
    "server_state": "relies on state at the provider",
    "web_search": "the model searches the web",
    "no_content": "last turn has no content",
    "no_messages": "no messages",
    "not_canonical_json": "holds what no JSON key can be made of",
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


def savings(
    log: Log,
    tau: options.Tau = 0.8,
    embedder: options.Embedder = "static",
    allow_sampled: options.AllowSampled = False,
    seed: options.Seed = 0,
    format: options.Format = options.FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Say what an exact and a semantic cache would have saved on the traffic of a log.

    Example: recall savings requests.jsonl.gz --tau 0.9 --out savings.json

    One line of a log, broken here to fit (a pair of Anthropic messages does as well):

    {"timestamp":"2026-01-05T09:00:00Z","request":{"model":"gpt-4o",
    "temperature":0,"messages":[{"role":"user","content":"Hi"}]},
    "response":{"choices":[{"message":{"content":"Hello!"},
    "finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}}
    """
    from recall_cli.measure.savings import Plan, run

    # The file that standard input comes from is read too.
    with Output(format, json, out, inputs=["/dev/stdin" if log == "-" else log]) as output:
        plan = Plan(log, tau=tau, embedder=embedder, allow_sampled=allow_sampled, seed=seed)
        output.emit(run(plan, progress=output.progress), view)


def view(result: Result) -> list[Block]:
    """Return the tables of a savings report, and its verdict last."""
    s = result.summary
    blocks: list[Block] = [Line(_opening(s))]
    if s["cacheable"]:
        blocks.append(_tiers(s))
    if s["exact_hits_displaced"]:
        blocks.append(Line(_displaced(s)))
    if s["to_check"]:
        blocks.append(Line(_to_check(len(s["to_check"]))))
    if s["excluded"]:
        blocks.append(_excluded(s))
    blocks += [_models(result), _tokens(result)]
    return [*blocks, *map(Line, _basis(s)), Line(""), Line(s["verdict"])]


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


def _tiers(s: Mapping[str, Any]) -> Block:
    tiers = [s["tiers"][name] for name in ("exact", "semantic", "combined")]
    rates = [t["hit_rate_interval"] if t["n"] else (None, None) for t in tiers]
    money = list(zip(*map(_tier_dollars, tiers), strict=True))
    shares = [t["usd"] / s["spend_usd"] if _priced(t) and s["spend_usd"] else None for t in tiers]
    rows = [
        ("hits", *(count(t["hits"]) for t in tiers)),
        *_equal(tiers),
        (f"hit rate, of {count(s['cacheable'])} cacheable", *(percent(t["hit_rate"]) for t in tiers)),
        ("  low", *(percent(low) for low, _ in rates)),
        ("  high", *(percent(high) for _, high in rates)),
        ("input tokens", *(count(t["input_tokens"]) for t in tiers)),
        ("output tokens", *(count(t["output_tokens"]) for t in tiers)),
        ("$ input", *money[0]),
        ("$ output", *money[1]),
        ("$ saved", *money[2]),
        ("  low", *money[3]),
        ("  high", *money[4]),
        ("$ saved, of all spent", *(percent(share) for share in shares)),
    ]
    title = f"What a cache would have answered at tau {s['tiers']['semantic']['tau']:g}; low, high: 95 % interval"
    return table(title, ("", "exact", "semantic adds", "both, at best"), rows)


def _equal(tiers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows that say how many answers equal the logged ones: of each tier, since their sum says nothing."""
    # All hits can be compared: a call without an answer in the log is not cacheable.
    found = [t["answers_equal"] if t.get("answers_equal", {"n": 0})["n"] else None for t in tiers]
    if any(found):
        yield "of these, equal to logged", *(count(t["equal"]) if t else NONE for t in found)
        yield "  share", *(percent(t["share"]) if t else NONE for t in found)
        yield "  low", *(percent(t["interval"][0]) if t else NONE for t in found)
        yield "  high", *(percent(t["interval"][1]) if t else NONE for t in found)


def _priced(tier: Mapping[str, Any]) -> bool:
    return bool(tier["hits"] > tier["hits_without_price"])


def _tier_dollars(tier: Mapping[str, Any]) -> list[str]:
    """Return the column of a tier: input, output, saved, and the interval of that; dashes when there is no sum."""
    amounts = [tier["usd_input"], tier["usd_output"], tier["usd"], *tier["usd_interval"]]
    return _column(amounts if _priced(tier) else [None] * len(amounts))


def _column(amounts: Sequence[float | None]) -> list[str]:
    """Return a column of dollars, with as many decimals as its largest needs."""
    digits = usd_digits(amounts)
    return [NONE if amount is None else usd(amount, digits) for amount in amounts]


def _displaced(s: Mapping[str, Any]) -> str:
    return (
        f"Semantic matching has a cost too: {count(s['exact_hits_displaced'])} requests that exact matching answers as "
        "logged get another stored answer once it is on."
    )


def _to_check(n: int) -> str:
    pairs = f"{n} pairs of requests" if n > 1 else "1 pair of requests"
    return (
        f"{pairs} whose semantic answer differs from the logged one, to check by hand: their line numbers are in the "
        "document (--out FILE), under to_check."
    )


def _excluded(s: Mapping[str, Any]) -> Block:
    groups = s["excluded"]
    spent = _column([group["usd"] or None for group in groups.values()])
    rows = [
        (REASONS.get(reason, reason), count(group["requests"]), cell)
        for (reason, group), cell in zip(groups.items(), spent, strict=True)
    ]
    return table("What no cache may answer, and why", ("reason", "requests", "spent"), rows)


def _models(result: Result) -> Block:
    rows = result.rows
    spent = _column([row["spend_usd"] for row in rows])
    saved = _column([row["saved_usd"] or None for row in rows])
    hits = [count(row["hits_exact"] + row["hits_semantic"]) for row in rows]
    requests = [count(row["requests"]) for row in rows]
    cells = zip(model_names(rows), requests, hits, spent, saved, strict=True)
    return table(
        "By model; hits and saved are exact + semantic", ("model", "requests", "hits", "spent", "saved"), list(cells)
    )


def _tokens(result: Result) -> Block:
    rows = [
        (name, *(count(row[key]) for key in ("input_tokens", "cached_input_tokens", "output_tokens")))
        for name, row in zip(model_names(result.rows), result.rows, strict=True)
    ]
    return table("Tokens by model, hit or not", ("model", "input", "of it cached", "output"), rows)


def _basis(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the dollars rest on: prices, how input tokens were read, what cached input does to them."""
    source = s["price_source"]
    if s["priced_requests"]:
        yield f"Prices: {source['name']} {source['version']}."
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
            f"Cached input is priced at the provider's discount: at the full input price the {saved} of both tiers "
            f"would read {naive}."
        )


def duration(seconds: float) -> str:
    """Return a span as people say it."""
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
