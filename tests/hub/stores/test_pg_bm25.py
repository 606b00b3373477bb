"""Postings are packed and unpacked without loss, whatever the gaps; and after any writes a hub's words agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import StoreError
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document, Upsert
from recall_cli.hub.stores.pg_bm25 import FULL, FURTHEST, LENGTHS, POSTING, TERM, Postings, length_code, pack, unpack
from recall_cli.hub.stores.pg_engine import PostgresEngine
from recall_cli.hub.stores.pg_hubs import PostgresHubs

HASH = HashEmbedder()
RANDOM = np.random.default_rng(3)

PLACES = st.dictionaries(
    st.tuples(st.integers(1, 5), st.integers(-FURTHEST, 9 * FURTHEST)),
    st.tuples(st.integers(1, FURTHEST), st.integers(0, 255)),
    max_size=30,
)


@pytest.fixture
def engine(database: str) -> Iterator[PostgresEngine]:
    with closing(PostgresHubs(database)) as hubs:
        hubs.make("hub", HASH)
        yield hubs.open("hub")


def postings_of(places: dict[tuple[int, int], tuple[int, int]]) -> Postings:
    rows = np.array([(*place, *held) for place, held in places.items()], np.int64).reshape(-1, 4)
    return Postings(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.uint8))


@given(PLACES)
def test_what_is_packed_is_unpacked(places: dict[tuple[int, int], tuple[int, int]]) -> None:
    blocks = pack(postings_of(places))
    counts, chunks, rows = unpack([block[1] for block in blocks], [block[3] for block in blocks])
    words = np.repeat(np.array([block[0] for block in blocks], np.int64), counts)
    there = zip(words.tolist(), chunks.tolist(), rows["times"].tolist(), rows["length"].tolist(), strict=True)
    assert [((word, chunk), held) for word, chunk, *held in there] == [
        (place, list(held)) for place, held in sorted(places.items())
    ]
    ends = np.cumsum(counts)
    assert [block[1:3] for block in blocks] == list(zip(chunks[ends - counts], chunks[ends - 1], strict=True))


def test_a_block_is_no_larger_than_full() -> None:
    blocks = pack(postings_of({(1, chunk): (1, 0) for chunk in range(2 * FULL + 1)}))
    assert [len(block[3]) // POSTING.itemsize for block in blocks] == [FULL, FULL, 1]


def test_lengths_are_told_apart_as_by_the_word_index() -> None:
    assert [LENGTHS[length_code(size)] for size in (0, 39, 40, 41, 42, 55, 57, 103, 456, 10**10)] == [
        0, 39, 40, 40, 42, 54, 56, 96, 440, LENGTHS[-1],
    ]  # fmt: skip
    assert len(LENGTHS) == 256


def test_after_any_writes_the_words_agree(engine: PostgresEngine) -> None:
    """The blocks, what each chunk holds of them, the frequencies and the counts are four tellings of one thing."""
    texts: dict[str, str] = {}
    for turn in range(12):
        new = {str(RANDOM.integers(40)): words(RANDOM.integers(1, 300)) for _ in range(RANDOM.integers(1, 9))}
        gone = {str(RANDOM.integers(40)) for _ in range(RANDOM.integers(3))} - new.keys()
        texts = {id: text for id, text in (texts | new).items() if id not in gone}
        if turn == 6:  # all of them at once: blocks fill, and runs are split
            texts = {id: words(2_000) for id in map(str, range(40))}
        ingest(engine, HASH, [Document(id, text, title="title") for id, text in texts.items()], prune=True)
        check(engine, texts)


def test_what_is_stored_and_removed_at_once_is_not_there(engine: PostgresEngine) -> None:
    ingest(engine, HASH, [Document("kept", "a wing")])
    stored = [(d, s, c, v) for d, s, c, v in upserts(Document("new", "a wing of a house"), Document("kept", "a wall"))]
    engine.apply(iter(stored), iter(["new"]))
    check(engine, {"kept": "a wall"})


def test_a_hub_that_is_removed_while_it_is_written_is_told(engine: PostgresEngine, database: str) -> None:
    def read() -> Iterator[Upsert]:
        yield from upserts(Document("one", "a wing"))
        with closing(PostgresHubs(database)) as others:
            others.remove("hub")

    with pytest.raises(StoreError, match="removed while"):
        engine.apply(read())


def test_distant_chunks_are_added_up_alike(engine: PostgresEngine) -> None:
    ingest(engine, HASH, [Document("first", "a rare wing")])
    with engine._database.connection(5) as db:
        db.execute("UPDATE recall.hubs SET last_chunk = 3000000000")
    ingest(engine, HASH, [Document("last", "a rare wing")])
    ids, scores = engine.lexical("rare wing", 5)
    assert ids.tolist() == [1, 3_000_000_001]
    np.testing.assert_array_equal(engine.score("rare wing", ids)[1], scores)


def words(n: int) -> str:
    """Return so many words, some of them in nearly every text and some in hardly any."""
    return " ".join(f"w{word}" for word in RANDOM.zipf(1.3, n) % 5_000)


def upserts(*documents: Document) -> list[Upsert]:
    from recall_cli.hub.ingest.chunk import cut, document_digest
    from recall_cli.hub.models import DocumentState

    rows = []
    for document in documents:
        chunks = cut(document, HASH.fingerprint)
        state = DocumentState(document_digest(document.title, document.url, document.text), len(chunks))
        rows.append((document, state, chunks, HASH.embed_many([chunk.text for chunk in chunks])))
    return rows


def check(engine: PostgresEngine, texts: dict[str, str]) -> None:
    with engine._database.connection(10) as db:
        chunks = db.execute("SELECT id, size, terms FROM recall.hub_chunks", binary=True).fetchall()
        blocks = db.execute("SELECT word, first, last, postings FROM recall.hub_postings", binary=True).fetchall()
        held = dict(db.execute("SELECT id, df FROM recall.hub_words WHERE df <> 0").fetchall())
        totals = db.execute("SELECT documents, chunks, words FROM recall.hubs").fetchone()
    own = {(word, id): times for id, _, terms in chunks for word, times in np.frombuffer(terms, TERM).tolist()}
    counts, ids, rows = unpack([block[1] for block in blocks], [block[3] for block in blocks])
    numbers = np.repeat(np.array([block[0] for block in blocks]), counts).tolist()
    assert len(numbers) == len(own)
    assert dict(zip(zip(numbers, ids.tolist(), strict=True), rows["times"].tolist(), strict=True)) == own
    assert held == Counter(word for word, _ in own)
    assert totals == (len(texts), len(chunks), sum(size for _, size, _ in chunks))
    assert all(ids[end - 1] == block[2] for end, block in zip(np.cumsum(counts), blocks, strict=True))
    assert counts.max(initial=0) < 2 * FULL
