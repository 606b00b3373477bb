"""What a reader must know of how a log was replayed, each with a next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recall_cli.measure.columns import Names
from recall_cli.measure.savings.rows import MOST
from recall_cli.types import Warn


def replay_warnings(summary: Mapping[str, Any]) -> list[Warn]:
    """Return the warnings about what was sampled, left out, or not believed."""
    sample, semantic = summary["sample"], summary["tiers"].get("semantic", {})
    found = [
        Warn(
            "sampled_namespaces",
            f"{sample['requests_left_out']:,} requests of other namespaces are not measured: all figures but those "
            "said to be of all are of the sample, and their intervals are as wide as namespaces differ",
            "raise --sample to narrow them",
        )
        if sample
        else None,
        Warn(
            "texts_left_out",
            f"{summary['texts_left_out']:,} requests are only found by their keys: the log has more distinct prompts "
            "than are embedded, so the semantic hits are a lower bound",
            "measure a share of the namespaces whole: --sample 0.1",
        )
        if summary["texts_left_out"]
        else None,
        Warn(
            "absurd_costs",
            f"{summary['absurd_costs']:,} requests log token counts that would cost over ${MOST:,} each; they count as "
            "requests without a price",
            "check the token counts of the log",
        )
        if summary["absurd_costs"]
        else None,
        Warn(
            "names_merged",
            f"{summary['names_merged']:,} times a model, tenant or namespace came after {Names.LIMIT:,} others: in "
            f"break-downs these are one, {Names.OTHER}; who may serve whom does not depend on it",
        )
        if summary["names_merged"]
        else None,
        Warn(
            "policy_still_learning",
            "the adaptive policy served nothing: the logged answers did not give it the labels its promise takes",
            "replay a longer log, or raise --target",
        )
        if semantic.get("policy") == "adaptive" and not semantic["hits"]
        else None,
    ]
    return [warning for warning in found if warning is not None]
