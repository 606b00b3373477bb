"""How well does an embedder tell what was asked? Pair AUC, hits at a budget of false hits, traps, cost.

"Right" means of the same intent: a proxy for "the same answer" that is too kind (slots differ), so read
the rows as a comparison of embedders, not as the error rate of a cache. Every embedder sees the same
pairs, the same entries, the same halves and the same resamples: their differences are paired. Cost is microseconds a
prompt, one at a time on one thread, and bytes on the disk.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recall_cli.cache.embed.registry import MODEL_FILES, make_embedder, model_folder
from recall_cli.errors import InputError, UsageError
from recall_cli.measure.embedder import pair_sets as model_pairs
from recall_cli.measure.embedder.pair_sets import Graded, PairData
from recall_cli.measure.embedder.scores import (
    RESAMPLES,
    Sampled,
    auc_and_tpr,
    held_out,
    nearest,
    nearest_pairs,
    sample_pairs,
)
from recall_cli.measure.result import new_result
from recall_cli.measure.timing import Arm, interleave, microseconds, one_thread, ratio
from recall_cli.types import Embedder, Progress, Result

WORDS = range(8, 17)
"""Words of the prompts that are timed: the length of a question, about 12."""
CALLS = 1_000
ROUND = 25


def cost_rows(embedders: Mapping[str, Embedder], *, seed: int = 0, calls: int = CALLS) -> list[dict[str, Any]]:
    """Return one row an embedder, all timed in turns; `time_ratio` is its median over the first one's."""
    from recall_cli.measure.workload import bundled

    texts = [query.text for query in bundled().queries if len(query.text.split()) in WORDS]
    with one_thread():
        arms = {name: Arm(name, embedder.embed, texts) for name, embedder in embedders.items()}
        interleave(list(arms.values()), calls=calls, warmup=len(texts), seed=seed, block=ROUND)
    base = next(iter(arms.values()))
    return [
        {
            "measure": "cost",
            "data": "bundled prompts of 8 to 16 words",
            "embedder": name,
            "embed_us": microseconds(arm),
            "time_ratio": None if arm is base else ratio(arm, base, seed),
            "bytes": disk_bytes(name, embedders[name]),
        }
        for name, arm in arms.items()
    ]


def disk_bytes(name: str, embedder: Embedder) -> int | None:
    """Return the bytes of a model's files; None when nobody knows where they are."""
    if name == "hash-v1":
        return 0
    known: int | None = getattr(embedder, "bytes", None)
    folder = model_folder(name)
    if known is not None or not folder.is_dir():
        return known
    return sum((folder / file).stat().st_size for file in MODEL_FILES if (folder / file).is_file())


BUDGETS = (0.005, 0.01, 0.05)
SHARES = ("queries", "hits")
"""What the budget of false hits is a share of: all queries, or the served hits."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A data set: utterances with their intent, and queries that no entry may answer."""

    name: str
    train: Sequence[tuple[str, str]]
    test: Sequence[tuple[str, str]]
    outside: Sequence[str] = ()


def run(
    embedders: Sequence[str],
    data: Sequence[Labelled],
    *,
    pair_data: Sequence[PairData | Graded] = (),
    timed: bool = True,
    make: Callable[[str], Embedder] = make_embedder,
    seed: int = 0,
    pairs: int = 20_000,
    per_intent: int = 20,
    budgets: Sequence[float] = BUDGETS,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> Result:
    """Measure every embedder on every data set; differences are against the first embedder named.

    :param timed: whether to time the embedders as well.
    """
    for given in pair_data:
        model_pairs.check(given)
    if not embedders or not (data or pair_data):
        raise UsageError("nothing to measure: name at least one embedder and one data set")
    result = new_result(
        "model eval",
        {
            "embedders": list(embedders),
            "data": [d.name for d in (*data, *pair_data)],
            "seed": seed,
            "pairs": pairs,
            "per_intent": per_intent,
            "budgets": list(budgets),
            "resamples": resamples,
        },
    )
    result.warnings += [warning for given in pair_data for warning in given.warnings]
    rows: list[dict[str, Any]] = []
    made = {name: make(name) for name in embedders}
    sets: list[Labelled | PairData | Graded] = [*data, *pair_data]
    for done, (name, what) in enumerate((n, d) for d in sets for n in made):
        if progress:
            progress(done, len(made) * len(sets), f"{name} on {what.name}")
        embedder = made[name]
        head = {"data": what.name, "embedder": name, "dim": embedder.dim, "fingerprint": embedder.fingerprint}
        if isinstance(what, Labelled):
            found = _pair_rows(embedder, what, seed, pairs, resamples)
            found += _cache_rows(embedder, what, seed, per_intent, budgets, resamples)
        else:
            found = model_pairs.rows(embedder, what, seed, resamples)
        rows += [head | row for row in found]
    _compare(rows, embedders[0])
    result.rows = rows + (cost_rows(made, seed=seed) if timed else [])
    result.summary = {"baseline": embedders[0], "interval_level": 0.95, "right_means": "same intent"}
    return result


def load(folder: Path | None) -> list[Labelled]:
    """Return the data sets found in the evaluation data folder: CLINC150 and BANKING77."""
    folder = folder or default_folder()
    hint = "give the evaluation data folder with --data DIR"
    if folder is None:
        raise InputError("no evaluation data folder beside this checkout", hint=hint)
    clinc, banking = folder / "clinc150" / "data_full.json", folder / "banking77"
    try:
        splits = json.loads(clinc.read_text(encoding="utf-8"))
        sets = [
            Labelled(
                "CLINC150",
                [(text, intent) for text, intent in splits["train"]],
                [(text, intent) for text, intent in splits["test"]],
                [text for text, _ in splits["oos_test"]],
            ),
            Labelled("BANKING77", _csv(banking / "train.csv"), _csv(banking / "test.csv")),
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"the evaluation data in {folder} cannot be read: {error}", hint=hint) from error
    return sets


def pair_sets(folder: Path | None, files: Sequence[str] = ()) -> list[PairData | Graded]:
    """Return fow-cache-dev where the folder has it, our own held-out text world, and the files given."""
    folder = folder or default_folder()
    there = folder is not None and (folder / "fow-cache-dev").is_dir()
    found = [model_pairs.fow(folder)] if folder is not None and there else []
    return [*found, model_pairs.world(), *map(model_pairs.load, files)]


def default_folder() -> Path | None:
    """Return `../shared/data` beside the checkout when it exists."""
    folder = Path(__file__).resolve().parents[3].parent / "shared" / "data"
    return folder if folder.is_dir() else None


def _csv(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return [(row["text"], row["category"]) for row in csv.DictReader(lines)]


def _pair_rows(embedder: Embedder, data: Labelled, seed: int, pairs: int, resamples: int) -> list[dict[str, Any]]:
    vectors = embedder.embed_many([text for text, _ in data.test])
    intents = np.unique([intent for _, intent in data.test], return_inverse=True)[1].astype(np.int64)
    rows = []
    for kind, (left, right) in (
        ("random", sample_pairs(intents, pairs, seed)),
        ("nearest", nearest_pairs(vectors, intents)),
    ):
        scores = np.einsum("ij,ij->i", vectors[left], vectors[right], dtype=np.float64)
        same = intents[left] == intents[right]
        auc, tpr = auc_and_tpr(scores, same, left, len(intents), seed=seed, resamples=resamples)
        rows.append({"measure": "pairs", "pairs": kind, "n": len(scores), "auc": auc, "tpr_at_fpr_1": tpr})
    return rows


def _cache_rows(
    embedder: Embedder, data: Labelled, seed: int, per_intent: int, budgets: Sequence[float], resamples: int
) -> list[dict[str, Any]]:
    kept = keep_per_intent([intent for _, intent in data.train], per_intent, seed)
    entries = [data.train[i] for i in kept]
    # None equals no intent: whatever answers a query from outside is a false hit.
    queries: list[tuple[str, str | None]] = [*data.test, *((text, None) for text in data.outside)]
    scores, best = nearest(
        embedder.embed_many([text for text, _ in entries]), embedder.embed_many([text for text, _ in queries])
    )
    right = np.array([intent == entries[i][1] for (_, intent), i in zip(queries, best, strict=True)])
    rows = []
    for share in SHARES:
        for budget in budgets:
            row = {"measure": "cache", "budget": budget, "budget_of": share, "entries": len(entries), "n": len(queries)}
            rows.append(row | held_out(scores, right, budget, share, seed=seed, resamples=resamples))
    return rows


def keep_per_intent(intents: Sequence[str], limit: int, seed: int) -> list[int]:
    """Return the rows of up to `limit` seeded picks an intent, in their order in the file."""
    seen: dict[str, int] = {}
    kept = []
    for row in np.random.default_rng([seed, 2]).permutation(len(intents)):
        count = seen.get(intents[row], 0)
        if count < limit:
            seen[intents[row]] = count + 1
            kept.append(int(row))
    return sorted(kept)


def _compare(rows: list[dict[str, Any]], baseline: str) -> None:
    """Replace every `Sampled` by its value and interval, and by its difference from the baseline's."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in ("data", "measure", "pairs", "budget", "budget_of", "against"))

    base = {key(row): dict(row) for row in rows if row["embedder"] == baseline}
    for row in rows:
        for name, value in [(name, value) for name, value in row.items() if isinstance(value, Sampled)]:
            row |= {name: _known(value.value), f"{name}_interval": _span(value)}
            if row["embedder"] != baseline:
                gap = value.minus(base[key(row)][name])
                row |= {f"{name}_difference": _known(gap.value), f"{name}_difference_interval": _span(gap)}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _span(value: Sampled) -> list[float] | None:
    return None if math.isnan(value.value) else value.interval()
