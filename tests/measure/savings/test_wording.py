"""How sums, shares and names are written."""

from __future__ import annotations

import pytest

from recall_cli.measure.savings.wording import agreement, model_names, usd, usd_digits


@pytest.mark.parametrize(
    ("amounts", "cells"),
    [
        ([1234.5, 1.0, 0.004], ["$1,234.50", "$1.00", "<$0.01"]),
        ([0.0123, 0.004, 0.0], ["$0.0123", "$0.0040", "$0.0000"]),
        ([0.999, 0.5], ["$0.999", "$0.500"]),
        ([0.000000123], ["$0.00000012"]),
        ([0.000000001], ["<$0.00000001"]),
        ([0.0], ["$0.00"]),
    ],
)
def test_a_column_of_dollars_has_the_decimals_its_largest_sum_needs(amounts: list[float], cells: list[str]) -> None:
    assert [usd(amount, usd_digits([None, *amounts])) for amount in amounts] == cells


@pytest.mark.parametrize(
    ("equal", "n", "text"),
    [
        (22, 102, "22 of 102 (22 %)"),
        (999, 1000, "999 of 1,000 (99.9 %)"),
        (1, 1000, "1 of 1,000 (0.1 %)"),
        (5, 5, "5 of 5 (100 %)"),
        (0, 5, "0 of 5 (0 %)"),
    ],
)
def test_agreement_is_all_or_nothing_only_when_it_is(equal: int, n: int, text: str) -> None:
    assert agreement(equal, n) == text


def test_models_are_told_apart() -> None:
    rows = [
        {"model": m, "provider": p} for m, p in [("a", "openai"), ("a", "anthropic"), ("b", "openai"), ("", "openai")]
    ]
    assert model_names(rows) == ["a (openai)", "a (anthropic)", "b", "(no model)"]
