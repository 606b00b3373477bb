"""Which engine and setting holds: the gate on recall, and the search for the cheapest that passes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from recall_cli import stats
from recall_cli.core.index import index_spec
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure import ann
from recall_cli.types import Progress, Result, Warn

NEAR, ALL = "near", "all"
DEFAULT_RECALL = 0.98
SPARE_QUERIES = 1.6
"""Queries asked over the fewest that could prove the limit: so that one or two misses do not decide."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit on recall@1: the lower end of its 95 % interval must reach it.

    `on` is "near" (queries whose true neighbour is at tau or closer: what a cache could serve) or "all".
    """

    min_recall: float
    on: str = NEAR

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        if not 0 < self.min_recall < 1:
            raise UsageError(
                f"--min-recall {self.min_recall:g} is not a rate between 0 and 1",
                hint="no number of queries can prove a recall of exactly 1: ask for 0.999",
            )
        if self.on not in (NEAR, ALL):
            raise UsageError(f"--gate {self.on} is unknown", hint=f"choose {NEAR} or {ALL}")

    def queries(self) -> int:
        """Return how many queries of each kind the limit takes to be provable, with some to spare."""
        odds = self.min_recall / (1 - self.min_recall)
        return math.ceil(SPARE_QUERIES * stats.Z_95**2 * odds)

    def holds(self, row: dict[str, Any]) -> bool:
        """Return whether a row's recall is proved to reach the limit."""
        interval = row["recall_at_1_near_interval" if self.on == NEAR else "recall_at_1_interval"]
        return interval is not None and interval[0] >= self.min_recall


def gate(min_recall: float | None, on: str, *, tune: bool) -> Gate | None:
    """Return the gate that was asked for, None for none; tuning without a limit takes `DEFAULT_RECALL`."""
    if min_recall is None and not tune:
        return None
    return Gate(DEFAULT_RECALL if min_recall is None else min_recall, on)


def wide(plan: ann.Plan, dim: int) -> ann.Plan:
    """Return the plan with the grid that tuning walks where the user gave no list."""
    default = ann.Plan()
    return replace(
        plan,
        codes=plan.codes or (max(1, dim // 2), dim),
        refine=(32, 48, 96, 192) if plan.refine == default.refine else plan.refine,
        M=(16, 32) if plan.M == default.M else plan.M,
        ef_search=(32, 64, 96, 160, 320, 640) if plan.ef_search == default.ef_search else plan.ef_search,
    )


def run(
    plan: ann.Plan,
    limit: Gate | None,
    *,
    tune: bool = False,
    progress: Progress | None = None,
    checkpoint: Callable[[Result], None] | None = None,
    done: Result | None = None,
) -> Result:
    """Measure the plan with enough queries for the limit; say what holds and, when tuning, the cheapest that does."""
    if limit is None:
        return ann.run(plan, progress=progress, checkpoint=checkpoint, done=done)
    needed = max(plan.queries, limit.queries())
    result = ann.run(
        replace(plan, queries=needed),
        grid=(lambda dim: ann.settings(wide(plan, dim), dim)) if tune else None,
        progress=progress,
        checkpoint=checkpoint,
        done=done,
    )
    for row in result.rows:
        row["holds"] = limit.holds(row)
    result.summary |= {"min_recall": limit.min_recall, "gate": limit.on}
    if tune:
        result.summary["chosen"] = list(_chosen(result.rows, plan))
    else:
        result.summary["failed"] = sum(not row["holds"] for row in result.rows)
    if needed > plan.queries:
        result.warnings.append(
            Warn(
                "QUERIES_RAISED", f"{needed:,} queries of each kind are asked: fewer cannot prove {limit.min_recall:g}"
            )
        )
    return result


def check(result: Result, limit: Gate | None) -> None:
    """Raise GateFailed when a setting (tuning: a whole cell) misses the limit, KeyboardInterrupt after Ctrl-C."""
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    if limit is None:
        return
    what = f"recall@1 of {limit.min_recall:g} ({'given a near neighbour' if limit.on == NEAR else 'of all queries'})"
    chosen = result.summary.get("chosen")
    if chosen is not None:
        without = [cell for cell in chosen if cell["index"] is None]
        if without:
            cell = without[0]
            raise GateFailed(
                f"no setting holds a {what} on {cell['data']}, {cell['dims']} dims, {cell['corpus']:,} rows",
                hint="add the engine exact, or wider lists: --ef-search, --M, --codes, --refine",
            )
    elif result.summary["failed"]:
        raise GateFailed(
            f"{result.summary['failed']} of {len(result.rows)} settings do not hold a {what}",
            hint="find one that does with --tune",
        )


def _chosen(rows: list[dict[str, Any]], plan: ann.Plan) -> Iterator[dict[str, Any]]:
    """Yield each cell's cheapest row that holds, with the flag to paste."""
    for (data, dims, corpus), cell in groupby(rows, key=lambda row: (row["data"], row["dims"], row["corpus"])):
        rows_here = list(cell)
        able = [row for row in rows_here if row["holds"] and row["engine"] in plan.engines]
        best = min(able, key=lambda row: row["p50_us"], default=None)
        yield {
            "data": data,
            "dims": dims,
            "corpus": corpus,
            "index": index_spec(best["engine"], best["params"]) if best else None,
            "p50_us": best and best["p50_us"],
            "exact_p50_us": next(row["p50_us"] for row in rows_here if row["engine"] == "exact"),
        }
