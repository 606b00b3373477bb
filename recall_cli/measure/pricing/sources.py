"""Where prices come from: a file of your own, `--price` options, or the bundled table.

Prices of your own: a file in recall's schema or LiteLLM's, or `--price MODEL=IN,OUT[,READ,WRITE]`.

recall's schema is one JSON object, prices in dollars per million tokens:

    {"source": "our contract", "version": "7", "date": "2026-10-01", "prices": [
      {"model": "gpt-4o", "input": 2.0, "output": 8.0, "cache_read": 1.0},
      {"model": "gpt-4o", "input": 1.8, "output": 7.2, "cache_read": 0.9, "from": "2026-09-01"},
      {"model": "gpt-4o", "tier": "flex", "input": 1.0, "output": 4.0},
      {"model": "claude-sonnet-4-5", "input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
      {"model": "claude-sonnet-4-5", "above": 200000, "input": 6, "output": 22.5}]}

`from` is a UTC day, `above` a number of input tokens, `call` dollars a call. A step above inherits what it does not
name. A model is named as the log names it, or without the vendor (`gpt-4o` for `openai/gpt-4o`) when that vendor is
the API's own: a price for `gpt-4o` is none for `azure/gpt-4o`. `(no model)` prices calls that name none.

The bundled table is genai-prices: dated list prices, offline, as sheets of unit prices.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.pricing.rates import KINDS, MILLION, ZERO, Rates, RateSheet, batch
from recall_cli.measure.prompts import text_bytes
from recall_cli.measure.savings.wording import NO_MODEL

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

    def sheet(self, when: float, tier: str) -> RateSheet | None:
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
        return batch(found) if tier == "batch" else RateSheet(found.base, found.steps, tier_priced=False)


def _sheet(prices: ModelPrice) -> RateSheet:
    listed = {kind: price for kind, key in PRICE_KEYS.items() if (price := vars(prices).get(key)) is not None}
    fee = vars(prices).get("requests_kcount")
    # A stepped fee a call does not occur; were one added, its base would be the honest part of it.
    call = ZERO if fee is None else getattr(fee, "base", fee) / 1000
    starts = {0} | {step.start for price in listed.values() for step in getattr(price, "tiers", ())}
    rates = {
        start: Rates.per_million({kind: _at(price, start) for kind, price in listed.items()}, call=call)
        for start in starts
    }
    return RateSheet.of(rates)


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


LITELLM = re.compile(
    r"(?P<kind>input_cost_per_token|output_cost_per_token|cache_read_input_token_cost"
    r"|cache_creation_input_token_cost_above_1hr|cache_creation_input_token_cost)"
    r"(?:_above_(?P<above>\d+)(?P<thousand>k?)_tokens)?(?:_(?P<tier>batches|flex|priority))?"
)
LITELLM_KINDS = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
}
OWN_KEYS = {*KINDS, "model", "tier", "from", "above", "call"}
HINT = "see recall savings --help for the schema, or pass LiteLLM's model_prices_and_context_window.json"
FLAG_HINT = "write it as in --price gpt-4o=2.50,10 or --price gpt-4o=2.50,10,1.25,0 (dollars per million tokens)"

# (model, tier) -> first second it holds -> input tokens above which -> rates
_Book = dict[tuple[str, str], dict[float, dict[int, Rates]]]


class OwnPrices:
    """Prices by model, service tier, day and step, from a file or from flags."""

    def __init__(self, book: _Book, about: Mapping[str, Any]) -> None:
        self._book = book
        self._about = dict(about)
        self.used: set[str] = set()

    def find(self, provider: str, model: str) -> OwnListing | None:
        """Return the listing of a model, by its full name or by its name at the API's own vendor."""
        vendor, name = split_vendor(provider, model)
        # A trace without models is one whose user knows what answered.
        spellings = [model, *([name, f"{provider}/{name}"] if vendor == provider else [])] if model else [NO_MODEL]
        for known in dict.fromkeys(spellings):
            tiers = {tier: dated for (listed, tier), dated in self._book.items() if listed == known}
            if tiers:
                self.used.add(known)
                return OwnListing(tiers)
        return None

    def unused(self) -> list[str]:
        """Return the models that have a price here and were never asked for."""
        return sorted({model for model, _ in self._book} - self.used)

    def describe(self) -> dict[str, Any]:
        """Return the name, version and date of the list."""
        return dict(self._about)


class OwnListing:
    """One model's prices, by service tier and day."""

    def __init__(self, tiers: Mapping[str, Mapping[float, Mapping[int, Rates]]]) -> None:
        self._tiers = {tier: sorted(dated.items()) for tier, dated in tiers.items()}

    def sheet(self, when: float, tier: str) -> RateSheet | None:
        """Return the prices at a time; None before the first day of the list."""
        named = self._on(tier, when)
        if named is not None or not tier:
            return named
        standard = self._on("", when)
        if standard is None:
            return None
        return batch(standard) if tier == "batch" else RateSheet(standard.base, standard.steps, tier_priced=False)

    def _on(self, tier: str, when: float) -> RateSheet | None:
        dated = self._tiers.get(tier, [])
        at = bisect_right([start for start, _ in dated], when)
        return RateSheet.of(dated[at - 1][1]) if at else None


def read_prices(path: str) -> OwnPrices:
    """Return the prices of a file. Raises InputError when it is not one of the two schemas."""
    try:
        # Decimal from the digits in the file: a float would already have changed the price.
        document = json.loads(text_bytes(Path(path)), parse_float=Decimal, parse_int=Decimal)
    except OSError as error:
        raise InputError(f"the prices {path} cannot be read: {error.strerror or error}", hint=HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the prices {path} are not JSON: {error}", hint=HINT) from error
    if not isinstance(document, dict):
        raise InputError(f"the prices {path} are no JSON object", hint=HINT)
    own = isinstance(document.get("prices"), list)
    rows = _own_rows(document["prices"], path) if own else _litellm_rows(document, path)
    book: _Book = {}
    for model, tier, start, above, rates in rows:
        steps = book.setdefault((model, tier), {}).setdefault(start, {})
        if above in steps:
            raise InputError(f"{path} prices {model} twice for the same tier, day and step", hint="keep one of them")
        steps[above] = rates
    if not book:
        raise InputError(f"{path} holds no price of tokens", hint=HINT)
    named = document if own else {}
    about = {
        "name": str(named.get("source") or Path(path).name),
        "version": str(named.get("version") or ("" if own else "LiteLLM's schema")),
        "date": str(named.get("date") or _modified(path)),
        "currency": "USD",
    }
    return OwnPrices(book, about)


def parse_flags(flags: Sequence[str]) -> OwnPrices:
    """Return the prices of `MODEL=IN,OUT[,READ,WRITE]` flags. Raises UsageError on anything else."""
    book: _Book = {}
    for flag in flags:
        # The last "=": a model's name may hold one, a number may not.
        model, _, numbers = flag.rpartition("=")
        try:
            amounts = [Decimal(text.strip()) for text in numbers.split(",")]
        except InvalidOperation:
            raise UsageError(f"--price {flag!r} is not MODEL=IN,OUT[,READ,WRITE]", hint=FLAG_HINT) from None
        if not model or not 2 <= len(amounts) <= 4 or not all(a.is_finite() and a >= 0 for a in amounts):
            raise UsageError(f"--price {flag!r} is not MODEL=IN,OUT[,READ,WRITE]", hint=FLAG_HINT)
        if (model, "") in book:
            raise UsageError(f"--price names {model} twice", hint="keep one of them")
        book[model, ""] = {0.0: {0: Rates.per_million(dict(zip(KINDS, amounts, strict=False)))}}
    return OwnPrices(book, {"name": "--price", "version": "", "date": "", "currency": "USD"})


_Row = tuple[str, str, float, int, Rates]


def _own_rows(rows: Sequence[Any], path: str) -> Iterator[_Row]:
    for at, row in enumerate(rows, start=1):
        where = f"price {at} of {path}"
        if not isinstance(row, dict) or not isinstance(row.get("model"), str) or not row["model"]:
            raise InputError(f"{where} names no model", hint=HINT)
        if unknown := sorted(row.keys() - OWN_KEYS):
            raise InputError(f"{where} has {unknown[0]!r}, which recall does not know", hint=HINT)
        prices = {kind: _price(row[kind], where, kind) for kind in KINDS if row.get(kind) is not None}
        if not prices:
            raise InputError(f"{where} names no price", hint=HINT)
        above = row.get("above", ZERO)
        if not isinstance(above, Decimal) or above < 0 or above != above.to_integral_value():
            raise InputError(f"{where}: above is no number of tokens", hint=HINT)
        tier = row.get("tier") or ""
        call = _price(row.get("call", ZERO), where, "call")
        yield row["model"], str(tier), _day(row.get("from"), where), int(above), Rates.per_million(prices, call=call)


def _litellm_rows(document: Mapping[str, Any], path: str) -> Iterator[_Row]:
    for model, row in document.items():
        if not isinstance(row, dict) or model == "sample_spec":
            continue
        groups: dict[tuple[str, int], dict[str, Decimal | None]] = {}
        for key, value in row.items():
            found = LITELLM.fullmatch(key)
            if found is None or value is None:
                continue
            kind = LITELLM_KINDS[found["kind"]]
            above = int(found["above"] or 0) * (1000 if found["thousand"] else 1)
            tier = {"batches": "batch"}.get(found["tier"], found["tier"] or "")
            groups.setdefault((tier, above), {})[kind] = _price(value, f"{model} of {path}", key) * MILLION
        for (tier, above), prices in groups.items():
            if tier:
                # Tiers list what differs from the standard price, and batches of cached input are halved as the rest.
                scale = Decimal("0.5") if tier == "batch" else Decimal(1)
                rest = {k: v * scale for k, v in groups.get(("", above), {}).items() if v is not None}
                prices = {**rest, **prices}
            yield model, tier, 0.0, above, Rates.per_million(prices)


def _price(value: Any, where: str, key: str) -> Decimal:
    try:
        # LiteLLM's users write some prices as text.
        price = Decimal(value) if isinstance(value, (str, Decimal)) else Decimal("NaN")
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise InputError(f"{where}: {key} is no price", hint="a price is a number of dollars, 0 or more")
    return price


def _day(value: Any, where: str) -> float:
    if value is None:
        return 0.0
    try:
        day = date.fromisoformat(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: from is no day", hint='write it as in "from": "2026-09-01"') from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _modified(path: str) -> str:
    return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC).date().isoformat()
