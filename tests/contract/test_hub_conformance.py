"""A hub in a database answers as one in a folder does, and a small one beside a large one finds all its candidates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from psycopg import sql

from benchmarks.hub_quality import documents
from recall_cli.cache.embed.registry import HashEmbedder, make_embedder
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import LEGS, Chunk, Document, DocumentState, HubEngine
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.stores import pg_bm25
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.hub.stores.pg_engine import nearest_in
from recall_cli.hub.stores.pg_hubs import PostgresHubs
from recall_cli.measure.hub_eval import HubEvalPlan, run
from recall_cli.postgres.ann_indexes import tend_hub_graphs
from recall_cli.postgres.connection import Database
from recall_cli.types import Vector

TOLERANCE = 1e-5
"""Of nDCG@10 against the embedded engine."""
BYTES = 1_500
"""Of postings, for a chunk of a public set: these are shorter than most, and their rarest words have a row each."""
RANDOM = np.random.default_rng(7)
HASH = HashEmbedder()


@pytest.fixture
def hubs(database: str) -> Iterator[PostgresHubs]:
    made = PostgresHubs(database)
    yield made
    made.close()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["cranfield", "cisi"])
def test_public_sets_are_answered_as_by_the_embedded_engine(
    name: str, shared_data: Path, hubs: PostgresHubs, database: str, tmp_path: Path
) -> None:
    folder, embedder = shared_data / "ir" / name, make_embedder("static")
    make_hub(tmp_path, name, embedder)
    hubs.make(name, embedder)
    both = [Hub(open_hub(tmp_path, name), embedder), Hub(hubs.open(name), embedder)]
    plan = HubEvalPlan(str(folder / "queries.jsonl"), str(folder / "qrels.tsv"))
    quality = []
    for hub in both:
        ingest(hub.engine, embedder, documents(folder))
        quality.append({row["leg"]: row["ndcg_at_10"] for row in run(hub, plan).rows})
    assert quality[1] == pytest.approx(quality[0], abs=TOLERANCE)
    question = "what is the effect of the boundary layer, and which information do libraries have"
    ids, scores = both[0].engine.lexical(question, LEGS)
    of = {passage.chunk_id: (passage.doc_id, passage.ordinal) for passage in both[0].engine.passages(ids)}
    theirs, same = both[1].engine.lexical(question, LEGS)
    at = {(passage.doc_id, passage.ordinal): passage.chunk_id for passage in both[1].engine.passages(theirs)}
    assert len(of.values() & at.keys()) >= LEGS - 1, "of two that score the same one may be the last"
    score_of = dict(zip(theirs.tolist(), same.tolist(), strict=True))
    common = [
        (score, score_of[at[of[id]]]) for id, score in zip(ids.tolist(), scores.tolist(), strict=True) if of[id] in at
    ]
    np.testing.assert_allclose([a for a, _ in common], [b for _, b in common], rtol=1e-5)
    with Database(database).connection(5) as db:
        (taken,) = db.execute("SELECT pg_total_relation_size('recall.hub_postings')").fetchone() or (0,)
    assert taken / both[1].engine.info().chunks < BYTES
    both[0].close()


def test_a_small_hub_beside_a_large_one_gets_all_its_candidates(hubs: PostgresHubs, database: str) -> None:
    for slug, rows in (("large", 1_800), ("small", 200)):
        hubs.make(slug, HASH)
        fill(hubs.open(slug), rows)
    small = hubs.open("small")
    question = unit(RANDOM.normal(size=(1, HASH.dim)))[0]
    exact, _ = small.vector(question, LEGS)
    words, _ = small.lexical("alpha beta", LEGS)
    assert len(exact) == len(words) == LEGS
    owner = Database(database)
    assert tend_hub_graphs(owner, at_least=100) == (2, 0)
    assert tend_hub_graphs(owner, at_least=100) == (0, 0)
    near, cosines = small.vector(question, LEGS)
    assert len(near) == LEGS
    assert len(np.intersect1d(near, exact)) >= 0.95 * LEGS
    assert (np.diff(cosines) <= 0).all()
    assert tend_hub_graphs(owner, at_least=1_000) == (0, 1)
    owner.close()


def test_a_graph_is_used_where_there_is_one(hubs: PostgresHubs, database: str) -> None:
    hubs.make("hub", HASH)
    fill(hubs.open("hub"), 1_500)
    owner = Database(database)
    query = sql.SQL("EXPLAIN ") + nearest_in(hubs.open("hub").number, 0, HASH.dim)
    values = {"vector": unit(RANDOM.normal(size=(1, HASH.dim)))[0], "n": LEGS}
    with owner.connection(10) as db:
        db.execute("SET enable_sort = off")  # which so small a hub is better served by
        assert "near_" not in str(db.execute(query, values, prepare=False).fetchall())
        tend_hub_graphs(owner, at_least=100)
        assert "Index Scan using near_" in str(db.execute(query, values, prepare=False).fetchall())
    owner.close()


def test_the_rarest_words_choose_and_all_of_them_count(hubs: PostgresHubs, monkeypatch: pytest.MonkeyPatch) -> None:
    hubs.make("hub", HASH)
    engine = hubs.open("hub")
    texts = ["common " * (1 + i % 3) + ("rare" if i % 20 == 0 else f"w{i}") for i in range(200)]
    ingest(engine, HASH, [Document(f"{i:03}", text) for i, text in enumerate(texts)])
    ids, scores = engine.lexical("a common and rare word", 8)
    monkeypatch.setattr(pg_bm25, "POSTINGS", 10)
    fewer, same = engine.lexical("a common and rare word", 8)
    assert fewer.tolist() == ids.tolist()
    np.testing.assert_array_equal(same, scores)
    assert len(engine.lexical("common", 300)[0]) == 200, "the rarest word of a question is always read"
    assert len(engine.lexical("common rare", 300)[0]) == 10, "the others choose no more than there is room for"


def test_what_is_gone_weighs_nothing(hubs: PostgresHubs) -> None:
    kept = [Document(f"kept{i}", f"a wing and a wall of number{i}") for i in range(5)]
    gone = [Document(f"gone{i}", "a wing, a wing and a long text about walls and books") for i in range(5)]
    for slug in ("grown", "never"):
        hubs.make(slug, HASH)
    grown, never = hubs.open("grown"), hubs.open("never")
    ingest(grown, HASH, [*kept, *gone])
    ingest(grown, HASH, [Document("kept0", "another text about wings")])
    ingest(grown, HASH, kept, prune=True)
    ingest(never, HASH, kept)
    for question in ("wing", "walls and number3", "books", "another"):
        of = [engine.lexical(question, 9)[1].tolist() for engine in (grown, never)]
        assert of[0] == pytest.approx(of[1], rel=1e-6), question


def unit(rows: Vector) -> Vector:
    scaled: Vector = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def fill(engine: HubEngine, rows: int) -> None:
    vectors = unit(RANDOM.normal(size=(rows, HASH.dim)))
    words = RANDOM.choice(["alpha", "beta", "gamma", "delta"], size=(rows, 2))
    engine.apply(
        (
            Document(str(i), " ".join(pair)),
            DocumentState(bytes(16), 1),
            [Chunk(0, " ".join(pair), i.to_bytes(16, "big"))],
            vector[np.newaxis],
        )
        for i, (pair, vector) in enumerate(zip(words.tolist(), vectors, strict=True))
    )
