"""Edits that change how a question looks and never what it asks: greetings, contractions, typos, plain typing.

Deciding segments are left as they are, except for their case. Both sides of a pair, and traps as much as
paraphrases, are edited by the same hand: otherwise a learner would take the typo for the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from recall_cli.measure.synthetic.grammar import OWN, Segment, pick

BEFORE = (
    "Hi, ", "Hello, ", "Hey, ", "Hi there, ", "Good morning, ", "Quick question: ", "Hello team, ",
    "Sorry to bother you, ", "One more thing: ", "Just wondering, ", "Excuse me, ", "Hi again, ", "OK so ",
    "Hey there! ",
)  # fmt: skip
AFTER = (
    " Thanks!", " Thank you.", " Thanks in advance.", " Many thanks.", " Cheers!", " Please advise.",
    " Any help is welcome.", " I'd appreciate a quick answer.", " Thx", " Please help.",
)  # fmt: skip
CONTRACTIONS = (
    ("do not", "don't"), ("does not", "doesn't"), ("did not", "didn't"), ("is not", "isn't"), ("can not", "can't"),
    ("cannot", "can't"), ("I am", "I'm"), ("I would", "I'd"), ("we are", "we're"), ("what is", "what's"),
    ("how is", "how's"), ("where is", "where's"), ("it is", "it's"), ("there is", "there's"), ("I will", "I'll"),
    ("who is", "who's"), ("that is", "that's"), ("want to", "wanna"), ("going to", "gonna"),
    ("please", "pls"), ("thanks", "thx"), ("you", "u"), ("information", "info"), ("because", "bc"), ("without", "w/o"),
)  # fmt: skip
"""Both ways round: the long form may become the short one and the short one the long."""
Edit = Callable[[list[Segment], np.random.Generator], list[Segment]]


def polite(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """Put a greeting before the text, thanks after it, or both."""
    where = rng.integers(3)
    out = list(segments)
    if where != 1:
        first, deciding = out[0]
        # A name keeps its capital: only text that is ours may lose it.
        out[0] = (first if deciding or OWN.match(first) else first[:1].lower() + first[1:], deciding)
        out.insert(0, (pick(rng, BEFORE), False))
    if where != 0:
        if not out[-1][0].endswith((".", "?", "!")):
            out.append((".", False))
        out.append((pick(rng, AFTER), False))
    return out


def contract(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """Use the short form of one phrase where the long one stands, or the long for the short."""
    places = []
    for number, (text, deciding) in enumerate(segments):
        if deciding:
            continue
        for long, short in CONTRACTIONS:
            # "u", "bc" and the like are not spelled out again: they are too short to be sure of.
            for old, new in ((long, short), (short, long)) if len(short) > 2 else ((long, short),):
                if found := re.search(rf"(?<![\w']){re.escape(old)}(?![\w'])", text, re.IGNORECASE):
                    places.append((number, found.span(), _cased(new, found.group())))
    if not places:
        return segments
    number, (start, end), new = pick(rng, places)
    out = list(segments)
    out[number] = (out[number][0][:start] + new + out[number][0][end:], False)
    return out


def typo(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """Misspell one longer word: two letters change places, one is lost, or one is doubled."""
    words = [
        (number, found.start(), found.group())
        for number, (text, deciding) in enumerate(segments)
        if not deciding
        for found in re.finditer(r"(?<![\w'-])[A-Za-z]{5,}(?![\w'-])", text)
        if not _goes_on(segments, number, found.start(), found.end())
    ]
    if not words:
        return segments
    number, start, word = pick(rng, words)
    at, kind = int(rng.integers(1, len(word) - 2)), int(rng.integers(3))
    middle = (word[at + 1] + word[at], word[at + 1], word[at] * 2 + word[at + 1])[kind]
    out = list(segments)
    text = out[number][0]
    out[number] = (text[:start] + word[:at] + middle + word[at + 2 :] + text[start + len(word) :], False)
    return out


def _goes_on(segments: Sequence[Segment], number: int, start: int, end: int) -> bool:
    """Return whether a word runs into the neighbouring segment, so that it is not ours alone."""
    before = start == 0 and number > 0 and segments[number - 1][0][-1:].isalnum()
    after = end == len(segments[number][0]) and number + 1 < len(segments) and segments[number + 1][0][:1].isalnum()
    return before or after


def plain(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """Type without capitals and without the final mark."""
    out = [(text.lower(), deciding) for text, deciding in segments]
    text, deciding = out[-1]
    out[-1] = (text.rstrip("?.! "), deciding)
    return out


EDITS: dict[str, Edit] = {"polite": polite, "contraction": contract, "typo": typo, "plain": plain}


def noise(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """Edit as traffic does: most texts not at all, some once, few twice."""
    times = (0, 0, 0, 1, 1, 2)[int(rng.integers(6))]
    for name in rng.permutation(tuple(EDITS))[:times]:
        segments = EDITS[str(name)](segments, rng)
    return segments


def text_of(segments: Sequence[Segment]) -> str:
    """Return the text, its first letter as written."""
    return "".join(text for text, _ in segments).strip()


def _cased(new: str, old: str) -> str:
    return new[:1].upper() + new[1:] if old[:1].isupper() and not old.startswith("I") else new
