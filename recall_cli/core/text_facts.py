"""What is known of one text before it is compared with another: computed once, when it is stored.

`facts` costs a dictionary look-up a word; the rest (numbers, roles, names) is done only for texts that
have something of the kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from recall_cli.core.numbers import quantities
from recall_cli.core.opposites import NEGATORS
from recall_cli.core.synonyms import FILLERS
from recall_cli.core.words import CAPITAL, DIRECTIONS, NEGATION, NUMBER, POLE, ROLE, WEIGHTS, memory, read

EMPTY: frozenset[str] = frozenset()

RARE = 0.9
"""From this weight on a word counts as named or rare: beyond the 8,000 most frequent words."""

CONTENT = 0.2
"""From this weight on a word says what a text is about: beyond the 225 most frequent."""

_POINTERS = listed("it that this they them these those one ones he she him her its their there former latter same")
"""Words that stand for something said before."""

_GENERIC = FILLERS | listed("""continue yes no yeah yep yup nope sure right correct more again next previous last first second third other another
    else too great good nice cool perfect fine thank thanks cheers fix explain show work do does make help use change try
    stop start please why what how when where who which mean repeat elaborate shorter longer simpler detail details example
    instead both none all never mind not don proceed agree agreed done got understand understood option answer question
    sound look run will be have can could would should did true false wrong okay alright back expand summarize rewrite
    rephrase describe create find remove add send confirm wait hmm um oh ah lol wow now then up down out""")
"""Words that ask for something only together with what they are asked about."""

_ELLIPTIC = (
    "and ",
    "what about",
    "how about",
    "or ",
    "but ",
    "also ",
    "then ",
    "same for",
    "same with",
    "same but",
    "now for",
)


@dataclass(slots=True)
class Facts:
    """One text, ready to be compared. Made by `facts`; the fields are read by `core.evidence` alone."""

    words: frozenset[str]
    """Canonical tokens, numbers left out."""
    mass: float
    """Sum of the words' weights."""
    count: int
    """Words as written."""
    keys: frozenset[str] = EMPTY
    """The named or rare words."""
    numbers: frozenset[str] = EMPTY
    soft: frozenset[str] = EMPTY
    """Numbers that may match but need not: see `core.numbers`."""
    units: frozenset[str] = EMPTY
    negated: bool = False
    has_poles: bool = False
    """Whether a word with a known opposite, or a prefix that turns round, is among the words."""
    roles: dict[str, str] | None = None
    """Content word to the direction ("from", "to", "than", ...) it stands behind, "" before the first."""
    order: tuple[str, ...] = ()
    """All canonical tokens as they follow one another."""


def facts(text: str) -> Facts:
    """Return what a comparison needs to know of a text."""
    known = memory()
    tokens: list[str] = []
    kinds = 0
    count = 0
    for written in text.split():
        word = known.get(written) or read(written)
        tokens += word[0]
        kinds |= word[1]
        count += 1
    words = frozenset(tokens)
    weights = WEIGHTS
    mass = 0.0
    rare = False
    for token in words:
        weight = weights[token]
        mass += weight
        if weight >= RARE:
            rare = True
    made = Facts(words, mass, count, order=tuple(tokens))
    if kinds or rare:
        _details(made, text, tokens, kinds)
    return made


def _details(made: Facts, text: str, tokens: list[str], kinds: int) -> None:
    keys = {token for token in made.words if WEIGHTS[token] >= RARE}
    if kinds & CAPITAL:
        keys |= _named(text)
    if keys:
        made.keys = frozenset(keys)
    if kinds & NUMBER:
        made.numbers, made.soft, made.units = quantities(text)
    if kinds & NEGATION:
        made.negated = not NEGATORS.isdisjoint(made.words)
    made.has_poles = bool(kinds & POLE)
    if kinds & ROLE:
        made.roles = _roles(tokens)


def _named(text: str) -> set[str]:
    """Return the words whose capital is not explained by the start of a sentence."""
    found: set[str] = set()
    starts = True
    pieces = text.split()
    # A text that shouts, or a Title Case Heading, names nothing by its capitals.
    if sum(read(piece).kinds & CAPITAL > 0 for piece in pieces) * 2 > len(pieces) + 1:
        return found
    for piece in pieces:
        word = read(piece)
        letters = piece.strip("\"'([{<*_`")
        if word.kinds & CAPITAL and (not starts or (letters[1:2].isupper() and len(letters) > 1)):
            found.update(
                token for token in word.tokens if WEIGHTS[token] > CONTENT or letters[1:].isupper() or not starts
            )
        starts = piece[-1] in ".?!:"
    return found - FILLERS


def _roles(tokens: list[str]) -> dict[str, str] | None:
    roles: dict[str, str] = {}
    role = ""
    for token in tokens:
        if token in DIRECTIONS:
            role = "than" if token in ("versus", "vs", "against") else token
        elif WEIGHTS[token] > CONTENT and token not in roles:
            roles[token] = role
    return roles if len(roles) > 1 and len(set(roles.values())) > 1 else None


def is_anaphoric(text: str) -> bool:
    """Return True for a text that means nothing without what was said before it, or says too little to be matched.

    Such a text ("continue", "yes", "how do I fix it?", "and the second one?", "Paris") may hit by
    identity, which holds the turns before it, but must never be matched by meaning.
    """
    short = text[:200].strip()
    if not short:
        return True
    tokens = [token for written in short.split() for token in read(written).tokens]
    # The list of generic words is of written forms; a canonical form may be the head of its synonyms.
    content = [token for token in tokens if token not in _GENERIC and (len(token) > 1 or not token.isascii())]
    pieces = short.split()
    if len(pieces) == 1 and short.isascii():
        return True
    if not content:
        return True
    if len(text) > 200 or len(content) > 2:
        return False
    if len(pieces) <= 6 and short.lower().startswith(_ELLIPTIC):
        return True
    points = any(token in _POINTERS for token in tokens)
    return points and len(content) <= 1 and len(pieces) <= 8
