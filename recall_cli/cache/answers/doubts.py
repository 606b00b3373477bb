"""What speaks for one answer to two texts, and against it: how near a transformer holds them, and its doubts.

Pairs that say the same in other words differ in many of them, a number or a "not" among them, and that decides
nothing. So a doubt counts by how much the two texts have in common: fully between texts that share their words and
their meaning, not at all between others, and where no doubt is left the meaning alone ranks the pairs.
"""

from __future__ import annotations

import numpy as np

from recall_cli.cache.answers.reading import Reading
from recall_cli.cache.evidence.evidence import compare
from recall_cli.cache.evidence.lexicon import WEIGHTS
from recall_cli.cache.evidence.opposites import NEGATORS
from recall_cli.cache.evidence.text_features import CONTENT, Facts
from recall_cli.types import Evidence, Vector

MEANING = "meaning"
SIGNS = {
    MEANING: -1,
    "numbers": 1,
    "contradiction": 1,
    "negator": 1,
    "roles": 1,
    "exchanged": 1,
    "uncovered": 1,
}
"""The fields, and which way each may move the risk of a wrong answer.

Meaning is the cosine of the two texts. Numbers and roles are the checks of `cache.evidence.evidence`. Contradiction is
a word against its opposite, or a negated word that the other text has too; negator is any other "not" on one side
alone. Exchanged looks at words that only one text has: how much the weightiest says that nothing in the other comes
near, in the text where that is less, so that words merely added do not count. Uncovered looks at all words, "of" and
"at" too: how far the worst matched word is from a match, in the text whose worst is better.
"""
FIELDS = tuple(SIGNS)
FAR, NEAR = 0.5, 0.9
"""Cosines between which texts come to be near enough for doubts: most pairs of one intent lie between."""
REACH = 5
"""Tokens behind a negator among which its word is looked for."""


def row(a: Reading, b: Reading) -> tuple[float, ...]:
    """Return the numbers in the order of FIELDS; symmetric, and (1, 0, 0, ...) for equal texts."""
    meaning = float(np.clip(a.mean @ b.mean, -1.0, 1.0))
    found = Evidence(meaning)
    compare(a.facts, b.facts, found)
    common = found.overlap * min(1.0, max(0.0, (meaning - FAR) / (NEAR - FAR)))
    if not common:
        return (meaning, *(0.0,) * (len(FIELDS) - 1))
    sure = found.negation and _contradicts(a.facts, b.facts)
    exchanged, uncovered = _alignment(a, b)
    return (
        meaning,
        common * found.numbers,
        common * sure,
        common * (found.negation - sure),
        common * found.roles,
        common * exchanged,
        common * uncovered,
    )


def _contradicts(a: Facts, b: Facts) -> float:
    """Return 1 unless the turn is a "not" beside a word that the other text lacks: "isn't here yet" is "too late"."""
    if a.negators == b.negators:
        return 1.0
    return float(_denies(a, b) or _denies(b, a))


def _denies(one: Facts, other: Facts) -> bool:
    """Return whether a negator that only one text has stands with a word that both have."""
    for place, token in enumerate(one.order):
        if token not in NEGATORS or token in other.words:
            continue
        behind = [word for word in one.order[place + 1 : place + 1 + REACH] if _tells(word)]
        before = [word for word in one.order[:place] if _tells(word)]
        # "not working", but "what does not?": then it is the word before.
        if not other.words.isdisjoint(behind[:1] or before[-1:]):
            return True
    return False


def _tells(token: str) -> bool:
    return token not in NEGATORS and WEIGHTS[token] > CONTENT


def _alignment(a: Reading, b: Reading) -> tuple[float, float]:
    """Return (exchanged, uncovered), both 0 where a text has no words."""
    if not a.tokens or not b.tokens:
        return 0.0, 0.0
    near = a.words @ b.words.T
    mine, theirs = near.max(axis=1), near.max(axis=0)
    exchanged = min(_alone(a, b, mine), _alone(b, a, theirs))
    return exchanged, float(np.clip(1 - max(mine.min(), theirs.min()), 0.0, 1.0))


def _alone(one: Reading, other: Reading, near: Vector) -> float:
    """Return the most that one word says which the other text does not; `near` is each word's best cosine there."""
    known = frozenset(other.tokens)
    alone = [place for place, token in enumerate(one.tokens) if token not in known]
    if not alone:
        return 0.0
    return float((one.weights[alone] * np.clip(1 - near[alone], 0.0, 1.0)).max())
