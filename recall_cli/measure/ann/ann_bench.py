"""`recall ann-bench`: what each index finds and what it costs, on your dimensions, rows and vectors.

Here: the cells one after another, where each one's vectors come from, and whether they fit into memory. An earlier
measurement is resumed only with the same options on the same files, and only in whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index.hnsw_library import HNSWLIB, INSTALL_HNSWLIB, WITHOUT_HNSWLIB, graph_library
from recall_cli.errors import InputError, UsageError
from recall_cli.measure.ann.data import TRUTH_BLOCK, Loaded, clustered, load, make_cell, random_units
from recall_cli.measure.ann.measure import measure_cell
from recall_cli.measure.ann.plan import KINDS, AnnPlan, Setting, filled, settings
from recall_cli.measure.result import new_result, plain
from recall_cli.types import Progress, Result, Vector, Warn

COLUMNS: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "dims": int,
    "corpus": int,
    "engine": str,
    "params": dict,
    "p5_us": (int, float),
    "p50_us": (int, float),
    "p99_us": (int, float, type(None)),
    "cpu_us": (int, float),
    "speedup_vs_exact": dict,
    "recall_at_1": (int, float),
    "recall_at_1_interval": list,
    "n": int,
    "recall_at_1_near": (int, float, type(None)),
    "recall_at_1_near_interval": (list, type(None)),
    "near_n": int,
    "recall_at_1_planted": (int, float),
    "nearest_cosine_median": (int, float),
    "build_s": (int, float),
    "bytes_per_vector": (int, float),
}
"""What a row of an earlier run must hold to be taken over."""

Key = tuple[str, int, int]
"""A cell: data, dimensions, rows."""


def finished_cells(done: Result | None, params: dict[str, Any]) -> dict[Key, list[dict[str, Any]]]:
    """Return the rows of an earlier run by cell.

    Raises UsageError when it measured something else, InputError when its rows were damaged.
    """
    if done is None:
        return {}
    if done.command != "ann-bench" or done.params != plain(params):
        raise UsageError(
            "the result to resume was measured with other options or other files",
            hint="repeat the options, or leave --resume out",
        )
    cells: dict[Key, list[dict[str, Any]]] = {}
    for number, old in enumerate(done.rows if isinstance(done.rows, list) else [None]):
        bad = next((name for name, kind in COLUMNS.items() if not _has(old, name, kind)), None)
        if bad is not None:
            raise InputError(
                f"row {number} of the result to resume has no {bad} that can be read",
                hint="the file was changed or damaged: leave --resume out",
            )
        cells.setdefault((old["data"], old["dims"], old["corpus"]), []).append(old)
    return cells


def _has(row: Any, name: str, kind: type | tuple[type, ...]) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get(name, ...), kind):
        return False
    if name == "speedup_vs_exact":
        return isinstance(row[name].get("ratio"), (int, float))
    if isinstance(row[name], list):
        return len(row[name]) == 2 and all(isinstance(end, (int, float)) for end in row[name])
    return True


def is_whole(rows: list[dict[str, Any]], grid: list[Setting]) -> bool:
    """Return whether the rows are all the settings of a cell, and no others."""
    return [(row["engine"], row["params"]) for row in rows] == [(setting.engine, setting.params()) for setting in grid]


RESERVED_SHARE = 5
"""Of the user's own vectors at most a fifth is kept out of the corpus to be asked."""

Grid = Callable[[int], list[Setting]]
"""The settings for a dimension."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one cell's vectors come from."""

    data: str
    dim: int
    corpus: int
    queries: int
    pool: Callable[[], Vector]


def run(
    plan: AnnPlan,
    *,
    grid: Grid | None = None,
    asked: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checkpoint: Callable[[Result], None] | None = None,
    done: Result | None = None,
) -> Result:
    """Measure every cell; a finished cell is handed to `checkpoint` at once.

    Ctrl-C returns what is finished, with `summary["interrupted"]`.

    :param grid: the settings for a dimension, when they are not the plan's own.
    :param asked: what else was asked for (limit, tuning): recorded, and compared with `done`.
    :param done: an earlier result of the same plan: its cells are taken over instead of measured.
    """
    plan = filled(plan)
    grid = grid or partial(settings, plan)
    own = {data: load(data, make_embedder(plan.embedder)) for data in plan.data if data not in KINDS}
    digests = {data: loaded.digest for data, loaded in own.items()}
    result = new_result("ann-bench", asdict(plan) | {"digests": digests, **(asked or {})})
    finished = finished_cells(done, result.params)
    sources = list(_sources(plan, own, result))
    result.warnings += [*_left_out(plan, sources), *_other_graph(plan)]
    for source in sources:
        _refuse_too_large(source, grid(source.dim))
    try:
        for number, source in enumerate(sources):
            key = (source.data, source.dim, source.corpus)
            if is_whole(finished.get(key, []), grid(source.dim)):
                result.rows += finished[key]
                continue
            report = _within(progress, number, len(sources), f"{source.data} {source.dim} x {source.corpus:,}")
            result.rows += _measured(plan, source, grid(source.dim), report)
            if checkpoint is not None:
                checkpoint(result)
    except KeyboardInterrupt:
        result.summary["interrupted"] = True
        result.warnings.append(
            Warn("INTERRUPTED", "the run was interrupted: only finished cells are shown", "go on with --resume")
        )
    return result


def _measured(plan: AnnPlan, source: Source, grid: list[Setting], report: Progress) -> list[dict[str, Any]]:
    rng = np.random.default_rng([plan.seed, source.dim, source.corpus, 1])
    try:
        cell = make_cell(source.data, source.pool(), source.corpus, source.queries, plan.near, rng)
        return measure_cell(plan, cell, grid, report)
    except MemoryError:
        raise _too_large(source, "more memory than there is") from None


def _sources(plan: AnnPlan, own: Mapping[str, Loaded], result: Result) -> Iterator[Source]:
    """Yield where each cell's vectors come from, cheapest first within a kind of data."""
    for data in plan.data:
        if data in KINDS:
            for dim, corpus in product(plan.dims, sorted(set(plan.corpus))):
                yield Source(data, dim, corpus, plan.queries, partial(_synthetic, plan, data, dim, corpus))
            continue
        pool = own[data].rows
        result.warnings += own[data].warnings
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


def _left_out(plan: AnnPlan, sources: list[Source]) -> list[Warn]:
    """Return a warning for each dimension that has fewer coordinates than codes were asked for."""
    found = []
    for dim in dict.fromkeys(source.dim for source in sources) if "scan" in plan.engines else ():
        large = [str(m) for m in plan.codes if m > dim]
        if large:
            found.append(
                Warn(
                    "CODES_REDUCED",
                    f"a vector of {dim} dimensions has at most {dim} codes: in place of --codes {','.join(large)} the "
                    "scan's default for that dimension is measured",
                )
            )
    return found


def _other_graph(plan: AnnPlan) -> list[Warn]:
    """Return a warning when the engine hnsw is not the library that its name suggests."""
    if "hnsw" not in plan.engines or graph_library() == HNSWLIB:
        return []
    return [Warn("FAISS_GRAPH", WITHOUT_HNSWLIB, INSTALL_HNSWLIB)]


def _synthetic(plan: AnnPlan, data: str, dim: int, corpus: int) -> Vector:
    rng = np.random.default_rng([plan.seed, dim, corpus])
    n = corpus + plan.queries
    return random_units(n, dim, rng) if data == "random" else clustered(n, dim, plan.clusters, rng)


def _refuse_too_large(source: Source, grid: list[Setting]) -> None:
    """Raise UsageError when a cell cannot fit into the memory that is free now."""
    builds = len({setting.build() for setting in grid})
    # The pool and what it is made from, the corpus and the queries taken from it, a copy in every index; and
    # the products that the truth is found by.
    rows = 2 * (source.corpus + source.queries) + source.corpus + 2 * source.queries + builds * source.corpus
    needed = 4 * (rows * source.dim + TRUTH_BLOCK * source.corpus)
    free = available_bytes()
    if free is not None and needed > free:
        raise _too_large(source, f"about {needed / 1e9:,.1f} GB of memory; {free / 1e9:,.1f} GB are free")


def _too_large(source: Source, what: str) -> UsageError:
    return UsageError(
        f"{source.corpus:,} rows of {source.dim} dimensions ({source.data}) take {what}",
        hint="give a smaller --corpus, fewer --dims or fewer settings",
    )


def available_bytes() -> int | None:
    """Return how much memory can be had without swapping, None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _within(progress: Progress | None, number: int, cells: int, name: str) -> Progress:
    """Return a progress that reports one cell's share of the whole grid."""

    def report(done: int, total: int, what: str) -> None:
        if progress is not None:
            progress(1_000 * number + round(1_000 * done / total), 1_000 * cells, f"{name}: {what}")

    return report
