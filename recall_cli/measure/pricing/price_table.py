"""The bundled price table (genai-prices): dated list prices, offline, as sheets of unit prices."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from recall_cli.measure.pricing.rates import KINDS, ZERO, Rates, Sheet, batch

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

PRICE_KEYS = {kind: f"{kind}_mtok" for kind in KINDS}
"""Our names of what tokens are billed as, to those of the table (dollars per million)."""
ALIASES = {"bedrock": "aws", "azure_ai": "azure", "vertex_ai": "google", "gemini": "google", "together_ai": "together",
           "fireworks_ai": "fireworks", "xai": "x-ai"}  # fmt: skip
"""LiteLLM's names of vendors, to those of the price table."""


class BundledTable:
    """List prices by vendor, model, service tier and day; import and table load happen on the first look-up."""

    def find(self, provider: str, model: str) -> BundledListing | None:
        """Return the model's listing, or None when the table does not know it."""
        from genai_prices import data_snapshot

        if not model:
            return None
        vendor, name = split_vendor(provider, model)
        try:
            seller, info = data_snapshot.get_snapshot().find_provider_model(name, None, vendor, None)
        except LookupError:
            return None
        # A vendor that resells another's model at its list price does not take over its special tiers.
        return BundledListing(info, tiers=any(info is own for own in seller.models))

    def describe(self) -> dict[str, Any]:
        """Return which table this is; its date is that of the newest price change in it."""
        import genai_prices

        return {"name": "genai-prices", "version": genai_prices.__version__, "date": _newest(), "currency": "USD"}


class BundledListing:
    """One model of the table."""

    def __init__(self, info: ModelInfo, *, tiers: bool) -> None:
        self._info = info
        self._tiers = tiers

    def sheet(self, when: float, tier: str) -> Sheet | None:
        """Return the prices at a time in seconds since the epoch; a tier the table lacks falls back to standard."""
        at = datetime.fromtimestamp(when, UTC)
        standard = self._info.get_prices(at)
        if not tier:
            return _sheet(standard)
        context = {"processing": "batch"} if tier == "batch" else {"service_tier": tier}
        asked = self._info.get_prices(at, context) if self._tiers else standard
        if asked != standard:
            return _sheet(asked)
        found = _sheet(standard)
        return batch(found) if tier == "batch" else Sheet(found.base, found.steps, tier_priced=False)


def _sheet(prices: ModelPrice) -> Sheet:
    listed = {kind: price for kind, key in PRICE_KEYS.items() if (price := vars(prices).get(key)) is not None}
    fee = vars(prices).get("requests_kcount")
    # A stepped fee a call does not occur; were one added, its base would be the honest part of it.
    call = ZERO if fee is None else getattr(fee, "base", fee) / 1000
    starts = {0} | {step.start for price in listed.values() for step in getattr(price, "tiers", ())}
    rates = {
        start: Rates.per_million({kind: _at(price, start) for kind, price in listed.items()}, call=call)
        for start in starts
    }
    return Sheet.of(rates)


def _at(price: Any, start: int) -> Decimal:
    """Return the price just above a step."""
    if isinstance(price, Decimal):
        return price
    reached = [step.price for step in price.tiers if 0 < step.start <= start]
    return Decimal(reached[-1] if reached else price.base)


def split_vendor(provider: str, model: str) -> tuple[str, str]:
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


@cache
def _newest() -> str:
    """Return the day of the newest dated price that has come into force, "" when no price is dated."""
    from genai_prices.data import providers

    today = datetime.now(UTC).date()
    days = [
        start
        for provider in providers
        for model in provider.models
        for dated in (*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ()))
        if (start := getattr(dated.constraint, "start_date", None)) is not None and start <= today
    ]
    return max(days).isoformat() if days else ""
