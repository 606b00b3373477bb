"""Static embeddings: tokenise, sum the tokens' rows, scale to unit length.

Equal to model2vec's `StaticModel.encode` with normalisation, to 1e-6, at a fraction of its time:
no batching machinery, and the unknown token's row zeroed, which is the same as dropping it. The
mean over tokens differs from the sum by a factor that the unit length takes out again.

Texts become token ids as in model2vec: no special tokens, cut at the maximum length. There are three ways to the
same ids, fastest first: nanotoken (the extra `fast`); a memory of words; the plain call. The memory rests on a
property of BERT-style tokenizers: nothing crosses a space, so the ids of a text are the ids of its space-separated
words in a row. Traffic repeats its words far more than its sentences, so a new sentence mostly costs a dictionary
look-up a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.embed.word_pieces import LONGEST, Pieces
from recall_cli.errors import UsageError
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Encode = Callable[[str], Sequence[int]]

CHOICES = ("auto", "nanotoken", "words", "plain")

WORDS_KEPT = 1 << 16
"""Words remembered before the memory starts afresh: about 12 MB, several times a chat log's vocabulary."""

LONGEST_KEPT = 48
"""Characters of the longest word worth remembering; longer ones are data, and do not come again."""

MALFORMED = (UnicodeEncodeError, TypeError)
"""What the tokenizers raise on a lone surrogate: a legal str in Python, not Unicode outside it."""

SELF_CHECK = (
    "How do I reset my password?",
    "naïve café — Ünïcödé, 12,345.67 % (a+b)*c != d",
    "日本語のテキスト and 中文 mixed with emoji 👍🏽👩‍💻",
    "العربية עברית हिन्दी ไทย ΣΑΣ ǅ ŉ İ",
    "a\x00b\tc\r\nd\u200b\ufeff\x1ce\x85f\u2028g \u0301h",
    "",
    "  \u00a0  two  spaces ",
    "supercalifragilisticexpialidocious" * 8,
    "[UNK] [CLS] [SEP] [PAD] a[UNK]b ##ing",
    "word " * 600,
)
"""Texts on which a faster way must give the very same ids before it is used."""


class Tokens:
    """A tokenizer's ids, by the fastest way that gives the same ones.

    :param max_length: tokens kept of a text; None keeps all.
    :param choice: "auto", or one way by name; a named way that cannot be had raises UsageError.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int | None, choice: str = "auto") -> None:
        if choice not in CHOICES:
            raise UsageError(f"there is no tokenizer {choice!r}", hint=f"choose one of {', '.join(CHOICES)}")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.text_of: Callable[[int], str | None] = tokenizer.id_to_token
        self._encode = tokenizer.encode
        self._encode_batch = tokenizer.encode_batch_fast
        self.max_length = max_length
        self.max_chars = _max_chars(tokenizer, max_length)
        self._known: dict[str, list[int]] = {}
        self._clear_nanotoken: Callable[[], object] = lambda: None
        self.way = "plain"
        self.ids: Encode = self._plain
        ways: dict[str, Encode | None] = {}
        if choice in ("auto", "nanotoken"):
            ways["nanotoken"] = self._nanotoken(tokenizer)
        if choice in ("auto", "words"):
            ways["words"] = self._by_word if _words_stand_alone(tokenizer) else None
        for way, encode in ways.items():
            if encode is not None and all(list(encode(text)) == list(self._plain(text)) for text in SELF_CHECK):
                self.way, self.ids = way, encode
                break
        if choice not in ("auto", self.way):
            raise UsageError(
                f"the tokenizer {choice!r} is not installed, or does not give this model's ids",
                hint="leave the choice at auto; nanotoken comes with the extra fast",
            )

    def forget(self) -> None:
        """Empty the memory of words: the next text costs what it costs a new process."""
        self._known = {}
        self._clear_nanotoken()

    def _plain(self, text: str) -> Sequence[int]:
        # encode_batch_fast skips the offsets that `encode` computes: a fifth of its time.
        try:
            ids: list[int] = self._encode_batch([text], add_special_tokens=False)[0].ids
        except MALFORMED:
            return self._plain(_well_formed(text))
        return ids[: self.max_length]

    def _by_word(self, text: str) -> Sequence[int]:
        known = self._known
        ids: list[int] = []
        try:
            # Only the ASCII space: BERT removes some of what str.split() calls white space,
            # and so joins what stands on both sides of it.
            for word in text.split(" "):
                ids += known[word]
        except KeyError:
            ids = self._learn(text)
        return ids[: self.max_length]

    def _learn(self, text: str) -> list[int]:
        known = self._known
        words = text.split(" ")
        new = [word for word in dict.fromkeys(words) if word not in known]
        try:
            # None are new when another thread has learned them since the look-up failed.
            fresh = self._encode_words(new) if new else {}
        except MALFORMED:
            return self._learn(_well_formed(text))
        ids: list[int] = []
        for word in words:
            ids += fresh[word] if word in fresh else known[word]
        if len(known) + len(fresh) > WORDS_KEPT:
            # A new dict, not clear(): another thread may be in the middle of reading the old one.
            known = self._known = {}
        known.update((word, found) for word, found in fresh.items() if len(word) <= LONGEST_KEPT)
        return ids

    def _encode_words(self, words: list[str]) -> dict[str, list[int]]:
        """Return each word's ids, by one call on all of them: a call a word costs three times as much."""
        encoding = self._encode(" ".join(words), add_special_tokens=False)
        found: dict[str, list[int]] = {word: [] for word in words}
        ends = iter(words)
        word = next(ends)
        end = len(word)
        for id, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
            while start >= end:
                word = next(ends)
                end += 1 + len(word)
            found[word].append(id)
        return found

    def _nanotoken(self, tokenizer: Tokenizer) -> Encode | None:
        try:
            from nanotoken import WordPieceTokenizer, set_cache_entries
        except ImportError:
            return None
        try:
            # Its own default of a million words would grow for days in a server.
            set_cache_entries(WORDS_KEPT)
            fast = WordPieceTokenizer.from_json(tokenizer.to_str())
        except Exception:
            # Not a word-piece tokenizer, or a nanotoken that changed: the other ways are always right.
            return None

        encode = fast.encode
        self._clear_nanotoken = fast.clear_cache

        def ids(text: str) -> Sequence[int]:
            try:
                found: Any = encode(text, False)
            except MALFORMED:
                found = encode(_well_formed(text), False)
            cut: Sequence[int] = found[: self.max_length]
            return cut

        return ids


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that model2vec drops, None when the model has none."""
    model = orjson.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])  # unigram models
    token = model.get("unk_token")  # word-piece, BPE and word-level models
    return None if token is None else tokenizer.token_to_id(token)


def _max_chars(tokenizer: Tokenizer, max_length: int | None) -> int | None:
    """Return where model2vec cuts a text before it tokenises: equal vectors need the equal cut."""
    if max_length is None:
        return None
    lengths = sorted(len(token) for token in tokenizer.get_vocab())
    middle = len(lengths) // 2
    median = lengths[middle] if len(lengths) % 2 else (lengths[middle - 1] + lengths[middle]) / 2
    return max_length * int(median)


def _words_stand_alone(tokenizer: Tokenizer) -> bool:
    """Return whether nothing in this tokenizer looks across a space."""
    parts = orjson.loads(tokenizer.to_str())
    kinds = tuple((parts.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
    return kinds == ("BertNormalizer", "BertPreTokenizer", "WordPiece") and not any(
        " " in token["content"] or token["lstrip"] or token["rstrip"] or token["single_word"]
        for token in parts.get("added_tokens", ())
    )


def _well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


BLOCK = 256
"""Texts pooled together in a batch: 256 rows of 256 float32 are 256 KiB and stay in the L2 cache."""


class TableEmbedder:
    """A table of token vectors, shape (vocabulary, dim), and the tokenizer that indexes it.

    A text without a known token gives the zero vector: there is nothing to compare.
    """

    def __init__(
        self, name: str, tokenizer: Tokenizer, table: Any, *, max_length: int | None, tokens: str = "auto"
    ) -> None:
        """Build the embedder.

        :param table: any numeric dtype; kept as float32, whatever it was on disk.
        :param tokens: which way to the token ids, see `cache.embed.static`.
        """
        self.name = name
        self.dim = int(table.shape[1])
        self.tokens = Tokens(tokenizer, max_length, tokens)
        self.fingerprint = _fingerprint(tokenizer, table, max_length)
        self._table: Vector = np.array(table, dtype=np.float32)
        unknown = unknown_id(tokenizer)
        if unknown is not None:
            self._table[unknown] = 0.0
        self._ids = self.tokens.ids
        self._max_chars = self.tokens.max_chars
        self._pieces = Pieces(
            self._ids,
            np.flatnonzero(~self._table.any(axis=1)).tolist(),
            tokenizer.get_vocab,
            max_length or LONGEST,
            self.reads_all,
        )
        self.reads, self.reads_word = self._pieces.reads, self._pieces.reads_word
        self._take = self._table.take
        # A dot with ones sums the rows in one BLAS call, a fifth faster than add.reduce.
        self._ones: Vector = np.ones(max_length or 0, dtype=np.float32)

    @property
    def table(self) -> Vector:
        """The token vectors, shape (vocabulary, dim); what is unknown has a row of zeros."""
        return self._table

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (dim,): unit length, or zero without a known token."""
        ids = self._ids(text[: self._max_chars])
        rows = self._take(ids, 0) if len(ids) else self._table[:0]
        n = len(rows)
        vector: Vector = self._ones[:n].dot(rows) if n <= len(self._ones) else rows.sum(axis=0)
        square = vector.dot(vector)
        if square > 0.0:
            vector *= 1.0 / math.sqrt(square)
        return vector

    def reads_all(self, text: str) -> bool:
        """Return whether all of a text goes into its vector: what lies beyond `max_length` tokens does not."""
        most, chars = len(self._ones), self._max_chars
        if not most or len(text) < most:
            return True
        return (chars is None or len(text) <= chars) and len(self._ids(text)) < most

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), dim); equal to `embed` row by row."""
        ids = [self._ids(text[: self._max_chars]) for text in texts]
        lengths: NDArray[np.int64] = np.fromiter((len(i) for i in ids), dtype=np.int64, count=len(ids))
        out: Vector = np.zeros((len(texts), self.dim), dtype=np.float32)
        # Longest first: the texts that still have a token at position j are then a prefix of the
        # block, so it is summed in max(length) gathers instead of one a text, with no padding.
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 0]
        for start in range(0, len(order), BLOCK):
            block = order[start : start + BLOCK]
            out[block] = self._sum([ids[i] for i in block], lengths[block])
        norms = np.sqrt(np.einsum("ij,ij->i", out, out))
        norms[norms == 0.0] = 1.0
        out /= norms[:, np.newaxis]
        return out

    def _sum(self, ids: list[Sequence[int]], lengths: NDArray[np.int64]) -> Vector:
        """Return the sums of the tokens' rows, for texts ordered from the longest to the shortest."""
        flat = np.concatenate([np.asarray(i, dtype=np.int64) for i in ids])
        starts = np.cumsum(lengths) - lengths
        sums: Vector = self._take(flat[starts], 0)
        active = len(ids)
        for position in range(1, int(lengths[0])):
            while lengths[active - 1] <= position:
                active -= 1
            sums[:active] += self._take(flat[starts[:active] + position], 0)
        return sums


def _fingerprint(tokenizer: Tokenizer, table: Any, max_length: int | None) -> str:
    """Return the digest of what determines the vectors: tokenizer, table, maximum length."""
    digest = blake3(b"recall table embedder 1\0")
    digest.update(f"{max_length}\0{table.dtype}\0{table.shape}\0".encode())
    digest.update(tokenizer.to_str().encode())
    # The array's own memory: a copy of 30 MB would cost more than the digest.
    digest.update(np.ascontiguousarray(table).data.cast("B"))
    return digest.hexdigest()
