"""Prices of one's own: files of both schemas, flags, and which list is asked first."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.pricing.book import PriceBook, price_book
from recall_cli.measure.pricing.sources import parse_flags, read_prices
from recall_cli.types import Usage

MILLION = 1_000_000
AUTUMN = datetime(2026, 10, 1, tzinfo=UTC).timestamp()


def written(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def usd(book: PriceBook, model: str, usage: Usage, **more: Any) -> Decimal | None:
    cost = book.cost(more.pop("provider", "openai"), model, usage, when=more.pop("when", AUTUMN), **more)
    return None if cost is None else cost.total


CONTRACT = {
    "source": "our contract",
    "version": 7,
    "date": "2026-09-15",
    "prices": [
        {"model": "gpt-4o", "input": 2, "output": 8, "cache_read": 0.1},
        {"model": "gpt-4o", "input": 1, "output": 4, "from": "2026-09-01"},
        {"model": "gpt-4o", "tier": "flex", "input": 0.7, "output": 3},
        {"model": "long", "input": 3, "output": 15, "cache_read": 0.3, "cache_write": 4, "cache_write_1h": 6},
        {"model": "long", "above": 200_000, "input": 6, "output": 22.5},
        {"model": "azure/own", "input": 5, "output": 5, "call": 0.01},
    ],
}


@pytest.fixture
def book(tmp_path: Path) -> PriceBook:
    return price_book(written(tmp_path / "prices.json", CONTRACT))


@pytest.mark.parametrize(
    ("model", "usage", "more", "expected"),
    [
        ("gpt-4o", Usage(MILLION, MILLION), {}, "5"),
        ("gpt-4o", Usage(MILLION, MILLION), {"when": AUTUMN - 40 * 86_400}, "10"),
        ("gpt-4o", Usage(MILLION, 0, cache_read=MILLION), {"when": AUTUMN - 40 * 86_400}, "0.1"),
        # The newer price names none for cached input: it is billed as input.
        ("gpt-4o", Usage(MILLION, 0, cache_read=MILLION), {}, "1"),
        ("openai/gpt-4o", Usage(MILLION, 0), {}, "1"),
        # Another seller's gpt-4o is not in the contract: the list price of the bundled table holds.
        ("azure/gpt-4o", Usage(MILLION, 0), {}, "2.5"),
        ("gpt-4o", Usage(MILLION, 0), {"tier": "flex"}, "0.7"),
        ("gpt-4o", Usage(MILLION, 0), {"tier": "batch"}, "0.5"),
        ("long", Usage(200_000, 0), {}, "0.6"),
        ("long", Usage(200_001, 0), {}, "1.200006"),
        ("long", Usage(300_000, 1000, cache_read=200_000, cache_write=100_000, cache_write_1h=50_000), {}, "0.5825"),
        ("azure/own", Usage(1000, 1000), {}, "0.02"),
        ("own", Usage(1000, 1000), {}, None),
        ("never-heard-of", Usage(1, 1), {}, None),
    ],
)
def test_our_own_schema(book: PriceBook, model: str, usage: Usage, more: dict[str, Any], expected: str | None) -> None:
    assert usd(book, model, usage, **more) == (None if expected is None else Decimal(expected))


def test_each_list_says_what_it_priced(book: PriceBook) -> None:
    for model in ("gpt-4o", "gpt-4o", "gpt-4o-mini", "nobody"):
        usd(book, model, Usage(1, 1))
    source = book.source()
    assert (source["name"], source["version"], source["date"]) == ("our contract", "7", "2026-09-15")
    assert [(one["name"], one["requests"]) for one in source["lists"]] == [("our contract", 2), ("genai-prices", 1)]
    assert book.unknown() == {"nobody": 1}


LITELLM = {
    "sample_spec": {"input_cost_per_token": 0.0},
    "own-model": {
        "litellm_provider": "openai",
        "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": "1.25e-06",
        "cache_creation_input_token_cost": 3e-06,
        "cache_creation_input_token_cost_above_1hr": 5e-06,
        "input_cost_per_token_above_200k_tokens": 5e-06,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1e-05,
        "input_cost_per_token_batches": 1e-06,
        "output_cost_per_token_batches": 4e-06,
        "input_cost_per_token_priority": 4e-06,
        "output_cost_per_reasoning_token": 9.0,
        "max_tokens": 4096,
        "supports_vision": True,
    },
    "azure/own-model": {"input_cost_per_token": 7e-06, "output_cost_per_token": 7e-06},
    "image-model": {"input_cost_per_image": 0.01},
}


@pytest.mark.parametrize(
    ("model", "usage", "tier", "expected"),
    [
        ("own-model", Usage(MILLION // 10, MILLION), "", "10.25"),
        ("own-model", Usage(100_000, 0, cache_read=40_000, cache_write=60_000, cache_write_1h=10_000), "", "0.25"),
        # Above the step: what it does not name keeps its price.
        ("own-model", Usage(300_000, 0, cache_read=100_000, cache_write=100_000, cache_write_1h=100_000), "", "1.625"),
        ("own-model", Usage(100_000, 100_000), "batch", "0.5"),
        ("own-model", Usage(100_000, 0, cache_read=100_000), "batch", "0.0625"),
        ("own-model", Usage(100_000, 100_000), "priority", "1.4"),
        ("openai/own-model", Usage(100_000, 0), "", "0.25"),
        ("azure/own-model", Usage(100_000, 0), "", "0.7"),
        ("image-model", Usage(1, 1), "", None),
    ],
)
def test_litellms_schema(tmp_path: Path, model: str, usage: Usage, tier: str, expected: str | None) -> None:
    book = price_book(written(tmp_path / "model_prices.json", LITELLM))
    assert usd(book, model, usage, tier=tier) == (None if expected is None else Decimal(expected))


def test_a_file_without_a_name_is_named_by_itself(tmp_path: Path) -> None:
    about = read_prices(written(tmp_path / "model_prices.json", LITELLM)).describe()
    assert about["name"] == "model_prices.json"
    assert about["version"] == "LiteLLM's schema"
    assert len(about["date"]) == 10


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ({}, "no price of tokens"),
        ({"image-model": {"input_cost_per_image": 1}}, "no price of tokens"),
        ({"prices": [3]}, "price 1 of .* names no model"),
        ({"prices": [{"model": "m"}]}, "names no price"),
        ({"prices": [{"model": "m", "input": -1}]}, "input is no price"),
        ({"prices": [{"model": "m", "input": "dear"}]}, "input is no price"),
        ({"prices": [{"model": "m", "input": True}]}, "input is no price"),
        ('{"prices": [{"model": "m", "input": NaN}]}', "input is no price"),
        ({"prices": [{"model": "m", "inptu": 1}]}, "'inptu', which recall does not know"),
        ({"prices": [{"model": "m", "input": 1, "from": "soon"}]}, "from is no day"),
        ({"prices": [{"model": "m", "input": 1, "above": 1.5}]}, "above is no number"),
        ({"prices": [{"model": "m", "input": 1}, {"model": "m", "input": 2}]}, "prices m twice"),
        ({"m": {"input_cost_per_token": -1}}, "m of .*: input_cost_per_token is no price"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_prices(written(tmp_path / "prices.json", document))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_prices(str(tmp_path / "none.json"))


def test_flags_come_first(tmp_path: Path) -> None:
    book = price_book(written(tmp_path / "p.json", CONTRACT), ["gpt-4o=1.5,3,0.5,2", "a=b=0,0.000000001", "typo=1,1"])
    usage = Usage(MILLION, MILLION, cache_read=500_000, cache_write=100_000)
    assert usd(book, "gpt-4o", usage) == Decimal("0.6") + Decimal("0.25") + Decimal("0.2") + 3
    assert usd(book, "a=b", Usage(5, MILLION)) == Decimal("0.000000001")
    assert usd(book, "long", Usage(MILLION // 10, 0)) == Decimal("0.3")
    assert book.source()["name"] == "--price"
    assert book.unused() == ["typo"]


@pytest.mark.parametrize("flag", ["gpt-4o", "=1,2", "m=1", "m=1,2,3,4,5", "m=1,x", "m=-1,2", "m=nan,1", "m=inf,1", ""])
def test_bad_flags(flag: str) -> None:
    with pytest.raises(UsageError, match="MODEL=IN,OUT"):
        parse_flags([flag])


def test_a_flag_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_flags(["m=1,2", "m=1,3"])


@given(st.decimals(0, 1000, places=9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_no_digit_is_rounded(price: Decimal, tokens_in: int, tokens_out: int) -> None:
    book = price_book(flags=[f"m={price},{price}"])
    assert usd(book, "m", Usage(tokens_in, tokens_out)) == price * (tokens_in + tokens_out) / MILLION
