"""`recall hub eval`, its tables and its HTML page: the legs side by side, and what the weight of vectors changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from recall_cli.cli import options
from recall_cli.cli.commands.hub_options import HubDir, HubStore, Rerank, RerankDeadline, Slug, hub_place
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, Line, bare, count, number, percent, rate, table
from recall_cli.cli.render.html import Page
from recall_cli.cli.render.svg import OTHER, Axis, Bar, BarChart, Chart, Mark, PointSeries, ScatterChart
from recall_cli.types import Result

COLOURS = {"lexical": 3, "vector": 1}
"""Of the legs; what is made of both has the first colour."""


def charts(result: Result) -> list[Chart]:
    """Return for each hub its legs, and the curve of the weight where it was fitted."""
    found: list[Chart] = []
    for hub, rows in groupby(result.rows, key=lambda row: row["hub"]):
        found.append(_legs(hub, list(rows)))
        fit = result.summary["hubs"].get(hub, {}).get("fit")
        if fit:
            found.append(_weight(hub, fit))
    return found


def _legs(hub: str, rows: Sequence[Mapping[str, Any]]) -> BarChart:
    bars = tuple(
        Bar(
            row["leg"],
            row["ndcg_at_10"],
            (row["ndcg_at_10_interval"][0], row["ndcg_at_10_interval"][1]),
            COLOURS.get(row["leg"], 0),
        )
        for row in rows
    )
    note = f"{rows[0]['queries']:,} questions. Whiskers: 95 % intervals, by bootstrap over questions."
    return BarChart(f"{hub}: nDCG@10 of each leg", bars, _digits, note=note)


def _weight(hub: str, fit: Mapping[str, Any]) -> ScatterChart:
    curve = tuple(Mark(point["alpha"], point["ndcg_at_10"]) for point in fit["curve"])
    values = [mark.y for mark in curve]
    low, high = math.floor(min(values) * 20) / 20, math.ceil(max(values) * 20 + 1e-9) / 20
    best = next(mark for mark in curve if mark.x == fit["alpha"])
    across = Axis(
        "weight of vectors (0: words alone, 1: vectors alone)", (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), _short
    )
    up = Axis("nDCG@10", (low, high), tuple(low + (high - low) * part / 4 for part in range(5)), _digits)
    clouds = (
        PointSeries("of all questions", curve, OTHER, joined=True),
        PointSeries(f"fitted: {fit['alpha']:g}", (best,), 0),
    )
    note = (
        "Dashed: the present weight. The curve is of the questions it is fitted to; "
        f"on unseen ones the gain is {_gain(fit)}."
    )
    return ScatterChart(f"{hub}: what the weight does", clouds, across, up, (fit["present_alpha"],), note)


def _gain(fit: Mapping[str, Any]) -> str:
    low, high = fit["gain_interval"]
    return f"{fit['gain']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _digits(value: float) -> str:
    return f"{value:.3f}"


def _short(value: float) -> str:
    return f"{value:g}"


def lead(result: Result) -> str:
    """Return the sentence to be read first: whether fusing gains over the better leg."""
    hubs: Mapping[str, Mapping[str, Any]] = result.summary["hubs"]
    gains = [hub for hub, learned in hubs.items() if learned["gain_over_better_leg_interval"][0] > 0]
    if len(hubs) == 1:
        ((hub, learned),) = hubs.items()
        low, high = learned["gain_over_better_leg_interval"]
        return (
            f"{hub}: the fused order is {learned['gain_over_better_leg']:+.3f} [{low:+.3f}, {high:+.3f}] nDCG@10 "
            f"against the better leg, which is the {learned['better_leg']} one."
        )
    return f"The fused order is shown to be better than the better leg on {len(gains)} of {len(hubs)} hubs."


LABELS, LEARN = "Labelled questions", "What is learned"


def evaluate(
    hub: Slug,
    queries: Annotated[
        str, options.option("--queries", "Questions with an id and a text, as JSON lines or CSV.", LABELS, "FILE")
    ],
    qrels: Annotated[
        str,
        options.option(
            "--qrels", "Which documents answer them: query-id, corpus-id, score, or TREC's columns.", LABELS, "FILE"
        ),
    ],
    foreign: Annotated[
        str | None,
        options.option("--foreign", "Questions that the hub cannot answer: learns min_score.", LABELS, "FILE"),
    ] = None,
    fit: Annotated[
        bool, options.option("--fit", "Fit the weight of vectors against words, and judge it cross-validated.", LEARN)
    ] = False,
    false_answers: Annotated[
        float,
        options.option(
            "--false-answers",
            "Share of the answered questions that may be foreign ones.",
            LEARN,
            "0.001..0.3",
            min=0.001,
            max=0.3,
        ),
    ] = 0.05,
    save: Annotated[
        bool, options.option("--save", "Let the hub keep what was learned and shown to be worth it.", LEARN)
    ] = False,
    rerank: Rerank = "none",
    rerank_deadline: RerankDeadline = 1.0,
    seed: options.Seed = 0,
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
    report: options.Report = None,
) -> None:
    """Measure how well a hub answers labelled questions, and learn its settings from them.

    Example: recall hub eval handbook --queries queries.jsonl --qrels qrels.tsv --fit
    """
    with Output(format, json, out, report=report, inputs=[queries, qrels, foreign or ""]) as output:
        from recall_cli.hub.search.rerank import make_reranker
        from recall_cli.hub.session import local_hub
        from recall_cli.measure.hub_eval import HubEvalPlan, run

        reranker = make_reranker(rerank, deadline_s=rerank_deadline)
        plan = HubEvalPlan(queries, qrels, foreign=foreign, fit=fit, target=false_answers, save=save, seed=seed)
        with local_hub(hub_place(hub_dir, store), hub, reranker=reranker) as opened:
            result = run(opened, plan, reranker=reranker, progress=output.progress)
        output.emit(result, view, PAGE)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: the legs side by side, then what was learned."""
    hubs: Mapping[str, Mapping[str, Any]] = result.summary["hubs"]
    blocks: list[Block] = [_quality(result.rows), _gains(hubs), Line(READING)]
    limits = {hub: learned["min_score"] for hub, learned in hubs.items() if "min_score" in learned}
    if limits:
        blocks.append(_limits(limits))
    for hub, learned in hubs.items():
        if "fit" in learned:
            blocks += [_fit(hub, learned["fit"]), _curve(hub, learned["fit"])]
        blocks += _notes(hub, learned)
    return blocks


READING = (
    "A document counts by its best chunk. nDCG has linear gains; intervals are 95 %, by bootstrap over questions. The "
    "gain is of the fused order over the better of the two legs, question by question."
)


def _quality(rows: Sequence[dict[str, Any]]) -> Block:
    return table(
        "How well labelled questions are answered",
        ("hub", "leg", "questions", "nDCG@10", "recall@10", "MRR@10"),
        [
            (
                row["hub"],
                row["leg"],
                count(row["queries"]),
                *(bare(row[m], row[f"{m}_interval"], 3) for m in ("ndcg_at_10", "recall_at_10", "mrr_at_10")),
            )
            for row in rows
        ],
        left=2,
    )


def _gains(hubs: Mapping[str, Mapping[str, Any]]) -> Block:
    return table(
        "The fused order against the better leg",
        ("hub", "documents", "chunks", "weight of vectors", "better leg", "gain in nDCG@10", "no word found"),
        [
            (
                hub,
                count(learned["documents"]),
                count(learned["chunks"]),
                number(learned["alpha"], 2),
                learned["better_leg"],
                bare(learned["gain_over_better_leg"], learned["gain_over_better_leg_interval"], 3),
                rate(learned["no_lexical_candidate"], learned["no_lexical_candidate_interval"]),
            )
            for hub, learned in hubs.items()
        ],
    )


def _limits(limits: Mapping[str, Mapping[str, Any]]) -> Block:
    return table(
        "min_score, learned; shares are of questions that it was not learned from",
        ("hub", "min_score", "allowed", "false, of answered", "foreign answered", "others answered", "AUC"),
        [
            (
                hub,
                number(limit["min_score"], 3),
                percent(limit["target"]),
                rate(limit["false_answers"], limit["false_answers_interval"]),
                rate(limit["foreign_answered"], limit["foreign_answered_interval"]),
                rate(limit["answerable_answered"], limit["answerable_answered_interval"]),
                number(limit["auc"], 3),
            )
            for hub, limit in limits.items()
        ],
    )


def _fit(hub: str, fit: Mapping[str, Any]) -> Block:
    return table(
        f"{hub}: the weight of vectors, fitted on {fit['folds']} folds",
        ("weight", "in the folds", "nDCG@10 on unseen questions", f"gain over {fit['present_alpha']:g}"),
        [
            (
                number(fit["alpha"], 2),
                f"{min(fit['fold_alphas']):.2f} to {max(fit['fold_alphas']):.2f}",
                bare(fit["ndcg_at_10_unseen"], fit["ndcg_at_10_unseen_interval"], 3),
                bare(fit["gain"], fit["gain_interval"], 3),
            )
        ],
        left=0,
    )


def _curve(hub: str, fit: Mapping[str, Any]) -> Block:
    points = fit["curve"][::2]
    return table(
        f"{hub}: nDCG@10 by weight (0: words alone, 1: vectors alone)",
        tuple(f"{point['alpha']:g}" for point in points),
        [tuple(number(point["ndcg_at_10"], 3) for point in points)],
        left=0,
    )


def _notes(hub: str, learned: Mapping[str, Any]) -> Iterator[Block]:
    if failures := learned["rerank_failures"]:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in failures.items())
        yield Line(f"{hub}: questions that were not reranked, and keep the fused order: {reasons}.")
    if "saved" in learned:
        kept = ", ".join(f"{name} {value:g}" for name, value in learned["saved"].items())
        yield Line(f"{hub} keeps: {kept or 'its settings; nothing was shown to be better'}.")


PAGE = Page("How well a hub answers labelled questions", lead, view, charts)
