"""The postings of one write to a shared hub: packed while it is staged, merged into the hub's blocks when published.

A block is never changed in its place. What a write touches is taken out into the stage, without the postings of chunks
that go, and comes back together with what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import StoreError
from recall_cli.hub.stores.postings import FULL, FURTHEST, POSTING, TERM, Postings, length_code, pack, unpack
from recall_cli.types import Ids

if TYPE_CHECKING:
    from recall_cli.postgres.connection import Deadlined

AT_ONCE = 1_024
"""Chunks whose postings are taken out at a time."""

STAGE = """
CREATE TEMPORARY TABLE staged_postings (word integer, first bigint, last bigint, postings bytea);
ALTER TABLE staged_postings ALTER COLUMN postings SET STORAGE PLAIN"""
"""Chunks are counted from the hub's last one before the write: new ones from 1."""
BLOCKS = ("int4", "int8", "int8", "bytea")

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
        copy(self._db, "staged_postings", BLOCKS, pack(postings))
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
        copy(self._db, "staged_postings", BLOCKS, pack(Postings(words[left], chunks[left] - chunk, times, lengths)))

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
