"""Sums over the rows of a log, by whatever group: exact to the trillionth of a dollar, a column at a time.

`Traffic` is what the money part reads of a replayed log: one array a fact, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.measure.columns import Columns
from recall_cli.measure.savings.replay import NO_HIT, time_order
from recall_cli.measure.savings.rows import PICO, Rows
from recall_cli.measure.savings.tiers import BY_EXACT, BY_NORMALISED, BY_SEMANTIC, EXCLUDED, Replayed
from recall_cli.measure.savings.verdict import DAY_S, HOUR_S, MIN_BLOCKS, ROW_BLOCKS, Blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.measure.columns import Column
    from recall_cli.measure.savings.replay import Bools, Floats, Ints

SUMMED = ("input", "output", "cache_read", "cost_input", "cost_output", "cost_naive", "counted", "priced")
RANDOM_GROUPS = 100
SPLIT = 10**6
"""Sums are taken of thousands and of rests apart: 64 bits hold ten million rows of either."""


class Sums:
    """What the rows of each group add up to; a group is a number below `groups`."""

    def __init__(self, columns: Columns, group: Column, groups: int, names: Sequence[str] = SUMMED) -> None:
        self.rows: list[int] = np.bincount(group, minlength=groups).tolist()
        self._sums = {name: group_sums(columns.read(name), group, groups) for name in names}

    def of(self, name: str, groups: Sequence[int] | None = None) -> int:
        """Return the sum of a column over some groups, or all."""
        sums = self._sums[name]
        return sum(sums) if groups is None else sum(sums[group] for group in groups)

    def count(self, groups: Sequence[int] | None = None) -> int:
        """Return the number of rows of some groups, or all."""
        return sum(self.rows) if groups is None else sum(self.rows[group] for group in groups)

    def usd(self, groups: Sequence[int] | None = None) -> Decimal:
        """Return what the rows of some groups cost; those without a price add nothing and are counted elsewhere."""
        return dollars_of(self.of("cost_input", groups) + self.of("cost_output", groups))


def group_sums(values: Column, group: Column, groups: int) -> list[int]:
    """Return the sum of a column in each group, whatever its size; of yes and no, how many say yes."""
    if values.dtype == np.bool_:
        counted: list[int] = np.bincount(group[values], minlength=groups).tolist()
        return counted
    parts = []
    for part in np.divmod(values, SPLIT):
        sums = np.zeros(groups, dtype=np.int64)
        np.add.at(sums, group, part)
        parts.append(sums.tolist())
    return [high * SPLIT + low for high, low in zip(*parts, strict=True)]


def exact_sum(values: Column) -> int:
    """Return the sum of a column of whole numbers, of any size."""
    high, low = np.divmod(values, SPLIT)
    return int(high.sum()) * SPLIT + int(low.sum())


def dollars_of(pico: int) -> Decimal:
    """Return trillionths of a dollar as dollars."""
    return Decimal(pico) / PICO


def groups_of(group: Column) -> tuple[Blocks, Ints]:
    """Return the sampled namespaces dealt out over RANDOM_GROUPS blocks, and the block of each row.

    A namespace is in the sample or out of it as a whole: sums of a sample vary as namespaces do, not as days.
    """
    # Sampled groups are all small numbers: their low digits are as good as chance.
    block = (group % RANDOM_GROUPS).astype(np.int32)
    return Blocks("groups of namespaces", RANDOM_GROUPS), block


def blocks_of(start: Floats, tenant: Column | None = None) -> tuple[Blocks, Ints]:
    """Return blocks of days, tenants, hours or consecutive rows, and the block of each row of the log.

    The first kind with MIN_BLOCKS of them. No hit crosses from one tenant to another, so tenants are independent where
    hours of one morning are not.

    :param start: of all rows in the order of the log, NaN where there is no time; `tenant` likewise, in numbers.
    """
    timed = not np.isnan(start).any()
    keyed: dict[str, Column | None] = {
        "day": start // DAY_S if timed else None,
        "tenant": tenant,
        "hour": start // HOUR_S if timed else None,
    }
    for unit, of in keyed.items():
        if of is None:
            continue
        keys, found = np.unique(of, return_inverse=True)
        if len(keys) >= MIN_BLOCKS:
            return Blocks(unit, len(keys)), found.astype(np.int32)
    n = len(start)
    count = min(n, ROW_BLOCKS)
    block = np.empty(n, dtype=np.int32)
    block[time_order(start)] = np.arange(n) * count // max(1, n)
    return Blocks("consecutive rows", count), block


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
    source = np.full(len(rows), NO_HIT, dtype=np.int32)
    served = found.served_by
    hit = np.flatnonzero(served != NO_HIT)
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
    by_key = (found.walked.served_by != NO_HIT) & np.isnan(found.walked.similarity)
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
