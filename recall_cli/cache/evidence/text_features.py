"""What is known of one text before it is compared with another: computed once, when it is stored.

`facts` costs a dictionary look-up a word; the rest (numbers, names) is done only for texts that have
something of the kind, and roles only once a comparison asks for them. It stands in every lookup of an adaptive
policy: what a word can say for itself is remembered with the word (`cache.evidence.lexicon`).
"""

from __future__ import annotations

from dataclasses import dataclass

from recall_cli.cache.evidence.lexicon import (
    CAPITAL,
    DIRECTIONS,
    FILLERS,
    FUTURE,
    GOING,
    KEY,
    NEGATION,
    NEGATORS,
    NUMBER,
    PAST,
    ROLE,
    WEIGHTS,
    Word,
    listed,
    memory,
    read,
)
from recall_cli.cache.evidence.numbers import quantities

EMPTY: frozenset[str] = frozenset()

CONTENT = 0.2
"""From this weight on a word says what a text is about: beyond the 225 most frequent."""

LONGEST_ANAPHORA = 14
"""Words beyond which a text is taken to stand on its own."""

_POINTERS = listed("it that this they them these those one ones he she him her its their there former latter same")
"""Words that stand for something said before."""

_GENERIC = FILLERS | listed("""
    continue yes no yeah yep yup nope sure right correct more again next previous last first second third
    other another else too great good nice cool perfect fine thank thanks cheers fix explain show work do
    does make help use change try stop start please why what how when where who which mean repeat elaborate
    shorter longer simpler detail details example instead both none all never mind not don proceed agree
    agreed done got understand understood option answer question sound look run will be have can could would
    should did true false wrong okay alright back expand summarize rewrite rephrase describe create find
    remove add send confirm wait hmm um oh ah lol wow now then up down out ahead
    """)
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
class TextFeatures:
    """One text, ready to be compared. Made by `facts`; the fields are read by `cache.evidence.evidence` alone."""

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
    """Numbers that may match but need not: see `cache.evidence.numbers`."""
    units: frozenset[str] = EMPTY
    spans: frozenset[tuple[str, str]] = frozenset()
    negators: int = 0
    """How many words deny something; an even number of them denies nothing."""
    tense: int = 0
    """PAST or FUTURE where an auxiliary says so, else 0."""
    poles: tuple[str, ...] = ()
    """The words with a known opposite, or with a prefix that turns them round."""
    order: tuple[str, ...] = ()
    """All canonical tokens as they follow one another."""
    directed: bool = False
    """Whether there is a word of direction, and with it roles."""
    _roles: dict[str, str] | None = None

    def roles(self) -> dict[str, str]:
        """Return content word to the direction ("from", "to", "than", ...) it stands behind, "" before the first.

        Empty where all stand in one role. Only worked out for texts that are compared with another directed one.
        """
        if self._roles is None:
            self._roles = _roles(self.order) if self.directed else {}
        return self._roles


def facts(text: str) -> TextFeatures:
    """Return what a comparison needs to know of a text."""
    known = memory()
    pieces = text.split()
    try:
        found = [known[piece] for piece in pieces]
    except KeyError:
        found = [read(piece) for piece in pieces]
    tokens: list[str] = []
    marked: list[Word] = []
    mass = 0.0
    for word in found:
        tokens += word[0]
        mass += word[2]
        if word[1]:
            marked.append(word)
    words = frozenset(tokens)
    if len(words) != len(tokens):
        mass = sum([WEIGHTS[token] for token in words])
    made = TextFeatures(words, mass, len(pieces))
    made.order = tuple(tokens)
    if marked:
        _details(made, text, pieces, found, marked)
    return made


def _details(made: TextFeatures, text: str, pieces: list[str], found: list[Word], marked: list[Word]) -> None:
    """Fill in what the words of any kind, the marked ones, tell."""
    kinds = capitals = 0
    keys: list[str] = []
    poles: list[str] = []
    for _, kind, _, rare, turning in marked:
        kinds |= kind
        if kind & CAPITAL:
            capitals += 1
        if rare:
            keys += rare
        if turning:
            poles += turning
    if poles:
        made.poles = tuple(poles)
    if capitals:
        # Most texts have one capital, that of their first word, and it names nothing.
        usual = capitals == 1 and found[0][1] & CAPITAL
        if not usual or (kinds != CAPITAL and pieces[0][1:2].isupper()):
            made.keys = _named(pieces, found)
    if kinds & KEY:
        made.keys = made.keys.union(keys)
    if kinds & ROLE:
        made.directed = True
    if kinds & NUMBER:
        made.numbers, made.soft, made.units, made.spans = quantities(text)
    if kinds & NEGATION:
        made.negators = sum([token in NEGATORS for token in made.order])
    if kinds & (PAST | FUTURE | GOING):
        made.tense = FUTURE if "going to" in text or kinds & FUTURE else PAST


def _named(pieces: list[str], found: list[Word]) -> frozenset[str]:
    """Return the words whose capital is not explained by the start of a sentence."""
    names: set[str] = set()
    # A text that shouts, or a Title Case Heading, names nothing by its capitals.
    if sum([word[1] & CAPITAL for word in found]) > CAPITAL * (len(found) // 2 + 1):
        return EMPTY
    starts = True
    for piece, word in zip(pieces, found, strict=True):
        if word[1] & CAPITAL and (not starts or piece[1:2].isupper()):
            names.update(word[0])
        starts = piece[-1] in ".?!:"
    return frozenset(names - FILLERS)


def _roles(tokens: tuple[str, ...]) -> dict[str, str]:
    roles: dict[str, str] = {}
    role = ""
    for token in tokens:
        if token in DIRECTIONS:
            role = "than" if token in ("versus", "vs", "against") else token
        elif WEIGHTS[token] > CONTENT and token not in roles:
            roles[token] = role
    return roles if len(roles) > 1 and len(set(roles.values())) > 1 else {}


def is_anaphoric(text: str) -> bool:
    """Return True for a text that means nothing without what was said before it, or says too little to be matched.

    Such a text ("continue", "yes", "how do I fix it?", "and the second one?", "Paris") may hit by
    identity, which holds the turns before it, but must never be matched by meaning.
    """
    pieces = text.split(None, LONGEST_ANAPHORA)
    if len(pieces) > LONGEST_ANAPHORA:
        return False
    # Scripts without spaces say a sentence in one piece.
    if len(pieces) < 2 and (text.isascii() or len(text.strip()) < 4):
        return True
    tokens: list[str] = []
    content: list[str] = []
    for piece in pieces:
        for token in read(piece).tokens:
            tokens.append(token)
            if token not in _GENERIC and (len(token) > 1 or not token.isascii()):
                content.append(token)
        # Most texts are told apart by their first few words; reading on would cost more than looking up.
        if len(content) > 2 or (content and len(pieces) > 8):
            return False
    odd = [piece for piece in pieces if read(piece).kinds & NUMBER and any(c.isdigit() for c in piece)]
    if len(odd) > 1 or any(piece[0].isalpha() for piece in odd):
        return False  # an exercise or a code: it says what it is about
    if not content:
        return True
    if len(pieces) <= 6 and text.lstrip().lower().startswith(_ELLIPTIC):
        return True
    # "translate that to French" says two things, and still hangs on what "that" is.
    return any(token in _POINTERS for token in (tokens if len(content) == 1 else tokens[1:2]))
