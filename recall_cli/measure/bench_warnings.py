"""What a reader of a bench should know about the run: typed warnings, each with what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.measure.prompts import Kind, Workload
from recall_cli.measure.timing import Arm
from recall_cli.types import Warn

OUTLIER_SHARE = 0.01
"""Above this share of outliers the p99 shows the machine, not the code."""

ROUND_SPREAD = 0.30
"""Rounds whose medians spread by more than this (p10 to p90 over the median) saw a changing machine."""

FLOOR_SHARE = 0.10
"""Reading the clock should be under a tenth of what is measured."""


def warnings(
    embedders: Sequence[str], work: Workload, arms: Sequence[Arm], floor_ns: float, environment: Mapping[str, Any]
) -> list[Warn]:
    """Return the warnings of a run."""
    found: list[Warn] = []
    if "hash-v1" in embedders:
        found.append(
            Warn("HASH_STUB", "hash-v1 carries no meaning: it catches exact text only, and is here as the floor")
        )
    if any(query.kind is Kind.UNLABELLED for query in work.queries):
        found.append(
            Warn(
                "UNLABELLED",
                "these prompts carry no labels, so nobody knows which hits are wrong",
                "hit rates from them are an upper bound of what is safe to serve",
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
    return found + _machine(arms, floor_ns, environment)


def _machine(arms: Sequence[Arm], floor_ns: float, environment: Mapping[str, Any]) -> list[Warn]:
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
    if len(noisy) > len(arms) / 4:
        found.append(
            Warn(
                "NOISY_HOST",
                f"the machine changed speed during the run ({len(noisy)} of {len(arms)} arms)",
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
    threads = (environment.get("blas") or {}).get("threads")
    if threads is not None and threads > 1:
        found.append(
            Warn(
                "BLAS_THREADS",
                f"exact search may use {threads} BLAS threads here",
                "set OPENBLAS_NUM_THREADS=1 to see what one core does",
            )
        )
    return found


def _spread(arm: Arm) -> float:
    low, middle, high = np.quantile(arm.rounds, [0.1, 0.5, 0.9])
    return float((high - low) / middle) if middle else 0.0
