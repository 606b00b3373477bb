"""The lexical leg of a shared hub: BM25 over its postings, computed as tantivy computes it.

The database finds the blocks of a question's words; here they are unpacked and added up, ten nanoseconds a posting,
where rows take hundreds. A question's words are joined by OR, and a common one matches much of a hub. So the rarest
words choose the candidates, as many words as `POSTINGS` postings allow, and then every word counts in their scores. In
a hub where all words of the question have fewer postings than that, the order is exact.

A block packs some hundred postings into a row: a row for each posting takes ninety bytes with its index, eighteen times
what it says, and as long to read as the ninety bytes do. Numbers are big-endian: the database makes two blocks one, and
writes the gap between them. A block is never changed in its place. A write takes what it touches out into the stage,
without the postings of chunks that go, and puts it back together with what is new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recall_cli.errors import StoreError
from recall_cli.types import Ids, Vector

if TYPE_CHECKING:
    from recall_cli.postgres.connection import Deadlined

POSTING = np.dtype([("gap", ">i2"), ("times", ">i2"), ("length", "u1")])
"""A chunk that has the word: how far it is from the one before, how often it has it, and its length's code."""
TERM = np.dtype([("word", ">i4"), ("times", ">i2")])
"""A word that a chunk has."""
FULL = 400
"""Postings of a block at most, as it is made: four of them fill a page."""
FURTHEST = 32_767
"""The widest gap within a block, and the most times that are told apart."""

LENGTHS: list[int] = [*range(32), *(24 + ((8 | i % 8) << (i // 8 - 1)) for i in range(8, 232))]
"""The lengths that the embedded engine's word index tells apart, one a byte: exact ones, then four bits of each."""

K1, B = 1.2, 0.75
"""BM25's parameters, as tantivy has them."""

Block = tuple[int, int, int, bytes]
"""A word, the first and the last chunk of the block, and its postings."""


@dataclass(frozen=True, slots=True)
class Postings:
    """Which chunks have which words: n postings, in any order; of a word and a chunk there is one."""

    words: NDArray[np.int64]
    chunks: Ids
    times: NDArray[np.int64]
    lengths: NDArray[np.uint8]
    """Codes, see `LENGTHS`."""


def length_code(size: int) -> int:
    """Return the code of the length that a chunk of so many words counts as."""
    return bisect_right(LENGTHS, size) - 1


def pack(postings: Postings) -> list[Block]:
    """Return the blocks that hold these postings, by word and chunk."""
    n = len(postings.words)
    if not n:
        return []
    order = np.lexsort((postings.chunks, postings.words))
    words, chunks = postings.words[order], postings.chunks[order]
    places = np.arange(n)
    gaps = np.diff(chunks, prepend=0)
    starts = np.diff(words, prepend=-1) != 0
    within = places - np.maximum.accumulate(np.where(starts, places, 0))
    starts |= (gaps > FURTHEST) | (within % FULL == 0)
    rows = np.empty(n, POSTING)
    rows["gap"] = np.where(starts, 0, gaps)
    rows["times"] = np.minimum(postings.times[order], FURTHEST)
    rows["length"] = postings.lengths[order]
    packed = rows.tobytes()
    begin = np.flatnonzero(starts)
    end = np.append(begin[1:], n)
    size = POSTING.itemsize
    columns = (words[begin], chunks[begin], chunks[end - 1], begin * size, end * size)
    return [
        (word, first, last, packed[a:b])
        for word, first, last, a, b in zip(*(column.tolist() for column in columns), strict=True)
    ]


def unpack(firsts: Sequence[int], packed: Sequence[bytes]) -> tuple[Ids, Ids, NDArray[np.void]]:
    """Return how many postings each block has, and of all of them in turn the chunks, and the rows (see `POSTING`)."""
    rows = np.frombuffer(b"".join(packed), POSTING)
    counts = np.array([len(block) // POSTING.itemsize for block in packed], np.int64)
    upto = np.cumsum(rows["gap"].astype(np.int64))  # converted first: in one call it takes four times as long
    begin = np.cumsum(counts) - counts
    return counts, upto + np.repeat(np.array(firsts, np.int64) - upto[begin], counts), rows


def saturation(times: NDArray[np.int16], lengths: NDArray[np.uint8], mean: float) -> NDArray[np.float64]:
    """Return what each posting adds to its chunk's BM25 score for a word of weight 1.

    :param mean: the mean length of the hub's chunks.
    """
    slow = K1 * (1 - B + B * np.array(LENGTHS) / mean)
    spoken = times.astype(np.float64)
    return spoken / (spoken + slow.take(lengths))


AT_ONCE = 1_024
"""Chunks whose postings are taken out at a time."""

STAGE = """
CREATE TEMPORARY TABLE staged_postings (word integer, first bigint, last bigint, postings bytea);
ALTER TABLE staged_postings ALTER COLUMN postings SET STORAGE PLAIN"""
"""Chunks are counted from the hub's last one before the write: new ones from 1."""
BLOCK_TYPES = ("int4", "int8", "int8", "bytea")

KNOWN = "SELECT word, id FROM recall.hub_words WHERE hub = %s AND word = ANY(%s::text[])"
NUMBER = """
WITH taken AS (
    UPDATE recall.hubs SET last_word = last_word + cardinality(%(words)s::text[])
    WHERE id = %(hub)s AND tenant = current_user RETURNING last_word - cardinality(%(words)s::text[]) AS before
)
INSERT INTO recall.hub_words (hub, id, word, df)
SELECT %(hub)s, before + place, word, 0 FROM taken, unnest(%(words)s::text[]) WITH ORDINALITY AS new (word, place)
ON CONFLICT (hub, word) DO NOTHING"""
"""Under the hub's lock, so that nobody else numbers words meanwhile: most conflicts are seen before."""
MORE = f"""
UPDATE recall.hub_words AS w SET df = df + n
FROM (SELECT word, sum(octet_length(postings)) / {POSTING.itemsize} AS n FROM staged_postings GROUP BY word) AS won
WHERE hub = %s AND w.id = won.word"""
FEWER = """
UPDATE recall.hub_words AS w SET df = df - n
FROM unnest(%(words)s::integer[], %(counts)s::integer[]) AS lost (word, n) WHERE hub = %(hub)s AND w.id = lost.word"""
TOUCHED = """
DELETE FROM recall.hub_postings WHERE hub = %(hub)s AND word = ANY(%(words)s::integer[])
    AND first <= %(last)s AND last >= %(first)s RETURNING word, first, postings"""
TAILS = f"""
WITH tails AS (
    DELETE FROM recall.hub_postings AS p USING (
        SELECT word, (SELECT max(q.first) FROM recall.hub_postings AS q WHERE q.hub = %(hub)s AND q.word = s.word)
            AS first
        FROM (SELECT DISTINCT word FROM staged_postings) AS s
    ) AS tail
    WHERE p.hub = %(hub)s AND p.word = tail.word AND p.first = tail.first
        AND octet_length(p.postings) < {FULL * POSTING.itemsize}
    RETURNING p.word, p.first, p.last, p.postings
)
INSERT INTO staged_postings SELECT word, first - %(chunk)s, last - %(chunk)s, postings FROM tails"""
"""Each word's last block, where it has room."""
MERGE = f"""
WITH runs AS (
    SELECT *, (sum(octet_length(postings)) OVER byword - 1) / {FULL * POSTING.itemsize} AS filled,
        first - lag(last) OVER byword AS gap
    FROM staged_postings WINDOW byword AS (PARTITION BY word ORDER BY first)
), blocks AS (
    SELECT *, count(*) FILTER (WHERE gap NOT BETWEEN 1 AND {FURTHEST}) OVER (PARTITION BY word ORDER BY first) AS run
    FROM runs
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY word, run, filled ORDER BY first) AS place FROM blocks
)
INSERT INTO recall.hub_postings (hub, word, first, last, postings)
SELECT %(hub)s, word, %(chunk)s + min(first), %(chunk)s + max(last), string_agg(
    CASE WHEN place = 1 THEN postings ELSE int2send(gap::smallint) || substr(postings, 3) END, ''::bytea ORDER BY first
) FROM placed GROUP BY word, run, filled ORDER BY word, run, filled"""
"""Blocks that follow each other become one, up to twice as large as a full one. The gap is a block's first number."""


class PostingsStage:
    """The postings of a write, on its connection."""

    def __init__(self, db: Deadlined, hub: int) -> None:
        self._db = db
        self._hub = hub
        self._numbers: dict[str, int] = {}
        db.execute(STAGE)

    def add(self, first: int, chunks: Sequence[Counter[str]]) -> list[bytes]:
        """Stage the words of some chunks; return for each of them what is stored with it.

        :param first: the number of the first one.
        """
        self._number(dict.fromkeys(chain.from_iterable(chunks)))
        numbers = self._numbers
        sizes = np.array([len(words) for words in chunks], np.int64)
        total = int(sizes.sum())
        words = np.fromiter((numbers[word] for own in chunks for word in own), np.int64, total)
        times = np.fromiter((n for own in chunks for n in own.values()), np.int64, total)
        lengths = np.array([length_code(own.total()) for own in chunks], np.uint8)
        ids = np.arange(first, first + len(chunks))
        postings = Postings(words, np.repeat(ids, sizes), times, np.repeat(lengths, sizes))
        copy(self._db, "staged_postings", BLOCK_TYPES, pack(postings))
        terms = np.empty(total, TERM)
        terms["word"] = words
        terms["times"] = np.minimum(times, FURTHEST)
        packed, end = terms.tobytes(), (np.cumsum(sizes) * TERM.itemsize).tolist()
        return [packed[a:b] for a, b in zip([0, *end], end, strict=False)]

    def count(self) -> None:
        """Count the chunks that are staged in their words' frequencies."""
        self._db.execute(MORE, (self._hub,))

    def take_out(self, chunk: int, gone: Sequence[tuple[int, bytes]]) -> None:
        """Take the blocks of chunks that go into the stage, without these chunks.

        :param chunk: the hub's last one before the write.
        :param gone: the chunks and their packed terms.
        """
        ids = np.array([id for id, _ in gone], np.int64)
        order = np.argsort(ids)
        for at in range(0, len(ids), AT_ONCE):
            some = order[at : at + AT_ONCE]
            terms = np.frombuffer(b"".join(gone[place][1] for place in some.tolist()), TERM)
            words, counts = np.unique(terms["word"], return_counts=True)
            of = {"hub": self._hub, "words": words.tolist(), "counts": counts.tolist()}
            self._db.execute(FEWER, of)
            span = {"first": int(ids[some[0]]), "last": int(ids[some[-1]])}
            rows = self._db.execute(TOUCHED, {**of, **span}, binary=True).fetchall()
            self._restage(chunk, rows, ids)

    def publish(self, chunk: int) -> None:
        """Merge what is staged into the hub's blocks, and empty the stage.

        :param chunk: the hub's last one before the write.
        """
        at = {"hub": self._hub, "chunk": chunk}
        self._db.execute("ANALYZE staged_postings")
        self._db.execute(TAILS, at)
        self._db.execute(MERGE, at)
        self._db.execute("DELETE FROM staged_postings")

    def _restage(self, chunk: int, rows: Sequence[tuple[int, int, bytes]], gone: Ids) -> None:
        if not rows:
            return
        counts, chunks, postings = unpack([row[1] for row in rows], [row[2] for row in rows])
        words = np.repeat(np.array([row[0] for row in rows], np.int64), counts)
        left = ~np.isin(chunks, gone)
        times, lengths = postings["times"][left], postings["length"][left]
        copy(
            self._db, "staged_postings", BLOCK_TYPES, pack(Postings(words[left], chunks[left] - chunk, times, lengths))
        )

    def _number(self, words: Iterable[str]) -> None:
        """Learn the numbers of words, and number those that the hub does not have."""
        for attempt in (self._know, self._make):
            new = [word for word in words if word not in self._numbers]
            if new:
                attempt(new)

    def _know(self, words: list[str]) -> None:
        self._numbers.update(self._db.execute(KNOWN, (self._hub, words), binary=True).fetchall())

    def _make(self, words: list[str]) -> None:
        self._db.execute(NUMBER, {"hub": self._hub, "words": words})
        self._know(words)
        if words[0] not in self._numbers:
            raise StoreError(
                "the hub was removed while it was written", hint="recall hub list shows the ones there are"
            )


def copy(db: Deadlined, table: str, types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Copy rows into a table of the connection's own."""
    if not rows:
        return
    with db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copying:
        copying.set_types(types)
        for row in rows:
            copying.write_row(row)


POSTINGS = 200_000
"""Postings read to choose candidates, five bytes each; the rarest word is always read."""
WIDER = 10
"""Candidates scored for each one wanted, where not all words had a say in choosing them."""
SPARSE = 32
"""Chunk ids in the span of the postings, for each posting, from which a sum for each id would be mostly zeros."""

ASKED = """
SELECT chunks, words, dim, generation, w.id, word, df FROM recall.hubs AS h
LEFT JOIN recall.hub_words AS w ON hub = h.id AND word = ANY(%(words)s::text[]) AND df > 0
WHERE h.id = %(hub)s AND tenant = current_user"""
BLOCKS = """
SELECT word, first, postings FROM recall.hub_postings WHERE hub = %(hub)s AND word = ANY(%(words)s::integer[])
ORDER BY array_position(%(words)s::integer[], word)"""
TERMS = "SELECT id, size, terms FROM recall.hub_chunks WHERE hub = %(hub)s AND id = ANY(%(ids)s::bigint[])"


@dataclass(frozen=True, slots=True)
class WordQuery:
    """The words of a question that a hub has, rarest first. Scores are added up in this order, so to the same bit."""

    words: NDArray[np.int64]
    """Their numbers."""
    df: NDArray[np.int64]
    """Chunks that have the word."""
    weights: NDArray[np.float64]
    """(k1 + 1) times the inverse document frequency, for each time that the question says the word."""
    mean: float
    """Mean length of the hub's chunks."""
    dim: int
    generation: int
    """Of the vectors that searches see."""


def search(db: Deadlined, hub: int, words: Mapping[str, int], n: int) -> tuple[Ids, Vector]:
    """Return ids and BM25 scores of the n best chunks, best first."""
    asked = look_up(db, hub, words) if words and n > 0 else None
    if asked is None or not len(asked.words):
        return np.empty(0, np.int64), np.empty(0, np.float32)
    few = max(1, int(np.searchsorted(np.cumsum(asked.df), POSTINGS, side="right")))
    rows = db.execute(BLOCKS, {"hub": hub, "words": listed(asked.words[:few])}, binary=True).fetchall()
    counts, chunks, postings = unpack([row[1] for row in rows], [row[2] for row in rows])
    weight_of = dict(zip(asked.words.tolist(), asked.weights.tolist(), strict=True))
    weights = np.repeat(np.array([weight_of[row[0]] for row in rows], np.float64), counts)
    parts = weights * saturation(postings["times"], postings["length"], asked.mean)
    ids, scores = _best(*_summed(chunks, parts), n if few == len(asked.words) else n * WIDER)
    if few < len(asked.words):
        ids, scores = _best(ids, score(asked, ids, db.execute(TERMS, {"hub": hub, "ids": listed(ids)}, binary=True)), n)
    return ids, scores.astype(np.float32)


def look_up(db: Deadlined, hub: int, words: Mapping[str, int]) -> WordQuery | None:
    """Return what the hub has of a question's words and how often it says them, None when there is no such hub."""
    rows = db.execute(ASKED, {"hub": hub, "words": list(words)}, binary=True).fetchall()
    if not rows:
        return None
    chunks, total, dim, generation = rows[0][:4]
    held = sorted((df, id, words[word]) for *_, id, word, df in rows if id is not None)
    df, ids, said = np.array(held, np.int64).reshape(-1, 3).T
    weights = said * (K1 + 1) * np.log1p((chunks - df + 0.5) / (df + 0.5))
    return WordQuery(ids, df, weights, total / max(chunks, 1), dim, generation)


def score(asked: WordQuery, ids: Ids, rows: Iterable[tuple[int, int, bytes]]) -> NDArray[np.float64]:
    """Return the BM25 scores of some chunks, as `search` gives them; 0 where no word is shared.

    :param rows: the chunks, their sizes in words and their packed terms; those that are gone are missing.
    """
    places = {id: place for place, id in enumerate(ids.tolist())}
    held = [(places[id], length_code(size), terms) for id, size, terms in rows]
    if not held or not len(asked.words):
        return np.zeros(len(ids))
    terms = np.frombuffer(b"".join(row[2] for row in held), TERM)
    words = terms["word"].astype(np.int64)
    order = np.argsort(asked.words)
    at = order.take(np.searchsorted(asked.words, words, sorter=order), mode="clip")
    shared = np.flatnonzero(asked.words[at] == words)
    shared = shared[np.argsort(at[shared], kind="stable")]
    own = np.searchsorted(np.cumsum([len(row[2]) // TERM.itemsize for row in held]), shared, side="right")
    lengths = np.array([row[1] for row in held], np.uint8)[own]
    parts = asked.weights[at[shared]] * saturation(terms["times"][shared], lengths, asked.mean)
    return _sums(np.array([row[0] for row in held], np.int64)[own], parts, len(ids))


def listed(numbers: Ids) -> str:
    """Return numbers as PostgreSQL reads an array of them: psycopg takes ten times as long to write a list."""
    return f"{{{','.join(map(str, numbers.tolist()))}}}"


def _summed(chunks: Ids, parts: NDArray[np.float64]) -> tuple[Ids, NDArray[np.float64]]:
    """Return the chunks, each once, and the sums of their parts."""
    if not len(chunks):
        return chunks, parts
    least = chunks.min()
    if chunks.max() - least < SPARSE * len(chunks):
        sums = _sums(chunks - least, parts)
        found = np.flatnonzero(sums)
        return found + least, sums[found]
    found, at = np.unique(chunks, return_inverse=True)
    return found, _sums(at, parts)


def _sums(places: Ids, parts: NDArray[np.float64], n: int = 0) -> NDArray[np.float64]:
    """Return the sum of the parts at each place, each added in its turn, for n places or as many as there are."""
    return np.bincount(places, parts, n).astype(np.float64, copy=False)


def _best(ids: Ids, scores: NDArray[np.float64], n: int) -> tuple[Ids, NDArray[np.float64]]:
    """Return the n best, best first; of equal ones the first ids."""
    if n < len(ids):
        kept = scores >= np.partition(scores, len(ids) - n)[len(ids) - n]
        ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:n]
    return ids[order], scores[order]
