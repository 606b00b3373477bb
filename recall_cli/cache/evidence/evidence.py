"""Evidence for and against a candidate: in what two texts differ that a cosine does not see.

Every check is symmetric in its two texts and finds nothing between equal ones. Costs (README has the
measured ones) are a few set operations; words are looked at one by one only where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable

from recall_cli.cache.evidence.lexicon import (
    BARE,
    FUTURE,
    MEMBERS,
    NEGATORS,
    OPPOSITES,
    PARTICLES,
    PAST,
    WEIGHTS,
    ranks,
)
from recall_cli.cache.evidence.numbers import TIME_UNITS
from recall_cli.cache.evidence.text_features import CONTENT, TextFeatures, facts, is_anaphoric
from recall_cli.errors import UsageError
from recall_cli.types import Evidence

__all__ = ["VETOES", "Evidence", "TextFeatures", "evidence", "facts", "is_anaphoric", "margin", "vetoes"]

VETOES: dict[str, float] = {
    "numbers": 0.0,
    "negation": 0.0,
    "roles": 0.0,
    "names": 0.0,
    "detail": 0.5,
}
"""Checks that `--veto` may turn into a flat no, and the value of their evidence above which they say it."""

SLIP_SHARE = 0.15
"""Overlap under which no typing errors are looked for: they would not save the pair, and looking costs."""

SAME_FRAME = 0.75
"""Length ratio under which the order of words is not compared."""

LONGEST_RUN = 4
"""Words of a name that may change places as one."""

BOTH_TENSES = PAST | FUTURE

MOST_APART = 24
"""Words in which two texts differ beyond which no typing errors are looked for: every pair of them is."""

TURNED = {word: opposite - NEGATORS for word, opposite in OPPOSITES.items() if word not in NEGATORS}
"""Word to what contradicts it. A negator is counted already: "never" against "always" is one turn, not two."""

UNKNOWN = 1.0
"""The weight of a word that the vocabulary does not hold."""


def evidence(
    query: TextFeatures,
    candidate: TextFeatures,
    similarity: float,
    others: Iterable[tuple[float, int]] | None = None,
    *,
    group: int = -1,
    labels: int = 0,
    wrong: int = 0,
) -> Evidence:
    """Return the evidence of one candidate for a query.

    :param others: (similarity, answer group) of the other near candidates, best first.
    :param group: the candidate's own answer group: others of the same group do not narrow the margin.
    :param labels: how often this candidate's answer was checked, and `wrong` how often it was not right.
    """
    found = Evidence(similarity)
    if others is not None:
        found.margin = margin(similarity, group, others)
    if labels:
        found.history = history(labels, wrong)
    compare(query, candidate, found)
    return found


def history(labels: int, wrong: int) -> float:
    """Return the estimated share of wrong answers of an entry that was checked so often."""
    return (wrong + 0.5) / (labels + 2)


def margin(similarity: float, group: int, others: Iterable[tuple[float, int]]) -> float:
    """Return the similarity minus that of the best candidate with another answer group.

    Where all others are of the same group, the one with another answer is at best as near as the last
    of them: the cautious value. 0 without any other.

    :param others: best first; no more of them are looked at than it takes.
    """
    least = similarity
    for other, its_group in others:
        if its_group != group:
            return similarity - other
        if other < least:
            least = other
    return similarity - least


def compare(query: TextFeatures, candidate: TextFeatures, found: Evidence) -> None:
    """Fill in what the two texts themselves tell."""
    words, theirs = query.words, candidate.words
    count, its_count = query.count, candidate.count
    if count != its_count:
        found.length_ratio = count / its_count if count < its_count else its_count / count
    if query.numbers or candidate.numbers or query.soft or candidate.soft or query.units or candidate.units:
        found.numbers = _numbers(query, candidate)
    if words == theirs:
        found.overlap = 1.0
        if (query.negators ^ candidate.negators) & 1 or query.tense ^ candidate.tense == BOTH_TENSES:
            found.negation = 1.0
        if query.order != candidate.order:
            found.roles = _roles(query, candidate, same_words=True)
        return
    weights, weight_of = WEIGHTS, WEIGHTS.__getitem__
    ours, others = words - theirs, theirs - words
    if query.poles or candidate.poles or query.negators != candidate.negators or query.tense != candidate.tense:
        found.negation = _negation(query, candidate, ours, others)
    lost = gained = heaviest = 0.0
    # By map, not word by word: half of all candidates differ in ten words and more.
    if ours:
        mine = list(map(weight_of, ours))
        lost, heaviest = sum(mine), max(mine)
    if others:
        mine = list(map(weight_of, others))
        gained, heaviest = sum(mine), max(heaviest, max(mine))
    shared = query.mass - lost
    union = query.mass + gained
    if heaviest == UNKNOWN and shared > SLIP_SHARE * union and 1 < len(ours) + len(others) <= MOST_APART:
        slips = _slips(ours, others)
        if slips:
            for word, other in slips:
                lost -= weights[word]
                gained -= weights[other]
                # Together they are one word of the union, and it is shared.
                union -= min(weights[word], weights[other])
            ours = ours.difference([word for word, _ in slips])
            others = others.difference([other for _, other in slips])
            heaviest = max([weights[token] for token in ours | others], default=0.0)
            shared = union - lost - gained
    found.overlap = min(1.0, max(0.0, shared / union)) if union > 0 else 1.0
    keys, their_keys = query.keys, candidate.keys
    if keys or their_keys:
        missing = len(keys & ours) + len(their_keys & others)
        if missing:
            found.names = missing / (len(keys) + len(their_keys))
    if heaviest > CONTENT and shared > 0:
        # The mark of a look-alike: nearly everything is shared, and what is not has weight.
        found.detail = shared / (shared + max(lost, gained)) * heaviest
    if heaviest <= CONTENT or (query.directed and candidate.directed):
        found.roles = _roles(query, candidate, same_words=heaviest <= CONTENT)


def _numbers(query: TextFeatures, candidate: TextFeatures) -> float:
    """1 when each text names a number or unit that the other lacks, 0.5 when only one does, else 0."""
    mine = query.numbers - candidate.numbers - candidate.soft
    theirs = candidate.numbers - query.numbers - query.soft
    my_units, their_units = query.units - candidate.units, candidate.units - query.units
    if query.spans and {time for _, time in query.spans} == {time for _, time in candidate.spans}:
        # The same times in other units: 48 hours, 2 days.
        mine = mine.difference([number for number, _ in query.spans])
        theirs = theirs.difference([number for number, _ in candidate.spans])
        my_units, their_units = my_units - TIME_UNITS, their_units - TIME_UNITS
    if (mine and theirs) or (my_units and their_units):
        return 1.0
    if mine or theirs:
        return 0.5
    if query.soft - candidate.soft - candidate.numbers and candidate.soft - query.soft - query.numbers:
        return 1.0
    return 0.0


def _negation(query: TextFeatures, candidate: TextFeatures, ours: frozenset[str], others: frozenset[str]) -> float:
    """1 when the polarity differs: a negator on one side alone, or a word against its opposite, but not both.

    "isn't enabled" and "is disabled" say the same: two turns are none.
    """
    denied = bool((query.negators ^ candidate.negators) & 1)
    opposed = False
    for poles, alone, facing, there in (
        (query.poles, ours, others, candidate.words),
        (candidate.poles, others, ours, query.words),
    ):
        for token in poles:
            if token in alone and _faces(token, facing, there):
                opposed = True
                break
    return 1.0 if denied != opposed or query.tense ^ candidate.tense == BOTH_TENSES else 0.0


def _faces(token: str, alone: frozenset[str], there: frozenset[str]) -> bool:
    """Return True when the other text says the opposite of a word that only this text has.

    :param alone: the words that only the other text has; for a particle, all of `there` count.
    """
    if BARE[token] in alone:
        return True
    opposite = TURNED.get(token)
    return opposite is not None and not opposite.isdisjoint(there if token in PARTICLES else alone)


def _slips(ours: frozenset[str], others: frozenset[str]) -> list[tuple[str, str]]:
    """Return pairs of words that are one word and its typing error.

    Exactly one of the two must be unknown: Austria and Australia are two words, and of two unknown
    ones (names, codes) nobody can say that they are the same.
    """
    known = ranks()
    found: list[tuple[str, str]] = []
    taken: set[str] = set()
    for here, there, turn in ((ours, others, False), (others, ours, True)):
        # Sorted, as sets have another order in every process.
        for odd in sorted([token for token in here if len(token) > 3 and token not in known]):
            for word in sorted([token for token in there if token in known and token not in taken]):
                if _is_slip(odd, word):
                    found.append((word, odd) if turn else (odd, word))
                    taken.add(word)
                    break
    return found


def _is_slip(odd: str, word: str) -> bool:
    """Return True when `odd` is a slip in the word, or in one that the word is the head of."""
    members = MEMBERS.get(word)
    if members is None:
        return one_slip(odd, word)
    return any(one_slip(odd, member) for member in members)


def one_slip(a: str, b: str) -> bool:
    """Return True when one inserted, missing, wrong or exchanged letter makes one of the other (two in long words)."""
    if a[0] != b[0] or len(b) < 4 or abs(len(a) - len(b)) > 2:
        return False
    budget = 2 if min(len(a), len(b)) >= 8 else 1
    start = 0
    shortest = min(len(a), len(b))
    while start < shortest and a[start] == b[start]:
        start += 1
    end = 0
    while end < shortest - start and a[-1 - end] == b[-1 - end]:
        end += 1
    x, y = a[start : len(a) - end], b[start : len(b) - end]
    if max(len(x), len(y)) <= budget:
        return True
    return len(x) == len(y) == 2 and x == y[::-1]


def _roles(query: TextFeatures, candidate: TextFeatures, *, same_words: bool) -> float:
    """1 when two words that both texts hold have exchanged their places, else 0."""
    mine, theirs = query.roles(), candidate.roles()
    if mine and theirs:
        moves: set[tuple[str, str]] = set()
        for word, role in mine.items():
            other = theirs.get(word)
            if other is not None and other != role:
                if (other, role) in moves:
                    return 1.0
                moves.add((role, other))
    if not same_words:
        return 0.0
    a, b = query.order, candidate.order
    if query.words != candidate.words:
        if min(query.count, candidate.count) < SAME_FRAME * max(query.count, candidate.count):
            return 0.0  # keywords and a sentence have no order in common
        a, b = (tuple([token for token in order if WEIGHTS[token] > CONTENT]) for order in (a, b))
    return 1.0 if a != b and len(a) == len(b) and _exchanged(a, b) else 0.0


def _exchanged(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Return True when b is a with two runs of words exchanged around a middle that stays.

    "Does A pay B" against "does B pay A". A clause that only moved to the front leaves no middle.
    """
    start, end = 0, len(a)
    while a[start] == b[start]:
        start += 1
    while a[end - 1] == b[end - 1]:
        end -= 1
    a, b = a[start:end], b[start:end]
    n = len(a)
    for first in range(1, min(LONGEST_RUN, n - 2) + 1):
        if b[n - first :] != a[:first]:
            continue
        for last in range(1, min(LONGEST_RUN, n - first - 1) + 1):
            if b[:last] == a[n - last :] and b[last : n - first] == a[first : n - last]:
                return a[first : n - last] not in (("and",), ("or",))
    return False


def vetoes(found: Evidence, names: frozenset[str]) -> str | None:
    """Return the name of the first check among `names` that speaks against serving, None when none does."""
    for name, above in VETOES.items():
        if name in names and getattr(found, name) > above:
            return name
    return None


def check_vetoes(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set. Raises UsageError when there is no such check."""
    chosen = frozenset(names)
    unknown = sorted(chosen - VETOES.keys())
    if unknown:
        raise UsageError(f"there is no check {unknown[0]!r} to veto with", hint=f"choose from {', '.join(VETOES)}")
    return chosen
