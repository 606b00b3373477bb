"""`recall model`: fit the bundled embedder to one's own traffic, and measure any embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recall_cli.cli.options import AllowSampled, Embedder, Format, FormatName, Json, Out, Seed
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, bare, count, number, rate, table
from recall_cli.types import Result


def view(result: Result) -> list[Block]:
    """Return the tables of a `model fit` or `model eval` result."""
    if result.command == "model fit":
        return _fit(result)
    kinds = {row["measure"] for row in result.rows}
    drawn = {"pairs": _pairs, "cache": _cache, "traps": _traps, "graded": _graded, "cost": _cost}
    return [
        draw([row for row in result.rows if row["measure"] == kind]) for kind, draw in drawn.items() if kind in kinds
    ]


def _fit(result: Result) -> list[Block]:
    """Return the cross-validated comparison, and which tokens moved most."""
    summary = result.summary
    rates, spans = summary["hit_rate_at_false_hit"], summary["hit_rate_at_false_hit_interval"]
    shares = list(rates["before"])
    compared = table(
        f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps, scored by weights of the others",
        ("weights", "AUC", *(f"at {100 * float(share):g} % of traps" for share in shares)),
        [
            (
                name.replace("_", "-"),
                bare(summary["auc"][name], summary["auc_interval"][name], 3),
                *(rate(rates[name][share], spans[name][share]) for share in shares),
            )
            for name in summary["auc"]
        ],
    )
    if not summary["saved"]:
        return [compared]
    moved = [(row["token"], number(row["factor"], 2)) for row in result.rows]
    return [compared, table("Tokens whose weight changed most", ("token", "factor"), moved)]


def _pairs(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Same intent or not: random pairs, and each utterance's nearest of either kind",
        ("data", "pairs", "embedder", "n", "AUC", "true positives at 1 % false"),
        [
            (
                row["data"],
                row["pairs"],
                row["embedder"],
                count(row["n"]),
                _plain(row, "auc"),
                _rate(row, "tpr_at_fpr_1"),
            )
            for row in rows
        ],
        left=3,
    )


def _cache(rows: list[dict[str, Any]]) -> Block:
    return table(
        "A cache whose cutoff is chosen on one half of the queries and scored on the other",
        (
            "data",
            "budget of false hits",
            "embedder",
            "queries",
            "hits",
            "false of queries",
            "false of hits",
            "in sample",
        ),
        [
            (
                row["data"],
                f"{100 * row['budget']:g} % of {row['budget_of']}",
                row["embedder"],
                count(row["n"]),
                _rate(row, "hit_rate"),
                _rate(row, "false_hit_rate", 2),
                _rate(row, "false_per_hit"),
                f"{100 * row['hit_rate_in_sample']:.1f} %",
            )
            for row in rows
        ],
        left=3,
    )


def _traps(rows: list[dict[str, Any]]) -> Block:
    shares = [key for key in rows[0] if key.startswith("hit_rate_at_") and key.count("_") == 3]
    return table(
        "Paraphrases against traps: should-hit pairs served where a share of the traps is",
        ("data", "traps", "embedder", "pairs", "AUC", *(f"at {100 * float(key[12:]):g} % of traps" for key in shares)),
        [
            (
                row["data"],
                row["against"],
                row["embedder"],
                count(row["n"]),
                _plain(row, "auc"),
                *(_rate(row, key) for key in shares),
            )
            for row in rows
        ],
        left=3,
    )


def _graded(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Graded pairs: rank correlation of cosine and grade",
        ("data", "embedder", "pairs", "Spearman"),
        [(row["data"], row["embedder"], count(row["n"]), _plain(row, "spearman")) for row in rows],
        left=2,
    )


def _cost(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Microseconds to embed one prompt of 8 to 16 words, one thread; bytes of the model's files",
        ("embedder", "p50", "p99", "bytes"),
        [
            (row["embedder"], number(row["embed_us"]["p50"]), number(row["embed_us"]["p99"]), count(row["bytes"]))
            for row in rows
        ],
    )


def _plain(row: dict[str, Any], key: str) -> str:
    """Write a figure that is no rate, with its interval."""
    return bare(row[key], row[f"{key}_interval"], 4)


def _rate(row: dict[str, Any], key: str, digits: int = 1) -> str:
    return rate(row[key], row[f"{key}_interval"], digits)


app = typer.Typer(
    name="model", help="Fit the static embedder to your traffic, and measure embedders.", no_args_is_help=True
)

Folder = Annotated[
    Path, typer.Argument(envvar="RECALL_MODEL_FOLDER", help="Model folder to write; replaces an older one.")
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EMBEDDER]...",
        envvar="RECALL_EMBEDDER",
        help="hash-v1, static, minilm, wordllama or model2vec:PATH-OR-NAME (default: static hash-v1); differences "
        "are against the first.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="RECALL_DATA", help="Evaluation data folder.", show_default="../shared/data beside the checkout"
    ),
]
PairFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        envvar="RECALL_MODEL_PAIRS",
        help="Also measure these pairs: labelled (a, b, same) or graded (sentence1, sentence2, score). Repeatable.",
    ),
]
Sample = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_SAMPLE", help="Pairs of each kind to sample.")]
NoTiming = Annotated[bool, typer.Option("--no-timing", envvar="RECALL_MODEL_NO_TIMING", help="Leave the times out.")]
PerIntent = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_PER_INTENT", help="Entries an intent, at most.")]


@app.command("fit")
def fit(
    folder: Folder,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", envvar="RECALL_LOG_FILE", help="A request log, as recall savings reads it."),
    ] = None,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE", envvar="RECALL_FIT_PAIRS", help="Labelled pairs (a, b, same).")
    ] = None,
    embedder: Embedder = "static",
    allow_sampled: AllowSampled = False,
    seed: Seed = 0,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """Weigh the tokens for your own traffic: writes a model folder if other pairs of it show that it is better.

    Example: recall model fit mine --log requests.jsonl && recall eval --log requests.jsonl -e model2vec:mine
    """
    with Output(format, json, out, inputs=[log or pairs or ""]) as output:
        from recall_cli.measure.embedder import fit as model_adapt

        given = model_adapt.given(log, pairs, embedder, allow_sampled=allow_sampled, progress=output.progress)
        result = model_adapt.run(given, folder, embedder=embedder, seed=seed)
        output.emit(result, view)
        model_adapt.check(result)


@app.command("eval")
def evaluate(
    names: Names = None,
    data: Data = None,
    pairs: PairFiles = None,
    sample: Sample = 20_000,
    per_intent: PerIntent = 20,
    no_timing: NoTiming = False,
    seed: Seed = 0,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """What embedders tell apart: intents, paraphrases from traps, graded pairs; and what they cost."""
    from recall_cli.measure.embedder import model_eval, rivals

    with Output(format, json, out, inputs=pairs or []) as output:
        result = model_eval.run(
            names or ["static", "hash-v1"],
            model_eval.load(data),
            pair_data=model_eval.pair_sets(data, pairs or ()),
            timed=not no_timing,
            make=rivals.make,
            seed=seed,
            pairs=sample,
            per_intent=per_intent,
            progress=output.progress,
        )
        output.emit(result, view)
