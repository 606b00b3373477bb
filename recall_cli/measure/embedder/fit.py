"""`recall model fit`: how much each token weighs in one's own traffic, learned from pairs whose truth is known.

The tokens' directions stay; each gets a factor. The factors start at 1 and are pulled there, so a token of few pairs
moves little. Whether the new weights tell paraphrases from traps better is measured on pairs that they were not
learned from, whole groups of pairs that share a text at a time; a model that is not better is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from recall_cli.cache.embed.registry import make_embedder, model_folder
from recall_cli.cache.embed.static import TableEmbedder
from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure.embedder.folder import check_target, quantise, write_folder
from recall_cli.measure.evaluate import from_log as eval_log
from recall_cli.measure.evaluate import pairs_eval
from recall_cli.measure.evaluate.pairs import Pair, load_pairs
from recall_cli.measure.evaluate.pairs_eval import cross_fitted, last_text, same_context
from recall_cli.measure.prompts import standard_input
from recall_cli.measure.result import new_result
from recall_cli.types import Progress, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

FOLDS = 5
SPREAD = 0.7
"""Expected size of a factor's logarithm: half or double is common, more must be earned."""
STEPS, RATE = 80, 0.05
SLOPE = 12.0
"""Start of the logistic's slope over the cosine: a tenth of cosine is most of the way from unsure to sure."""
LEAST = 40
"""Pairs of either kind below which nothing is learned: an interval would be of single pairs."""
NEAR, EACH, MOST = 0.5, 3, 4_000
"""Of a log: pairs from this similarity on, neighbours of a question, and pairs in all."""


def given(
    log: str | None, pairs: str | None, embedder: str, *, allow_sampled: bool = False, progress: Progress | None = None
) -> list[Pair]:
    """Return the pairs of a log or of a file, of one of them. Raises UsageError, InputError."""
    if (log is None) == (pairs is None):
        raise UsageError("name either a log or a file of pairs", hint="--log FILE or --pairs FILE")
    if pairs is not None:
        return from_file(pairs)
    return from_log(str(log), embedder, allow_sampled=allow_sampled, progress=progress)


def from_log(log: str, embedder: str, *, allow_sampled: bool = False, progress: Progress | None = None) -> list[Pair]:
    """Return each question of a log with its nearest earlier ones behind the same walls, where their answers tell."""
    logged = eval_log.load(log, embedder=embedder, allow_sampled=allow_sampled, progress=progress)
    stream, found = logged.questions, list[Pair]()
    wall = stream.namespace if stream.wall is None else stream.wall
    texts = [request.text for request in logged.asked.requests]
    for i in range(len(stream)):
        earlier = np.flatnonzero(wall[:i] == wall[i])
        cosines = stream.vectors[earlier] @ stream.vectors[i]
        taken = {texts[i]}
        for place in np.argsort(-cosines, kind="stable").tolist():
            j = int(earlier[place])
            if cosines[place] < NEAR or len(taken) > EACH:
                break
            same = logged.verdicts(i, j) if texts[j] not in taken else None
            taken.add(texts[j])
            if same is not None:
                found.append(Pair(texts[j], texts[i], same))
    # A long log has more than it takes; all of its span should be in what is kept.
    return [found[k] for k in np.linspace(0, len(found) - 1, min(MOST, len(found))).astype(int).tolist()]


def from_file(path: str) -> list[Pair]:
    """Return the pairs of a file that a cache could match at all: those in one context. Raises InputError."""
    return [pair for pair in load_pairs(path, standard_input()).pairs if same_context(pair.a, pair.b)]


def run(pairs: Sequence[Pair], out: Path, *, embedder: str = "static", seed: int = 0) -> Result:
    """Learn, cross-validate, and write the model folder `out` when it is better.

    The result's `saved` says whether it was; see `check`. Raises InputError for too few pairs.
    """
    check_target(out)
    base = make_embedder(embedder)
    folder = model_folder(embedder)
    if not isinstance(base, TableEmbedder) or not folder.is_dir():
        raise UsageError(f"{embedder} has no token weights to fit", hint="choose static, or model2vec:FOLDER")
    right = np.array([pair.same for pair in pairs], dtype=np.bool_)
    if min(right.sum(), (~right).sum()) < LEAST:
        raise InputError(
            f"{right.sum():,} pairs that share an answer and {(~right).sum():,} that do not are too few to learn from",
            hint=f"give at least {LEAST} of each: a longer --log, or --pairs FILE",
        )
    learner = Learner(base, pairs)
    before = learner.cosines(np.zeros(learner.size))

    def learn(train: Ints) -> Callable[[Ints], Floats]:
        cosines = learner.cosines(learner.fit(train))
        return lambda which: cosines[which]

    after = cross_fitted(pairs, learn, folds=FOLDS, seed=seed)
    result = new_result("model fit", {"embedder": embedder, "pairs": len(pairs), "folds": FOLDS, "seed": seed})
    result.summary = pairs_eval.summary(pairs, {"before": before, "cross_fitted": after}, seed=seed)
    low, _ = result.summary["auc_difference_interval"]["cross_fitted"]
    result.summary |= {"saved": low > 0, "base_fingerprint": base.fingerprint}
    if low > 0:
        whole = learner.fit(np.arange(len(pairs)))
        result.summary |= _save(out, folder, base, learner, whole, len(pairs))
        result.rows = learner.changes(whole)
    return result


def check(result: Result) -> None:
    """Raise GateFailed when the new weights were not shown to be better: nothing was written then."""
    if not result.summary["saved"]:
        raise GateFailed(
            "weights learned from these pairs are not shown to tell the others better: no model was written",
            hint="give more pairs, or keep the model there is",
        )


class Learner:
    """Factors of the tokens that stand in the pairs; a logistic loss over their cosines, both kinds balanced."""

    def __init__(self, base: TableEmbedder, pairs: Sequence[Pair]) -> None:
        texts = [last_text(side) for pair in pairs for side in (pair.a, pair.b)]
        ids = [list(base.tokens.ids(text[: base.tokens.max_chars])) for text in texts]
        self.base = base
        flat = np.concatenate([np.array(i, dtype=np.int64) for i in ids])
        self.known, self._token = np.unique(flat, return_inverse=True)
        lengths = np.array([len(i) for i in ids])
        self._owner = np.repeat(np.arange(len(texts)), lengths)
        self._full = np.flatnonzero(lengths)
        self._starts = (np.cumsum(lengths) - lengths)[self._full]
        self._rows: NDArray[np.float32] = base.table[flat]
        self._same = np.array([pair.same for pair in pairs], dtype=np.bool_)
        self.size = len(self.known)

    def cosines(self, factors: Floats) -> Floats:
        """Return the cosine of each pair under the logarithms of the factors, shape (known tokens,)."""
        units, _ = self._units(factors)
        found: Floats = np.einsum("ij,ij->i", units[::2], units[1::2]).round(pairs_eval.DECIMALS)
        return found

    def fit(self, train: Ints) -> Floats:
        """Return the logarithms of the factors learned from the pairs of these numbers. Adam, all pairs a step."""
        same = self._same[train]
        weight = np.where(same, 0.5 / max(1, same.sum()), 0.5 / max(1, (~same).sum())) * len(train)
        sign = np.where(same, -1.0, 1.0)
        start = self.cosines(np.zeros(self.size))[train]
        middle = (start[same].mean() + start[~same].mean()) / 2 if same.any() and not same.all() else start.mean()
        at = np.concatenate([np.zeros(self.size), [np.log(SLOPE), middle]])
        mean, square = np.zeros_like(at), np.zeros_like(at)
        for step in range(1, STEPS + 1):
            gradient = self._gradient(at, train, sign, weight)
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            move = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
            at -= RATE * (1 - (step - 1) / STEPS) * move
        found: Floats = at[:-2]
        return found

    def _gradient(self, at: Floats, train: Ints, sign: Floats, weight: Floats) -> Floats:
        units, lengths = self._units(at[:-2])
        slope, middle = np.exp(at[-2]), at[-1]
        a, b = units[2 * train], units[2 * train + 1]
        cosine = np.einsum("ij,ij->i", a, b)
        logit = slope * (cosine - middle)
        pull = weight * sign / (1 + np.exp(-np.clip(sign * logit, -30, 30)))
        by_cosine = (pull * slope)[:, np.newaxis]
        sides = np.zeros_like(units)
        sides[2 * train] = by_cosine * (b - cosine[:, np.newaxis] * a) / lengths[2 * train, np.newaxis]
        sides[2 * train + 1] = by_cosine * (a - cosine[:, np.newaxis] * b) / lengths[2 * train + 1, np.newaxis]
        each = np.einsum("ij,ij->i", self._rows, sides.astype(np.float32)[self._owner])
        tokens = np.bincount(self._token, each, self.size) * np.exp(at[:-2]) + at[:-2] / SPREAD**2
        return np.concatenate([tokens, [pull @ logit, -slope * pull.sum()]])

    def _units(self, factors: Floats) -> tuple[Floats, Floats]:
        scaled = self._rows * np.exp(factors).astype(np.float32)[self._token, np.newaxis]
        sums = np.zeros((2 * len(self._same), scaled.shape[1]))
        # A text without a known token keeps a zero vector; reduceat knows no empty runs.
        sums[self._full] = np.add.reduceat(scaled, self._starts)
        lengths = np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
        return sums / lengths[:, np.newaxis], lengths

    def table(self, factors: Floats) -> NDArray[np.float32]:
        """Return the whole table with the factors applied."""
        table = self.base.table.copy()
        table[self.known] *= np.exp(factors)[:, np.newaxis].astype(np.float32)
        return table

    def changes(self, factors: Floats, most: int = 20) -> list[dict[str, Any]]:
        """Return the tokens whose weight changed most."""
        order = np.argsort(-np.abs(factors), kind="stable")[:most].tolist()
        token = self.base.tokens.text_of
        return [{"token": token(int(self.known[i])), "factor": float(np.exp(factors[i]))} for i in order]


def _save(
    out: Path, folder: Path, base: TableEmbedder, learner: Learner, factors: Floats, pairs: int
) -> dict[str, Any]:
    from tokenizers import Tokenizer

    cells, scales = quantise(learner.table(factors))
    config = orjson.loads((folder / "config.json").read_bytes()) | {"embedding_dtype": "int8"}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    record = {"fit": {"pairs": pairs, "base_fingerprint": base.fingerprint, "spread": SPREAD}}
    files = write_folder(out, {"embeddings": cells, "weights": scales}, tokenizer, config, record)
    return {"files": files, "fingerprint": make_embedder(f"model2vec:{out}").fingerprint}
