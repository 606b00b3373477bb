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

    The field names tell the API: `prompt_tokens` is OpenAI's, `input_tokens` Anthropic's (or, with details beside
    it, that of OpenAI's Responses), `promptTokenCount` Gemini's, `inputTokens` Bedrock's, `tokens` Cohere's.
    """
    if not isinstance(raw, dict):
        return None
    found = _openai(raw) if "prompt_tokens" in raw else None
    if found is not None:
        return found
    # Some gateways send the names of both, and null under one of them.
    if "input_tokens" in raw:
        return _responses(raw) if "input_tokens_details" in raw or "input_token_details" in raw else _anthropic(raw)
    if "promptTokenCount" in raw:
        return _gemini(raw)
    if "inputTokens" in raw:
        return _bedrock(raw)
    return _cohere(raw) if "tokens" in raw or "billed_units" in raw else None


def of_body(body: Json) -> tuple[Usage, str] | None:
    """Return the usage of a response, under the name its API has for it."""
    raw = body.get("usage")
    if raw is not None:
        return normalise(raw)
    raw = body.get("usageMetadata")
    if raw is not None:
        return normalise(raw)
    meta = body.get("meta")
    return normalise(meta) if isinstance(meta, dict) else None


def inclusive(input: int, output: int, read: int = 0, write: int = 0, write_1h: int = 0) -> tuple[Usage, str]:
    """Return counts whose input should include the cached tokens; more cached than input means it does not."""
    write_1h = min(write_1h, write)
    if read + write > input:
        return Usage(input + read + write, output, read, write, write_1h), CORRECTED
    return Usage(input, output, read, write, write_1h), INCLUSIVE


def exclusive(fresh: int, output: int, read: int = 0, write: int = 0, write_1h: int = 0) -> tuple[Usage, str]:
    """Return counts whose input stands beside the cached tokens."""
    return Usage(fresh + read + write, output, read, write, min(write_1h, write)), EXCLUSIVE


def count(value: Any) -> int | None:
    """Return a token count, None for what is none."""
    if type(value) is int:
        return value if 0 <= value < 1_000_000_000_000_000 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return int(value)


def _openai(raw: Json) -> tuple[Usage, str] | None:
    prompt, output = count(raw.get("prompt_tokens")), count(raw.get("completion_tokens", 0))
    if prompt is None or output is None:
        return None
    details = raw.get("prompt_tokens_details")
    if not isinstance(details, dict):
        details = {}
    # DeepSeek, LiteLLM and Moonshot report the same quantity at the top level, under names of their own. Mistral's
    # `num_cached_tokens` is not among them: it tells what its engine reused, and is billed in full.
    read = _first(details.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cache_read_input_tokens"),
                  raw.get("cached_tokens"))  # fmt: skip
    write = _first(details.get("cache_write_tokens"), raw.get("cache_creation_input_tokens"))
    return inclusive(prompt, output + _unspoken(raw, prompt, output), read, write)


def _unspoken(raw: Json, prompt: int, output: int) -> int:
    """Return the reasoning tokens that xAI bills beside `completion_tokens`; all others count them inside."""
    total = raw.get("total_tokens")
    if total == prompt + output or count(total) is None:
        return 0
    details = raw.get("completion_tokens_details")
    if not isinstance(details, dict):
        return 0
    reasoning = _first(details.get("reasoning_tokens"))
    return reasoning if total == prompt + output + reasoning else 0


def _responses(raw: Json) -> tuple[Usage, str] | None:
    """OpenAI's Responses (`input_tokens_details`) and LangChain (`input_token_details`)."""
    total, output = count(raw.get("input_tokens")), count(raw.get("output_tokens", 0))
    if total is None or output is None:
        return None
    details = raw.get("input_tokens_details", raw.get("input_token_details"))
    if not isinstance(details, dict):
        details = {}
    read = _first(details.get("cached_tokens"), details.get("cache_read"))
    write = _first(details.get("cache_write_tokens"), details.get("cache_creation"))
    return inclusive(total, output, read, write)


def _anthropic(raw: Json) -> tuple[Usage, str] | None:
    fresh, output = count(raw.get("input_tokens")), count(raw.get("output_tokens", 0))
    if fresh is None or output is None:
        return None
    read = _first(raw.get("cache_read_input_tokens"))
    split = raw.get("cache_creation")
    split = split if isinstance(split, dict) else {}
    hour = _first(split.get("ephemeral_1h_input_tokens"))
    # Some gateways log the split alone, some the sum alone: the larger is the complete one.
    write = max(_first(raw.get("cache_creation_input_tokens")), hour + _first(split.get("ephemeral_5m_input_tokens")))
    return exclusive(fresh, output, read, write, hour)


def _gemini(raw: Json) -> tuple[Usage, str] | None:
    prompt = count(raw.get("promptTokenCount"))
    if prompt is None:
        return None
    # What a server-side tool put into the prompt is billed as input, and counted beside it.
    prompt += _first(raw.get("toolUsePromptTokenCount"))
    # Thoughts are billed as output, and not among the candidates.
    output = _first(raw.get("candidatesTokenCount")) + _first(raw.get("thoughtsTokenCount"))
    return inclusive(prompt, output, _first(raw.get("cachedContentTokenCount")))


def _bedrock(raw: Json) -> tuple[Usage, str] | None:
    fresh, output = count(raw.get("inputTokens")), count(raw.get("outputTokens", 0))
    if fresh is None or output is None:
        return None
    read = _first(raw.get("cacheReadInputTokens"), raw.get("cacheReadInputTokenCount"))
    write = _first(raw.get("cacheWriteInputTokens"), raw.get("cacheWriteInputTokenCount"))
    return exclusive(fresh, output, read, write)


def _cohere(raw: Json) -> tuple[Usage, str] | None:
    tokens = raw.get("tokens") or raw.get("billed_units")
    if not isinstance(tokens, dict):
        return None
    total, output = count(tokens.get("input_tokens")), count(tokens.get("output_tokens", 0))
    if total is None or output is None:
        return None
    return inclusive(total, output, _first(raw.get("cached_tokens")))


def _first(*values: Any) -> int:
    """Return the first value that is a count, or 0."""
    for value in values:
        if value is not None and (found := count(value)) is not None:
            return found
    return 0
