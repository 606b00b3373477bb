"""One cell of an index measurement: build every setting, count what it finds, time all in the same rounds.

Speed-ups are against exact search at its best (one matrix product in numpy), never against a slow one.
Recall is counted by score: a tie with the true neighbour is as good as the neighbour, and copies are
the normal case in a cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.index.auto import make_index
from recall_cli.errors import GateFailed
from recall_cli.measure.ann.data import Cell, Truth
from recall_cli.measure.ann.plan import AnnPlan, Build, Setting
from recall_cli.measure.timing import Arm, interleave, one_thread, ratio
from recall_cli.types import Index, Progress, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCORE_TOLERANCE = 1e-6
"""A cosine in double precision, and the float32 maximum it is held against, differ by less for one row."""


@dataclass(slots=True)
class Measured:
    """One setting on one cell: what it found, and its arm when it was timed."""

    setting: Setting
    index: Index
    build_s: float
    fresh: int
    near: int
    near_n: int
    planted: int
    arm: Arm = field(default_factory=lambda: Arm("", len, [()]))


def measure_cell(plan: AnnPlan, cell: Cell, grid: list[Setting], progress: Progress) -> list[dict[str, Any]]:
    """Return one row a setting: build, count what is found, then time all of them in the same rounds."""
    with one_thread():
        found = list(find(plan, cell, grid, progress))
        _time(plan, cell, found, progress)
    return [row(cell, m, found[0], plan.seed) for m in found]


def find(plan: AnnPlan, cell: Cell, grid: list[Setting], progress: Progress) -> Iterator[Measured]:
    """Build each index once and yield every setting with what it finds."""
    built: dict[Build, tuple[Index, float]] = {}
    for number, setting in enumerate(grid):
        progress(number, 2 * len(grid), f"building {setting.engine}")
        key = setting.build()
        if key not in built:
            start = time.perf_counter()
            index = make_index(setting.engine, cell.corpus.shape[1], **dict(setting.options))
            index.add(np.arange(len(cell.corpus), dtype=np.int64), cell.corpus)
            built[key] = (index, time.perf_counter() - start)
        index, seconds = built[key]
        _prepare(index, setting)
        fresh, planted = (_hits(index, cell.corpus, truth, setting.top_k) for truth in (cell.fresh, cell.planted))
        near_fresh, near_planted = cell.fresh.best >= plan.tau, cell.planted.best >= plan.tau
        yield Measured(
            setting,
            index,
            seconds,
            fresh=int(fresh.sum()),
            near=int(fresh[near_fresh].sum() + planted[near_planted].sum()),
            near_n=int(near_fresh.sum() + near_planted.sum()),
            planted=int(planted.sum()),
        )


def row(cell: Cell, m: Measured, exact: Measured, seed: int) -> dict[str, Any]:
    """Return the columns of one setting."""
    n = len(cell.fresh.best)
    us = np.asarray(m.arm.samples) / 1_000
    return {
        "data": cell.data,
        "dims": cell.corpus.shape[1],
        "corpus": len(cell.corpus),
        "engine": m.setting.engine,
        "params": m.setting.params(),
        **{f"p{q}_us": round(stats.quantile(us, q / 100), 2) for q in (5, 50)},
        "p99_us": round(stats.quantile(us, 0.99), 2) if len(us) >= stats.MIN_SAMPLES_P99 else None,
        "cpu_us": round(float(np.median(m.arm.cpu)) / 1_000, 2),
        "speedup_vs_exact": ratio(exact.arm, m.arm, seed),
        "recall_at_1": m.fresh / n,
        "recall_at_1_interval": list(stats.wilson(m.fresh, n)),
        "n": n,
        "recall_at_1_near": m.near / m.near_n if m.near_n else None,
        "recall_at_1_near_interval": list(stats.wilson(m.near, m.near_n)) if m.near_n else None,
        "near_n": m.near_n,
        "recall_at_1_planted": m.planted / len(cell.planted.best),
        "nearest_cosine_median": round(float(np.median(cell.fresh.best)), 4),
        "build_s": round(m.build_s, 3),
        "bytes_per_vector": round(m.index.memory_bytes() / len(cell.corpus), 1),
    }


def _time(plan: AnnPlan, cell: Cell, found: list[Measured], progress: Progress) -> None:
    # Fresh and planted in turn: a cache is asked both.
    queries = [q for pair in zip(cell.fresh.queries, cell.planted.queries, strict=True) for q in pair]
    for m in found:
        search, k, index, setting = m.index.search, m.setting.top_k, m.index, m.setting

        def call(query: Vector, search: Any = search, k: int = k) -> object:
            return search(query, k)

        def enter(index: Index = index, setting: Setting = setting) -> None:
            _prepare(index, setting)

        m.arm = Arm(m.setting.engine, call, queries, enter=enter)
    halfway = len(found)

    def report(done: int, total: int, what: str) -> None:
        progress(halfway + round(halfway * done / total), 2 * halfway, what)

    interleave([m.arm for m in found], calls=plan.lookups, warmup=20, seed=plan.seed, progress=report)


def _prepare(index: Index, setting: Setting) -> None:
    if setting.engine == "hnsw":
        index.ef_search = dict(setting.options)["ef_search"]  # type: ignore[attr-defined]


def _hits(index: Index, corpus: Vector, truth: Truth, k: int) -> NDArray[np.bool_]:
    """Return for each query whether the row found is as near as the nearest, shape (n,).

    The row's own cosine counts, taken from the corpus: what an engine says of its answer is not evidence.
    """
    found = [index.search(query, k)[0] for query in truth.queries]
    answered = np.array([len(ids) > 0 for ids in found])
    rows = np.array([ids[0] if len(ids) else 0 for ids in found], dtype=np.int64)
    if ((rows < 0) | (rows >= len(corpus))).any():
        raise GateFailed(
            f"{type(index).__name__} returned an id that nobody added",
            hint="this is a defect in recall: report it with the command you ran",
        )
    cosines = np.einsum("ij,ij->i", corpus[rows], truth.queries, dtype=np.float64)
    hits: NDArray[np.bool_] = answered & (cosines >= truth.best - SCORE_TOLERANCE)
    return hits
