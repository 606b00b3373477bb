"""Dollars of one call, against cases worked by hand from the providers' price lists."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from recall_cli.measure.prices import PriceBook
from recall_cli.types import Usage

MILLION = 1_000_000


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook()


def day(year: int, month: int, date: int) -> float:
    return datetime(year, month, date, tzinfo=UTC).timestamp()


JANUARY = day(2026, 1, 15)


def test_a_cached_prompt_costs_what_it_really_cost(book: PriceBook) -> None:
    """Sonnet 4.5: $3 in, $0.30 cached, $15 out: 500 x 3 + 9,500 x 0.3 + 300 x 15 = $0.00885."""
    cost = book.cost("anthropic", "claude-sonnet-4-5", Usage(10_000, 300, cache_read=9_500), when=JANUARY)
    assert cost is not None
    assert (cost.input, cost.output, cost.total) == (Decimal("0.00435"), Decimal("0.0045"), Decimal("0.00885"))
    assert cost.naive == Decimal("0.0345")


def test_cache_writes_cost_more_and_an_hour_more_still(book: PriceBook) -> None:
    """Sonnet 4.5: writes $3.75, for an hour $6: 700 x 3 + 100 x 0.3 + 150 x 3.75 + 50 x 6."""
    usage = Usage(1_000, 0, cache_read=100, cache_write=200, cache_write_1h=50)
    cost = book.cost("anthropic", "claude-sonnet-4-5", usage, when=JANUARY)
    assert cost is not None
    assert cost.total == Decimal("0.0029925")


def test_a_long_prompt_is_billed_by_its_whole_length(book: PriceBook) -> None:
    """Sonnet 4.5 above 200k: $6 in, $0.60 cached, $22.50 out; cached tokens count towards the 200k."""
    cost = book.cost("anthropic", "claude-sonnet-4-5", Usage(300_000, 1_000, cache_read=250_000), when=JANUARY)
    assert cost is not None
    assert cost.total == Decimal("0.3") + Decimal("0.15") + Decimal("0.0225")


@pytest.mark.parametrize(("when", "usd"), [(day(2025, 5, 1), 10), (day(2026, 1, 1), 2)])
def test_the_price_is_that_of_the_day(book: PriceBook, when: float, usd: int) -> None:
    cost = book.cost("openai", "o3", Usage(MILLION, 0), when=when)
    assert cost is not None
    assert cost.total == usd


def test_the_price_is_that_of_the_hour(book: PriceBook) -> None:
    """DeepSeek's night discount of 2025 began at 16:30 UTC."""
    noon = day(2025, 6, 1) + 12 * 3600
    costs = [book.cost("openai", "deepseek/deepseek-chat", Usage(MILLION, 0), when=noon + s) for s in (16200, 16199)]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[0].total < costs[1].total


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openai/gpt-4o", "azure/gpt-4o", "openrouter/openai/gpt-4o", "gpt-4o-2024-08-06"]
)
def test_qualified_models(book: PriceBook, model: str) -> None:
    cost = book.cost("openai", model, Usage(MILLION, MILLION), when=JANUARY)
    assert cost is not None
    assert (cost.input, cost.output) == (Decimal("2.5"), 10)


def test_litellm_names_of_vendors(book: PriceBook) -> None:
    model = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    cost = book.cost("anthropic", model, Usage(MILLION // 10, 0), when=JANUARY)
    assert cost is not None
    assert cost.total == Decimal("0.33")  # a regional endpoint: 10 % more


@pytest.mark.parametrize(
    ("provider", "model", "usage"),
    [
        ("openai", "gpt-99", Usage(1, 1)),
        ("openai", "", Usage(1, 1)),
        ("openai", "meta-llama/Llama-3.1-8B-Instruct", Usage(1, 1)),
        ("openai", "claude-sonnet-4-5", Usage(1, 1)),
        ("openai", "azure/phi-4-reasoning:free", Usage(1, 1)),
        ("openai", "azure/text-embedding-3-small", Usage(1, 1)),
    ],
)
def test_no_price_is_none_and_never_zero(book: PriceBook, provider: str, model: str, usage: Usage) -> None:
    assert book.cost(provider, model, usage, when=JANUARY) is None


def test_service_tiers(book: PriceBook) -> None:
    usage = Usage(MILLION // 10, 0)
    standard, batch, named, unknown = (
        book.cost("anthropic", "claude-sonnet-4-5", usage, when=day(2026, 11, 1), tier=tier)
        for tier in ("", "batch", "standard", "no-such-tier")
    )
    assert standard is not None
    assert batch is not None
    assert batch.total == standard.total / 2
    assert standard == named == unknown


def test_the_source_names_its_version(book: PriceBook) -> None:
    import genai_prices

    assert book.source() == {"name": "genai-prices", "version": genai_prices.__version__, "currency": "USD"}
