"""Token counts: does input include the cached tokens?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.usage import CORRECTED, EXCLUSIVE, INCLUSIVE, normalise
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


@pytest.mark.shared
def test_against_real_bodies_of_both_apis(shared_data: Path) -> None:
    """Anthropic's and OpenAI's recorded usages give the input that an independent extractor gives."""
    cases = json.loads((shared_data / "logs/provider-usage/genai-prices_usages.json").read_bytes())
    checked = 0
    for case in cases:
        raw = case["body"].get("usage")
        for extracted in case["extracted"]:
            flavors = {(e["provider_id"], e["api_flavor"]) for e in extracted["extractors"]}
            ours = normalise(raw)
            if ours is None or not flavors & {("anthropic", "default"), ("openai", "chat")}:
                continue
            if "prompt_tokens" not in raw and ("anthropic", "default") not in flavors:
                continue
            want = extracted["usage"]
            assert ours[0].input == want.get("input_tokens", 0), raw
            assert ours[0].output == want.get("output_tokens", 0), raw
            assert ours[0].cache_read == want.get("cache_read_tokens", 0), raw
            assert ours[0].cache_write == want.get("cache_write_tokens", 0), raw
            checked += 1
    assert checked > 100
