"""Learn the weights of the second opinion, and test them on kinds left out.

Run it as `python -m training.fit_second_opinion`.

Meaning ranks the pairs, and its weight is given; learned is how much each doubt takes away. Every set has a level and
a slope along meaning of its own, so that how it was made is not learned, and every family weighs the same. The table
asks each kind of weights that have not seen its family.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.answers import second_opinion as opinion_module
from recall_cli.cache.answers.second_opinion import FEATURES, FIELDS, MEANING, OpinionWeights, SecondOpinion
from recall_cli.cache.embed.minilm import load_sentence_model
from recall_cli.cache.embed.registry import bundled_folder, make_embedder
from recall_cli.measure.embedder.model_eval import default_folder
from recall_cli.measure.evaluate.evidence_fit import Fitted, fit, risk
from recall_cli.measure.evaluate.evidence_sets import Rows
from recall_cli.measure.evaluate.pairs_eval import similarities, summary
from recall_cli.measure.evaluate.pairs_report import opinion_rows
from recall_cli.measure.result import new_result, to_json
from recall_cli.types import Embedder, Progress, Result
from training import opinion_sets, wordnet
from training.opinion_sets import PairKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

VERSION = "3"
CENTRE = {MEANING: -6.0}
"""Given, not learned: it sets what a doubt costs in cosine. Anything from -3 to -12 tells the kinds at hand apart
about as well; the doubts' weights start from 0."""
RIDGE = 0.25
"""Pull towards 0, in rows: hardly any, for a doubt is mostly 0 and its whole range is small."""
TRAPS_PASSED = 0.1
"""Share of the learned kinds' traps, all made to look alike, that the limit lets through; families count the same."""
RESAMPLES = 300


def unweighted() -> SecondOpinion:
    """Return a second opinion that sees and does not judge: its weights are what is looked for."""
    model = load_sentence_model(bundled_folder())
    return SecondOpinion(model, OpinionWeights(0.0, (0.0,) * len(FIELDS), 0.0, ""))


def rows(kind: PairKind, opinion: SecondOpinion, embedder: Embedder) -> Rows:
    """Return what the opinion weighs of each pair, and the similarity that it is compared with."""
    similarity = similarities(kind.pairs, embedder)
    same = np.array([pair.same for pair in kind.pairs], dtype=np.bool_)
    x = opinion_rows(kind.pairs, opinion, np.isneginf(similarity))
    return Rows(kind.name, kind.family, x, similarity, same, np.zeros(len(same), dtype=np.int64))


def learn(sets: Sequence[Rows]) -> tuple[float, Fitted]:
    """Return (level, weights)."""
    centre = tuple(CENTRE.get(name, 0.0) for name in FIELDS)
    return fit(sets, ridge=RIDGE, centre=centre, fields=FIELDS, given=(MEANING,))


def limit_of(sets: Sequence[Rows], weights: Fitted) -> float:
    """Return the risk up to which TRAPS_PASSED of the traps pass, the families weighing the same."""
    families = [rows.family for rows in sets]
    traps = [np.sort(risk(rows, weights)[~rows.same]) for rows in sets]
    share = np.concatenate(
        [np.full(len(t), 1 / len(t) / families.count(f)) for t, f in zip(traps, families, strict=True)]
    )
    every = np.concatenate(traps)
    order = np.argsort(every)
    passed = np.cumsum(share[order]) / len(set(families))
    return float(every[order][np.searchsorted(passed, TRAPS_PASSED)])


def run(
    wordnet_folder: Path, data: Path, *, embedder: str = "static", seed: int = 0, progress: Progress | None = None
) -> tuple[dict[str, Any], Result]:
    """Return the content of `cache/answers/opinion-weights.json`, and the kinds' table.

    Raises InputError when WordNet or the evaluation data cannot be read.
    """
    params = {"embedder": embedder, "seed": seed, "ridge": RIDGE, "centre": CENTRE, "traps_passed": TRAPS_PASSED}
    result = new_result("opinion fit", params)
    static, opinion = make_embedder(embedder), unweighted()
    learned = opinion_sets.learned(wordnet_folder, seed=seed)
    kinds = [*learned, *opinion_sets.unseen(data, static, seed=seed)]
    seen = []
    for done, kind in enumerate(kinds):
        if progress:
            progress(done, len(kinds), kind.name)
        seen.append(rows(kind, opinion, static))
    known = seen[: len(learned)]
    level, weights = learn(known)
    families = dict.fromkeys(rows.family for rows in known)
    left_out = {family: learn([other for other in known if other.family != family]) for family in families}
    for kind, rows_of in zip(kinds, seen, strict=True):
        scorings = {
            "similarity": rows_of.similarity,
            "transformer": rows_of.x[:, FIELDS.index(MEANING)],
            # A family that nothing was learned from is left out of the weights as they are.
            "family_left_out": -risk(rows_of, left_out.get(kind.family, (level, weights))[1]),
            "shipped": -risk(rows_of, weights),
        }
        told = summary(kind.pairs, scorings, seed=seed, resamples=RESAMPLES)
        fitted = any(other.name == kind.name for other in learned)
        result.rows.append({"kind": kind.name, "family": kind.family, "learned_from": fitted, **told})
    document = {
        "version": VERSION,
        "features": FEATURES,
        "level": round(level, 4),
        "limit": round(limit_of(known, weights) + level, 4),
        "weights": {name: round(w, 4) + 0.0 for name, w in zip(FIELDS, weights, strict=True)},
        "made_by": "python -m training.fit_second_opinion",
        "transformer_fingerprint": opinion.model.fingerprint,
        "sets": {kind.name: len(kind.pairs) for kind in learned},
    }
    result.summary = {"weights": document["weights"], "embedder_fingerprint": static.fingerprint}
    return document, result


def table(result: Result) -> str:
    """Return the kinds as text: hit rates at 0.5, 1 and 5 % of traps, and how each compares with similarity."""
    lines = []
    for row in result.rows:
        lines.append(f"{row['kind']} ({row['should_hit']} same, {row['traps']} different)")
        for name, rates in row["hit_rate_at_false_hit"].items():
            cells = []
            for share, rate in rates.items():
                low, high = row["hit_rate_at_false_hit_interval"][name][share]
                gain = row["hit_rate_difference_interval"].get(name, {}).get(share, (0.0, 0.0))
                cells.append(f"{rate:.3f} [{low:.3f}, {high:.3f}]{'+' if gain[0] > 0 else '-' if gain[1] < 0 else ' '}")
            lines.append(f"  {name:<16} AUC {row['auc'][name]:.3f}  " + "  ".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Write the weights beside the second opinion unless `--keep`, a table to standard output, all to `--out`."""
    parser = argparse.ArgumentParser(description="Learn the second opinion's weights, and test them kind by kind.")
    parser.add_argument("folder", nargs="?", type=Path, help="the evaluation data")
    parser.add_argument("--wordnet", type=Path, default=wordnet.FOLDER, metavar="DIR")
    parser.add_argument("--embedder", default="static", metavar="NAME", help="whose similarity is the base")
    parser.add_argument("--keep", action="store_true", help="only report: leave the shipped weights as they are")
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    folder = arguments.folder or default_folder()
    if folder is None:
        parser.error("the evaluation data is not beside the project: name its folder")
    document, result = run(arguments.wordnet, folder, embedder=arguments.embedder)
    if not arguments.keep:
        target = Path(opinion_module.__file__).parent / "opinion-weights.json"
        target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if arguments.out:
        arguments.out.write_bytes(to_json(result))
    sys.stdout.write(table(result) + "\n" + json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
