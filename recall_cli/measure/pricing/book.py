"""What a call cost, by whichever list knows its model first: `--price`, `--prices FILE`, then the bundled table.

Cached input, cache writes of both lifetimes, long-context steps, service tiers and the day of the call all count.
A model that no list knows has no price: it is counted by name, never guessed and never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from recall_cli.measure.pricing.rates import Cost, RateSheet
from recall_cli.measure.pricing.sources import BundledTable, OwnPrices, parse_flags, read_prices, split_vendor
from recall_cli.types import Usage

SLOT_S = 1800
"""Prices are looked up per half hour: the finest step at which any price in the table changes."""
HALVING = ("openai", "anthropic")
"""Vendors that say they bill batches at half the list price."""
STANDARD_TIERS = ("", "default", "standard", "auto")


class Listing(Protocol):
    """One model in one list of prices."""

    def sheet(self, when: float, tier: str) -> RateSheet | None:
        """Return the prices at a time (seconds since the epoch), None when the list has none for it."""


class PriceList(Protocol):
    """A list of prices."""

    def find(self, provider: str, model: str) -> Listing | None:
        """Return the listing of a model, None when the list does not know it."""

    def describe(self) -> dict[str, Any]:
        """Return name, version, date and currency."""


class _Found:
    """One look-up and how many calls used it."""

    __slots__ = ("calls", "sheet", "source", "unpriced")

    def __init__(self, sheet: RateSheet | None, source: int) -> None:
        self.sheet = sheet
        self.source = source
        self.calls = 0
        self.unpriced = 0


class PriceBook:
    """Prices by model, day, service tier and token counts, and a count of what was priced how.

    A look-up in the table takes ~0.1 ms, so it is done once a model, tier and half hour; a call then takes ~2 us.
    """

    def __init__(self, lists: Sequence[PriceList] = ()) -> None:
        """Take lists to be asked before the bundled table, in order."""
        self._lists: list[PriceList] = [*lists, BundledTable()]
        self._listings: dict[tuple[str, str], list[tuple[int, Listing]]] = {}
        self._found: dict[tuple[str, str, str, float], _Found] = {}

    def cost(self, provider: str, model: str, usage: Usage, *, when: float, tier: str = "") -> Cost | None:
        """Return what a call cost, or None when no list has a price for its model.

        :param provider: the API dialect; a prefix of the model ("azure/gpt-4o") says it better.
        :param when: seconds since the epoch: the price of that day counts.
        """
        key = (provider, model, tier, when // SLOT_S)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look_up(provider, model, when // SLOT_S * SLOT_S, tier)
        found.calls += 1
        cost = None if found.sheet is None else found.sheet.cost(usage)
        if cost is None:
            found.unpriced += 1
        return cost

    def source(self) -> dict[str, Any]:
        """Return the list that priced most calls, and every list with the calls it priced."""
        calls: Counter[int] = Counter()
        for found in self._found.values():
            calls[found.source] += found.calls - found.unpriced
        lists = [{**one.describe(), "requests": calls[at]} for at, one in enumerate(self._lists)]
        used = [one for one in lists if one["requests"]] or lists[-1:]
        main = max(used, key=lambda one: int(one["requests"]))
        return {**{key: value for key, value in main.items() if key != "requests"}, "lists": used}

    def unknown(self) -> dict[str, int]:
        """Return the models without a price and their calls, most calls first."""
        counts: Counter[str] = Counter()
        for (_, model, _, _), found in self._found.items():
            counts[model] += found.unpriced
        return {model: calls for model, calls in counts.most_common() if calls}

    def at_standard(self) -> dict[str, int]:
        """Return the service tiers that a list has no price for, and the calls priced at its standard one."""
        counts: Counter[str] = Counter()
        for (_, _, tier, _), found in self._found.items():
            if found.sheet is not None and not found.sheet.tier_priced:
                counts[tier] += found.calls
        return dict(counts)

    def halved(self) -> dict[str, int]:
        """Return the models whose batch calls are priced at half for no better reason than that OpenAI's would be."""
        counts: Counter[str] = Counter()
        for (provider, model, _, _), found in self._found.items():
            if found.sheet is not None and found.sheet.halved and not _halves_batches(provider, model):
                counts[model] += found.calls
        return dict(counts)

    def unused(self) -> list[str]:
        """Return the models of the user's own flags that no call has."""
        own = (one for one in self._lists if isinstance(one, OwnPrices) and one.describe()["name"] == "--price")
        return [model for one in own for model in one.unused()]

    def _look_up(self, provider: str, model: str, when: float, tier: str) -> _Found:
        tier = "" if tier in STANDARD_TIERS else tier
        name = (provider, model)
        if name not in self._listings:
            known = [(at, one.find(provider, model)) for at, one in enumerate(self._lists)]
            self._listings[name] = [(at, listing) for at, listing in known if listing is not None]
        for at, listing in self._listings[name]:
            if (sheet := listing.sheet(when, tier)) is not None:
                return _Found(sheet, at)
        return _Found(None, len(self._lists) - 1)


def _halves_batches(provider: str, model: str) -> bool:
    """Return whether a model is of a vendor that bills batches at half, as far as the bundled table knows the model."""
    return split_vendor(provider, model)[0] in HALVING and BundledTable().find(provider, model) is not None


def price_book(prices: str = "", flags: Sequence[str] = ()) -> PriceBook:
    """Return a book that asks `--price` flags first, then a `--prices` file, then the bundled table."""
    lists: list[PriceList] = []
    if flags:
        lists.append(parse_flags(flags))
    if prices:
        lists.append(read_prices(prices))
    return PriceBook(lists)
