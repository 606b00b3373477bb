"""What a cache costs beside what it saves: embedding, checking, false hits; and whether our prices match the bill.

All of it falls on the semantic tier: exact keys need no embedding, and their answers need no check. With S dollars
saved by n semantic hits, costs C, a share f of false hits and a harm H of each beyond the call that is paid again,
the tier is worth S - C - f (S + n H); it breaks even at f* = (S - C) / (S + n H).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from recall_cli.cache.embed.registry import reads, reads_word
from recall_cli.errors import UsageError
from recall_cli.measure.pricing.rates import ZERO
from recall_cli.measure.pricing.tokens import size
from recall_cli.types import Embedder, Vector

HOUR_S = 3600
ONE = Decimal(1)
ONE_IN_A_HUNDRED = Decimal("0.01")
"""The false-hit rate at which the bearable harm is printed when none was named."""
SAME_COST = Decimal("0.01")
"""Two costs of a call within 1 % are the same: some logs round theirs to six decimals."""


@dataclass(frozen=True, slots=True)
class CostPlan:
    """What running the cache is taken to cost; None is "not said", which is not the same as free."""

    embed_price: Decimal | None = None
    """Dollars per million tokens embedded by an API."""
    cpu_price: Decimal | None = None
    """Dollars an hour of one core, for embedding on your own machine."""
    verify_sample: Decimal = ZERO
    """Share of semantic hits that the model answers too, to compare: their saving is lost."""
    judge_price: Decimal = ZERO
    """Dollars of a check of each semantic hit (--verify-on-hit)."""
    false_hit_rate: Decimal | None = None
    false_hit_cost: Decimal = ZERO
    """Dollars of harm of one false hit, beyond the call that is paid again."""

    def __post_init__(self) -> None:
        for name, share in (("--verify-sample", self.verify_sample), ("--false-hit-rate", self.false_hit_rate)):
            if share is not None and not 0 <= share <= 1:
                raise UsageError(f"{name} {share} is no share", hint="0.05 means 5 %")
        for name, usd in (
            ("--embed-price", self.embed_price),
            ("--cpu-price", self.cpu_price),
            ("--verify-on-hit", self.judge_price),
            ("--false-hit-cost", self.false_hit_cost),
        ):
            if usd is not None and usd < 0:
                raise UsageError(f"{name} {usd} is below 0", hint="give dollars, as in 0.002")


@dataclass(frozen=True, slots=True)
class Embedded:
    """What embedding took: measured on the distinct texts, and how many look-ups a cache would embed."""

    texts: int
    tokens: int
    """Estimated from the characters."""
    cpu_s: float
    lookups: int

    @property
    def scale(self) -> Decimal:
        """Return the look-ups for each distinct text: a cache embeds every one of them."""
        return Decimal(self.lookups) / self.texts if self.texts else ZERO


class Metered:
    """An embedder that counts what it does; CPU seconds are those of all threads."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name, self.dim, self.fingerprint = embedder.name, embedder.dim, embedder.fingerprint
        self.texts = 0
        self.cpu_s = 0.0
        self._size = 0.0
        self.reads, self.reads_word = reads(embedder), reads_word(embedder)

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (dim,)."""
        vector: Vector = self.embed_many([text])[0]
        return vector

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), dim)."""
        before = time.process_time()
        vectors = self._embedder.embed_many(texts)
        self.cpu_s += time.process_time() - before
        self.texts += len(texts)
        self._size += sum(map(size, texts))
        return vectors

    def embedded(self, lookups: int) -> Embedded:
        """Return what was measured, for a cache with so many look-ups that need a vector."""
        return Embedded(self.texts, round(self._size), self.cpu_s, lookups)


def cache_costs(
    plan: CostPlan, embedded: Embedded, *, saved: Decimal, semantic: Decimal, hits: int, opinion_cpu_s: float = 0.0
) -> dict[str, Any]:
    """Return each cost in dollars (None where no price was named), what is left, and where the tier breaks even.

    :param saved: by all tiers, before costs; `semantic` is the part of its `hits` semantic hits.
    :param opinion_cpu_s: processor time of a local second opinion, which costs what the core costs.
    """
    tokens, cpu_s = embedded.tokens * embedded.scale, Decimal(embedded.cpu_s) * embedded.scale
    embedding = None
    if plan.embed_price is not None:
        embedding = tokens * plan.embed_price / 1_000_000
    if plan.cpu_price is not None:
        embedding = (embedding or ZERO) + cpu_s * plan.cpu_price / HOUR_S
    sampled = plan.verify_sample * semantic
    judged = plan.judge_price * hits + Decimal(opinion_cpu_s) * (plan.cpu_price or ZERO) / HOUR_S
    running = (embedding or ZERO) + sampled + judged
    at_stake = semantic + hits * plan.false_hit_cost
    false_hits = None if plan.false_hit_rate is None else plan.false_hit_rate * at_stake
    total = running + (false_hits or ZERO)
    left = semantic - running
    bearable = (left / ONE_IN_A_HUNDRED - semantic) / hits if hits else None
    return {
        "lookups_embedded": embedded.lookups,
        "embedded_tokens": round(tokens),
        "embed_cpu_s": float(cpu_s),
        "embed_usd": embedding,
        "verify_sample_usd": sampled,
        "judge_usd": judged,
        "false_hit_rate": plan.false_hit_rate,
        "false_hit_cost_usd": plan.false_hit_cost,
        "false_hits_usd": false_hits,
        "total_usd": total,
        "saved_net_usd": saved - total,
        "semantic_net_usd": semantic - total,
        "break_even_false_hit_rate": min(ONE, max(ZERO, left / at_stake)) if at_stake else None,
        "bearable_harm_usd_at_1_percent": None if bearable is None else max(ZERO, bearable),
    }


class Reconciliation:
    """Our prices beside what the log says its calls cost, row by row, in two sums."""

    def __init__(self) -> None:
        self._both = self._differ = self._logged_only = 0
        self._ours = self._theirs = self._unpriced = ZERO

    def add(self, priced: Decimal | None, logged: Decimal | None) -> None:
        """Count one call; None where either side has no cost."""
        if logged is None:
            return
        if priced is None:
            self._logged_only += 1
            self._unpriced += logged
            return
        self._both += 1
        self._ours += priced
        self._theirs += logged
        self._differ += abs(priced - logged) > SAME_COST * max(priced, logged)

    def summary(self, *, spend: Decimal, saved: Decimal, invoice: Decimal | None) -> dict[str, Any] | None:
        """Return how far our prices are from the log's costs and the invoice; None with nothing to compare."""
        if not self._both and not self._logged_only and invoice is None:
            return None
        # The invoice is the truth: where it differs, what is saved is taken to differ in the same ratio.
        ratio = invoice / spend if invoice is not None and spend else None
        return {
            "rows": self._both,
            "rows_differing": self._differ,
            "priced_usd": self._ours,
            "logged_usd": self._theirs,
            "gap": self._ours / self._theirs - 1 if self._theirs else None,
            "logged_without_price": {"rows": self._logged_only, "usd": self._unpriced},
            "invoice_usd": invoice,
            "invoice_over_priced": ratio,
            "saved_usd_at_invoice": None if ratio is None else saved * ratio,
        }
