"""Embedders by name: `hash-v1`, `static` (bundled, the default), `minilm` and `model2vec:PATH-OR-NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.embed.static import TableEmbedder
from recall_cli.errors import REINSTALL, EmbedderError
from recall_cli.types import Embedder, Vector

DEFAULT_EMBEDDER = "static"
NAMES = ("hash-v1", "static", "minilm", "model2vec:PATH-OR-NAME")
MODEL_FILES = ("model.safetensors", "tokenizer.json", "config.json")
"""What a model folder holds."""


def make_embedder(name: str, *, tokens: str = "auto") -> Embedder:
    """Return the embedder of that name. Raises EmbedderError when there is none or it does not load.

    :param tokens: the way to the token ids, see `cache.embed.static`; "auto" is the fastest there is.
    """
    kind, _, rest = name.partition(":")
    if name == "hash-v1":
        return HashEmbedder()
    if name == "static":
        return _bundled(tokens)
    if name == "minilm":
        from recall_cli.cache.embed.minilm import load_sentence_model

        return load_sentence_model(bundled_folder())
    if kind == "model2vec" and rest:
        return _model2vec(name, rest, tokens)
    raise EmbedderError(f"there is no embedder named {name!r}", hint=f"choose one of {', '.join(NAMES)}")


def reads_all(embedder: Embedder, text: str) -> bool:
    """Return whether all of a text goes into its vector; an embedder that cannot tell is taken to read all.

    Two texts that differ in what the embedder never saw have one vector: they may only be matched by identity.
    """
    ask = getattr(embedder, "reads_all", None)
    return ask is None or bool(ask(text))


def read_vectors(embedder: Embedder, texts: Sequence[str]) -> Vector:
    """Return `embed_many` with rows of zeros for texts that the embedder has not read: nothing is near them."""
    vectors = embedder.embed_many(texts)
    read = reads(embedder)
    unread = [row for row, text in enumerate(texts) if not read(text)]
    if unread:
        vectors[unread] = 0.0
    return vectors


def reads(embedder: Embedder) -> Callable[[str], bool]:
    """Return what tells whether a text's vector says what the text says; see `cache.embed.word_pieces`.

    A text that was not read, or not to its end, may only be matched by identity. An embedder that cannot tell is
    taken to read everything.
    """
    read: Callable[[str], bool] | None = getattr(embedder, "reads", None)
    whole: Callable[[str], bool] | None = getattr(embedder, "reads_all", None)
    return read or whole or _always


def reads_word(embedder: Embedder) -> Callable[[str], bool]:
    """Return what tells whether one word's vector says what the word says."""
    read: Callable[[str], bool] | None = getattr(embedder, "reads_word", None)
    return read or _always


def _always(text: str) -> bool:
    return True


class HashEmbedder:
    """A deterministic stub: blake3 bytes as a vector. Equal text matches; meaning does not exist.

    Useful to test plumbing and as the floor in every table: what it "hits" is exact repetition.
    """

    name = "hash-v1"
    dim = 256
    fingerprint = blake3(b"recall hash-v1: blake3 XOF, 256 bytes, minus 127.5, unit norm").hexdigest()

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (256,)."""
        raw = blake3(text.encode("utf-8", "surrogatepass")).digest(length=self.dim)
        vector: Vector = np.frombuffer(raw, dtype=np.uint8) - np.float32(127.5)
        vector /= np.sqrt(vector.dot(vector))
        return vector

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), 256)."""
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.stack([self.embed(text) for text in texts])


def bundled_folder() -> Path:
    """Return the folder of the bundled model's files."""
    return Path(str(files("recall_cli"))) / "model"


def model_folder(name: str) -> Path:
    """Return where the files of an embedder of that name are; no folder is there when it is not made of one."""
    return bundled_folder() if name == "static" else Path(name.removeprefix("model2vec:"))


def _bundled(tokens: str) -> TableEmbedder:
    """Load the bundled table without importing model2vec, which costs more than everything else."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = bundled_folder()
    try:
        config = orjson.loads((folder / "config.json").read_bytes())
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tensors = load_file(folder / "model.safetensors")
        table = _fold(tensors["embeddings"], tensors.get("weights"))
    except Exception as error:
        raise EmbedderError(
            f"the bundled model does not load: {error}", hint=f"{REINSTALL}; its model folder is incomplete"
        ) from error
    return TableEmbedder("static", tokenizer, table, max_length=config.get("max_length", 512), tokens=tokens)


def _model2vec(name: str, source: str, tokens: str) -> TableEmbedder:
    is_folder = Path(source).is_dir()
    if not is_folder and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise EmbedderError(
            f"there is no model2vec folder at {source}", hint="name a folder that holds config.json and the weights"
        )
    try:
        model = load_static_model(source)
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        if is_folder:
            hint = "the folder must hold config.json, tokenizer.json and model.safetensors as model2vec saves them"
        else:
            hint = "a name needs a network that reaches the model hub; without one, name a folder: model2vec:PATH"
        raise EmbedderError(f"the model {source} does not load: {reason[0]}", hint=hint) from error
    table = _fold(model.embedding, model.weights, model.token_mapping)
    return TableEmbedder(name, model.tokenizer, table, max_length=model.max_length, tokens=tokens)


def _fold(rows: Any, weights: Any, mapping: Any = None) -> Vector:
    """Return one float32 row a token: model2vec's mapping and weights, which it applies text by text, folded in."""
    table: Vector = rows.astype(np.float32)
    if mapping is not None:
        table = table[mapping]
    if weights is not None:
        table *= weights.astype(np.float32)[:, np.newaxis]
    return table


def reference_model() -> Any:
    """Return model2vec's own `StaticModel` on the bundled table with its weights folded in: the rival to time.

    With weights left apart, as in the folder, model2vec encodes a batch text by text: a slower rival.
    """
    model = load_static_model(bundled_folder())
    table = _fold(model.embedding, model.weights, model.token_mapping)
    return type(model)(vectors=table, tokenizer=model.tokenizer, normalize=model.normalize, max_length=model.max_length)


def load_static_model(source: str | Path) -> Any:
    """Return model2vec's own `StaticModel` of a folder or hub name: the reference we are held to."""
    # The hub client draws progress bars and retries for minutes without a network; neither helps here.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from model2vec import StaticModel

    return StaticModel.from_pretrained(source)
