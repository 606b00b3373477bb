"""What a reader of a bench should know about the run: typed warnings, each with what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.measure.inputs import LOG
from recall_cli.measure.prompts import Kind, Workload
from recall_cli.measure.timing import Arm
from recall_cli.types import Warn

OUTLIER_SHARE = 0.05
"""Above this share even the p90 begins to show the machine, not the code; one or two per cent is any shared machine."""

FEW_QUERIES = 30
"""Below this a 95 % interval of a rate spans a third of the scale."""

PARTS_EXCESS = 0.05
"""Parts that sum to more than this over their whole were not measured on the same machine, so to speak."""

ROUND_SPREAD = 0.30
"""Rounds whose medians spread by more than this (p10 to p90 over the median) saw a changing machine."""

FLOOR_SHARE = 0.10
"""Reading the clock should be under a tenth of what is measured."""


def warnings(rows: Sequence[dict[str, Any]], work: Workload, arms: Sequence[Arm], floor_ns: float) -> list[Warn]:
    """Return the warnings of a run: what is unusual about it, not what is so in every run."""
    found: list[Warn] = []
    if any(query.kind is Kind.UNLABELLED for query in work.queries):
        found.append(
            Warn(
                "UNLABELLED",
                "these prompts carry no labels, so nobody knows which hits are wrong",
                "hit rates from them are an upper bound of what is safe to serve",
            )
        )
    if work.name == LOG:
        found.append(
            Warn(
                "WITHOUT_WALLS",
                "a log's requests are asked by their last words alone: tenants and system prompts are no walls here",
                "recall savings LOG keeps them apart, as a cache must",
            )
        )
    if len(work.queries) < FEW_QUERIES:
        found.append(
            Warn(
                "FEW_QUERIES",
                f"rates from {len(work.queries)} queries are hardly more than a guess: see their intervals",
                f"give {FEW_QUERIES} prompts or more",
            )
        )
    if arms and len(arms[0].samples) < stats.MIN_SAMPLES_P99:
        found.append(
            Warn(
                "TOO_FEW_FOR_P99",
                f"{len(arms[0].samples)} lookups are too few for a p99",
                f"pass --lookups {stats.MIN_SAMPLES_P99} or more",
            )
        )
    return found + _machine(rows, arms, floor_ns)


def _machine(rows: Sequence[dict[str, Any]], arms: Sequence[Arm], floor_ns: float) -> list[Warn]:
    found: list[Warn] = []
    near_floor = [arm.name for arm in arms if floor_ns > FLOOR_SHARE * float(np.median(arm.samples))]
    if near_floor:
        found.append(
            Warn(
                "TIMER_FLOOR",
                f"reading the clock takes {floor_ns:.0f} ns, over a tenth of: {', '.join(sorted(set(near_floor)))}",
                "read these as upper bounds",
            )
        )
    noisy = [arm.name for arm in arms if _spread(arm) > ROUND_SPREAD]
    uneven = [row for row in rows if "share_us" in row and _excess(row) > PARTS_EXCESS]
    if len(noisy) > len(arms) / 4 or uneven:
        found.append(
            Warn(
                "NOISY_HOST",
                f"the machine changed speed during the run ({len(noisy)} of {len(arms)} arms, "
                f"parts over their whole in {len(uneven)} rows)",
                "trust ratios within this run; stop other work and run again for absolute times",
            )
        )
    outliers = [arm.name for arm in arms if stats.outlier_share(arm.samples) > OUTLIER_SHARE]
    if outliers:
        found.append(
            Warn(
                "OUTLIERS",
                f"over {OUTLIER_SHARE:.0%} of calls were outliers in: {', '.join(sorted(set(outliers)))}",
                "p99 shows the scheduler there; p50 is unmoved",
            )
        )
    return found


def _excess(row: dict[str, Any]) -> float:
    """Return by how much of the whole lookup its parts, which are timed apart, exceed it."""
    parts = row["share_us"]
    whole = float(row["lookup_us"]["p50"])
    return float(parts["identity"] + parts["embed"] + parts["search"]) / whole - 1


def _spread(arm: Arm) -> float:
    low, middle, high = np.quantile(arm.rounds, [0.1, 0.5, 0.9])
    return float((high - low) / middle) if middle else 0.0
