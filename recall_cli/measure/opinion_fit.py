"""Learn the weights of the second opinion: `python -m recall_cli.measure.opinion_fit`.

As `prior_fit` learns the prior's, with what the transformer sees in two more columns, from two of its three
families: the text world's train wordings, and utterances of CLINC150 and BANKING77 from their train splits, each
with its nearest of one intent and of another. fow-cache-dev, the held-out wordings and the test splits stay unseen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recall_cli.core import opinion as opinion_module
from recall_cli.core.embed import bundled_folder, make_embedder
from recall_cli.core.opinion import ALL_FIELDS, COVERED, FEATURES, MEANING, OpinionWeights, SecondOpinion
from recall_cli.core.prior import shipped
from recall_cli.core.sentence import load_sentence_model
from recall_cli.measure.model_eval import default_folder, load
from recall_cli.measure.model_score import nearest_pairs
from recall_cli.measure.prior_fit import CENTRE, Fitted, fit, risk
from recall_cli.measure.prior_sets import SHAPES, Rows, rows_of
from recall_cli.types import Embedder

VERSION = "1"
PAIRS = 1_200
UTTERANCES = 600
"""Utterances of an intent set; each gives two pairs."""
WORLD = "text world"
TRAPS_PASSED = 0.05
"""Share of the text world's traps that the limit lets through: the one family that sets traps on purpose."""

Texts = list[tuple[str, str, bool, int]]


def world_texts(n: int, seed: int) -> dict[str, Texts]:
    """Return the text world's train wordings in four shapes."""
    from recall_cli.measure import textworld

    pairs = textworld.pairs(n, seed, "train", conversations=0.0)
    return {
        f"{WORLD}, {same}/{trap}": [(str(p.a), str(p.b), p.same, 0) for p in pairs if p.style in (same, trap)]
        for same, trap in SHAPES
    }


def intent_texts(folder: Path, embedder: Embedder, most: int, seed: int) -> dict[str, Texts]:
    """Return train utterances with their nearest of one intent and of another."""
    found = {}
    for labelled in load(folder):
        picked = np.random.default_rng([seed, 41]).permutation(len(labelled.train))[:most]
        texts = [labelled.train[i] for i in picked.tolist()]
        intents = np.unique([intent for _, intent in texts], return_inverse=True)[1].astype(np.int64)
        left, right = nearest_pairs(embedder.embed_many([text for text, _ in texts]), intents)
        found[labelled.name] = [
            (texts[i][0], texts[j][0], texts[i][1] == texts[j][1], 0)
            for i, j in zip(left.tolist(), right.tolist(), strict=True)
        ]
    return found


def unweighted() -> SecondOpinion:
    """Return a second opinion that sees and does not judge: its weights are what is looked for."""
    model = load_sentence_model(bundled_folder())
    return SecondOpinion(model, OpinionWeights(0.0, (0.0,) * len(ALL_FIELDS), 0.0, ""))


def widened(rows: Rows, pairs: Texts, opinion: SecondOpinion) -> Rows:
    """Return the rows with two columns more: what the transformer sees."""
    return replace(rows, x=np.column_stack([rows.x, [opinion.features(a, b) for a, b, _, _ in pairs]]))


def learned(sets: Sequence[Rows]) -> tuple[float, Fitted, float]:
    """Return (level, weights, limit)."""
    centre = (*shipped().weights, CENTRE[MEANING], CENTRE[COVERED])
    level, weights = fit(sets, centre=centre, fields=ALL_FIELDS)
    traps = np.concatenate([risk(rows, weights)[~rows.same] for rows in sets if rows.family == WORLD])
    return level, weights, float(np.quantile(traps, TRAPS_PASSED)) + level


def run(folder: Path, *, embedder: str = "static", seed: int = 0) -> dict[str, Any]:
    """Return the content of `core/opinion-weights.json`."""
    static, opinion = make_embedder(embedder), unweighted()
    texts = world_texts(PAIRS, seed) | intent_texts(folder, static, UTTERANCES, seed)
    sets = []
    for name, pairs in texts.items():
        sets.append(widened(rows_of(name, name.split(",")[0], pairs, static), pairs, opinion))
    level, weights, limit = learned(sets)
    return {
        "version": VERSION,
        "features": FEATURES,
        "level": round(level, 4),
        "limit": round(limit, 4),
        "weights": {name: round(w, 4) + 0.0 for name, w in zip(ALL_FIELDS, weights, strict=True)},
        "made_by": "python -m recall_cli.measure.opinion_fit",
        "embedder_fingerprint": static.fingerprint,
        "transformer_fingerprint": opinion.model.fingerprint,
        "sets": {rows.name: len(rows.same) for rows in sets},
    }


def main() -> None:
    """Write the weights beside `core/opinion.py`."""
    parser = argparse.ArgumentParser(description="Learn the weights of the second opinion.")
    parser.add_argument("folder", nargs="?", type=Path, help="the evaluation data")
    folder = parser.parse_args().folder or default_folder()
    if folder is None:
        parser.error("the evaluation data is not beside the project: name its folder")
    text = json.dumps(run(folder), indent=2) + "\n"
    (Path(opinion_module.__file__).parent / "opinion-weights.json").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
