"""The lexical leg of a shared hub: BM25 over its postings, computed in the database as tantivy computes it.

A question's words are joined by OR, and a common one matches much of a hub. So the rarest words choose the
candidates, as many words as `POSTINGS` postings allow, and then every word counts in their scores. In a hub where
all words of the question have fewer postings than that, the order is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.types import Ids, Vector

if TYPE_CHECKING:
    from recall_cli.engine.pg_database import Deadlined

POSTINGS = 20_000
"""Postings read to choose candidates; the rarest word is always read."""
WIDER = 10
"""Candidates scored for each one wanted, where not all words had a say in choosing them."""


LENGTHS: list[int] = [*range(32), *(24 + ((8 | i % 8) << (i // 8 - 1)) for i in range(8, 232))]
"""The lengths that the embedded engine's word index tells apart, one a byte: exact ones, then four bits of each."""

ASKED = """
WITH hub AS MATERIALIZED (
    SELECT chunks, words::float8 / greatest(chunks, 1) AS mean FROM recall.hubs
    WHERE id = %(hub)s AND tenant = current_user
), asked AS MATERIALIZED (
    SELECT id, df, sum(df) OVER (ORDER BY df, id) AS upto,
           (%(said)s::integer[])[array_position(%(words)s::text[], word)]
               * 2.2::float8 * ln(1 + (chunks - df + 0.5::float8) / (df + 0.5::float8)) AS weight
    FROM hub, recall.hub_words
    WHERE hub_words.hub = %(hub)s AND word = ANY(%(words)s::text[]) AND df > 0
)"""
"""The words of the question that the hub has, and their weights; 2.2 is k1 + 1."""

TERM = "weight * times / (times + 1.2::float8 * (0.25::float8 + 0.75::float8 * length / mean))"
"""What one word adds to a chunk's score: k1 = 1.2 and b = 0.75."""
SUM = f"sum({TERM} ORDER BY asked.id)"
"""In one order always: the same chunk has the same score, to the bit."""
POSTED = "hub, asked JOIN recall.hub_postings AS held ON held.hub = %(hub)s AND held.word = asked.id"

SEARCH = f"""{ASKED}, chosen AS MATERIALIZED (
    SELECT held.chunk, sum({TERM}) AS part FROM {POSTED}
    WHERE upto <= %(postings)s OR upto = df
    GROUP BY held.chunk ORDER BY part DESC, held.chunk
    LIMIT (SELECT CASE WHEN sum(df) <= %(postings)s THEN %(n)s ELSE %(n)s * {WIDER} END FROM asked)
)
SELECT chunk, (SELECT {SUM} FROM {POSTED} WHERE held.chunk = chosen.chunk) AS score FROM chosen
ORDER BY score DESC, chunk LIMIT %(n)s"""

SCORES = f"""{ASKED}
SELECT coalesce((SELECT {SUM} FROM {POSTED} WHERE held.chunk = wanted.chunk), 0)
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY AS wanted (chunk, place) ORDER BY place"""


def told_apart(size: int) -> int:
    """Return the length that a chunk of so many words counts as."""
    return LENGTHS[bisect_right(LENGTHS, size) - 1]


def search(db: Deadlined, hub: int, words: Mapping[str, int], n: int) -> tuple[Ids, Vector]:
    """Return ids and BM25 scores of the n best chunks, best first."""
    if not words or n < 1:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    rows = db.execute(SEARCH.encode(), {**_asked(hub, words), "n": n, "postings": POSTINGS}, prepare=False).fetchall()
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float32)


def score(db: Deadlined, hub: int, words: Mapping[str, int], ids: Ids) -> Vector:
    """Return the BM25 scores of these chunks, as `search` gives them; 0 where no word is shared."""
    if not words or not len(ids):
        return np.zeros(len(ids), np.float32)
    rows = db.execute(SCORES.encode(), {**_asked(hub, words), "ids": ids.tolist()}, prepare=False).fetchall()
    return np.array([row[0] for row in rows], np.float32)


def _asked(hub: int, words: Mapping[str, int]) -> dict[str, Any]:
    return {"hub": hub, "words": list(words), "said": list(words.values())}
