"""What one call costs under one price list: unit prices, long-context steps, exact decimal arithmetic.

A list's prices are linear in the token counts between two steps, so a call is priced in a few microseconds from unit
prices that were looked up once for its model and day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from recall_cli.types import Usage

KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
"""What a token can be billed as; the names are those of a price file too."""
MILLION = Decimal(1_000_000)
ZERO = Decimal(0)


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


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars a token; None where a list names no such price.

    Cached or cache-writing input without a price of its own is billed as input; an hour's write as a write.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    call: Decimal = ZERO
    """Dollars a call, whatever its tokens; counted as input."""

    @staticmethod
    def per_million(prices: Mapping[str, Decimal | None], *, call: Decimal = ZERO) -> Rates:
        """Return the rates of prices in dollars per million tokens, by kind."""
        unit = {kind: None if price is None else price / MILLION for kind, price in prices.items()}
        return Rates(**unit, call=call)

    def scaled(self, by: Decimal) -> Rates:
        """Return every rate times a factor: what a batch discount does."""
        return Rates(**{k: None if rate is None else rate * by for k, rate in self._named()}, call=self.call * by)

    def over(self, other: Rates) -> Rates:
        """Return these rates, and those of another list where this one names none."""
        theirs = dict(other._named())
        named = {kind: theirs[kind] if rate is None else rate for kind, rate in self._named()}
        return Rates(**named, call=self.call or other.call)

    def cost(self, usage: Usage) -> Cost | None:
        """Return what a call costs; None when its counts contradict each other or a price it needs is missing."""
        rate_in, rate_out = self.input, self.output
        if (rate_in is None and usage.input) or (rate_out is None and usage.output):
            return None
        rate_in, output = rate_in or ZERO, (rate_out or ZERO) * usage.output
        read, write, hour = usage.cache_read, usage.cache_write, usage.cache_write_1h
        full = rate_in * usage.input + self.call
        if not (read or write):
            return Cost(full, output, full + output)
        fresh = usage.input - read - write
        if fresh < 0 or hour > write:
            return None
        rate_read = rate_in if self.cache_read is None else self.cache_read
        rate_write = rate_in if self.cache_write is None else self.cache_write
        real = rate_in * fresh + rate_read * read + rate_write * (write - hour) + self.call
        if hour:
            real += (rate_write if self.cache_write_1h is None else self.cache_write_1h) * hour
        return Cost(real, output, full + output)

    def _named(self) -> list[tuple[str, Decimal | None]]:
        return [(kind, getattr(self, kind)) for kind in KINDS]


@dataclass(frozen=True, slots=True)
class RateSheet:
    """The rates of one model on one day: one set up to each long-context step, chosen by the whole input."""

    base: Rates
    steps: tuple[tuple[int, Rates], ...] = ()
    """(input tokens above which the rates apply to the whole call, rates), lowest step first."""
    tier_priced: bool = True
    """Whether the rates are those of the service tier asked for; else they are the standard ones."""
    halved: bool = False
    """Whether they are half of the standard ones, for want of a list's own price of batches."""

    @staticmethod
    def of(steps: Mapping[int, Rates], *, tier_priced: bool = True) -> RateSheet:
        """Return a sheet from rates by step; step 0 is the base, and a step inherits what it does not name."""
        below = steps.get(0, Rates())
        base, named = below, []
        for above in sorted(step for step in steps if step):
            below = steps[above].over(below)
            named.append((above, below))
        return RateSheet(base, tuple(named), tier_priced)

    def scaled(self, by: Decimal) -> RateSheet:
        """Return the sheet with every rate times a factor."""
        return RateSheet(self.base.scaled(by), tuple((above, rates.scaled(by)) for above, rates in self.steps))

    def cost(self, usage: Usage) -> Cost | None:
        """Return what a call costs, None when the sheet cannot say."""
        rates = self.base
        for above, higher in self.steps:
            if usage.input <= above:
                break
            rates = higher
        return rates.cost(usage)


def batch(standard: RateSheet) -> RateSheet:
    """Return the sheet of batch calls where a list has none: half of everything.

    OpenAI and Anthropic bill their batch interfaces at 50 % of list price, cached input included; a vendor with other
    terms needs prices of its own for the tier (--prices).
    """
    return replace(standard.scaled(Decimal("0.5")), halved=True)
