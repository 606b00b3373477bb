"""From a pair of bodies to a `LogRecord`: one place where every format's calls are normalised."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from recall_cli.logs import answer, usage
from recall_cli.logs.bodies import chat_body
from recall_cli.logs.formats.base import NO_TEXT, Pair
from recall_cli.logs.json_path import money
from recall_cli.logs.report import ReadReport, clean
from recall_cli.logs.tenants import wall
from recall_cli.logs.times import read_span
from recall_cli.types import Json, LogRecord

_STATUS = re.compile(r"\s*([1-5]\d\d)(\.0+)?(\s|$)")
"""A status in a string: "500", "500.0" or "500 Internal Server Error"."""
HOSTS = {"openrouter.ai": "openrouter", "azure.com": "azure", "groq.com": "groq", "deepseek.com": "deepseek",
         "together.xyz": "together", "fireworks.ai": "fireworks", "mistral.ai": "mistral", "x.ai": "x-ai"}  # fmt: skip
"""OpenAI-compatible vendors with prices of their own: the model is qualified by them, as in azure/gpt-4o."""
FIRST_FLAWS = ("error", "truncated", "refusal", "stream_cut_off", "tool_calls", "unknown_ending")
"""What an answer shows of itself counts before what its log says of it."""


def to_record(pair: Pair, format: str, tally: ReadReport) -> LogRecord | str:
    """Return the record of a pair, or the reason why it is none; counts what was decided on the way in `tally`."""
    request = pair.request
    if pair.flaw == NO_TEXT:
        request = {}
    elif not isinstance(request, dict):
        return "no_request" if request is None else "request_not_an_object"
    read = answer.read(pair.response, status=pair.status)
    if request or pair.flaw != NO_TEXT:
        request = chat_body(request, uri=pair.uri, response=read.body)
        if request is None:
            return "no_messages"
    body = read.body
    provider = pair.provider or _provider(pair.row, request, body, pair.uri)
    raw = body.get("usage")
    counted = pair.counted or usage.of_body(body) or usage.normalise(pair.usage)
    if counted is not None:
        tally.usage_read[provider, counted[1]] += 1
    span = read_span(pair.row, body)
    tally.naive_times += span.naive
    tally.day_only_times += span.day_only
    tally.bad_times += span.bad_times
    tally.bad_durations += span.bad_durations
    tenant, tenant_field = wall(pair.row, pair.source)
    if tenant:
        tally.tenant_fields[tenant_field] += 1
    cost = pair.cost
    if cost is None and isinstance(raw, dict) and "cost" in raw:
        # OpenRouter's way of saying what it charged.
        cost = money(raw["cost"])
    return LogRecord(
        pair.source,
        provider,
        clean(pair.model or _billed_model(request, body, pair.uri)),
        request,
        read.text,
        counted[0] if counted else None,
        pair.start if span.start is None else span.start,
        span.end,
        pair.status,
        read.finish or pair.finish,
        tenant,
        _flaw(pair, read.flaw),
        pair.tier or read.tier,
        cost,
        pair.session,
        pair.key,
        format,
    )


def _flaw(pair: Pair, seen: str) -> str:
    if pair.cached:
        return "already_cached"
    if not pair.flaw or seen in FIRST_FLAWS:
        return seen
    return pair.flaw


def status_of(*values: Any) -> int | None:
    """Return the first value that is an HTTP status, or says that a call failed (500)."""
    for value in values:
        if value is None:
            continue
        if isinstance(value, str):
            if value.lower() in ("failure", "failed", "error"):
                return 500
            if found := _STATUS.match(value):
                return int(found.group(1))
        # 500.0 too: some writers of JSON have no whole numbers.
        elif isinstance(value, (int, float)) and value in range(100, 600):
            return int(value)
    return None


def _provider(row: Json, request: Json, body: Json, uri: str) -> str:
    """Return the dialect: the answer's shape knows best, then the address, then what the row says."""
    if answer.is_anthropic(body):
        return "anthropic"
    if "choices" in body:
        return "openai"
    path = uri.partition("?")[0].rstrip("/")
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith(("/completions", "/responses")):
        return "openai"
    if row.get("provider") in ("openai", "anthropic"):
        return str(row["provider"])
    return dialect(str(request.get("model", "")))


def dialect(model: str) -> str:
    """Return which API a model's own vendor speaks."""
    # "claude-...", "us.anthropic.claude-...", "openrouter/anthropic/claude-...".
    return "anthropic" if "claude" in model else "openai"


def _billed_model(request: Json, body: Json, uri: str) -> str:
    """Return the model that answered, qualified by who served it where the log tells: azure/gpt-4o."""
    asked = str(request.get("model") or "")
    model = str(body.get("model") or asked)
    if uri and (vendor := _vendor(uri)):
        return model if model.startswith(vendor + "/") else f"{vendor}/{model}"
    if "/" not in asked:
        return model
    prefix, slash, _ = asked.rpartition("/")
    return f"{prefix}/{model}" if slash and "/" not in model else model


@lru_cache(maxsize=1024)
def _vendor(uri: str) -> str:
    """Return the vendor behind an address; a log has a handful of them."""
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return ""
    return next((id for suffix, id in HOSTS.items() if host == suffix or host.endswith("." + suffix)), "")
