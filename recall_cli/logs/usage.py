"""Token counts as each API reports them, to one `Usage` whose input includes the cached tokens.

This decision is worth more than any other in a savings report: Anthropic counts cached tokens beside
`input_tokens`, OpenAI counts them inside `prompt_tokens`. Read the wrong way, a real prompt of 1,169
tokens looks like 4.
"""

from __future__ import annotations

from typing import Any

from recall_cli.types import Json, Usage

INCLUSIVE = "inclusive"
EXCLUSIVE = "exclusive"
CORRECTED = "exclusive, against its API: cached tokens exceeded the input"


def normalise(raw: Any) -> tuple[Usage, str] | None:
    """Return the usage and how its input was read, or None when there are no usable counts.

    The field names tell the API: `prompt_tokens` is OpenAI's, `input_tokens` Anthropic's.
    """
    if not isinstance(raw, dict):
        return None
    found = _openai(raw) if "prompt_tokens" in raw else None
    # Some gateways send the names of both, and null under one of them.
    return _anthropic(raw) if found is None and "input_tokens" in raw else found


def _openai(raw: Json) -> tuple[Usage, str] | None:
    prompt, output = _count(raw.get("prompt_tokens")), _count(raw.get("completion_tokens", 0))
    if prompt is None or output is None:
        return None
    details = raw.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    # DeepSeek and LiteLLM report the same quantity at the top level, under names of their own.
    read = _first(details.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cache_read_input_tokens"))
    write = _first(details.get("cache_write_tokens"), raw.get("cache_creation_input_tokens"))
    if read + write > prompt:
        return Usage(prompt + read + write, output, read, write), CORRECTED
    return Usage(prompt, output, read, write), INCLUSIVE


def _anthropic(raw: Json) -> tuple[Usage, str] | None:
    fresh, output = _count(raw.get("input_tokens")), _count(raw.get("output_tokens", 0))
    if fresh is None or output is None:
        return None
    read = _first(raw.get("cache_read_input_tokens"))
    split = raw.get("cache_creation")
    split = split if isinstance(split, dict) else {}
    hour = _first(split.get("ephemeral_1h_input_tokens"))
    # Some gateways log the split alone, some the sum alone: the larger is the complete one.
    write = max(_first(raw.get("cache_creation_input_tokens")), hour + _first(split.get("ephemeral_5m_input_tokens")))
    return Usage(fresh + read + write, output, read, write, hour), EXCLUSIVE


def _first(*values: Any) -> int:
    """Return the first value that is a count, or 0."""
    return next((count for count in map(_count, values) if count is not None), 0)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return int(value)
