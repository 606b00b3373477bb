"""What the money part reads of a replayed log: one array a fact, in the order of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.measure.savings.replay import NOBODY
from recall_cli.measure.savings.rows import Rows
from recall_cli.measure.savings.tiers import BY_EXACT, BY_NORMALISED, BY_SEMANTIC, EXCLUDED, Replayed
from recall_cli.measure.savings.totals import dollars_of, exact_sum, group_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.measure.columns import Column
    from recall_cli.measure.savings.replay import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Labels:
    """A name for each row, as numbers into a list."""

    of: Column
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The rows of a log, shape (rows,) each."""

    start: Floats
    """Seconds since the epoch, NaN where the log has no time."""
    spent: NDArray[np.int64]
    """Trillionths of a dollar, 0 where the price is not known."""
    priced: Bools
    outcome: NDArray[np.uint8]
    """The first tier that would have answered the row (`savings_tiers`)."""
    source: Ints
    """The row whose answer is served, NOBODY for a miss."""
    labels: dict[str, Labels] = field(default_factory=dict)
    """What rows can be grouped by: tenant, namespace, ..."""

    @property
    def cacheable(self) -> Bools:
        """Return which rows a cache could answer."""
        return self.outcome > EXCLUDED

    @property
    def hit(self) -> Bools:
        """Return which rows some tier answers."""
        return self.outcome >= BY_EXACT

    @property
    def saved(self) -> NDArray[np.int64]:
        """Return what the rows cost that are answered, 0 for the others."""
        return np.where(self.hit, self.spent, 0)

    def by(self, outcome: int) -> Bools:
        """Return which rows one tier answers first."""
        chosen: Bools = self.outcome == outcome
        return chosen


TIERS = {"hits_exact": BY_EXACT, "hits_normalised": BY_NORMALISED, "hits_semantic": BY_SEMANTIC}
"""What the hits of each tier are called in a row."""


def traffic_of(rows: Rows, found: Replayed) -> Traffic:
    """Return the columns of a replay."""
    read = rows.columns.read
    source = np.full(len(rows), NOBODY, dtype=np.int32)
    served = found.served_by
    hit = np.flatnonzero(served != NOBODY)
    source[found.row[hit]] = found.row[served[hit]]
    return Traffic(
        start=read("start"),
        spent=read("cost_input") + read("cost_output"),
        priced=read("priced"),
        outcome=found.outcome,
        source=source,
        labels={
            "tenant": Labels(read("tenant"), rows.tenants.all()),
            "namespace": Labels(read("space"), rows.spaces.all()),
        },
    )


def lookups(rows: Rows, found: Replayed) -> int:
    """Return how many look-ups of a cache need a vector: those with a text whose key it does not hold."""
    if found.walked is None:
        return 0
    texts = rows.columns.read("partition")[found.row] != 0
    by_key = (found.walked.served_by != NOBODY) & np.isnan(found.walked.similarity)
    return int(np.sum(texts & ~by_key))


class Examples:
    """The prompts of a few rows, read from disk when asked for."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._place: Any = None

    def __call__(self, row: int) -> str:
        """Return the prompt of a row of the log, "" when it was not kept."""
        if self._place is None:
            self._place = self._rows.columns.read("text_at")
        at = int(self._place[row])
        return self._rows.texts.read(at) if at >= 0 else ""


def total(amounts: Column) -> Decimal:
    """Return the exact sum of trillionths of a dollar, in dollars."""
    return dollars_of(exact_sum(amounts))


def group_totals(group: Column, amounts: Column, groups: int) -> list[Decimal]:
    """Return the exact sum of each group's trillionths of a dollar, in dollars.

    :param group: of each row, 0..groups-1.
    """
    return [dollars_of(amount) for amount in group_sums(amounts, group, groups)]


def group_counts(group: Column, chosen: Bools, groups: int) -> list[int]:
    """Return how many chosen rows each group has."""
    return group_sums(chosen, group, groups)
