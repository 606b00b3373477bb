"""`recall bench`, its tables and its HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import NONE, Bars, Block, Line, bare, count, number, percent, rate, table
from recall_cli.cli.render.html import Page
from recall_cli.cli.render.svg import OTHER, Chart, LineChart, Point, Series, StackChart
from recall_cli.types import Result

PART_COLOURS = {"identity": 3, "embed": 0, "search": 1, "rest": OTHER}
"""Of a lookup, with their colours."""
DRAWN = (*range(0, 95, 5), *range(95, 100))
"""Percentiles of a curve: its tail is where it bends, and beyond p99 one interruption sets the scale."""
MARKS = (0, 25, 50, 75, 90, 99)


def charts(result: Result) -> list[Chart]:
    """Return the charts that the result has figures for."""
    rows = [row for row in result.rows if "lookup_us" in row]
    return [_answers_chart(rows), _shares_chart(rows), _spread(result.summary["samples"], rows)]


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['embedder']}@{row['entries']}"


def _answers_chart(rows: Sequence[Mapping[str, Any]]) -> StackChart:
    known = all(row["right_rate"] is not None for row in rows)
    shown = 3 if known else 2
    drawn = tuple(
        (
            f"{_name(row)}: {percent(row['hit_rate'])} hit",
            tuple(
                count / row["queries"]
                for count in (
                    row["exact_hits"],
                    row["semantic_hits"] - (row["false_hits"] or 0),
                    row["false_hits"] or 0,
                )[:shown]
            ),
        )
        for row in rows
    )
    parts = (("exact", 0), ("near, and right" if known else "near", 2), ("near, and wrong", 1))
    note = "Of all queries; what is empty was not answered." + ("" if known else " Nobody knows which are wrong.")
    return StackChart("What is answered", parts[:shown], drawn, percent, note, 1.0)


def _shares_chart(rows: Sequence[Mapping[str, Any]]) -> StackChart:
    drawn = tuple((_name(row), tuple(float(row["share_us"][part]) for part in PART_COLOURS)) for row in rows)
    note = "Medians. identity: the digest of a request; rest: the decision and Python between the parts."
    return StackChart("Where a semantic lookup's time goes", tuple(PART_COLOURS.items()), drawn, _us, note)


def _spread(samples: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> LineChart:
    """Return the lookups' percentiles, of the largest cache of each embedder and of an exact hit in it."""
    largest = {row["embedder"]: row for row in sorted(rows, key=lambda row: int(row["entries"]))}
    series = []
    for colour, row in enumerate(list(largest.values())[:3]):
        series.append(Series(_name(row), _percentiles(samples[f"{_name(row)}.lookup"]), colour))
    series.append(Series("an exact hit", _percentiles(samples[f"{_name(rows[-1])}.exact"]), 3))
    ticks = tuple((float(at), f"p{at}") for at in MARKS)
    note = "Every percentile of the timed calls up to p99: half of the calls are faster than p50."
    return LineChart("How a lookup's time is spread", tuple(series), ticks, _us, note=note)


def _percentiles(arm: Mapping[str, Any]) -> tuple[Point, ...]:
    return tuple(Point(float(at), arm["percentiles_us"][at], None, f"p{at}") for at in DRAWN)


def _us(value: float) -> str:
    return f"{value:,.0f} us" if value >= 100 else f"{value:,.1f} us"


def lead(result: Result) -> str:
    """Return the sentence to be read first: of the last row, the best embedder among the most entries."""
    row = [row for row in result.rows if "lookup_us" in row][-1]
    said = f"{row['embedder']} answered {percent(row['hit_rate'])} of {row['queries']:,} queries"
    said += f" from {row['entries']:,} entries"
    if row["false_hits"] is not None:
        said += f", {row['false_hits']:,} of them wrongly"
    return f"{said}. A lookup takes {_us(row['lookup_us']['p50'])} at the median."


TRAPS = (
    "Look-alikes are traps set on purpose (another number, a negation, another city), more of them than traffic "
    "holds: compare embedders and cutoffs by these rates, and measure your own traffic for a forecast."
)

LESSON = (
    "The policy was taught by generated questions, not by these prompts. Its index is asked for 8 neighbours where a "
    "static cutoff needs one: that, too, is its price. A promise is on traffic like what was learned from."
)


def bench(
    embedders: options.Embedders = None,
    entries: options.Entries = "1000",
    index: options.Index = "auto",
    tau: options.Tau = 0.8,
    policy: Annotated[
        str,
        typer.Option(
            envvar="RECALL_POLICY",
            metavar="static|adaptive",
            help="adaptive: one that has learned from generated questions, timed beside the static cutoff.",
        ),
    ] = "static",
    target: Annotated[
        float,
        typer.Option(
            "--target-false-hit",
            envvar="RECALL_TARGET_FALSE_HIT",
            metavar="RATE",
            help="adaptive: share of its hits that may be wrong.",
        ),
    ] = 0.01,
    lookups: Annotated[int, typer.Option(envvar="RECALL_LOOKUPS", help="Timed calls of each arm.")] = 2_000,
    prompts: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_PROMPTS",
            metavar="FILE|-",
            help="Your prompts: one a line, JSONL, or a request log. Default: recall's own.",
        ),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option("--reference", envvar="RECALL_REFERENCE", help="Time model2vec's own encode in the same rounds."),
    ] = False,
    verify_on_hit: options.VerifyOnHit = "auto",
    store: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_STORE",
            metavar="FILE",
            help="Time against this SQLite store (one embedder; bench entries are taken out again).",
        ),
    ] = None,
    seed: options.Seed = 0,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
    report: options.Report = None,
) -> None:
    """Show where a lookup's time goes, and what a cache at this cutoff answers rightly and wrongly.

    Example: recall bench --reference --entries 1000,10000 --out results/bench.json
    """
    with Output(format, json, out, report=report, inputs=[prompts or ""]) as output:
        from recall_cli.measure.bench import bench as measure

        plan = measure.BenchPlan(
            embedders=tuple(embedders or ()),
            entries=options.integers(entries),
            index=index,
            tau=tau,
            policy=policy,
            target=target,
            lookups=lookups,
            prompts=prompts,
            reference=reference,
            verify_on_hit=verify_on_hit,
            store=store,
            seed=seed,
        )
        output.emit(measure.run(plan, progress=output.progress), view, PAGE)


def view(result: Result) -> Sequence[Block]:
    """Return what people see of a bench: answers, times, shares, ratios."""
    rows = [row for row in result.rows if "lookup_us" in row]
    blocks: list[Block] = [_answers(rows, _policy(result.params))]
    if result.summary.get("cutoff_alone"):
        blocks.append(_alone(result))
    blocks.append(_kinds(result))
    if any("lookalike" in case for case in result.summary["by_kind"].values()):
        blocks.append(Line(TRAPS))
    blocks += [_times(result.rows), Line(_legend(rows)), _shares(rows)]
    if any("over_static" in row for row in rows):
        blocks += [_decisions(rows, result.params["tau"]), Line(LESSON)]
    if "second_opinion" in result.summary:
        blocks.append(_opinion(result.summary["second_opinion"]))
    ratios = result.summary.get("ratios")
    if ratios:
        blocks.append(_ratios(ratios))
    return blocks


def _opinion(opinion: dict[str, Any]) -> Block:
    """Return what a second opinion costs, and what it lets stand of the queries that have a tempting entry."""
    agrees = opinion["agrees"]
    us = opinion["us"]
    return table(
        "A second opinion of a new prompt on a stored one that was read before",
        ("opinion", "us p50", "us p99", *(f"lets stand: {kind}" for kind in agrees)),
        [(opinion["name"], number(us["p50"]), number(us["p99"]),
          *(rate(part["rate"], part["rate_interval"]) for part in agrees.values()))],
    )  # fmt: skip


def _policy(params: Mapping[str, Any]) -> str:
    if params.get("policy", "static") == "static":
        return f"at tau {params['tau']:g}"
    return f"with adaptive at a target of {percent(params['target'])}"


def _answers(rows: Sequence[dict[str, Any]], how: str) -> Block:
    return table(
        f"What it answers {how}: rates of all queries, 95 % intervals",
        ("embedder", "entries", "hit rate", "rightly served", "exact", "semantic", "wrong", "wrong, of semantic"),
        [
            (
                row["embedder"],
                count(row["entries"]),
                rate(row["hit_rate"], row["hit_rate_interval"]),
                rate(row["right_rate"], row["right_rate_interval"]),
                count(row["exact_hits"]),
                count(row["semantic_hits"]),
                count(row["false_hits"]),
                rate(row["false_hit_rate"], row["false_hit_interval"]),
            )
            for row in rows
        ],
    )


def _alone(result: Result) -> Block:
    """Return what the bare cutoff serves: not what recall does by default, but what most guides have in mind."""
    return table(
        f"The cutoff alone (--verify-on-hit none) at tau {result.params['tau']:g}: what the checks above keep back",
        ("embedder@entries", "hit rate", "semantic", "wrong", "wrong, of semantic"),
        [
            (
                name,
                rate(found["hit_rate"], found["hit_rate_interval"]),
                count(found["semantic_hits"]),
                count(found["false_hits"]),
                rate(found["false_hit_rate"], found["false_hit_interval"]),
            )
            for name, found in result.summary["cutoff_alone"].items()
        ],
    )


def _kinds(result: Result) -> Block:
    cases: dict[str, dict[str, Any]] = result.summary["by_kind"]
    kinds = list(dict.fromkeys(kind for case in cases.values() for kind in case if not kind.startswith("trap:")))
    rows = []
    for name, case in cases.items():
        cells = [f"{case[kind]['served']}/{case[kind]['queries']}" if kind in case else NONE for kind in kinds]
        rows.append((name, *cells))
    return table(
        "Served, by kind of query (only repeats and paraphrases should be)", ("embedder@entries", *kinds), rows
    )


def _times(rows: Sequence[dict[str, Any]]) -> Block:
    columns = ("embed", "embed_cold", "search", "lookup", "lookup_first_seen", "exact")

    def cell(row: dict[str, Any], name: str) -> str:
        us = row.get(f"{name}_us")
        return NONE if us is None else f"{number(us['p50'])} / {number(us['p99'])}"

    return table(
        "Microseconds, p50 / p99",
        (
            "embedder",
            "entries",
            "index",
            "embed",
            "new words",
            "search",
            "lookup",
            "new text",
            "exact hit",
            "prompts/s",
        ),
        [
            (
                row["embedder"],
                count(row.get("entries")),
                row.get("index", NONE),
                *(cell(row, name) for name in columns),
                number(row["prompts_per_s"], 0),
            )
            for row in rows
        ],
    )


def _legend(rows: Sequence[dict[str, Any]]) -> str:
    ways = {row["embedder"]: row["tokens"] for row in rows if row["tokens"]}
    how = "".join(f" {name} tokenises by {way}." for name, way in ways.items())
    return (
        "embed: one prompt of words seen before; new words: none seen before; lookup: a whole semantic lookup; "
        f"new text: the same for a sentence never seen; exact hit: a stored prompt asked again. One thread.{how}"
    )


def _shares(rows: Sequence[dict[str, Any]]) -> Block:
    parts = ("identity", "embed", "search", "rest")
    bars = tuple(
        (f"{row['embedder']}@{row['entries']}", tuple(float(row["share_us"][part]) for part in parts)) for row in rows
    )
    return Bars("Where a semantic lookup's p50 goes", parts, bars, "us")


PARTS = {
    "policy": "verdict",
    "decide": "evidence and verdict",
    "nearest": "index",
    "search": "all three, in the cache",
    "lookup": "lookup",
}


def _decisions(rows: Sequence[dict[str, Any]], tau: float) -> Block:
    def us(value: Mapping[str, Any]) -> str:
        return f"{number(value['p50'])} / {number(value['p99'])}"

    return table(
        f"What the adaptive policy costs over a static cutoff ({tau:g}), same rounds: microseconds, p50 / p99",
        ("embedder@entries", "part", "adaptive", "static", "difference", "ratio"),
        [
            (
                f"{row['embedder']}@{row['entries']}",
                name,
                us(row[f"{part}_us"]),
                us(row[f"static_{part}_us"]),
                bare(over["difference_us"], over["difference_us_interval"], 1),
                bare(over["ratio"], over["interval"], 2),
            )
            for row in rows
            for part, name in PARTS.items()
            for over in (row["over_static"][part],)
        ],
        left=2,
    )


def _ratios(ratios: dict[str, dict[str, Any]]) -> Block:
    return table(
        "Time over model2vec's own StaticModel.encode, same rounds (batch: prompts per second)",
        ("arm", "ratio", "95 % interval"),
        [
            (name, f"{value['ratio']:.3f}", f"[{value['interval'][0]:.3f}, {value['interval'][1]:.3f}]")
            for name, value in ratios.items()
        ],
    )


def _tables(result: Result) -> Sequence[Block]:
    return [block for block in view(result) if not isinstance(block, Bars)]


PAGE = Page("What a semantic cache answers, and what a lookup costs", lead, _tables, charts)
