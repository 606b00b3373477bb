"""What the teacher makes of the corpus: one vector a sentence, in shards that survive an interrupted build.

Batches put sentences beside those that the teacher holds near them. Among 256 sentences drawn at random hardly two are
near each other, so a fit to them learns which topic is which and loses the order of near ones, which is all that a
cache asks about.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from recall_cli.types import Progress
from training.torch_extra import optional

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Halves = NDArray[np.float16]

LEAF = 16
"""Sentences that stand together."""


def leaves(vectors: NDArray[np.float16], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return rows of `LEAF` near neighbours, shape (m, LEAF), in random order; some rows of `vectors` are in none.

    A tree of random cuts (Dasgupta and Freund 2008): a part is halved along the line through two of its own, until a
    leaf is left. Another draw cuts elsewhere, so what one tree parts another keeps together.
    """
    parts = [np.arange(len(vectors))]
    found = []
    while parts:
        part = parts.pop()
        if len(part) <= LEAF:
            found.append(part)
            continue
        one, other = rng.choice(part, 2, replace=False)
        line = vectors[one].astype(np.float32) - vectors[other].astype(np.float32)
        order = part[np.argsort(vectors[part].astype(np.float32) @ line, kind="stable")]
        # A multiple of a leaf, so that at most one part in the end is not whole.
        half = max(LEAF, len(part) // 2 // LEAF * LEAF)
        parts += [order[half:], order[:half]]
    whole = [part for part in found if len(part) == LEAF]
    return np.stack(whole)[rng.permutation(len(whole))] if whole else np.empty((0, LEAF), dtype=np.int64)


SHARD = 20_000
BATCH = 64
MAX_TOKENS = 64
"""Of a sentence of at most 300 characters hardly any is longer."""


def teach(source: Path, texts: Sequence[str], folder: Path, step: Progress) -> Halves:
    """Return the teacher's unit vectors, shape (len(texts), dim), as float16; shards on the disk are taken as they are.

    :param folder: where the shards of these texts by this teacher lie, and of no others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = [(start, folder / f"teacher-{start // SHARD:03}.npy") for start in range(0, len(texts), SHARD)]
    embed: Any = None
    for start, path in shards:
        step(start, len(texts), "sentences through the teacher")
        if path.exists():
            continue
        embed = embed or _Teacher(source)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, embed(texts[start : start + SHARD]).astype(np.float16))
        part.replace(path)
    step(len(texts), len(texts), "sentences through the teacher")
    return np.concatenate([np.load(path) for _, path in shards])


class _Teacher:
    """A transformer whose last layer is averaged over the tokens, [CLS] and [SEP] among them, to unit length."""

    def __init__(self, source: Path) -> None:
        from tokenizers import Tokenizer

        self._torch = torch = optional("torch")
        transformers = optional("transformers")
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # bfloat16 halves the time where the processor has it; its vectors keep a cosine of 0.9999 to float32's.
        kind = torch.bfloat16 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else torch.float32
        with mock.patch.dict(os.environ, HF_HUB_OFFLINE="1"):
            self._model = transformers.AutoModel.from_pretrained(str(source), dtype=kind).eval()
        self._tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        torch = self._torch
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        found: list[Any] = [None] * len(rows)
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                block = order[start : start + BATCH]
                ids = torch.zeros((len(block), len(rows[block[0]])), dtype=torch.int64)
                mask = torch.zeros_like(ids)
                for line, i in enumerate(block):
                    ids[line, : len(rows[i])] = torch.tensor(rows[i])
                    mask[line, : len(rows[i])] = 1
                states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                vectors = torch.nn.functional.normalize((states * mask[:, :, None]).sum(1), dim=1).numpy()
                for line, i in enumerate(block):
                    found[i] = vectors[line]
        return np.stack(found)
