"""Pair sets of `model eval`: paraphrases against traps, trap by trap, and graded pairs by rank correlation.

A labelled pair set says which two texts deserve one answer; a graded one (as STS-B) how alike two texts are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.errors import InputError
from recall_cli.measure.embedder.scores import Sampled, resampled_counts
from recall_cli.measure.evaluate.pairs import SIDES, Pair, finite, first, left_out, load_pairs, pairs_of, rows_of
from recall_cli.measure.evaluate.pairs_eval import DECIMALS, FALSE_HITS, groups, score, similarities
from recall_cli.measure.prompts import read_text, standard_input
from recall_cli.types import Embedder, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WORLD_PAIRS = 2_000
WORLD_SEED = 5
SCORE = ("score", "similarity_score", "gold", "relatedness", "relatedness_score")
"""Names of a graded file's column, in the order they are looked for."""
GRADED_HINT = "Give columns sentence1, sentence2, score, as CSV with a header or JSON Lines."
ALL = "all"
LEAST = 5
"""Traps of one category below which it gets no row: its rates would be of single pairs."""


@dataclass(frozen=True, slots=True)
class PairData:
    """Labelled pairs to tell apart."""

    name: str
    pairs: Sequence[Pair]
    warnings: Sequence[Warn] = ()


@dataclass(frozen=True, slots=True)
class Graded:
    """Text pairs with a grade of likeness each, in any unit that grows with it."""

    name: str
    a: Sequence[str]
    b: Sequence[str]
    grades: Floats
    warnings: Sequence[Warn] = ()


def world() -> PairData:
    """Return pairs of the text world's held-out wordings, which no fit of ours has seen."""
    from recall_cli.measure.synthetic import text as textworld

    return PairData("text world, held out", textworld.pairs(WORLD_PAIRS, WORLD_SEED, "held-out", conversations=0.0))


def fow(folder: Path) -> PairData:
    """Return fow-cache-dev from the evaluation data folder. Raises InputError."""
    return PairData("fow-cache-dev", load_pairs(str(folder / "fow-cache-dev" / "pairs.jsonl")).pairs)


def load(path: str) -> PairData | Graded:
    """Return the pairs of a user's file: graded when it has a column of scores and none of labels.

    Raises InputError when it cannot be read or holds neither.
    """
    text, source = read_text(path, standard_input(), "rows")
    name = Path(source).name
    skipped: Counter[str] = Counter()
    rows = list(rows_of(text, source, skipped, GRADED_HINT, _is_graded_header)) if _is_graded(text) else []
    graded = [found for row in rows if (found := _grade(row)) is not None]
    if not graded:
        labelled = pairs_of(text, source)
        return PairData(name, labelled.pairs, labelled.warnings)
    if bare := len(rows) - len(graded):
        skipped["without two texts and a grade that is a number"] = bare
    one, two, grades = zip(*graded, strict=True)
    return Graded(name, one, two, np.array(grades), tuple(left_out(skipped, source)))


def _grade(row: Mapping[str, Any]) -> tuple[str, str, float] | None:
    sides = next(((str(row[one]), str(row[two])) for one, two in SIDES if one in row and two in row), None)
    grade = finite(first(row, SCORE))
    return None if sides is None or grade is None else (*sides, grade)


def _is_graded(text: str) -> bool:
    head = text.lstrip().split("\n", 1)[0].lower()
    return any(f'"{name}"' in head or name in head.replace("\t", ",").split(",") for name in SCORE)


def _is_graded_header(names: set[str]) -> bool:
    return any({one, two} <= names for one, two in SIDES) and not names.isdisjoint(SCORE)


def rows(embedder: Embedder, data: PairData | Graded, seed: int, resamples: int) -> list[dict[str, Any]]:
    """Return a row for all traps and one a category of traps; of graded pairs one row."""
    if isinstance(data, Graded):
        return [_graded(embedder, data, seed, resamples)]
    pairs = data.pairs
    scores = similarities(pairs, embedder)
    right = np.array([pair.same for pair in pairs], dtype=np.bool_)
    found = []
    for against, traps in _categories(pairs, right).items():
        which = np.flatnonzero(right | traps)
        some = [pairs[i] for i in which.tolist()]
        scored = score(some, scores[which], false_hits=FALSE_HITS, seed=seed, resamples=resamples)
        row: dict[str, Any] = {"measure": "traps", "against": against, "n": len(which)}
        row |= {"should_hit": int(right.sum()), "traps": int(traps.sum()), "auc": scored.auc}
        found.append(row | {f"hit_rate_at_{share:g}": rate for share, rate in scored.hit_rate.items()})
    return found


def _categories(pairs: Sequence[Pair], right: NDArray[np.bool_]) -> Mapping[str, NDArray[np.bool_]]:
    """Return which pairs are the traps of each category; "all" first."""
    names = np.array([pair.category for pair in pairs])
    found = {ALL: ~right}
    for name in sorted(set(names[~right].tolist()) - {""}):
        traps = ~right & (names == name)
        if LEAST <= traps.sum() < (~right).sum():
            found[name] = traps
    return found


def _graded(embedder: Embedder, data: Graded, seed: int, resamples: int) -> dict[str, Any]:
    cosine = np.einsum("ij,ij->i", embedder.embed_many(data.a), embedder.embed_many(data.b), dtype=np.float64)
    cosine = cosine.round(DECIMALS)
    # Pairs that share a sentence depend on each other: whole groups are resampled.
    group = groups([Pair(a, b, False) for a, b in zip(data.a, data.b, strict=True)])
    draws = [
        spearman(np.repeat(cosine, times), np.repeat(data.grades, times))
        for counts in resampled_counts(int(group.max()) + 1, seed, resamples)
        if len(times := counts[group].astype(np.int64))
    ]
    value = Sampled(spearman(cosine, data.grades), np.array(draws))
    return {"measure": "graded", "against": ALL, "n": len(cosine), "spearman": value}


def spearman(a: Floats, b: Floats) -> float:
    """Return the rank correlation; ties share their mean rank. NaN when one side is constant."""
    one, two = stats.ranks(a)[0], stats.ranks(b)[0]
    one, two = one - one.mean(), two - two.mean()
    spread = float(np.sqrt((one @ one) * (two @ two)))
    return float(one @ two) / spread if spread > 0 else float("nan")


def check(data: PairData | Graded) -> None:
    """Raise InputError when a set has too few pairs of either kind to say anything."""
    n = len(data.grades) if isinstance(data, Graded) else len(data.pairs)
    if n < 2:
        raise InputError(f"{data.name} holds {n} pairs", hint="give a file with pairs of both kinds")
