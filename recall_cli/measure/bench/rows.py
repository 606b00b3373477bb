"""What a bench makes of its timings: one row an embedder and size, and the ratios to model2vec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.static import TableEmbedder
from recall_cli.measure.bench import correctness
from recall_cli.measure.timing import Arm, microseconds, ratio
from recall_cli.types import Embedder

REFERENCE = "model2vec StaticModel.encode"


@dataclass(slots=True)
class Case:
    """One embedder at one size: a filled cache, what it answered, and its arms."""

    embedder: Embedder
    cache: Cache
    size: int
    tally: correctness.Tally
    index: str
    alone: correctness.Tally | None = None
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
