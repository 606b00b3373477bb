"""The words of a shared hub's chunks as its database holds them: packed, some hundred postings to a row.

A row for each posting takes ninety bytes with its index, eighteen times what it says, and as long to read as the ninety
bytes do. Numbers are big-endian: the database makes two blocks one, and writes the gap between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_cli.types import Ids

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
