"""The money part of a savings report: from replayed columns to costs, a month, groups and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.measure.result import plain
from recall_cli.measure.savings.costs import CostPlan, Embedded, Metered, cache_costs
from recall_cli.measure.savings.rows import Rows
from recall_cli.measure.savings.savings_columns import Examples, Traffic, lookups, total, traffic_of
from recall_cli.measure.savings.savings_groups import by_group, clusters, over_time
from recall_cli.measure.savings.savings_outlook import monthly
from recall_cli.measure.savings.savings_uncounted import Uncounted
from recall_cli.measure.savings.tiers import BY_SEMANTIC, Replayed


@dataclass(frozen=True, slots=True)
class MoneyPlan:
    """What the user says of prices and costs."""

    prices: str = ""
    """A file of prices, "" for none."""
    price: tuple[str, ...] = ()
    """Flags as `MODEL=IN,OUT[,READ,WRITE]`."""
    costs: CostPlan = field(default_factory=CostPlan)
    invoice: Decimal | None = None
    monthly: bool = False
    """Ask for a month also from a log of under a day."""
    count_tokens: bool = False
    text: bool = True
    """Show an example of each cluster."""

    def __post_init__(self) -> None:
        if self.invoice is not None and self.invoice <= 0:
            raise UsageError(f"--invoice {self.invoice} is no bill", hint="give the dollars billed for the log's span")


def money(
    plan: MoneyPlan, rows: Rows, found: Replayed, embedder: Metered | None, uncounted: Uncounted, *, seed: int
) -> dict[str, Any]:
    """Return the parts of the summary that are about dollars beyond the tiers' sums."""
    traffic = traffic_of(rows, found)
    saved, by_semantic = total(traffic.saved), traffic.by(BY_SEMANTIC)
    semantic, hits = total(np.where(by_semantic, traffic.spent, 0)), int(by_semantic.sum())
    embedded = Embedded(0, 0, 0.0, 0) if embedder is None else embedder.embedded(lookups(rows, found))
    costs = plan.costs
    if found.walked is not None and found.walked.audits and hits:
        # The adaptive policy says itself how many of its hits it had checked.
        costs = replace(costs, verify_sample=min(Decimal(1), Decimal(found.walked.audits) / hits))
    told = {
        "cache_costs": cache_costs(
            costs,
            embedded,
            saved=saved,
            semantic=semantic,
            hits=hits,
            opinion_cpu_s=found.walked.opinion_cpu_s if found.walked else 0.0,
        ),
        "monthly": monthly(traffic, forced=plan.monthly, seed=seed),
        "reconciliation": uncounted.reconciliation.summary(
            spend=total(traffic.spent), saved=saved, invoice=plan.invoice
        ),
        "estimated_usage": uncounted.estimator.summary(len(rows)),
        "clusters": _clusters(rows, traffic, text=plan.text),
        "over_time": over_time(traffic),
        "groups": _groups(traffic),
    }
    return {name: plain(part) for name, part in told.items()}


def _clusters(rows: Rows, traffic: Traffic, *, text: bool) -> dict[str, Any]:
    """Return the clusters, with the lines of the log that were first."""
    found = clusters(traffic, Examples(rows) if text else None)
    line = rows.columns.read("line")
    found["top"] = [{"line": int(line[one.pop("row")]), **one} for one in found["top"]]
    return found


def _groups(traffic: Traffic) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by tenant, namespace and hour; a kind with one group alone says nothing new."""
    found = {kind: by_group(traffic, kind) for kind in (*traffic.labels, "hour")}
    return {kind: rows for kind, rows in found.items() if len(rows) > 1}


def params(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a plan as one flat level, money's beside the others."""
    flat = {key: value for key, value in plan.items() if key != "money"}
    inner = dict(plan["money"])
    return {**inner.pop("costs"), **inner, **flat}
