"""Sentences beside those that the teacher puts near them: batches in which fine differences can be learned.

Among 256 sentences drawn at random hardly two are near each other, so a fit to them learns which topic is which and
loses the order of near ones, which is all that a cache asks about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF = 16
"""Sentences that stand together."""


def leaves(vectors: NDArray[np.float16], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return rows of `LEAF` near neighbours, shape (m, LEAF), in random order; some rows of `vectors` are in none.

    A tree of random cuts (Dasgupta and Freund 2008): a part is halved along the line through two of its own, until a
    leaf is left. Another draw cuts elsewhere, so what one tree parts another keeps together.
    """
    parts = [np.arange(len(vectors))]
    found = []
    while parts:
        part = parts.pop()
        if len(part) <= LEAF:
            found.append(part)
            continue
        one, other = rng.choice(part, 2, replace=False)
        line = vectors[one].astype(np.float32) - vectors[other].astype(np.float32)
        order = part[np.argsort(vectors[part].astype(np.float32) @ line, kind="stable")]
        # A multiple of a leaf, so that at most one part in the end is not whole.
        half = max(LEAF, len(part) // 2 // LEAF * LEAF)
        parts += [order[half:], order[:half]]
    whole = [part for part in found if len(part) == LEAF]
    return np.stack(whole)[rng.permutation(len(whole))] if whole else np.empty((0, LEAF), dtype=np.int64)
