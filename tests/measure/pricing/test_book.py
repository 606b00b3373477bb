"""Dollars of one call, against cases worked by hand from the providers' price lists."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.usage import normalise
from recall_cli.measure.pricing.book import PriceBook
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


def test_the_source_names_its_version_and_date() -> None:
    book = PriceBook()
    book.cost("openai", "gpt-4o", Usage(1, 1), when=JANUARY)
    book.cost("openai", "gpt-99", Usage(1, 1), when=JANUARY)
    source = book.source()
    assert (source["name"], source["version"]) == ("genai-prices", genai_prices.__version__)
    assert date.fromisoformat(source["date"]) <= datetime.now(UTC).date()
    assert [one["requests"] for one in source["lists"]] == [1]
    assert book.unknown() == {"gpt-99": 1}


def test_a_cached_anthropic_row_is_all_its_tokens_at_their_two_prices(book: PriceBook) -> None:
    """Input 4 beside cache-read 1,165 is 1,169 tokens: 4 x 3 + 1,165 x 0.3 + 10 x 15 per million."""
    found = normalise({"input_tokens": 4, "cache_read_input_tokens": 1165, "output_tokens": 10})
    assert found is not None
    assert found[0].input == 1169
    cost = book.cost("anthropic", "claude-sonnet-4-5", found[0], when=JANUARY)
    assert cost is not None
    assert cost.total == Decimal("0.000012") + Decimal("0.0003495") + Decimal("0.00015")


def test_batches_cost_half_also_before_the_table_says_so(book: PriceBook) -> None:
    usage = Usage(1000, 200, cache_read=300)
    for provider, model in (("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-4o-mini")):
        standard, batch = (book.cost(provider, model, usage, when=JANUARY, tier=tier) for tier in ("", "batch"))
        assert standard is not None
        assert batch is not None
        assert batch.total == standard.total / 2


def test_a_tier_without_a_price_is_counted(book: PriceBook) -> None:
    book = PriceBook()
    book.cost("anthropic", "claude-sonnet-4-5", Usage(1, 1), when=JANUARY, tier="no-such-tier")
    book.cost("anthropic", "claude-sonnet-4-5", Usage(1, 1), when=JANUARY, tier="batch")
    assert book.at_standard() == {"no-such-tier": 1}


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    edges = st.sampled_from([0, 1, 32_000, 100_000, 128_000, 199_999, 200_000, 200_001, 256_000, 272_000, 272_001])
    total = draw(edges | st.integers(0, 1_100_000))
    read = draw(st.integers(0, total))
    write = draw(st.integers(0, total - read))
    return Usage(total, draw(st.integers(0, 50_000)), read, write, draw(st.integers(0, write)))


MODELS = [(provider.id, model.id) for provider in providers for model in provider.models]


@given(st.sampled_from(MODELS), usages(), st.integers(0, 40), st.sampled_from(["", "flex", "priority"]))
def test_unit_prices_say_what_the_table_says(named: tuple[str, str], usage: Usage, weeks: int, tier: str) -> None:
    """Any model, any counts, any week of a year and every tier: our sums are the library's own, to the last digit."""
    vendor, model = named
    when = day(2026, 1, 1) + weeks * 7 * 86_400 + weeks * 3_600
    ours = PriceBook().cost(vendor, f"{vendor}/{model}", usage, when=when, tier=tier)
    counts = {"input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cache_read,
              "cache_write_tokens": usage.cache_write, "cache_write_1h_tokens": usage.cache_write_1h}  # fmt: skip
    context = {"service_tier": tier} if tier else None
    at = datetime.fromtimestamp(when, UTC)
    try:
        theirs = genai_prices.calc_price(
            genai_prices.Usage(**counts), model, provider_id=vendor, genai_request_timestamp=at, price_context=context
        )
    except (LookupError, ValueError):
        # Some ids are found by no name, and some models bill what our counts cannot say.
        assert ours is None
        return
    listed = vars(theirs.model_price)
    if (usage.input and listed.get("input_mtok") is None) or (usage.output and listed.get("output_mtok") is None):
        assert ours is None
    else:
        assert ours is not None
        assert ours.total == theirs.total_price
        assert ours.output == theirs.output_price
