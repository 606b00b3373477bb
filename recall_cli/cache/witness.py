"""What is known of a cache's entries beside their vectors: texts read for comparison, answers, records.

Two entries whose answers were found to say the same are of one *group*: a near candidate of the same
group is no doubt about the answer, one of another group is (the margin). An entry's *record* is how often
its answer was checked and how often it was not right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import Facts, facts
from recall_cli.types import Evidence

FACTS_KEPT = 10_000
"""Entries whose text is kept read: the ones in use. About 1.5 kB each; reading one again takes some 20 us."""


@dataclass(slots=True)
class Record:
    """What labels have said of one entry."""

    group: int
    labels: int = 0
    wrong: int = 0


class Witness:
    """Makes the evidence of a lookup. Not locked: its owner (`Cache`) serialises calls.

    :param text: returns the stored prompt of an entry, None when it is gone.
    """

    def __init__(self, text: Callable[[int], str | None]) -> None:
        self._text = text
        self._facts: OrderedDict[int, Facts] = OrderedDict()
        self._records: dict[int, Record] = {}
        self.judged: set[int] = set()
        """Entries whose records have changed since they were last persisted."""

    def evidence(self, text: str, ids: Sequence[int], similarities: Sequence[float]) -> Evidence:
        """Return the evidence of the first id, the nearest; the others narrow its margin."""
        nearest = ids[0]
        record = self._records.get(nearest)
        # Lazy: as a rule the second nearest already has another answer, and the rest need not be looked up.
        others = zip(similarities[1:], map(self.group, ids[1:]), strict=True)
        query, candidate = facts(text), self._read(nearest)
        if record is None:
            return evidence(query, candidate, similarities[0], others, group=nearest)
        return evidence(
            query,
            candidate,
            similarities[0],
            others,
            group=record.group,
            labels=record.labels,
            wrong=record.wrong,
        )

    def text(self, id: int) -> str:
        """Return the stored prompt of an entry, "" when it is gone."""
        return self._text(id) or ""

    def group(self, id: int) -> int:
        """Return the answer group of an entry; one that joined no other is a group of its own."""
        record = self._records.get(id)
        return id if record is None else record.group

    def judge(self, id: int, *, same: bool) -> None:
        """Count a label of an entry: whether its answer was found to say what a fresh one says."""
        record = self._records.setdefault(id, Record(id))
        record.labels += 1
        record.wrong += not same
        self.judged.add(id)

    def records(self, ids: Iterable[int]) -> dict[int, tuple[int, int, int]]:
        """Return (group, labels, wrong) of these entries, as far as there is a record."""
        found = {id: self._records.get(id) for id in ids}
        return {id: (known.group, known.labels, known.wrong) for id, known in found.items() if known is not None}

    def join(self, id: int, group: int, labels: int = 0, wrong: int = 0) -> None:
        """Say that an entry's answer is that of a group. An entry on its own needs no record."""
        if group != id or labels:
            self._records[id] = Record(group, labels, wrong)

    def forget(self, id: int) -> None:
        """Drop what is known of an entry."""
        self._facts.pop(id, None)
        self._records.pop(id, None)

    def _read(self, id: int) -> Facts:
        known = self._facts.get(id)
        if known is not None:
            self._facts.move_to_end(id)
            return known
        made = self._facts[id] = facts(self._text(id) or "")
        if len(self._facts) > FACTS_KEPT:
            self._facts.popitem(last=False)
        return made
