"""Rows without token counts: their sizes are held until all rows are read, then counts are estimated and priced."""

from __future__ import annotations

from array import array
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.logs.times import dated
from recall_cli.measure.pricing.tokens import Estimator, input_text
from recall_cli.measure.savings.costs import Reconciliation
from recall_cli.types import LogRecord

if TYPE_CHECKING:
    from recall_cli.measure.columns import Columns
    from recall_cli.measure.pricing.book import PriceBook

NAMES = ("counted", "input", "output", "priced", "cost_input", "cost_output", "cost_naive")
"""The columns of a row that its counts decide."""


class Uncounted:
    """Learns from rows with counts and holds rows without: some 30 bytes each."""

    def __init__(self, estimator: Estimator, reconciliation: Reconciliation) -> None:
        self.estimator = estimator
        self.reconciliation = reconciliation
        self._row, self._of = array("q"), array("l")
        self._input, self._output = array("d"), array("d")
        self._kinds: dict[tuple[str, str, str], int] = {}

    def see(self, record: LogRecord, row: int) -> None:
        """Look at a record that has an answer, and is the row-th of the log."""
        if record.usage is not None:
            if self.estimator.wants(record.model):
                self.estimator.learn(record.model, self._sizes(record), record.usage)
            return
        kind = (record.provider, record.model, record.tier)
        size_in, size_out = self._sizes(record)
        self._row.append(row)
        self._of.append(self._kinds.setdefault(kind, len(self._kinds)))
        self._input.append(size_in)
        self._output.append(size_out)

    def fill(self, columns: Columns, prices: PriceBook, *, now: float, pico: Decimal) -> None:
        """Give the rows their estimated counts and what those cost. All rows must have been seen."""
        if not self._row:
            return
        rows, start = np.array(self._row, dtype=np.int64), columns.read("start")
        kinds = list(self._kinds)
        values = {name: columns.read(name)[rows] for name in NAMES}
        for at, (row, of) in enumerate(zip(self._row, self._of, strict=True)):
            provider, model, tier = kinds[of]
            usage = self.estimator.fill(model, (self._input[at], self._output[at]))
            if usage is None:
                continue
            values["counted"][at], values["input"][at], values["output"][at] = True, usage.input, usage.output
            when = float(start[row]) if dated(start[row]) else now
            cost = prices.cost(provider, model, usage, when=when, tier=tier)
            if cost is not None:
                values["priced"][at] = True
                for name, amount in zip(NAMES[4:], (cost.input, cost.output, cost.naive), strict=True):
                    values[name][at] = int((amount * pico).to_integral_value())
        columns.amend(rows, values)

    def _sizes(self, record: LogRecord) -> tuple[float, float]:
        return self.estimator.count(input_text(record.request)), self.estimator.count(record.answer or "")
