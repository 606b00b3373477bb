"""Embedders that only `model eval` knows: rivals to measure against, none of them part of the cache."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import EmbedderError
from recall_cli.types import Embedder, Vector

WORDLLAMA = "wordllama"


def make(name: str) -> Embedder:
    """Return the embedder of that name, `wordllama` among them. Raises EmbedderError."""
    return Wordllama() if name == WORDLLAMA else make_embedder(name)


class Wordllama:
    """The static embeddings of the package wordllama, 256 dimensions, from the files in its wheel."""

    name = WORDLLAMA
    dim = 256

    def __init__(self) -> None:
        try:
            package: Any = importlib.import_module(WORDLLAMA)
        except ImportError as error:
            raise EmbedderError("wordllama is not installed", hint="pip install wordllama") from error
        folder = Path(package.__file__).parent
        # Without the folder it looks for its tokenizer where its wheel has none, and then on the model hub.
        self._model: Any = package.WordLlama.load(cache_dir=folder)
        weights = sorted(folder.rglob("*.safetensors"))
        self.bytes = sum(path.stat().st_size for path in weights)
        self.fingerprint = blake3(b"".join(path.read_bytes() for path in weights)).hexdigest()

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (256,)."""
        vector: Vector = self.embed_many([text])[0]
        return vector

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), 256)."""
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.asarray(self._model.embed(list(texts), norm=True), dtype=np.float32)
