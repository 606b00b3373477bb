"""Logs of request/response pairs, one JSON object a line: OpenAI chat completions, Anthropic messages.

No line is fatal and none is dropped silently: what is not a record is counted under its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from recall_cli.errors import InputError
from recall_cli.logs import answer, usage
from recall_cli.logs.clean import clean
from recall_cli.logs.reader import read_lines
from recall_cli.logs.spans import read_span
from recall_cli.logs.sse import BLANK
from recall_cli.logs.walls import wall
from recall_cli.types import Json, LogRecord

REQUEST = ("request", "request_body", "requestBody")
RESPONSE = ("response", "response_body", "responseBody")
STATUS = ("status", "status_code", "response_status", "http_status")
_STATUS = re.compile(r"\s*([1-5]\d\d)(\.0+)?(\s|$)")
"""A status in a string: "500", "500.0" or "500 Internal Server Error"."""
CACHED = ("cache_hit", "cacheHit", "cache_status", "cached")
HOSTS = {"openrouter.ai": "openrouter", "azure.com": "azure", "groq.com": "groq", "deepseek.com": "deepseek",
         "together.xyz": "together", "fireworks.ai": "fireworks", "mistral.ai": "mistral", "x.ai": "x-ai"}  # fmt: skip
"""OpenAI-compatible vendors with prices of their own: the model is qualified by them, as in azure/gpt-4o."""


@dataclass(slots=True)
class Tally:
    """What reading found beside the records: for the report, so that nothing is lost unsaid."""

    lines: int = 0
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)
    """Lines that only the lenient parser could read, by what was wrong with them."""
    naive_times: int = 0
    day_only_times: int = 0
    bad_times: int = 0
    bad_durations: int = 0
    """Negative ones and those over `spans.MAX_DURATION_S`."""
    usage_read: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(provider, how its input tokens were read) -> rows."""
    tenant_fields: Counter[str] = field(default_factory=Counter)


def read_log(log: str, tally: Tally, *, on_bytes: Callable[[int], None] | None = None) -> Iterator[LogRecord]:
    """Yield the records of a log and count the rest in `tally`. Raises InputError when there are none."""
    name = "stdin" if log == "-" else clean(log)
    for number, line in enumerate(read_lines(log, on_fault=tally.faults.append, on_bytes=on_bytes), start=1):
        if line is not None and not line.strip():
            continue
        tally.lines += 1
        found = "line_too_long" if line is None else _row(line, tally)
        record = found if isinstance(found, str) else _record(found, f"{name}:{number}", tally)
        if isinstance(record, str):
            tally.skipped[record] += 1
            continue
        tally.records += 1
        yield record
    if not tally.lines:
        why = f" that can be read: {tally.faults[0]}" if tally.faults else ""
        raise InputError(f"{name} holds no line{why}", hint="a log is JSON Lines: one request/response object a line")
    if not tally.records:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in tally.skipped.most_common())
        raise InputError(
            f"none of the {tally.lines:,} lines of {name} is a request with messages ({reasons})",
            hint='each line needs {"request": {"model": ..., "messages": [...]}, "response": {...}, "timestamp": ...}',
        )


def _row(line: bytes, tally: Tally) -> dict[str, Any] | str:
    """Return the object of one line, or the reason why there is none."""
    try:
        row = orjson.loads(line)
    except ValueError:
        # orjson is strict and fast; the few lines it refuses get a second, lenient reading.
        text = line.decode("utf-8", "replace")
        try:
            row = json.loads(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            return "malformed_json"
        tally.repaired[_oddity(line, text)] += 1
    return row if isinstance(row, dict) else "not_an_object"


def _oddity(line: bytes, text: str) -> str:
    if text.startswith("\ufeff"):
        return "byte_order_mark"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "invalid_utf8"
    return "not_strict_json"


def _record(row: Json, source: str, tally: Tally) -> LogRecord | str:
    request, _ = _body(row, REQUEST)
    if request is None:
        return "no_request"
    if not isinstance(request, dict):
        return "request_not_an_object"
    if not isinstance(request.get("messages"), list) or not request["messages"]:
        return "no_messages"
    response, wrapper = _body(row, RESPONSE)
    status = _status(row, wrapper)
    read = answer.read(response, status=status)
    cached = any(_is_hit(row.get(name)) for name in CACHED)
    uri = next((row[k] for k in ("uri", "url", "endpoint", "path") if isinstance(row.get(k), str)), "")
    provider = _provider(row, request, read.body, uri)
    counted = usage.normalise(read.body.get("usage")) or usage.normalise(row.get("usage"))
    if counted is not None:
        tally.usage_read[provider, counted[1]] += 1
    span = read_span(row, read.body)
    tally.naive_times += span.naive
    tally.day_only_times += span.day_only
    tally.bad_times += span.bad_times
    tally.bad_durations += span.bad_durations
    tenant, tenant_field = wall(row, source)
    if tenant:
        tally.tenant_fields[tenant_field] += 1
    return LogRecord(
        source,
        provider,
        clean(_billed_model(request, read.body, uri)),
        request,
        read.text,
        counted[0] if counted else None,
        span.start,
        span.end,
        status,
        read.finish,
        tenant,
        "already_cached" if cached else read.flaw,
        read.tier,
    )


def _body(row: Json, names: tuple[str, ...]) -> tuple[Any, Json]:
    """Return a body (decoded when it was logged as a string) and the HTTP envelope around it, if any."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    value = _decoded(value)
    if isinstance(value, dict) and "body" in value and not value.keys() & {"messages", "choices", "content"}:
        return _decoded(value["body"]), value
    return value, {}


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        text = value.lstrip(BLANK)
        if text.startswith(("{", "[")):
            try:
                return orjson.loads(text)
            except ValueError:
                return value
    return value


def _status(row: Json, wrapper: Json) -> int | None:
    for value in (*(row.get(name) for name in STATUS), *(wrapper.get(name) for name in STATUS)):
        if isinstance(value, str):
            if value.lower() in ("failure", "failed", "error"):
                return 500
            if found := _STATUS.match(value):
                return int(found.group(1))
        # 500.0 too: some writers of JSON have no whole numbers.
        elif isinstance(value, (int, float)) and value in range(100, 600):
            return int(value)
    return None


def _is_hit(value: Any) -> bool:
    return value == 1 or (isinstance(value, str) and value.strip().lower() in ("true", "hit", "1"))


def _provider(row: Json, request: Json, body: Json, uri: str) -> str:
    """Return the dialect: the answer's shape knows best, then the address, then what the row says."""
    if answer.is_anthropic(body):
        return "anthropic"
    if "choices" in body:
        return "openai"
    path = uri.partition("?")[0].rstrip("/")
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/completions"):
        return "openai"
    if row.get("provider") in ("openai", "anthropic"):
        return str(row["provider"])
    return "anthropic" if str(request.get("model", "")).startswith("claude") else "openai"


def _billed_model(request: Json, body: Json, uri: str) -> str:
    """Return the model that answered, qualified by who served it where the log tells: azure/gpt-4o."""
    asked = str(request.get("model") or "")
    model = str(body.get("model") or asked)
    host = _host(uri)
    vendor = next((id for suffix, id in HOSTS.items() if host == suffix or host.endswith("." + suffix)), "")
    if vendor:
        return model if model.startswith(vendor + "/") else f"{vendor}/{model}"
    prefix, slash, _ = asked.rpartition("/")
    return f"{prefix}/{model}" if slash and "/" not in model else model


def _host(uri: str) -> str:
    try:
        return urlsplit(uri).hostname or ""
    except ValueError:
        return ""
