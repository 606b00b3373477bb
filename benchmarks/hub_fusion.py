"""What each part of the fused order is worth: ranks against scores, whitening, feedback, on the same candidates.

    python benchmarks/hub_fusion.py ../shared/data/ir/cranfield ../shared/data/ir/cisi \
        FOLDER/banking77 FOLDER/clinc150 --out results/hub-fusion.json

Sets are folders as `hub_quality` reads them. Every way orders the candidates that the hub's two legs found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.hub_quality import made
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.hub.models import ALPHA
from recall_cli.hub.search.fusion import Whitening, order, stretched
from recall_cli.measure.hub_eval import DEPTH, JudgedQuestion, load_judgements, row_of
from recall_cli.measure.result import new_result, to_json
from recall_cli.types import Embedder

RANK_CONSTANT = 60
"""Of reciprocal rank fusion, as it was published."""


def by_ranks(asked: JudgedQuestion) -> list[str]:
    """Return the documents by reciprocal rank fusion of the two legs."""
    scores: Counter[int] = Counter()
    for leg in (asked.found.near, asked.found.worded):
        for rank, chunk in enumerate(leg.tolist(), 1):
            scores[chunk] += 1 / (RANK_CONSTANT + rank)
    return asked.of(np.array([chunk for chunk, _ in scores.most_common()], np.int64))


def once(asked: JudgedQuestion, whiten: Whitening) -> list[str]:
    """Return the documents by the weighted scores, without feedback."""
    found = asked.found
    cosines = whiten(found.vectors) @ whiten(found.vector[np.newaxis])[0]
    return asked.of(found.ids[order((1 - ALPHA) * stretched(found.bm25) + ALPHA * stretched(cosines))])


def measured(folder: Path, hubs: Path, embedder: Embedder) -> list[dict[str, Any]]:
    """Return a row for each way to order the candidates of one set."""
    with made(folder, hubs, embedder) as hub:
        judged = load_judgements(str(folder / "queries.jsonl"), str(folder / "qrels.tsv")).questions
        asked = [JudgedQuestion(question, hub.gather(question.text, DEPTH)) for question in judged]
        # Without any row, nothing is known of the spread, and cosines stay what they are.
        raw, white = Whitening(hub.engine.sample(0)), hub.whitening(hub.engine.info())
    ways: dict[str, Callable[[JudgedQuestion], list[str]]] = {
        "words": lambda one: one.of(one.found.worded),
        "vectors": lambda one: one.of(one.found.near),
        "reciprocal ranks": by_ranks,
        "scores": lambda one: once(one, raw),
        "scores, whitened": lambda one: once(one, white),
        "scores, feedback": lambda one: one.fused(ALPHA, raw),
        "scores, whitened, feedback": lambda one: one.fused(ALPHA, white),
    }
    return [row_of(folder.name, name, asked, [way(one) for one in asked], 0) for name, way in ways.items()]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    embedder = make_embedder("static")
    result = new_result("hub fusion", {"embedder": embedder.name, "alpha": ALPHA, "rank_constant": RANK_CONSTANT})
    with tempfile.TemporaryDirectory(prefix="recall-") as hubs:
        for folder in given.folders:
            result.rows += measured(folder, Path(hubs), embedder)
    given.out.write_bytes(to_json(result))
    for row in result.rows:
        print(f"{row['hub']:12} {row['leg']:28} nDCG@10 {row['ndcg_at_10']:.4f}  recall@10 {row['recall_at_10']:.4f}")


if __name__ == "__main__":
    main()
