"""`recall ann-bench`: what each index finds and what it costs, on your dimensions, rows and vectors.

Speed-ups are against exact search at its best (one matrix product in numpy), never against a slow one.
Recall is counted by score: a tie with the true neighbour is as good as the neighbour, and copies are
the normal case in a cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.core.embed import DEFAULT_EMBEDDER, make_embedder
from recall_cli.core.index import make_index
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure.ann_data import Cell, Clusters, Truth, clustered, load, make_cell, random_units
from recall_cli.measure.result import new_result, plain
from recall_cli.measure.timing import Arm, interleave, one_thread, ratio
from recall_cli.types import Index, Progress, Result, Vector, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENGINES = ("exact", "scan", "hnsw")
KINDS = ("random", "clustered")
SCORE_TOLERANCE = 1e-6
"""Two float32 sums of one product differ by less; a returned row this close to the best is the best."""
RESERVED_SHARE = 5
"""Of the user's own vectors at most a fifth is kept out of the corpus to be asked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid to measure."""

    dims: tuple[int, ...] = (32, 256)
    corpus: tuple[int, ...] = (10_000,)
    data: tuple[str, ...] = ("random",)
    """"random", "clustered", or the path of a file of vectors or texts."""
    engines: tuple[str, ...] = ENGINES
    M: tuple[int, ...] = (32,)
    ef_construction: tuple[int, ...] = (200,)
    ef_search: tuple[int, ...] = (64, 160)
    codes: tuple[int, ...] = ()
    """Codes a vector of the scan; empty means its default for the dimension."""
    refine: tuple[int, ...] = (48,)
    top_k: tuple[int, ...] = (1,)
    tau: float = 0.8
    near: tuple[float, float] = (0.8, 0.99)
    queries: int = 1_000
    lookups: int = 1_000
    clusters: Clusters = field(default_factory=Clusters)
    embedder: str = DEFAULT_EMBEDDER
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        unknown = [engine for engine in self.engines if engine not in ENGINES]
        if unknown:
            raise UsageError(f"there is no engine {unknown[0]!r}", hint=f"choose from {', '.join(ENGINES)}")
        low, high = self.near
        if not -1 <= low <= high <= 1:
            raise UsageError(f"near-duplicates at cosine {low:g} to {high:g} cannot be made", hint="--near 0.8,0.99")
        if min(*self.dims, *self.corpus, self.queries, self.lookups) < 1 or min(self.dims) < 2:
            raise UsageError("--dims needs at least 2; --corpus, --queries and --lookups at least 1")


@dataclass(frozen=True, slots=True)
class Setting:
    """One engine with its options, as `make_index` takes them, and how many neighbours are asked for."""

    engine: str
    options: tuple[tuple[str, int], ...] = ()
    top_k: int = 1

    def params(self) -> dict[str, int]:
        """Return the options as people write them."""
        return dict(self.options) | ({"top_k": self.top_k} if self.top_k > 1 else {})


@dataclass(frozen=True, slots=True)
class Source:
    """Where one cell's vectors come from."""

    data: str
    dim: int
    corpus: int
    queries: int
    pool: Callable[[], Vector]


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


def settings(plan: Plan, dim: int) -> list[Setting]:
    """Return the grid of settings for one dimension; the first is always plain exact search, the yardstick."""
    grid = [Setting("exact", (), k) for k in dict.fromkeys((1, *plan.top_k)) if k == 1 or "exact" in plan.engines]
    if "scan" in plan.engines:
        codes: tuple[int | None, ...] = tuple(m for m in plan.codes if m <= dim) or (None,)
        for m, refine, k in product(codes, plan.refine, plan.top_k):
            grid.append(Setting("scan", (*((("m", m),) if m else ()), ("refine", refine)), k))
    if "hnsw" in plan.engines:
        for links, construction, ef, k in product(plan.M, plan.ef_construction, plan.ef_search, plan.top_k):
            options = (("M", links), ("ef_construction", construction), ("ef_search", ef))
            grid.append(Setting("hnsw", options, k))
    return grid


def run(
    plan: Plan,
    *,
    grid: Callable[[int], list[Setting]] | None = None,
    progress: Progress | None = None,
    checkpoint: Callable[[Result], None] | None = None,
    done: Result | None = None,
) -> Result:
    """Measure every cell; a finished cell is handed to `checkpoint` at once.

    Ctrl-C returns what is finished, with `summary["interrupted"]`.

    :param grid: the settings for a dimension, when they are not the plan's own.
    :param done: an earlier result of the same plan: its cells are taken over instead of measured.
    """
    result = new_result("ann-bench", asdict(plan))
    finished = _finished(done, result.params)
    sources = list(_sources(plan, result))
    try:
        for number, source in enumerate(sources):
            key = (source.data, source.dim, source.corpus)
            if key in finished:
                result.rows += finished[key]
                continue
            report = _within(progress, number, len(sources), f"{source.data} {source.dim} x {source.corpus:,}")
            rng = np.random.default_rng([plan.seed, source.dim, source.corpus, 1])
            cell = make_cell(source.data, source.pool(), source.corpus, source.queries, plan.near, rng)
            result.rows += measure_cell(plan, cell, grid(source.dim) if grid else settings(plan, source.dim), report)
            if checkpoint is not None:
                checkpoint(result)
    except KeyboardInterrupt:
        result.summary["interrupted"] = True
        result.warnings.append(
            Warn("INTERRUPTED", "the run was interrupted: only finished cells are shown", "go on with --resume")
        )
    return result


def measure_cell(plan: Plan, cell: Cell, grid: list[Setting], progress: Progress) -> list[dict[str, Any]]:
    """Return one row a setting: build, count what is found, then time all of them in the same rounds."""
    with one_thread():
        found = list(find(plan, cell, grid, progress))
        _time(plan, cell, found, progress)
    return [row(cell, m, found[0], plan.seed) for m in found]


def find(plan: Plan, cell: Cell, grid: list[Setting], progress: Progress) -> Iterator[Measured]:
    """Build each index once and yield every setting with what it finds."""
    built: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[Index, float]] = {}
    for number, setting in enumerate(grid):
        progress(number, 2 * len(grid), f"building {setting.engine}")
        # The breadth of a graph's search is not part of the graph: one build serves all of them.
        key = (setting.engine, tuple(option for option in setting.options if option[0] != "ef_search"))
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


def _time(plan: Plan, cell: Cell, found: list[Measured], progress: Progress) -> None:
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


def _finished(done: Result | None, params: dict[str, Any]) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """Return the rows of an earlier run by cell. Raises UsageError when it measured something else."""
    if done is None:
        return {}
    if done.command != "ann-bench" or done.params != plain(params):
        raise UsageError(
            "the result to resume was measured with other options", hint="repeat them, or leave --resume out"
        )
    cells: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for old in done.rows:
        cells.setdefault((old["data"], old["dims"], old["corpus"]), []).append(old)
    return cells


def _sources(plan: Plan, result: Result) -> Iterator[Source]:
    """Yield where each cell's vectors come from, cheapest first within a kind of data."""
    for data in plan.data:
        if data in KINDS:
            for dim, corpus in product(plan.dims, sorted(set(plan.corpus))):
                yield Source(data, dim, corpus, plan.queries, partial(_synthetic, plan, data, dim, corpus))
            continue
        pool = load(data, make_embedder(plan.embedder))
        queries = min(plan.queries, len(pool) // RESERVED_SHARE)
        room = len(pool) - queries
        if queries < 1:
            raise UsageError(f"{data} holds {len(pool)} distinct vectors: too few", hint="give a larger file")
        if max(plan.corpus) > room:
            result.warnings.append(
                Warn(
                    "CORPUS_REDUCED",
                    f"{data} holds {len(pool):,} distinct vectors; {queries:,} of them are asked, so the largest "
                    f"corpus is {room:,}",
                )
            )
        for corpus in sorted({min(size, room) for size in plan.corpus}):
            yield Source(data, pool.shape[1], corpus, queries, lambda pool=pool: pool)  # type: ignore[misc]


def _synthetic(plan: Plan, data: str, dim: int, corpus: int) -> Vector:
    rng = np.random.default_rng([plan.seed, dim, corpus])
    n = corpus + plan.queries
    return random_units(n, dim, rng) if data == "random" else clustered(n, dim, plan.clusters, rng)


def _within(progress: Progress | None, number: int, cells: int, name: str) -> Progress:
    """Return a progress that reports one cell's share of the whole grid."""

    def report(done: int, total: int, what: str) -> None:
        if progress is not None:
            progress(1_000 * number + round(1_000 * done / total), 1_000 * cells, f"{name}: {what}")

    return report
