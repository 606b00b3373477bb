"""The rows of a bench: one an embedder and size, with the ratios to model2vec; and the warnings about the run.

Warnings are typed, each with what would help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.static import TableEmbedder
from recall_cli.measure.bench import correctness
from recall_cli.measure.inputs import LOG
from recall_cli.measure.prompts import Kind, Workload
from recall_cli.measure.timing import Arm, microseconds, ratio
from recall_cli.types import Embedder, Warn

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


REFERENCE = "model2vec StaticModel.encode"


@dataclass(slots=True)
class Case:
    """One embedder at one size: a filled cache, what it answered, and its arms."""

    embedder: Embedder
    cache: Cache
    size: int
    tally: correctness.AnswerCounts
    index: str
    alone: correctness.AnswerCounts | None = None
    """What the cutoff answers without the evidence's vetoes; None where they are off or the policy is another."""
    arms: dict[str, Arm] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return how the case is called in the document."""
        return f"{self.embedder.name}@{self.size}"


def row(case: Case, solo: dict[str, Arm]) -> dict[str, Any]:
    """Return the columns of one cache; `solo` are its embedder's own arms."""
    us = {name: microseconds(arm) for name, arm in {**solo, **case.arms}.items() if name != "batch"}
    whole = us["lookup"]["p50"]
    parts = {name: us[name]["p50"] for name in ("identity", "embed", "search")}
    return {
        "embedder": case.embedder.name,
        "dim": case.embedder.dim,
        "entries": case.size,
        "index": case.index,
        "tokens": case.embedder.tokens.way if isinstance(case.embedder, TableEmbedder) else None,
        **correctness.rates(case.tally),
        **{f"{name}_us": value for name, value in us.items()},
        # Arms are timed apart, so the parts need not add up to the whole: the rest is what is left.
        "share_us": {**parts, "rest": max(0.0, round(whole - sum(parts.values()), 3))},
        "prompts_per_s": _per_second(solo["batch"]),
    }


def reference_row(reference: dict[str, Arm]) -> dict[str, Any]:
    """Return the columns of model2vec's own encode."""
    us = {f"{name}_us": microseconds(arm) for name, arm in reference.items() if name != "batch"}
    return {"embedder": REFERENCE, "dim": 256, **us, "prompts_per_s": _per_second(reference["batch"])}


def _per_second(batch: Arm) -> float:
    return round(len(batch.inputs[0]) / (float(np.median(batch.samples)) / 1e9), 1)


def ratios(
    cases: list[Case], solo: dict[str, dict[str, Arm]], reference: dict[str, Arm], seed: int
) -> dict[str, dict[str, Any]]:
    """Return ours over model2vec's encode, times of one call; for batches, theirs over ours (a speed-up)."""
    found: dict[str, dict[str, Any]] = {}
    for name, arms in solo.items():
        for arm in ("embed", "embed_first_seen"):
            found[f"{name}.{arm}"] = ratio(arms[arm], reference[arm], seed)
        found[f"{name}.batch_speedup"] = ratio(reference["batch"], arms["batch"], seed)
    for case in cases:
        for arm in ("lookup", "lookup_first_seen"):
            against = reference["embed" if arm == "lookup" else "embed_first_seen"]
            found[f"{case.name}.{arm}"] = ratio(case.arms[arm], against, seed)
    return found
