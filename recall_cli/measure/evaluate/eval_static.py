"""All static cutoffs over one stream at once, and what hindsight would have chosen among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.measure.evaluate.replay import Relation, Tally, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TAUS = (*np.round(np.arange(0.30, 0.90, 0.01), 3).tolist(), *np.round(np.arange(0.90, 1.0, 0.005), 3).tolist())
"""The cutoffs that are tried: finer near 1, where most embedders keep their paraphrases."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What each static cutoff did, each with a cache of its own. Cells are as in Tally."""

    hits: Ints
    """Shape (cutoffs, 2 * namespaces)."""
    wrong: Ints
    unsure: Ints
    queries: Ints
    exact: Ints
    """Shape (cutoffs, namespaces)."""


def grid(trace: Trace, taus: tuple[float, ...] = TAUS) -> Grid:
    """Replay every cutoff: the nearest stored question is served when it is close enough, else stored."""
    stream = trace.stream
    spaces, cutoffs = len(stream.namespaces), np.array(taus)[:, None]
    hits = np.zeros((len(taus), 2 * spaces), dtype=np.int64)
    wrong, unsure, queries = np.zeros_like(hits), np.zeros_like(hits), np.zeros_like(hits)
    exact = np.zeros((len(taus), spaces), dtype=np.int64)
    for members in trace.partitions:
        space = trace.space[int(members[0])]
        place = {int(row): i for i, row in enumerate(members)}
        vectors, answers = stream.vectors[members], stream.answer[members]
        held = np.zeros((len(taus), len(members)), dtype=bool)
        for i, row in enumerate(members.tolist()):
            cell = 2 * space + trace.half[row]
            repeated = np.zeros(len(taus), dtype=bool)
            for twin in trace.twins[row]:
                repeated |= held[:, place[twin]]
            similarities = vectors[:i] @ vectors[i]
            near = np.flatnonzero(similarities >= taus[0])
            near = near[np.argsort(-similarities[near], kind="stable")]
            served = np.zeros(len(taus), dtype=bool)
            if len(near):
                stored = held[:, near]
                first = stored.argmax(axis=1)
                close = similarities[near[first]] >= cutoffs[:, 0]
                served = stored[np.arange(len(taus)), first] & close & ~repeated
                for one in np.unique(near[first][served]).tolist():
                    if trace.refusal(row, int(members[one])):
                        served &= near[first] != one
                hits[:, cell] += served
                if stream.same is None:
                    wrong[:, cell] += served & (answers[near[first]] != answers[i])
                else:
                    rights = _judged(stream.same, row, members[near[first]], served)
                    wrong[:, cell] += rights == WRONG
                    unsure[:, cell] += rights == UNSURE
            held[:, i] = ~served & ~repeated
            queries[:, cell] += ~repeated
            exact[:, space] += repeated
    return Grid(hits, wrong, unsure, queries, exact)


RIGHT, WRONG, UNSURE = 0, 1, 2


def _judged(same: Relation, i: int, served_by: Ints, served: NDArray[np.bool_]) -> Ints:
    """Return what each cutoff's hit was; RIGHT where there is none. Each pair is asked for once."""
    rights = np.full(len(served), RIGHT)
    for j in np.unique(served_by[served]).tolist():
        found = same(i, j)
        if not found:
            rights[served & (served_by == j)] = UNSURE if found is None else WRONG
    return rights


def at(table: Grid, choice: int) -> Tally:
    """Return the tally of one cutoff for all namespaces."""
    return _tally(table, np.full(table.exact.shape[1], choice))


def best(table: Grid, target: float) -> Tally:
    """Return the tally of the cutoff with the most hits that held the target: nobody knows it beforehand."""
    choice = _most(table, slice(None), target)
    return _none(table) if choice is None else at(table, choice)


def oracle(table: Grid, target: float) -> Tally:
    """Return the same, chosen for each namespace by itself."""
    spaces = table.exact.shape[1]
    chosen = [_most(table, cells, target) for cells in (slice(2 * space, 2 * space + 2) for space in range(spaces))]
    if all(choice is None for choice in chosen):
        return _none(table)
    tally = _tally(table, np.array([0 if choice is None else choice for choice in chosen]))
    for space, choice in enumerate(chosen):
        if choice is None:
            # Without a cutoff that holds, everything in it is a miss.
            for cell in (2 * space, 2 * space + 1):
                tally.hits[cell] = tally.wrong[cell] = tally.unsure[cell] = 0
    return tally


def _most(table: Grid, cells: slice, target: float) -> int | None:
    hits, wrong, unsure = (counts[:, cells].sum(axis=1) for counts in (table.hits, table.wrong, table.unsure))
    judged = hits - unsure
    fits = (judged > 0) & (wrong <= target * judged)
    return int(np.where(fits, hits, -1).argmax()) if fits.any() else None


def _tally(table: Grid, choices: Ints) -> Tally:
    cells = np.arange(table.hits.shape[1])
    rows = choices[cells // 2]
    return Tally(
        queries=table.queries[rows, cells].tolist(),
        hits=table.hits[rows, cells].tolist(),
        wrong=table.wrong[rows, cells].tolist(),
        unsure=table.unsure[rows, cells].tolist(),
        exact=int(table.exact[choices, np.arange(table.exact.shape[1])].sum()),
    )


def _none(table: Grid) -> Tally:
    """Return the tally of serving nothing semantic: as at the highest cutoff, without its hits."""
    tally = at(table, len(table.hits) - 1)
    tally.hits = [0] * len(tally.hits)
    tally.wrong = [0] * len(tally.wrong)
    tally.unsure = [0] * len(tally.unsure)
    tally.feasible = False
    return tally
