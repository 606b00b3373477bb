"""Which engine and setting holds: the gate on recall, and the search for the cheapest that passes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from recall_cli import stats
from recall_cli.cache.index.auto import index_spec
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure.ann import ann_bench
from recall_cli.measure.ann.plan import AnnPlan, Setting, filled, settings
from recall_cli.types import Progress, Result, Warn

NEAR, ALL = "near", "all"
DEFAULT_RECALL = 0.98
SPARE_QUERIES = 1.6
"""Queries asked over the fewest that could prove the limit: so that one or two misses do not decide."""


@dataclass(frozen=True, slots=True)
class RecallGate:
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


def gate(min_recall: float | None, on: str, *, tune: bool) -> RecallGate | None:
    """Return the gate that was asked for, None for none; tuning without a limit takes `DEFAULT_RECALL`."""
    limit = RecallGate(DEFAULT_RECALL if min_recall is None else min_recall, on)
    return None if min_recall is None and not tune else limit


def wide(plan: AnnPlan) -> AnnPlan:
    """Return the plan with what tuning walks where the user gave no list. Raises UsageError for several neighbours."""
    if plan.top_k != (1,):
        raise UsageError(
            "--tune finds an --index, and how many neighbours are asked for is no part of one",
            hint="leave --top-k out, or measure it without --tune",
        )
    return replace(
        plan,
        refine=plan.refine or (32, 48, 96, 192),
        M=plan.M or (16, 32),
        ef_search=plan.ef_search or (32, 64, 96, 160, 320, 640),
    )


def _grid(plan: AnnPlan, dim: int) -> list[Setting]:
    """Return the settings that tuning walks: without --codes, a code for two dimensions and one for each."""
    return settings(replace(filled(plan), codes=plan.codes or (max(1, dim // 2), dim)), dim)


def run(
    plan: AnnPlan,
    limit: RecallGate | None,
    *,
    tune: bool = False,
    progress: Progress | None = None,
    checkpoint: Callable[[Result], None] | None = None,
    done: Result | None = None,
) -> Result:
    """Measure the plan with enough queries for the limit; say what holds and, when tuning, the cheapest that does."""
    needed = max(plan.queries, limit.queries() if limit else 0)
    raised = needed > plan.queries
    plan = replace(wide(plan) if tune else plan, queries=needed)
    result = ann_bench.run(
        plan,
        grid=partial(_grid, plan) if tune else None,
        asked={"tune": tune, "min_recall": limit and limit.min_recall, "gate": limit and limit.on},
        progress=progress,
        checkpoint=checkpoint,
        done=done,
    )
    if limit is not None:
        _judge(result, limit, plan, tune=tune)
        if raised:
            result.warnings.append(
                Warn(
                    "QUERIES_RAISED",
                    f"{needed:,} queries of each kind are asked: fewer cannot prove {limit.min_recall:g}",
                )
            )
    return result


def _judge(result: Result, limit: RecallGate, plan: AnnPlan, *, tune: bool) -> None:
    for row in result.rows:
        row["holds"] = limit.holds(row)
    result.summary |= {"min_recall": limit.min_recall, "gate": limit.on}
    if tune:
        result.summary["chosen"] = list(_chosen(result.rows, plan))
    else:
        result.summary["failed"] = sum(not row["holds"] for row in result.rows)


def check(result: Result, limit: RecallGate | None) -> None:
    """Raise GateFailed when a setting (tuning: a whole cell) misses the limit, KeyboardInterrupt after Ctrl-C."""
    if result.summary.get("interrupted"):
        raise KeyboardInterrupt
    if limit is None:
        return
    for row in result.rows:
        _refuse_too_few(row, limit, result.params["tau"])
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


def _refuse_too_few(row: dict[str, Any], limit: RecallGate, tau: float) -> None:
    """Raise GateFailed where even an index that finds everything could not be proved to reach the limit."""
    n = row["near_n"] if limit.on == NEAR else row["n"]
    if n and stats.wilson(n, n)[0] >= limit.min_recall:
        return
    where = f"{row['data']}, {row['dims']} dims, {row['corpus']:,} rows"
    if limit.on == ALL:
        raise GateFailed(
            f"{where}: {n:,} queries cannot prove a recall@1 of {limit.min_recall:g}",
            hint="give a larger file, or a lower --min-recall",
        )
    raise GateFailed(
        f"{where}: {f'only {n:,} queries have' if n else 'no query has'} a neighbour at cosine {tau:g} or nearer, "
        f"which cannot prove a recall@1 of {limit.min_recall:g}",
        hint="plant nearer ones with --near, lower --tau, or judge all queries with --gate all",
    )


def _chosen(rows: list[dict[str, Any]], plan: AnnPlan) -> Iterator[dict[str, Any]]:
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
