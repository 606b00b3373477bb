"""How good an order of documents is: nDCG, recall and reciprocal rank of its first ten."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

DEPTH = 10
"""Documents of an order that count."""
DISCOUNTS = tuple(1 / math.log2(rank + 2) for rank in range(DEPTH))
"""What a document's gain counts for at ranks 0 to 9."""


def ndcg(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return nDCG@10 with linear gains, as trec_eval has it: 1 when no better order exists.

    :param gains: of every document that answers, found or not; one at least.
    """
    found = (gains.get(document, 0.0) for document in order)
    ideal = sorted(gains.values(), reverse=True)
    # An order or an ideal shorter than ten documents ends the sum early.
    return sum(g * d for g, d in zip(found, DISCOUNTS, strict=False)) / sum(
        g * d for g, d in zip(ideal, DISCOUNTS, strict=False)
    )


def recall(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return the share of the documents that answer that are among the first ten."""
    return len(gains.keys() & set(order[:DEPTH])) / len(gains)


def reciprocal_rank(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return 1 over the rank of the first document that answers; 0 when none of the first ten does."""
    return next((1 / rank for rank, document in enumerate(order[:DEPTH], 1) if document in gains), 0.0)
