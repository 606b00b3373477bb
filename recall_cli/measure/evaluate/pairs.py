"""Labelled texts of the user's own: `--pairs FILE` (do two prompts deserve one answer?), `--classes FILE`.

Both read CSV (comma, semicolon or tab) with a header, JSON Lines and JSON, by what the file holds and not by its name.
No row is fatal and none is dropped silently: what cannot be read is counted under its reason.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from recall_cli.errors import InputError
from recall_cli.measure.prompts import decode, read_file, read_text
from recall_cli.types import Warn

DELIMITERS = (",", ";", "\t")

IsHeader = Callable[[set[str]], bool]
"""Tells whether a first line, as names in lower case, is the header of what is looked for."""


def rows_of(
    text: str, source: str, skipped: Counter[str], hint: str, is_header: IsHeader
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows, keys in lower case; what is no row is counted. Raises InputError for an unknown header."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        values = _json_values(text, skipped)
    elif start:
        values = _csv_values(text, source, skipped, hint, is_header)
    else:
        return
    for value in values:
        if isinstance(value, dict):
            yield {str(key).strip().lower(): item for key, item in value.items() if key is not None}
        elif isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
            yield {"text": value[0], "class": value[1]}  # a row of CLINC150
        else:
            skipped["not an object"] += 1


def _json_values(text: str, skipped: Counter[str]) -> Iterator[Any]:
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        whole = None
    if isinstance(whole, list):
        yield from whole
    elif isinstance(whole, dict) and whole and all(isinstance(rows, list) for rows in whole.values()):
        for name, rows in whole.items():
            # {"a": [...], "b": [...]} is one row of two conversations, not two splits.
            if name.lower() in ("a", "b"):
                yield whole
                return
            yield from rows
    elif whole is not None:
        yield whole
    else:
        # Not splitlines(): a JSON string may hold U+2028 and other characters that it would cut at.
        for line in text.split("\n"):
            if line.strip():
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError:
                    skipped["not valid JSON"] += 1


def _csv_values(text: str, source: str, skipped: Counter[str], hint: str, is_header: IsHeader) -> Iterator[Any]:
    for delimiter in DELIMITERS:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            names = [name.strip().lower() for name in reader.fieldnames or ()]
        except csv.Error:
            continue
        if is_header(set(names)):
            break
    else:
        first = text.lstrip().split("\n", 1)[0][:80].strip()
        raise InputError(f"{source} names no column that is known: its first line is {first!r}.", hint=hint)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            skipped["not valid CSV"] += 1
            continue
        if None in row:
            skipped["more fields than the header"] += 1
        else:
            yield row


def first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the row's value under the first of the names that has one, else None."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def finite(value: Any) -> float | None:
    """Return the number that a value says, None when it says none; NaN and infinity are none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def insist(found: Sized, source: str, skipped: Counter[str], what: str, hint: str) -> None:
    """Raise InputError when nothing was found, saying what became of the rows."""
    if not found:
        reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.most_common()) or "it is empty"
        raise InputError(f"{source} holds no {what} ({reasons}).", hint=hint)


def left_out(skipped: Mapping[str, int], source: str) -> Iterator[Warn]:
    """Yield a warning for each reason for which rows were left out."""
    for why, count in skipped.items():
        yield Warn("ROWS_LEFT_OUT", f"{count:,} rows of {source} {why}: left out", "mend or remove them")


Message = Mapping[str, Any]
Conversation = tuple[Message, ...]
"""Turns of {role, content}, the last one the user's."""

SIDES = (
    ("a", "b"), ("question1", "question2"), ("text1", "text2"), ("sentence1", "sentence2"), ("candidate", "query"),
    ("prompt1", "prompt2"), ("cached", "new"), ("text_a", "text_b"), ("q1", "q2"),
)  # fmt: skip
"""Names of the two texts, the cached one first, in the order they are looked for."""
SAME = ("same", "same_answer", "is_duplicate", "duplicate", "is_same", "label")
CATEGORY = ("category", "subtype", "trap", "kind")
STYLE = ("style",)
GROUP = ("group", "namespace", "domain")
AMBIGUOUS = ("ambiguous",)

TEXT = ("text", "prompt", "question", "utterance", "query", "sentence")
CLASS = ("class", "answer_class", "category", "intent", "label", "cluster")
NAMESPACE = ("namespace", "domain", "group")

YES = {"1", "1.0", "true", "t", "yes", "y", "same", "duplicate"}
NO = {"0", "0.0", "false", "f", "no", "n", "different", "not_duplicate"}
OUTSIDE = "oos"
"""CLINC150's mark of "none of the classes": such texts share no answer, so each is a class of its own."""
OTHER = "other"
"""Namespace of a class that the domains file does not list."""
NO_NAMESPACE = "default"
"""Namespace of all prompts where the file names none."""

PAIRS_HINT = "Give columns a, b, same (or question1, question2, is_duplicate), as CSV with a header or JSON Lines."
CLASSES_HINT = "Give columns text, class[, namespace], as CSV with a header or JSON Lines."


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts, each a text or a conversation, and whether one answer serves both."""

    a: str | Conversation
    b: str | Conversation
    same: bool
    category: str = ""
    """The trap, or the kind of paraphrase; "" when the file does not say."""
    style: str = ""
    """Its shape: "minimal", "reworded", ... as the file or the text world names it."""
    group: str = ""
    ambiguous: bool = False
    """The file itself calls the label arguable."""


@dataclass(frozen=True, slots=True)
class PairSet:
    """The pairs of one file."""

    source: str
    pairs: tuple[Pair, ...]
    skipped: Mapping[str, int]
    """Rows that gave no pair, counted by reason."""
    warnings: tuple[Warn, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a classes file."""

    text: str
    answer_class: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ClassSet:
    """The prompts of one file, in its order."""

    source: str
    items: tuple[Item, ...]
    skipped: Mapping[str, int]
    warnings: tuple[Warn, ...] = ()


def load_pairs(path_or_dash: str, stdin: BinaryIO | None = None) -> PairSet:
    """Return the pairs of a file, or of standard input for "-".

    Raises InputError when it cannot be read, is no text, names no known columns or holds no pair.
    """
    return pairs_of(*read_text(path_or_dash, stdin, "rows"))


def pairs_of(text: str, source: str) -> PairSet:
    """Return the pairs of a text that was read from `source`. Raises InputError as `load_pairs` does."""
    skipped: Counter[str] = Counter()
    found = [
        pair for row in rows_of(text, source, skipped, PAIRS_HINT, _is_pairs_header) if (pair := _pair(row, skipped))
    ]
    insist(found, source, skipped, "pair", PAIRS_HINT)
    return PairSet(source, tuple(found), dict(skipped), (*_pair_warnings(found, source), *left_out(skipped, source)))


def load_classes(path_or_dash: str, stdin: BinaryIO | None = None, *, domains: Path | None = None) -> ClassSet:
    """Return the prompts of a file with their classes; without a namespace column all share one, "default".

    A JSON object of splits (CLINC150's data_full.json) gives the prompts of all its splits in order.

    :param domains: JSON object from namespace to its classes; None looks for `domains.json` beside the file.
    Raises InputError when it cannot be read, is no text, names no known columns or holds no prompt.
    """
    text, source = read_text(path_or_dash, stdin, "rows")
    skipped: Counter[str] = Counter()
    spaces = _namespaces(path_or_dash, domains)
    items: list[Item] = []
    for row in rows_of(text, source, skipped, CLASSES_HINT, _is_classes_header):
        item = _item(row, spaces, len(items), skipped)
        items += [item] if item else []
    insist(items, source, skipped, "prompt with a class", CLASSES_HINT)
    return ClassSet(source, tuple(items), dict(skipped), (*_class_warnings(items, source), *left_out(skipped, source)))


# Rows


def _is_pairs_header(names: set[str]) -> bool:
    return any({one, two} <= names for one, two in SIDES) and not names.isdisjoint(SAME)


def _is_classes_header(names: set[str]) -> bool:
    return not names.isdisjoint(TEXT) and not names.isdisjoint(CLASS)


# Pairs


def _pair(row: Mapping[str, Any], skipped: Counter[str]) -> Pair | None:
    sides = next(((row[one], row[two]) for one, two in SIDES if one in row and two in row), None)
    if sides is None:
        skipped["without two texts"] += 1
        return None
    same = _truth(first(row, SAME))
    if same is None:
        skipped["without a label that says yes or no"] += 1
        return None
    one, two = map(_side, sides)
    if one is None or two is None:
        skipped["with a text that is empty or no text"] += 1
        return None
    category, style, group = (str(first(row, names) or "") for names in (CATEGORY, STYLE, GROUP))
    return Pair(one, two, same, category, style, group, bool(first(row, AMBIGUOUS)))


def _truth(value: Any) -> bool | None:
    word = str(value).strip().lower()
    return True if word in YES else False if word in NO else None


def _side(value: Any) -> str | Conversation | None:
    """Return a text or a conversation, which may be spelled as JSON; None when it is neither."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            turns = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value  # "[urgent] reset my password" is a prompt
        return value if not isinstance(turns, list) or not any(isinstance(t, dict) for t in turns) else _turns(turns)
    if isinstance(value, str):
        return value if value.strip() else None
    return _turns(value) if isinstance(value, list) else None


def _turns(turns: list[Any]) -> Conversation | None:
    sound = all(
        isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), (str, list))
        for turn in turns
    )
    return tuple(turns) if turns and sound and turns[-1]["role"] == "user" and turns[-1]["content"] else None


def _pair_warnings(found: Sequence[Pair], source: str) -> Iterator[Warn]:
    labels = {pair.same for pair in found}
    if len(labels) == 1:
        kind = "should hit" if labels == {True} else "are traps"
        yield Warn(
            "one_label",
            f"All {len(found):,} pairs of {source} {kind}: no AUC, and no hit rate at a share of false hits.",
            "Add pairs of the other kind.",
        )


# Classes


def _namespaces(path_or_dash: str, domains: Path | None) -> Mapping[str, str]:
    """Return the namespace of each class. Raises InputError when a file that was named is no such object."""
    path = domains or Path(path_or_dash).with_name("domains.json")
    if domains is None and (path_or_dash == "-" or not path.is_file() or path == Path(path_or_dash)):
        return {}
    try:
        listed = orjson.loads(decode(read_file(path), str(path)))
        return {str(name): str(space) for space, names in listed.items() for name in names}
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        if domains is None:
            return {}  # somebody's own domains.json, which nobody named
        raise InputError(f"{path} is no JSON object of lists.", hint='Write {"namespace": ["class", ...]}.') from None


def _item(row: Mapping[str, Any], spaces: Mapping[str, str], number: int, skipped: Counter[str]) -> Item | None:
    text, name = first(row, TEXT), first(row, CLASS)
    if not isinstance(text, str) or not text.strip():
        skipped["without a text"] += 1
        return None
    if isinstance(name, (list, dict)) or name is None or not str(name).strip():
        skipped["without a class"] += 1
        return None
    label = str(name).strip()
    namespace = first(row, NAMESPACE) or (spaces.get(label, OTHER) if spaces else NO_NAMESPACE)
    return Item(text, f"{OUTSIDE}/{number}" if label == OUTSIDE else label, str(namespace))


def _class_warnings(items: Sequence[Item], source: str) -> Iterator[Warn]:
    sizes = Counter((item.namespace, item.answer_class) for item in items)
    if len(sizes) == 1:
        yield Warn(
            "one_label", f"All prompts of {source} are of one class: nothing can be a false hit.", "Add classes."
        )
    if max(sizes.values()) == 1:
        yield Warn(
            "no_recurrence", f"No class of {source} has two prompts: nothing can be a hit.", "Add prompts of a class."
        )
