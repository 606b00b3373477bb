"""`recall ann-bench`, its tables and its HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.options import FormatName, integers
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import NONE, Block, Line, bare, count, number, table
from recall_cli.cli.render.html import Page
from recall_cli.cli.render.svg import OTHER, Axis, Chart, Mark, PointSeries, ScatterChart
from recall_cli.types import Result

COLOURS = {"exact": OTHER, "scan": 0, "hnsw": 1}
GOOD = 0.98
"""Share of nearest neighbours from which on an engine counts as one that finds them, where no limit was given."""
STEPS = (1, 2, 5)


def charts(result: Result) -> list[Chart]:
    """Return a chart for each data set, dimension and size."""
    found: list[Chart] = []
    for (data, dims, corpus), group in _groups(result):
        title = f"{data}, {dims} dims, {corpus:,} rows"
        found.append(_chart(title, group, result.summary.get("min_recall")))
    return found


def _groups(result: Result) -> list[tuple[tuple[str, int, int], list[dict[str, Any]]]]:
    def key(row: dict[str, Any]) -> tuple[str, int, int]:
        return row["data"], row["dims"], row["corpus"]

    return [(name, list(rows)) for name, rows in groupby(result.rows, key=key)]


def _chart(title: str, rows: Sequence[Mapping[str, Any]], limit: float | None) -> ScatterChart:
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    clouds = tuple(
        PointSeries(engine, tuple(_mark(row) for row in rows if row["engine"] == engine), COLOURS.get(engine, 2))
        for engine in engines
    )
    times = [row["p50_us"] for row in rows]
    across = Axis("us a search, p50, on a logarithmic scale", *_powers(min(times), max(times)), _us, math.log10)
    lowest = min(row["recall_at_1_interval"][0] for row in rows)
    floor = max(0.0, math.floor(lowest * 10 - 0.5) / 10)
    ticks = tuple(floor + (1 - floor) * part / 4 for part in range(5))
    up = Axis("recall@1, all fresh queries", (floor, 1.0), ticks, _percent)
    note = "Up and to the left is better. Bars: 95 % intervals."
    if limit is not None:
        note += " Hollow: not proved to hold the limit."
    return ScatterChart(title, clouds, across, up, note=note)


def _mark(row: Mapping[str, Any]) -> Mark:
    interval = (row["recall_at_1_interval"][0], row["recall_at_1_interval"][1])
    return Mark(row["p50_us"], row["recall_at_1"], None, interval, row_name(row), not row.get("holds", True))


def _powers(low: float, high: float) -> tuple[tuple[float, float], tuple[float, ...]]:
    """Return the ends of a logarithmic axis and its ticks: 1, 2 and 5 times the powers of ten around the values."""
    steps = [step * 10.0**power for power in range(-2, 9) for step in STEPS]
    first = max(step for step in steps if step <= low)
    last = min(step for step in steps if step >= high and step > first)
    return (first, last), tuple(step for step in steps if first <= step <= last)


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def lead(result: Result) -> str:
    """Return the sentence to be read first: the fastest engine that finds enough, on the last and largest set."""
    if not result.rows:
        return "Nothing was measured."
    (data, dims, corpus), rows = _groups(result)[-1]
    limit = result.summary.get("min_recall") or GOOD
    good = [row for row in rows if row["recall_at_1"] >= limit]
    where = f"{data}, {dims} dimensions, {corpus:,} rows"
    best = min(good or rows, key=lambda row: float(row["p50_us"]))
    exact = next((row for row in rows if row["engine"] == "exact"), None)
    said = (
        f"{where}: {row_name(best)} is the fastest that finds at least {_percent(limit)} of the nearest rows, in "
        f"{best['p50_us']:,.0f} us."
        if good
        else f"{where}: no setting finds {_percent(limit)} of the nearest rows."
    )
    return said if exact is None or best is exact else f"{said} Exact search takes {exact['p50_us']:,.0f} us."


SHORT = {"M": "M", "ef_construction": "efc", "ef_search": "ef", "m": "m", "refine": "r", "top_k": "k"}


def row_name(row: Mapping[str, Any]) -> str:
    """Return the engine with the options that tell it from its neighbours in the table."""
    usual = _usual(row["engine"])
    return " ".join([row["engine"], *(f"{SHORT[k]}{v}" for k, v in row["params"].items() if usual.get(k) != v)])


@cache
def _usual(engine: str) -> dict[str, int]:
    """Return the defaults that go without saying."""
    if engine == "scan":
        from recall_cli.cache.index.scan import REFINE

        return {"refine": REFINE}
    if engine == "hnsw":
        from recall_cli.cache.index.hnsw import EF_CONSTRUCTION

        return {"ef_construction": EF_CONSTRUCTION}
    return {}


GRID, DATA, GATE = "Grid", "Data and queries", "Gate and tuning"
OWN = "the engine's own"
Numbers = str
"""A comma-separated list of whole numbers."""


def _list(flag: str, help: str, *more: str, default: str | bool = True) -> Any:
    variable = f"RECALL_{flag.strip('-').replace('-', '_').upper()}"
    return typer.Option(
        flag, *more, envvar=variable, metavar="N[,N]", help=help, rich_help_panel=GRID, show_default=default
    )


def ann_bench(
    dims: Annotated[Numbers, _list("--dims", "Dimensions of synthetic vectors.")] = "32,256",
    corpus: Annotated[Numbers, _list("--corpus", "Rows in the index.")] = "10000",
    engines: Annotated[
        str,
        typer.Option(
            envvar="RECALL_ENGINES", metavar="NAME[,NAME]", help="Of exact, scan, hnsw.", rich_help_panel=GRID
        ),
    ] = "exact,scan,hnsw",
    M: Annotated[Numbers | None, _list("--M", "hnsw: links a node.", default=OWN)] = None,
    ef_construction: Annotated[
        Numbers | None, _list("--ef-construction", "hnsw: candidates while linking.", default=OWN)
    ] = None,
    ef_search: Annotated[
        Numbers | None, _list("--ef-search", "hnsw: candidates while searching.", default=f"{OWN} and a faster one")
    ] = None,
    codes: Annotated[
        Numbers | None, _list("--codes", "scan: codes a vector; 0 is its default for the dimension.", default=OWN)
    ] = None,
    refine: Annotated[Numbers | None, _list("--refine", "scan: candidates compared in full.", default=OWN)] = None,
    top_k: Annotated[Numbers, _list("--top-k", "Neighbours asked for; the best of them counts.", "--k")] = "1",
    data: Annotated[
        list[str] | None,
        typer.Option(
            envvar="RECALL_DATA",
            metavar="random|clustered|FILE|-",
            help="Random directions (the worst case), clusters, or yours: .npy rows, prompts, a log. Repeatable.",
            rich_help_panel=DATA,
        ),
    ] = None,
    embedder: options.Embedder = "static",
    near: Annotated[
        str,
        typer.Option(
            envvar="RECALL_NEAR", metavar="LOW,HIGH", help="Cosines of planted near-duplicates.", rich_help_panel=DATA
        ),
    ] = "0.8,0.99",
    cluster_rows: Annotated[
        int, typer.Option(envvar="RECALL_CLUSTER_ROWS", help="Rows a cluster.", rich_help_panel=DATA)
    ] = 20,
    cluster_cosine: Annotated[
        float, typer.Option(envvar="RECALL_CLUSTER_COSINE", help="Cosine of a row to its centre.", rich_help_panel=DATA)
    ] = 0.8,
    tau: options.Tau = 0.8,
    queries: Annotated[
        int, typer.Option(envvar="RECALL_QUERIES", help="Queries of each kind.", rich_help_panel=DATA)
    ] = 1_000,
    lookups: Annotated[
        int, typer.Option(envvar="RECALL_LOOKUPS", help="Timed searches of each setting.", rich_help_panel=DATA)
    ] = 1_000,
    min_recall: Annotated[
        float | None,
        typer.Option(
            envvar="RECALL_MIN_RECALL", help="Exit 3 unless recall@1 is proved to reach this.", rich_help_panel=GATE
        ),
    ] = None,
    gate: Annotated[
        str,
        typer.Option(
            envvar="RECALL_GATE", metavar="near|all", help="Which queries the limit is on.", rich_help_panel=GATE
        ),
    ] = "near",
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Find the cheapest engine and setting that holds --min-recall (0.98).", rich_help_panel=GATE
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take finished cells from the --out file.", rich_help_panel=options.OUTPUT)
    ] = False,
    seed: options.Seed = 0,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
    report: options.Report = None,
) -> None:
    """Show what each index finds and what it costs, on your dimensions, rows and vectors.

    Example: recall ann-bench --dims 32,256 --corpus 10000,50000 --data random --data prompts.txt
    """
    with Output(format, json, out, report=report, inputs=data or []) as output:
        from recall_cli.measure.ann import tune as ann_tune
        from recall_cli.measure.ann.data import Clusters
        from recall_cli.measure.ann.plan import AnnPlan

        plan = AnnPlan(
            **_lists(dims=dims, corpus=corpus, M=M, ef_construction=ef_construction, ef_search=ef_search),
            **_lists(codes=codes, refine=refine, top_k=top_k),
            data=tuple(data or ("random",)),
            engines=tuple(name.strip() for name in engines.split(",")),
            tau=tau,
            near=options.pair(near),
            queries=queries,
            lookups=lookups,
            clusters=Clusters(cluster_rows, cluster_cosine),
            embedder=embedder,
            seed=seed,
        )
        limit = ann_tune.gate(min_recall, gate, tune=tune)
        done = output.earlier() if resume else None
        result = ann_tune.run(plan, limit, tune=tune, progress=output.progress, checkpoint=output.checkpoint, done=done)
        output.emit(result, view, PAGE)
        ann_tune.check(result, limit)


def _lists(**given: Numbers | None) -> dict[str, Any]:
    """Return the lists that were given; the others are the plan's to choose."""
    return {name: integers(text, least=0 if name == "codes" else 1) for name, text in given.items() if text is not None}


def view(result: Result) -> Sequence[Block]:
    """Return what people see: what is found, what it costs, what was chosen."""
    blocks: list[Block] = []
    for (data, dims), group in groupby(result.rows, key=lambda row: (row["data"], row["dims"])):
        rows = list(group)
        blocks += [_finds(data, dims, rows, result.params["tau"]), Line(_reading(rows)), _costs(data, dims, rows)]
    return [*blocks, *_choice(result)]


def _finds(data: str, dims: int, rows: Sequence[dict[str, Any]], tau: float) -> Block:
    return table(
        f"{data}, {dims} dims: what is found (95 % intervals)",
        ("rows", "engine", "p50 us", "vs exact", "recall@1 %", f"given cos >= {tau:g}"),
        [
            (
                count(row["corpus"]),
                row_name(row) + ("" if row.get("holds", True) else " ✗"),
                number(row["p50_us"]),
                f"{row['speedup_vs_exact']['ratio']:.2f}x",
                _hundredths(row["recall_at_1"], row["recall_at_1_interval"]),
                _hundredths(row["recall_at_1_near"], row["recall_at_1_near_interval"]),
            )
            for row in rows
        ],
        left=2,
    )


def _costs(data: str, dims: int, rows: Sequence[dict[str, Any]]) -> Block:
    return table(
        f"{data}, {dims} dims: what it costs",
        ("rows", "engine", "p5 us", "p99 us", "CPU us", "bytes/vector", "build s"),
        [
            (
                count(row["corpus"]),
                row_name(row),
                number(row["p5_us"]),
                number(row["p99_us"]),
                number(row["cpu_us"]),
                count(round(row["bytes_per_vector"])),
                number(row["build_s"], 2),
            )
            for row in rows
        ],
        left=2,
    )


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    """Return the n of every rate, and how near the nearest row is: what makes a recall matter or not."""
    cells = {row["corpus"]: row for row in rows}
    return " ".join(
        f"{corpus:,} rows: {row['n']:,} fresh queries, their nearest row at a median cosine of "
        f"{row['nearest_cosine_median']:.2f}; {row['near_n']:,} queries with a near one."
        for corpus, row in cells.items()
    )


def _choice(result: Result) -> Iterator[Block]:
    limit = result.summary.get("min_recall")
    if limit is not None:
        where = "with a near neighbour" if result.summary["gate"] == "near" else "of all"
        yield Line(
            f"✗ marks a recall@1 {where} that is not proved to reach {100 * limit:g} %: its interval starts below."
        )
    for cell in result.summary.get("chosen", []):
        where = f"{cell['data']}, {cell['dims']} dims, {cell['corpus']:,} rows"
        if cell["index"] is None:
            yield Line(f"{where}: no setting holds.")
            continue
        text = f"{where}: --index {cell['index']} is the cheapest that holds ({cell['p50_us']:,.1f} us)."
        if cell["exact_p50_us"] < cell["p50_us"]:
            text += f" Exact search is faster here ({cell['exact_p50_us']:,.1f} us) and loses nothing: --index exact."
        yield Line(text)


def _hundredths(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return NONE
    return bare(100 * value, [100 * end for end in interval], 2 if value > 0.9 else 1)


PAGE = Page("Which index finds what a cache must find", lead, view, charts)
