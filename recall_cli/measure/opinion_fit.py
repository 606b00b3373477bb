"""Learn the weights of the second opinion: `python -m recall_cli.measure.opinion_fit`.

On the text world's train wordings alone: paraphrases and traps as they come, so that it learns what tells those apart
where the words do not. The static cosine has no weight in it: what the first stage thought is no second opinion.
fow-cache-dev, the held-out wordings and both intent sets stay unseen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recall_cli.core import opinion as opinion_module
from recall_cli.core.embed import bundled_folder, make_embedder
from recall_cli.core.opinion import ALL_FIELDS, FEATURES, OpinionWeights, SecondOpinion
from recall_cli.core.prior import shipped
from recall_cli.core.sentence import load_sentence_model
from recall_cli.measure.pairs import Pair
from recall_cli.measure.prior_fit import CENTRE, Fitted, fit, risk
from recall_cli.measure.prior_sets import Rows, rows_of

VERSION = "2"
PAIRS = 2_400
RIDGE = 2.0
"""Pull of the prior's weights for the checks, in rows: weak, for the world has thousands of traps of every kind."""
TRAPS_PASSED = 0.05
"""Share of the world's traps that the limit lets through."""
UNUSED = ("closeness", "margin")
"""Fields of the first stage's own vectors."""


def unweighted() -> SecondOpinion:
    """Return a second opinion that sees and does not judge: its weights are what is looked for."""
    model = load_sentence_model(bundled_folder())
    return SecondOpinion(model, OpinionWeights(0.0, (0.0,) * len(ALL_FIELDS), 0.0, ""))


def pairs_of_the_world(n: int, seed: int) -> Sequence[Pair]:
    """Return train wordings, same answer or trap, all shapes mixed."""
    from recall_cli.measure import textworld

    return textworld.pairs(n, seed, "train", conversations=0.0)


def rows(pairs: Sequence[Pair], opinion: SecondOpinion, *, embedder: str = "static") -> Rows:
    """Return the evidence of the pairs and, in two columns more, what the transformer sees; UNUSED are 0."""
    texts = [(str(pair.a), str(pair.b), pair.same, 0) for pair in pairs]
    found = rows_of("text world", "text world", texts, make_embedder(embedder))
    x = np.column_stack([found.x, [opinion.features(a, b) for a, b, _, _ in texts]])
    x[:, [ALL_FIELDS.index(name) for name in UNUSED]] = 0.0
    return replace(found, x=x)


def learned(seen: Rows) -> tuple[float, Fitted, float]:
    """Return (level, weights, limit)."""
    first = dict(zip(ALL_FIELDS, shipped().weights, strict=False)) | dict.fromkeys(UNUSED, 0.0)
    centre = tuple(first.get(name, CENTRE.get(name, 0.0)) for name in ALL_FIELDS)
    level, weights = fit([seen], ridge=RIDGE, centre=centre, own_slopes=False, fields=ALL_FIELDS)
    return level, weights, float(np.quantile(risk(seen, weights)[~seen.same], TRAPS_PASSED)) + level


def run(*, embedder: str = "static", seed: int = 0) -> dict[str, Any]:
    """Return the content of `core/opinion-weights.json`."""
    opinion = unweighted()
    pairs = pairs_of_the_world(PAIRS, seed)
    level, weights, limit = learned(rows(pairs, opinion, embedder=embedder))
    return {
        "version": VERSION,
        "features": FEATURES,
        "level": round(level, 4),
        "limit": round(limit, 4),
        "weights": {name: round(w, 4) + 0.0 for name, w in zip(ALL_FIELDS, weights, strict=True)},
        "made_by": "python -m recall_cli.measure.opinion_fit",
        "embedder_fingerprint": make_embedder(embedder).fingerprint,
        "transformer_fingerprint": opinion.model.fingerprint,
        "pairs": len(pairs),
    }


def main() -> None:
    """Write the weights beside `core/opinion.py`."""
    text = json.dumps(run(), indent=2) + "\n"
    (Path(opinion_module.__file__).parent / "opinion-weights.json").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
