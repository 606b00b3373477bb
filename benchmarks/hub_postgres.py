"""What a hub in PostgreSQL costs, beside the same hub in a folder.

    python benchmarks/hub_postgres.py --data ../shared/data/ir --out results/hub-postgres.json [--chunks 25000]

PostgreSQL with pgvector runs beside it, on the same machine, over a socket, with fsync on, 1 GB of shared
buffers, and otherwise as installed. The documents are those of `benchmarks/hub.py`: sentences of Cranfield and CISI,
shuffled, where words are more frequent than in natural text; the questions are those sets' own. Both engines hold the
same chunks and answer the same questions in turns, a whole question and each of its steps; compare ratios rather than
wall times, which a busy machine stretches. That both find the same is checked first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.hub import CHUNKS_A_DOCUMENT, corpus, lines, neighbours, timed
from benchmarks.postgres import BUFFERS
from benchmarks.serve import cpu_s
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import GateFailed
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import LEGS, Document, HubEngine, Question
from recall_cli.hub.search.fusion import union
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.hub.stores.pg_hubs import PostgresHubs
from recall_cli.measure.result import OutFile, new_result, to_json
from recall_cli.measure.timing import Arm, interleave, microseconds, one_thread, ratio, sketch
from recall_cli.postgres.ann_indexes import tend_hub_graphs
from recall_cli.postgres.connection import Database
from recall_cli.types import Embedder

Row = dict[str, Any]

FOLDER, DATABASE = "folder", "database"
RELATIONS = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relnamespace = 'recall'::regnamespace AND relkind = 'r' AND starts_with(relname::text, 'hub_')"""
WORKERS = """
SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""


def fill(engines: dict[str, HubEngine], embedder: Embedder, documents: Sequence[Document], arm: str) -> list[Row]:
    """Measure an ingest into each engine."""
    rows = []
    for place, engine in engines.items():
        row: Row = {"arm": arm, "engine": place}
        with timed(row):
            report = ingest(engine, embedder, documents)
        rows.append({**row, "documents": len(documents), "chunks": report.chunks, "embedded": report.embedded})
    return rows


def compare(engines: dict[str, HubEngine], questions: Sequence[str]) -> Row:
    """Return how many of the word leg's best chunks are the other engine's too. Raises GateFailed for other scores."""
    shared = total = 0
    for text in questions:
        (ours, scores), (theirs, same) = (engine.lexical(text, LEGS) for engine in engines.values())
        named = [
            {(passage.doc_id, passage.ordinal) for passage in engine.passages(ids)}
            for engine, ids in zip(engines.values(), (ours, theirs), strict=True)
        ]
        shared += len(named[0] & named[1])
        total += len(ours)
        if len(scores) != len(same) or not np.allclose(scores[:1], same[:1], rtol=1e-3):
            raise GateFailed(f"{text!r} is scored {same[:1]}, and not {scores[:1]}", hint="look at the word leg")
    return {"arm": "word leg, beside the folder's", "questions": len(questions), "shared_share": shared / total}


def arms(place: str, engine: HubEngine, embedder: Embedder, questions: Sequence[str]) -> list[Arm]:
    """Return the arms of one engine: a question, and what it asks of the engine."""
    hub = Hub(engine, embedder)
    vectors = [embedder.embed(text) for text in questions]
    found = [
        union(engine.vector(v, LEGS)[0], engine.lexical(t, LEGS)[0])[0] for t, v in zip(questions, vectors, strict=True)
    ]

    def ask(question: Question) -> None:
        if len(hub.recall(question).results) != question.k:
            raise GateFailed(f"{question.text!r} has fewer than {question.k} answers", hint="look at the engine")

    return [
        Arm(f"question, {place}", ask, [Question(text) for text in questions]),
        Arm(f"vector leg, {place}", lambda vector: engine.vector(vector, LEGS), vectors),
        Arm(f"word leg, {place}", lambda text: engine.lexical(text, LEGS), questions),
        Arm(f"exact scores, {place}", lambda asked: engine.score(*asked), list(zip(questions, found, strict=True))),
        Arm(f"texts, {place}", engine.passages, found),
    ]


def measure(
    engines: dict[str, HubEngine], embedder: Embedder, questions: Sequence[str], calls: int
) -> tuple[list[Row], Row]:
    """Time both engines in turns."""
    both = [arms(place, engine, embedder, questions) for place, engine in engines.items()]
    interleave([arm for one in both for arm in one], calls=calls, warmup=50, seed=0)
    rows = [
        {"arm": arm.name, "us": microseconds(arm), "cpu_us": round(median(arm.cpu) / 1e3, 1), "sketch": sketch(arm)}
        for one in both
        for arm in one
    ]
    ratios = {a.name.partition(",")[0].replace(" ", "_"): ratio(b, a) for a, b in zip(*both, strict=True)}
    return rows, ratios


def processor(engines: dict[str, HubEngine], embedder: Embedder, questions: Sequence[str], server: Any) -> Row:
    """Return the processor milliseconds of a question, all threads of this process and the database's together."""
    taken = {}
    for place, engine in engines.items():
        hub = Hub(engine, embedder)
        hub.recall(Question(questions[0]))
        own, theirs = time.process_time(), _busy(server)
        for text in questions:
            hub.recall(Question(text))
        spent = time.process_time() - own, _busy(server) - theirs
        taken[place] = {"here_ms": 1e3 * spent[0] / len(questions), "database_ms": 1e3 * spent[1] / len(questions)}
    return taken


def _busy(server: Any) -> float:
    """Return the processor seconds that the server's processes for clients have taken."""
    import psycopg

    with psycopg.connect(server.admin, autocommit=True) as db:
        pids = [pid for (pid,) in db.execute(WORKERS)]
    return sum(map(cpu_s, pids))


def run(arguments: argparse.Namespace, folder: Path) -> tuple[list[Row], Row]:
    """Measure, and return rows and summary."""
    from tests.postgres.server import Server

    embedder = make_embedder("static")
    documents = corpus(arguments.data, arguments.chunks // CHUNKS_A_DOCUMENT, seed=0)
    questions = [row["text"] for row in lines(arguments.data, "queries.jsonl")]
    server = Server(fsync=True, buffers=BUFFERS)
    try:
        url = server.new_url()
        make_hub(folder, "hub", embedder)
        hubs = PostgresHubs(url)
        hubs.make("hub", embedder)
        engines: dict[str, HubEngine] = {FOLDER: open_hub(folder, "hub"), DATABASE: hubs.open("hub")}
        rows = fill(engines, embedder, documents, "ingest")
        tend_hub_graphs(Database(url))
        with server.superuser(url) as db:
            db.execute("VACUUM ANALYZE")
            sizes = dict(db.execute(RELATIONS).fetchall())
        chunks = engines[FOLDER].info().chunks
        rows.append(compare(engines, questions))
        rows += [neighbours(engine, embedder, questions, f"vector leg, {place}") for place, engine in engines.items()]
        timed_rows, ratios = measure(engines, embedder, questions, arguments.calls)
        summary = {
            "server": server.version(),
            "chunks": chunks,
            "bytes_per_chunk": {table: round(size / chunks) for table, size in sizes.items()},
            "ratios": ratios,
            "processor": processor(engines, embedder, questions, server),
        }
        middle = documents[len(documents) // 2]
        edited = replace(middle, text=f"{middle.text} The zebrafish was added in an edit.")
        rows += timed_rows + fill(engines, embedder, [edited], "ingest one edited")
        for engine in engines.values():
            engine.close()
        hubs.close()
        return rows, summary
    finally:
        server.stop()


def main() -> None:
    """Run, and write the result document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets cranfield and cisi")
    parser.add_argument("--out", required=True)
    parser.add_argument("--chunks", type=int, default=25_000)
    parser.add_argument("--calls", type=int, default=1_000)
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    params = {name: getattr(arguments, name) for name in ("chunks", "calls")}
    result = new_result("benchmarks/hub_postgres", {**params, "buffers": BUFFERS})
    with tempfile.TemporaryDirectory() as folder, one_thread():
        result.rows, result.summary = run(arguments, Path(folder))
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
