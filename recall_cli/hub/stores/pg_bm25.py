"""The lexical leg of a shared hub: BM25 over its postings, computed as tantivy computes it.

The database finds the blocks of a question's words; here they are unpacked and added up, ten nanoseconds a posting,
where rows take hundreds. A question's words are joined by OR, and a common one matches much of a hub. So the rarest
words choose the candidates, as many words as `POSTINGS` postings allow, and then every word counts in their scores. In
a hub where all words of the question have fewer postings than that, the order is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recall_cli.hub.stores.postings import K1, TERM, length_code, saturation, unpack
from recall_cli.types import Ids, Vector

if TYPE_CHECKING:
    from recall_cli.postgres.connection import Deadlined

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
class Asked:
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


def look_up(db: Deadlined, hub: int, words: Mapping[str, int]) -> Asked | None:
    """Return what the hub has of a question's words and how often it says them, None when there is no such hub."""
    rows = db.execute(ASKED, {"hub": hub, "words": list(words)}, binary=True).fetchall()
    if not rows:
        return None
    chunks, total, dim, generation = rows[0][:4]
    held = sorted((df, id, words[word]) for *_, id, word, df in rows if id is not None)
    df, ids, said = np.array(held, np.int64).reshape(-1, 3).T
    weights = said * (K1 + 1) * np.log1p((chunks - df + 0.5) / (df + 0.5))
    return Asked(ids, df, weights, total / max(chunks, 1), dim, generation)


def score(asked: Asked, ids: Ids, rows: Iterable[tuple[int, int, bytes]]) -> NDArray[np.float64]:
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
