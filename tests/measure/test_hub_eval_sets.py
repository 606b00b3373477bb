"""Public sets with default settings: the fused order holds on both, and neither was chosen by looking at it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hub_quality import all_measured

LEAST = {"cranfield": 0.44, "cisi": 0.40}
ALLOWED_LOSS = 0.01
"""Of nDCG@10 against the better leg."""


@pytest.mark.shared
@pytest.mark.parametrize("name", LEAST)
def test_the_fused_order_is_as_good_as_the_better_leg(name: str, shared_data: Path) -> None:
    (other,) = LEAST.keys() - {name}
    sets = shared_data / "ir"
    result = all_measured([sets / name], sets / other / "queries.jsonl", 0.05)
    quality = {row["leg"]: row["ndcg_at_10"] for row in result.rows}
    assert quality["fused"] >= max(quality["lexical"], quality["vector"]) - ALLOWED_LOSS
    assert quality["fused"] >= LEAST[name]
    assert result.summary["hubs"][name]["no_lexical_candidate"] < 0.02
