"""Prices of your own: a file in recall's schema or LiteLLM's, or `--price MODEL=IN,OUT[,READ,WRITE]`.

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
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.pricing.price_table import split_vendor
from recall_cli.measure.pricing.rates import KINDS, MILLION, ZERO, Rates, Sheet, batch
from recall_cli.measure.prompts import text_bytes
from recall_cli.measure.savings.wording import NO_MODEL

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

    def sheet(self, when: float, tier: str) -> Sheet | None:
        """Return the prices at a time; None before the first day of the list."""
        named = self._on(tier, when)
        if named is not None or not tier:
            return named
        standard = self._on("", when)
        if standard is None:
            return None
        return batch(standard) if tier == "batch" else Sheet(standard.base, standard.steps, tier_priced=False)

    def _on(self, tier: str, when: float) -> Sheet | None:
        dated = self._tiers.get(tier, [])
        at = bisect_right([start for start, _ in dated], when)
        return Sheet.of(dated[at - 1][1]) if at else None


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
