"""How fast a hub of 50,000 chunks takes documents in and answers, and what its vector index misses.

    python benchmarks/hub.py --data ../shared/data/ir --out results/hub-speed.json [--chunks 50000] [--rounds 4]

Documents of about 50 chunks, made of the sentences of Cranfield and CISI by a seeded choice; the questions are those
sets' own. Words are more frequent there than in natural text, which is the hard case for BM25. Beside every wall time
stands the processor time (all threads of this process): on a shared machine that is the figure to compare. Every
arm checks what it measured: counts, revisions, and neighbours against an exact search.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SETS = ("cranfield", "cisi")
CHUNKS_A_DOCUMENT = 50
NEAR = 30
SMALL_SHARE = 100


def lines(data: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a file of both sets."""
    return [json.loads(line) for part in SETS for line in (data / part / name).open()]


def corpus(data: Path, documents: int, seed: int) -> list[Any]:
    """Return documents, each about a few of the sets' subjects, of about `CHUNKS_A_DOCUMENT` chunks."""
    from recall_cli.hub.ingest.chunk import LARGEST
    from recall_cli.hub.models import Document

    chance = random.Random(seed)
    rows = lines(data, "corpus.jsonl")
    sentences = [[f"{part.strip(' .')}. " for part in row["text"].split(". ") if part.strip(" .")] for row in rows]
    sources = [own for own in sentences if len(own) > 2]
    made = []
    for number in range(documents):
        pool = [sentence for own in chance.sample(sources, 12) for sentence in own]
        text: list[str] = []
        size = 0
        # A chunk ends with a sentence, so a little less than its largest size is used.
        while size < CHUNKS_A_DOCUMENT * (LARGEST - 60):
            text.append(chance.choice(pool))
            size += len(text[-1])
        title = chance.choice(rows)["title"]
        made.append(Document(f"{number:05}.md", "".join(text), title, f"https://example.org/{number}"))
    return made


@contextmanager
def timed(row: dict[str, Any]) -> Iterator[None]:
    """Put the wall and processor seconds of what is done inside into the row."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    row["wall_s"], row["cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu


def ingest_all(folder: Path, slug: str, documents: list[Any], tokens: str) -> dict[str, Any]:
    """Measure the first ingest of all documents into a new hub."""
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.hub.ingest.pipeline import ingest
    from recall_cli.hub.stores.folder import make_hub, open_hub

    embedder = make_embedder("static", tokens=tokens)
    make_hub(folder, slug, embedder)
    engine = open_hub(folder, slug)
    row: dict[str, Any] = {"arm": "ingest", "tokens": tokens}
    with timed(row):
        report = ingest(engine, embedder, documents)
    # Equal chunks of one batch are embedded once.
    assert (report.added, report.revision) == (len(documents), 1)
    assert engine.info().chunks == report.chunks
    engine.close()
    files = {name: sum(f.stat().st_size for f in (folder / slug).rglob(pattern) if f.is_file())
             for name, pattern in (("catalog_bytes", "hub.db*"), ("words_bytes", "words/*"))}  # fmt: skip
    speed = {"chunks_per_s": report.chunks / row["wall_s"], "chunks_per_cpu_s": report.chunks / row["cpu_s"]}
    return row | {"documents": report.added, "chunks": report.chunks, "embedded": report.embedded} | speed | files


def opening(folder: Path, slug: str) -> list[dict[str, Any]]:
    """Measure opening the hub, and opening it when its word index is lost."""
    from recall_cli.hub.stores.folder import open_hub

    rows = []
    for arm in ("open", "open without the word index"):
        if arm != "open":
            shutil.rmtree(folder / slug / "words")
        row: dict[str, Any] = {"arm": arm}
        with timed(row):
            engine = open_hub(folder, slug)
        assert len(engine.lexical("flow", NEAR)[0]) == NEAR
        engine.close()
        rows.append(row)
    return rows


def queries(engine: Any, embedder: Any, questions: list[str], rounds: int) -> dict[str, Any]:
    """Measure whole recalls, one after another: embedding, both legs, exact scores, fusion, texts."""
    import numpy as np

    from recall_cli.hub.models import Question
    from recall_cli.hub.search.pipeline import Hub

    hub = Hub(engine, embedder)
    asked = [Question(text, k=10) for text in questions]
    for question in asked[:50]:
        hub.recall(question)
    taken: list[float] = []
    cpu = time.process_time()
    parts: dict[str, list[float]] = {}
    for _ in range(rounds):
        for question in asked:
            start = time.perf_counter()
            answer = hub.recall(question)
            taken.append((time.perf_counter() - start) * 1e6)
            assert len(answer.results) == 10
            for name, value in answer.timings_us.items():
                parts.setdefault(name, []).append(value)
    cpu_us = (time.process_time() - cpu) / len(taken) * 1e6
    p50, p95, p99 = np.percentile(taken, [50, 95, 99])
    legs = {f"{name}_us": {"p50": float(np.median(p)), "p99": float(np.percentile(p, 99))} for name, p in parts.items()}
    return {"arm": "recall", "n": len(taken), "p50_us": p50, "p95_us": p95, "p99_us": p99, "cpu_us": cpu_us} | legs


def neighbours(engine: Any, embedder: Any, questions: list[str], arm: str) -> dict[str, Any]:
    """Hold the vector leg against an exact search over the same vectors; ties count."""
    import numpy as np

    everything = engine.sample(engine.info().chunks)
    found, complete = 0, 0
    for text in questions:
        vector = embedder.embed(text)
        ids, cosines = engine.vector(vector, NEAR)
        least = np.sort(everything @ vector)[-NEAR]
        found += int((cosines >= least - 1e-6).sum())
        complete += len(ids) == NEAR
    n = NEAR * len(questions)
    worded = sum(len(engine.lexical(text, NEAR)[0]) > 0 for text in questions)
    return {"arm": arm, "chunks": len(everything), "questions": len(questions), "recall_at_30": found / n,
            "full_30": complete / len(questions), "with_lexical": worded / len(questions)}  # fmt: skip


def again(engine: Any, embedder: Any, documents: list[Any]) -> list[dict[str, Any]]:
    """Measure the ingest of what is there already, and of one edited document among all."""
    from dataclasses import replace

    from recall_cli.hub.ingest.pipeline import ingest

    same: dict[str, Any] = {"arm": "ingest unchanged", "documents": len(documents)}
    with timed(same):
        report = ingest(engine, embedder, documents)
    assert (report.unchanged, report.embedded) == (len(documents), 0)
    middle = len(documents) // 2
    old = documents[middle]
    at = len(old.text) // 2
    at = old.text.index(". ", at) + 2
    edited = [*documents]
    edited[middle] = replace(old, text=f"{old.text[:at]}The zebrafish was added in an edit. {old.text[at:]}")
    one: dict[str, Any] = {"arm": "ingest one edited", "documents": len(documents)}
    with timed(one):
        report = ingest(engine, embedder, edited)
        ids, _ = engine.lexical("zebrafish", NEAR)
    assert report.changed == 1
    assert [passage.doc_id for passage in engine.passages(ids)] == [old.id]
    return [same, one | {"chunks_of_the_document": report.chunks, "embedded": report.embedded}]


def run(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure everything."""
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.hub.ingest.chunk import chunks
    from recall_cli.hub.stores.folder import open_hub

    count = max(1, arguments.chunks // CHUNKS_A_DOCUMENT)
    documents = corpus(arguments.data, count, seed=0)
    questions = [row["text"] for row in lines(arguments.data, "queries.jsonl")]
    embedder = make_embedder("static")
    cut = [chunk for document in documents[:20] for chunk in chunks(document.text)]
    lengths = [len(make_embedder("static", tokens="plain").tokens.ids(chunk)) for chunk in cut]
    rows: list[dict[str, Any]] = [
        {"arm": "corpus", "documents": count, "bytes": sum(len(d.text) for d in documents),
         "tokens_per_chunk": sum(lengths) / len(lengths), "chars_per_chunk": sum(map(len, cut)) / len(cut)}
    ]  # fmt: skip
    for turn, tokens in enumerate(("words", "nanotoken") * arguments.ingests):
        rows.append(ingest_all(folder, f"hub-{turn}", documents, tokens))
        print(json.dumps(rows[-1]), file=sys.stderr)
    rows += opening(folder, "hub-0")
    engine = open_hub(folder, "hub-0")
    rows.append(queries(engine, embedder, questions, arguments.rounds))
    rows.append(neighbours(engine, embedder, questions, "vector leg"))
    rows += again(engine, embedder, documents)
    engine.close()
    ingest_all(folder, "small", corpus(arguments.data, max(1, count // SMALL_SHARE), seed=1), "auto")
    small = open_hub(folder, "small")
    rows.append(neighbours(small, embedder, questions, "vector leg of a hub of 1 %"))
    small.close()
    rows.append({"arm": "memory", "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that the hub is judged by."""
    arms: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row)
    best = {
        tokens: max(row["chunks_per_s"] for row in arms["ingest"] if row["tokens"] == tokens)
        for tokens in ("words", "nanotoken")
    }
    recall, edited = arms["recall"][0], arms["ingest one edited"][0]
    return {
        "chunks": arms["ingest"][0]["chunks"],
        "tokens_per_chunk": arms["corpus"][0]["tokens_per_chunk"],
        "ingest_chunks_per_s": best["words"],
        "ingest_chunks_per_s_fast": best["nanotoken"],
        "query_p50_us": recall["p50_us"],
        "query_p99_us": recall["p99_us"],
        "query_cpu_us": recall["cpu_us"],
        "unchanged_s": arms["ingest unchanged"][0]["wall_s"],
        "edited_embedded": edited["embedded"],
        "edited_chunks_of_the_document": edited["chunks_of_the_document"],
        "edited_s": edited["wall_s"],
        "recall_at_30": arms["vector leg"][0]["recall_at_30"],
        "small_full_30": arms["vector leg of a hub of 1 %"][0]["full_30"],
        "small_recall_at_30": arms["vector leg of a hub of 1 %"][0]["recall_at_30"],
        "open_s": arms["open"][0]["wall_s"],
        "rebuild_words_s": arms["open without the word index"][0]["wall_s"],
    }


def main() -> None:
    """Run, and write the result document."""
    from recall_cli.measure.result import OutFile, new_result, to_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets cranfield and cisi")
    parser.add_argument("--out", required=True)
    parser.add_argument("--chunks", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=4, help="times that every question is asked")
    parser.add_argument("--ingests", type=int, default=2, help="ingests with each tokenizer; the best counts")
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    params = {name: getattr(arguments, name) for name in ("chunks", "rounds", "ingests")}
    result = new_result("benchmarks/hub", params)
    with tempfile.TemporaryDirectory() as folder:
        result.rows = run(arguments, Path(folder))
    result.summary = summary(result.rows)
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
