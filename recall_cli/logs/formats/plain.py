"""Plain tables and JSON Lines of anybody's making: a column for the prompt, and whatever else is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recall_cli.errors import UsageError
from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, first, money, number, text, truth, whole
from recall_cli.logs.record import dialect, status_of
from recall_cli.logs.tenants import TENANT
from recall_cli.logs.times import END, LATENCY, START
from recall_cli.logs.usage import exclusive, inclusive
from recall_cli.types import Json, Usage

FIELDS: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "input", "question", "query", "user_message", "messages", "prompt_text", "input_text"),
    "answer": (
        "response",
        "output",
        "completion",
        "answer",
        "reply",
        "assistant_message",
        "response_text",
        "output_text",
    ),
    "system": ("system", "system_prompt", "instructions"),
    "model": ("model", "model_name", "model_id", "deployment"),
    "ts": START,
    "end": END,
    "latency_ms": ("latency_ms", "duration_ms"),
    "input_tokens": ("input_tokens", "prompt_tokens", "tokens_in", "tokens_prompt", "n_input_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "tokens_out", "tokens_completion", "n_output_tokens"),
    "cache_read": ("cached_tokens", "cache_read_tokens", "tokens_cached", "cache_read_input_tokens"),
    "cache_write": ("cache_write_tokens", "cache_creation_input_tokens"),
    "cost": ("cost_usd", "cost", "total_cost", "price"),
    "tenant": TENANT,
    "session": ("session_id", "conversation_id", "thread_id", "session"),
    "temperature": ("temperature",),
    "status": ("status", "status_code", "http_status"),
    "finish": ("finish_reason", "stop_reason"),
    "cached": ("cache_hit", "cached"),
}
"""What a column can mean, and the names under which it is found unasked. `--field MEANING=COLUMN` says it."""
PARAMETERS = ("top_p", "top_k", "seed", "n", "max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice",
              "functions", "response_format", "reasoning_effort")  # fmt: skip
"""Columns that shape an answer, under the names the APIs have for them: they must stay part of the key."""
BODY = ("choices", "usage", "model", "created", "service_tier")
ANTHROPIC_NAMES = ("cache_read_input_tokens", "cache_creation_input_tokens")


class Plain(Adapter):
    """Rows with a prompt. The input count is taken to include cached tokens, unless those bear Anthropic's names."""

    name = "plain"

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        """Take columns by what they mean. Raises UsageError for a meaning there is none of."""
        self._names = dict(FIELDS)
        for meaning, column in (fields or {}).items():
            if meaning not in FIELDS:
                raise UsageError(f"a log has no field {meaning!r}", hint=f"the fields are: {', '.join(FIELDS)}")
            self._names[meaning] = (column,)
        self._asked = bool(fields)
        self.unseen = {column: meaning for meaning, column in (fields or {}).items()}
        """Columns that were named and that no row has had so far."""

    def score(self, row: Json) -> int:
        """Count a prompt and what stands beside it: little, for every other format's keys say more."""
        for column in self.unseen.keys() & row.keys():
            del self.unseen[column]
        if first(row, self._names["prompt"]) is None:
            return 0
        beside = any(first(row, self._names[name]) is not None for name in ("answer", "model", "ts"))
        return 20 if self._asked else 1 if beside or len(row) == 1 else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of a row."""
        get = {name: first(row, names) for name, names in self._names.items() if name not in ("ts", "end", "tenant")}
        prompt = decoded(get["prompt"])
        if isinstance(prompt, dict) and isinstance(prompt.get("messages"), list):
            prompt = prompt["messages"]
        model = text(get["model"])
        system = get["system"]
        answer = decoded(get["answer"])
        if isinstance(row.get("choices"), list):
            # Request and response in one object.
            answer = {name: row[name] for name in BODY if name in row}
        if answer is None and isinstance(prompt, list) and len(prompt) > 1 and dig(prompt, -1, "role") == "assistant":
            prompt, answer = prompt[:-1], dig(prompt, -1, "content")
        parameters = {name: decoded(row[name]) for name in PARAMETERS if row.get(name) not in (None, "")}
        temperature = number(get["temperature"])
        request = from_messages(prompt, system=system, model=model, temperature=temperature, **parameters)
        counted = self._usage(row, get)
        if not request and counted is None:
            return ("no_prompt",)
        response = answer if isinstance(answer, dict) else completion(_plain(answer), finish=get["finish"])
        return (
            Pair(
                source,
                request,
                response,
                self._times(row),
                provider=dialect(model),
                model=model,
                counted=counted,
                status=status_of(get["status"]),
                cost=money(get["cost"]),
                session=text(get["session"]),
                cached=truth(get["cached"]),
                flaw="" if request else NO_TEXT,
            ),
        )

    def _times(self, row: Json) -> dict[str, Any]:
        """Return times, durations and tenants; columns that were named count under the first usual name."""
        found = {name: row[name] for name in (*START, *END, *LATENCY, *TENANT) if name in row}
        for meaning, usual in (("ts", START), ("end", END), ("tenant", TENANT), ("latency_ms", ("latency_ms",))):
            names = self._names[meaning]
            if names != FIELDS[meaning]:
                for name in usual:
                    found.pop(name, None)
                found[usual[0]] = row.get(names[0])
        for name in LATENCY:
            if isinstance(found.get(name), str):
                found[name] = number(found[name])
        return found

    def _usage(self, row: Json, get: Json) -> tuple[Usage, str] | None:
        input = whole(get["input_tokens"])
        if input is None:
            return None
        output, read, write = (whole(get[name]) or 0 for name in ("output_tokens", "cache_read", "cache_write"))
        beside = any(first(row, (name,)) is not None for name in ANTHROPIC_NAMES) and "input_tokens" in row
        return (exclusive if beside else inclusive)(input, output, read, write)


def _plain(answer: Any) -> str | None:
    return None if answer is None else answer if isinstance(answer, str) else str(answer)
