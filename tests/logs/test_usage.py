"""Token counts: does input include the cached tokens?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.usage import CORRECTED, EXCLUSIVE, INCLUSIVE, normalise, of_body
from recall_cli.types import Usage


def test_anthropic_counts_cached_tokens_beside_the_input() -> None:
    raw = {"input_tokens": 4, "cache_read_input_tokens": 1165, "cache_creation_input_tokens": 0, "output_tokens": 224}
    assert normalise(raw) == (Usage(1169, 224, cache_read=1165), EXCLUSIVE)


def test_openai_counts_cached_tokens_inside_the_prompt() -> None:
    raw = {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}}
    assert normalise(raw) == (Usage(2006, 300, cache_read=1920), INCLUSIVE)


def test_cache_writes_of_both_lifetimes() -> None:
    split = {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100}
    raw = {"input_tokens": 10, "cache_creation_input_tokens": 556, "cache_creation": split, "output_tokens": 1}
    assert normalise(raw) == (Usage(566, 1, cache_write=556, cache_write_1h=100), EXCLUSIVE)
    del raw["cache_creation_input_tokens"]
    assert normalise(raw) == (Usage(566, 1, cache_write=556, cache_write_1h=100), EXCLUSIVE)


def test_more_cached_than_input_means_exclusive() -> None:
    raw = {"prompt_tokens": 4, "completion_tokens": 9, "cache_read_input_tokens": 1165}
    assert normalise(raw) == (Usage(1169, 9, cache_read=1165), CORRECTED)


def test_null_under_one_name_is_counted_under_the_other() -> None:
    nulls = {"prompt_tokens": None, "completion_tokens": None}
    assert normalise({**nulls, "input_tokens": 10, "output_tokens": 5}) == (Usage(10, 5), EXCLUSIVE)
    both = {"prompt_tokens": 10, "completion_tokens": 5, "input_tokens": 10, "output_tokens": 5}
    assert normalise(both) == (Usage(10, 5), INCLUSIVE)
    assert normalise({**nulls, "input_tokens": None}) is None


def test_deepseek_hits_and_misses_add_up_to_the_prompt() -> None:
    raw = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 5}
    assert normalise(raw) == (Usage(100, 5, cache_read=64), INCLUSIVE)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "12",
        {},
        {"total_tokens": 5},
        {"prompt_tokens": "5"},
        {"prompt_tokens": True},
        {"input_tokens": -1},
        {"prompt_tokens": float("nan")},
        {"input_tokens": 3, "output_tokens": None},
    ],
)
def test_no_usable_counts(raw: object) -> None:
    assert normalise(raw) is None


names = st.sampled_from(
    ["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens",
     "cache_creation_input_tokens", "prompt_tokens_details", "cache_creation", "prompt_cache_hit_tokens"]
)  # fmt: skip
values = st.one_of(st.integers(-5, 10**20), st.floats(), st.none(), st.text(max_size=2), st.booleans())
details = st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens", "ephemeral_1h_input_tokens"]), values)


@given(st.dictionaries(names, st.one_of(values, details)))
def test_parts_never_exceed_the_whole(raw: dict[str, object]) -> None:
    found = normalise(raw)
    if found is not None:
        usage = found[0]
        assert usage.input >= usage.cache_read + usage.cache_write
        assert usage.cache_write >= usage.cache_write_1h >= 0
        assert usage.output >= 0


@pytest.mark.parametrize(
    ("raw", "usage", "read"),
    [
        # OpenAI's Responses: the same names as Anthropic's, and the other meaning.
        (
            {"input_tokens": 840, "input_tokens_details": {"cached_tokens": 128}, "output_tokens": 42},
            Usage(840, 42, cache_read=128),
            INCLUSIVE,
        ),
        (
            {"input_tokens": 90, "input_token_details": {"cache_read": 60, "cache_creation": 10}, "output_tokens": 2},
            Usage(90, 2, cache_read=60, cache_write=10),
            INCLUSIVE,
        ),
        # Gemini's thoughts stand beside the candidates, a tool's pages beside the prompt.
        (
            {"promptTokenCount": 17, "toolUsePromptTokenCount": 119, "candidatesTokenCount": 5, "thoughtsTokenCount": 9,
             "cachedContentTokenCount": 4},
            Usage(136, 14, cache_read=4),
            INCLUSIVE,
        ),
        (
            {"inputTokens": 22, "cacheWriteInputTokens": 2492, "outputTokens": 13},
            Usage(2514, 13, cache_write=2492),
            EXCLUSIVE,
        ),
        ({"tokens": {"input_tokens": 431, "output_tokens": 661}, "cached_tokens": 5}, Usage(431, 661, 5), INCLUSIVE),
        # xAI bills the thoughts beside the answer: only the total tells.
        (
            {"prompt_tokens": 17, "completion_tokens": 5, "total_tokens": 31,
             "completion_tokens_details": {"reasoning_tokens": 9}},
            Usage(17, 14),
            INCLUSIVE,
        ),
    ],
)  # fmt: skip
def test_other_apis(raw: dict[str, object], usage: Usage, read: str) -> None:
    assert normalise(raw) == (usage, read)


@pytest.mark.shared
def test_against_real_bodies(shared_data: Path) -> None:
    """Each of 1,577 recorded bodies gives the counts that an independent extractor gives under the body's own API.

    Read and written cache tokens included.
    """
    cases = json.loads((shared_data / "logs/provider-usage/genai-prices_usages.json").read_bytes())
    for case in cases:
        found = of_body(case["body"])
        assert found is not None, case["body"]
        ours = (found[0].input, found[0].output, found[0].cache_read, found[0].cache_write)
        wanted = [
            tuple(extracted["usage"].get(name, 0) for name in COUNTS)
            for extracted in case["extracted"]
            # An embedding has no output: an extraction of that kind would let a lost output pass.
            if len(case["extracted"]) == 1 or {e["api_flavor"] for e in extracted["extractors"]} != {"embeddings"}
        ]
        assert ours in wanted, case["body"]
    assert len(cases) == 1577


COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@pytest.mark.shared
def test_against_the_extractor_itself(shared_data: Path) -> None:
    """The same bodies through the installed genai-prices, under the API that each names."""
    from genai_prices import extract_usage

    cases = json.loads((shared_data / "logs/provider-usage/genai-prices_usages.json").read_bytes())
    checked = 0
    for case in cases:
        body = case["body"]
        raw = body.get("usage", {})
        provider, flavor = (
            ("google", "default") if "usageMetadata" in body
            else ("aws", "default") if "inputTokens" in raw
            else ("openai", "chat") if "completion_tokens" in raw
            else ("openai", "responses") if "input_tokens_details" in raw
            else ("anthropic", "default") if "input_tokens" in raw
            else ("", "")
        )  # fmt: skip
        if not provider or "cost_details" in raw or _counts_thoughts_apart(raw):
            continue
        try:
            theirs = extract_usage(body, provider_id=provider, api_flavor=flavor).usage
        except LookupError:
            # It extracts nothing for models that it has no price of.
            continue
        found = of_body(body)
        assert found is not None
        assert (found[0].input, found[0].output) == (theirs.input_tokens or 0, theirs.output_tokens or 0), body
        assert found[0].cache_read == (theirs.cache_read_tokens or 0), body
        checked += 1
    assert checked > 1300


def _counts_thoughts_apart(raw: dict[str, Any]) -> bool:
    """An xAI body: read as OpenAI's, it would lose the thoughts."""
    return "prompt_tokens" in raw and raw["total_tokens"] > raw["prompt_tokens"] + raw["completion_tokens"]
