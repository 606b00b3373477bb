"""How well hubs of public retrieval sets answer: `recall hub eval` of each set, in one result document.

    python benchmarks/hub_quality.py ../shared/data/ir/cranfield ../shared/data/ir/cisi \
        --foreign everyday.jsonl --out results/hub.json

A set is a folder of corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and qrels.tsv (query-id, corpus-id,
score). Each becomes a hub of its own with default settings. What it cannot answer are the questions of `--foreign`, or
else those of the other sets, which are harder to tell apart. Nothing here is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.measure.hub_eval import HubEvalPlan, run
from recall_cli.measure.result import new_result, to_json
from recall_cli.types import Embedder, Result


def documents(folder: Path) -> Iterator[Document]:
    """Yield a set's documents."""
    for line in (folder / "corpus.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        yield Document(row["_id"], row["text"], row["title"])


@contextmanager
def made(folder: Path, hubs: Path, embedder: Embedder) -> Iterator[Hub]:
    """Make a hub of a set, with default settings, for as long as it is asked."""
    make_hub(hubs, folder.name, embedder)
    hub = Hub(open_hub(hubs, folder.name), embedder)
    try:
        ingest(hub.engine, embedder, documents(folder))
        yield hub
    finally:
        hub.close()


def measured(folder: Path, hubs: Path, embedder: Embedder, foreign: Path, false_answers: float) -> Result:
    """Return the result of one set."""
    with made(folder, hubs, embedder) as hub:
        plan = HubEvalPlan(
            str(folder / "queries.jsonl"),
            str(folder / "qrels.tsv"),
            foreign=str(foreign),
            fit=True,
            target=false_answers,
        )
        return run(hub, plan)


def all_measured(folders: Sequence[Path], foreign: Path | None, false_answers: float) -> Result:
    """Return one result of all sets."""
    embedder = make_embedder("static")
    source = foreign.stem if foreign else "the other sets' questions"
    params = {"hubs": [folder.name for folder in folders], "foreign": source, "target": false_answers}
    whole = new_result("hub eval", params | {"embedder": embedder.name})
    whole.summary["hubs"] = {}
    with tempfile.TemporaryDirectory(prefix="recall-") as temporary:
        for folder in folders:
            others = [other / "queries.jsonl" for other in folders if other != folder]
            files = [foreign] if foreign else others
            unanswerable = Path(temporary) / "foreign.jsonl"
            unanswerable.write_bytes(b"\n".join(file.read_bytes() for file in files))
            result = measured(folder, Path(temporary) / "hubs", embedder, unanswerable, false_answers)
            whole.rows += result.rows
            whole.summary["hubs"] |= result.summary["hubs"]
            whole.warnings += result.warnings
    return whole


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--foreign", type=Path, help="questions that no set answers, JSON lines with a text")
    parser.add_argument("--false-answers", type=float, default=0.05)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    result = all_measured(given.folders, given.foreign, given.false_answers)
    given.out.write_bytes(to_json(result))
    for row in result.rows:
        print(f"{row['hub']:12} {row['leg']:8} nDCG@10 {row['ndcg_at_10']:.4f}  recall@10 {row['recall_at_10']:.4f}")


if __name__ == "__main__":
    main()
