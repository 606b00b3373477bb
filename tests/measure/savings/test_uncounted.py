"""Rows without counts are filled in once all are read, and priced as any other."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.report import ReadReport
from recall_cli.measure import columns
from recall_cli.measure.columns import Workspace
from recall_cli.measure.pricing.book import price_book
from recall_cli.measure.pricing.tokens import MIN_CALIBRATION, Estimator
from recall_cli.measure.savings.costs import Reconciliation
from recall_cli.measure.savings.rows import PICO, Uncounted, collect
from recall_cli.types import LogRecord, Usage


def record(at: int, size: int, *, counted: bool, model: str = "m", flaw: str = "", cost: str = "") -> LogRecord:
    """Return a call whose every letter is a token."""
    request = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": "x" * size}]}
    usage = Usage(size, 8) if counted else None
    return LogRecord(f"log:{at + 1}", "openai", model, request, "y" * 8, usage, None, flaw=flaw,
                     cost=Decimal(cost) if cost else None)  # fmt: skip


@given(st.lists(st.tuples(st.integers(8, 400), st.booleans()), max_size=30), st.sampled_from([3, 1000]))
def test_every_row_has_its_own_counts(rows: list[tuple[int, bool]], batch: int) -> None:
    """Whatever the order and wherever a batch ends: in millionths of a dollar a row costs its letters."""
    known = [(100 + at, True) for at in range(MIN_CALIBRATION)]
    records = [record(at, size, counted=counted) for at, (size, counted) in enumerate([*rows, *known])]
    uncounted = Uncounted(Estimator(), Reconciliation())
    with pytest.MonkeyPatch.context() as patch, Workspace() as folder:
        patch.setattr(columns, "BATCH_ROWS", batch)
        prices = price_book(flags=["m=1,1"])
        found = collect(iter(records), ReadReport(), folder=folder, prices=prices, allow_sampled=False,
                        uncounted=uncounted)  # fmt: skip
        sizes = [size for size, _ in [*rows, *known]]
        assert found.columns.read("counted").all()
        assert found.columns.read("priced").all()
        assert found.columns.read("input").tolist() == sizes
        assert found.columns.read("output").tolist() == [8] * len(sizes)
        assert found.columns.read("cost_input").tolist() == [size * int(PICO) // 10**6 for size in sizes]
    estimated = uncounted.estimator.summary(len(sizes))
    missing = sum(not counted for _, counted in rows)
    assert (estimated or {"requests": 0})["requests"] == missing


def test_what_was_never_answered_is_not_estimated_and_logged_costs_are_compared() -> None:
    known = [record(at, 100 + at, counted=True, cost="0.0002") for at in range(MIN_CALIBRATION)]
    failed = record(90, 100, counted=False, flaw="error")
    unknown = record(91, 100, counted=True, model="unheard-of", cost="3")
    uncounted = Uncounted(Estimator(), Reconciliation())
    with Workspace() as folder:
        prices = price_book(flags=["m=1,1"])
        found = collect(iter([*known, failed, unknown]), ReadReport(), folder=folder, prices=prices,
                        allow_sampled=False, uncounted=uncounted)  # fmt: skip
        assert found.columns.read("counted").tolist() == [*([True] * MIN_CALIBRATION), False, True]
    assert uncounted.estimator.summary(22) is None
    bill = uncounted.reconciliation.summary(spend=Decimal(1), saved=Decimal(0), invoice=None)
    assert bill is not None
    assert (bill["rows"], bill["logged_usd"]) == (MIN_CALIBRATION, Decimal("0.0002") * MIN_CALIBRATION)
    assert bill["priced_usd"] == sum(108 + at for at in range(MIN_CALIBRATION)) / Decimal(10**6)
    assert bill["logged_without_price"] == {"rows": 1, "usd": 3}
