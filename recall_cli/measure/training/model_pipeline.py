"""From the plain distilled table to the bundled one: corpus, teacher, two fits; each stage kept on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from recall_cli.cache.embed.tokens import unknown_id
from recall_cli.errors import InputError
from recall_cli.measure.training import wordnet
from recall_cli.measure.training.corpus import Corpus, corpus
from recall_cli.measure.training.model_neighbours import LEAF
from recall_cli.measure.training.teacher import teach
from recall_cli.measure.training.textworld_contrast import PROMPTS, contrasts
from recall_cli.measure.training.torch_extra import single_thread
from recall_cli.measure.training.train import BATCH, NEIGHBOURS, Lessons, Steps, Trainer, start, tempered
from recall_cli.types import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]

GROUPS = 30_000
GROUPS_SEED = 7
LONGEST = 128
"""Tokens of a text that are learned from."""


@dataclass(frozen=True, slots=True)
class Plan:
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
    raw: Floats, tokenizer: Tokenizer, teacher: Path, teacher_digest: str, plan: Plan, step: Progress
) -> tuple[Floats, dict[str, Any]]:
    """Return the fitted table, shape as `raw`, and a record of what it was fitted to.

    :param raw: the plain distilled table, whose rows give each token its direction to start from.
    """
    found = corpus(plan.wordnet, plan.data)
    texts = found.texts[: plan.sentences]
    key = blake3(f"{found.digest}\0{len(texts)}\0{teacher_digest}".encode()).hexdigest()[:16]
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
    return blake3(repr(stage).encode() + np.ascontiguousarray(raw).tobytes()).hexdigest()[:16]


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


def _record(found: Corpus, sentences: int, plan: Plan) -> dict[str, Any]:
    return {
        "sentences": sentences,
        "corpus_blake3": found.digest,
        "sources": list(found.sources),
        "left_out_as_evaluation_text": found.left_out,
        "groups": plan.groups,
        "steps": asdict(plan.steps),
    }
