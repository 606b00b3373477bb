"""What a call cost: list prices of the day it was made, from the bundled table of genai-prices.

Cached input, cache writes of both lifetimes, long-context tiers and service tiers are the library's
arithmetic. A model it does not know has no price: it is never guessed and never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

from recall_cli.types import Usage

SLOT_S = 1800
"""Prices are looked up per half hour: the finest step at which any price in the table changes."""
MEMO = 1 << 17
"""A look-up costs ~0.1 ms; calls with the same counts, model and half hour share one."""

STANDARD_TIERS = ("", "default", "standard", "auto")
ALIASES = {"bedrock": "aws", "azure_ai": "azure", "vertex_ai": "google", "gemini": "google", "together_ai": "together",
           "fireworks_ai": "fireworks", "xai": "x-ai"}  # fmt: skip
"""LiteLLM's names of vendors, to those of the price table."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars of one call, and what it would be if every input token cost the full input price."""

    input: Decimal
    output: Decimal
    naive: Decimal

    @property
    def total(self) -> Decimal:
        """Return input plus output."""
        return self.input + self.output


class PriceBook:
    """Prices by model, date and token counts; import and table load happen on the first look-up."""

    def __init__(self) -> None:
        self._cost = lru_cache(maxsize=MEMO)(_cost)

    def cost(self, provider: str, model: str, usage: Usage, *, when: float, tier: str = "") -> Cost | None:
        """Return what a call cost, or None when the table has no price for its model.

        :param provider: the API dialect; a prefix of the model ("azure/gpt-4o") says it better.
        :param when: seconds since the epoch: the price of that day counts.
        """
        return self._cost(provider, model, usage, when // SLOT_S * SLOT_S, "" if tier in STANDARD_TIERS else tier)

    def source(self) -> dict[str, Any]:
        """Return which table the prices come from."""
        import genai_prices

        return {"name": "genai-prices", "version": genai_prices.__version__, "currency": "USD"}


def _cost(provider: str, model: str, usage: Usage, when: float, tier: str) -> Cost | None:
    vendor, name = _split(provider, model)
    real = _calculate(vendor, name, usage, when, tier)
    if real is None:
        return None
    if not (usage.cache_read or usage.cache_write):
        return Cost(*real, naive=sum(real, Decimal(0)))
    plain = _calculate(vendor, name, Usage(usage.input, usage.output), when, tier)
    return Cost(*real, naive=sum(plain or real, Decimal(0)))


def _calculate(vendor: str, model: str, usage: Usage, when: float, tier: str) -> tuple[Decimal, Decimal] | None:
    import genai_prices

    counts = {"input_tokens": usage.input, "output_tokens": usage.output}
    if usage.cache_read:
        counts["cache_read_tokens"] = usage.cache_read
    if usage.cache_write:
        counts["cache_write_tokens"] = usage.cache_write
        counts["cache_write_1h_tokens"] = usage.cache_write_1h
    context = {"processing": "batch"} if tier == "batch" else {"service_tier": tier} if tier else None
    try:
        price = genai_prices.calc_price(
            genai_prices.Usage(**counts),
            model,
            provider_id=vendor,
            genai_request_timestamp=datetime.fromtimestamp(when, UTC),
            price_context=context,
        )
    except (LookupError, ValueError):
        return None
    priced = [name for name, rate in vars(price.model_price).items() if rate is not None]
    for direction, count in (("input", usage.input), ("output", usage.output)):
        if count and not any(name.startswith(direction) for name in priced):
            # Listed without such a price: not the same as free.
            return None
    return price.input_price, price.output_price


def _split(provider: str, model: str) -> tuple[str, str]:
    """Return (vendor in the price table, model name there) of a possibly qualified model."""
    head, slash, rest = model.partition("/")
    vendor = ALIASES.get(head, head)
    # Only a vendor's exact name: "meta-llama/..." is a model, not a call to Meta.
    if slash and vendor in _vendors():
        return vendor, rest
    return provider, model


@cache
def _vendors() -> frozenset[str]:
    from genai_prices.data import providers

    return frozenset(provider.id for provider in providers)
