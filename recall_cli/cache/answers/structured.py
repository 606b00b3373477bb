"""Answers that are data: JSON, a Python literal, YAML of the plain kind, XML. Decoded, then compared value by value."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from recall_cli.cache.answers.verdict import Comparison, Same, different, same, unsure
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.lexicon import listed
from recall_cli.cache.evidence.text_features import facts

Texts = Callable[[str, str], Comparison]
"""Compares two string values as answers are compared."""

MOST_CHARS = 200_000
"""Of a document that is decoded: what is longer is compared as text."""
ORDERED = listed(
    "steps step order ranking ranked rank sequence path route timeline coordinates coords bbox box position vector "
    "embedding sorted plan procedure instructions history events polygon points matrix rows point location range"
)
"""Keys whose list says something by its order."""
GUESSED = listed("confidence score probability certainty likelihood relevance confidence_score")
"""Keys whose number a model makes up: a little more or less is no other answer."""
WOBBLE = 0.15
"""What a made-up number may differ by, as a share of the larger."""

_LINE = re.compile(r"^(?P<indent> *)(?:(?P<key>[\w][\w .()/-]{0,40}?)\s*:(?:\s+(?P<value>.*))?|-\s+(?P<item>.+))$")
_ONLY_KEY = re.compile(r"^-\s+[\w][\w -]*:\s")


def decoded(text: str) -> tuple[Any] | None:
    """Return the value that a text writes down, in a tuple; None when the text is something else."""
    text = text.strip()
    if len(text) > MOST_CHARS:
        return None
    if text[:1] in ("{", "["):
        try:
            return (json.loads(text),)
        except (ValueError, RecursionError):
            return _literal(text)
    if text[:1] == "<" and text[-1:] == ">":
        return _xml(text)
    return _yaml(text)


def _literal(text: str) -> tuple[Any] | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return (value,) if isinstance(value, dict | list) else None


def _xml(text: str) -> tuple[Any] | None:
    # No document type: its entities may grow without bound.
    if "<!" in text:
        return None
    try:
        root = ElementTree.fromstring(text)
        return (_element(root),)
    except (ElementTree.ParseError, RecursionError, ValueError):
        return None


def _element(element: ElementTree.Element) -> dict[str, Any]:
    made: dict[str, Any] = {"element": element.tag}
    made |= {f"@{name}": value for name, value in element.attrib.items()}
    said = " ".join(part.strip() for part in [element.text or "", *(child.tail or "" for child in element)]).strip()
    if said:
        made["text"] = said
    if len(element):
        children = [_element(child) for child in element]
        tags = [child["element"] for child in children]
        if len(set(tags)) == len(tags):
            made |= {child.pop("element"): child for child in children}
        else:
            made["children"] = children
    return made


def _yaml(text: str) -> tuple[Any] | None:
    """Return the mapping of a text whose every line is `key: value`, nested by indentation; lists of plain items."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and line.strip() != "---"]
    if len(lines) < 2 or ":" not in lines[0]:
        return None
    root: dict[str, Any] = {}
    stack: list[tuple[int, dict[str, Any], str]] = [(-1, root, "")]
    for line in lines:
        found = _LINE.match(line)
        if found is None or _ONLY_KEY.match(line.strip()):
            return None
        indent = len(found["indent"])
        if found["item"] is not None:
            _, holder, key = stack[-1]
            if not key or (holder.get(key) not in (None, "") and not isinstance(holder[key], list)):
                return None
            holder[key] = [*(holder[key] or []), _scalar(found["item"])]
            continue
        while len(stack) > 1 and stack[-1][0] >= indent:
            stack.pop()
        level, holder, key = stack[-1]
        if level >= 0:
            if holder[key] not in (None, "") and not isinstance(holder[key], dict):
                return None
            holder[key] = holder[key] or {}
            holder = holder[key]
        key = found["key"]
        if key in holder or not isinstance(holder, dict):
            return None
        holder[key] = _scalar(found["value"] or "")
        stack.append((indent, holder, key))
    return (root,)


def _scalar(text: str) -> Any:
    text = text.strip()
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("null", "~"):
        return None
    try:
        return float(text) if re.fullmatch(r"-?\d+(?:\.\d+)?", text) else text.strip("\"'")
    except ValueError:
        return text


def compare_values(a: Any, b: Any, texts: Texts, key: str = "") -> Comparison:
    """Compare two decoded values, as tool arguments are: the order of keys does not matter, that of lists may.

    Another number, flag or word is a difference. A longer text may say the same in other words, and a
    key more may be a default that one answer spells out: unsure.

    :param key: the key that holds the values, "" for the outermost.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return _mappings(a, b, texts)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return _lists(list(a), list(b), texts, key)
    if isinstance(a, bool) and isinstance(b, bool):
        return same("equal structure") if a is b else different("another value")
    if _number(a) and _number(b):
        if float(a) == float(b):
            return same("equal structure")
        if key.lower() in GUESSED and abs(a - b) <= WOBBLE * max(abs(a), abs(b)):
            return unsure("about the same number")
        return different("another value")
    if isinstance(a, str) and isinstance(b, str):
        return _strings(a, b, texts)
    if a is None and b is None:
        return same("equal structure")
    return _types(a, b)


def _types(a: Any, b: Any) -> Comparison:
    """Compare values of two types: 5 against "5", null against "" is spelling more often than meaning."""
    if any(isinstance(value, dict | list | tuple) for value in (a, b)) or a is None or b is None:
        return same("other types") if str(a) == str(b) else unsure("other types")
    one, two = (str(value).strip().lower() for value in (a, b))
    if one == two:
        return same("other types")
    flag = isinstance(a, bool) or isinstance(b, bool)
    try:
        return same("other types") if not flag and float(one) == float(two) else unsure("other types")
    except ValueError:
        return unsure("other types")


def _mappings(a: dict[Any, Any], b: dict[Any, Any], texts: Texts) -> Comparison:
    worst = same("equal structure")
    for key in sorted(a.keys() & b.keys(), key=str):
        found = compare_values(a[key], b[key], texts, str(key))
        if found.verdict is Same.DIFFERENT:
            return different(f"another {key}" if found.reason == "another value" else found.reason)
        if found.verdict is Same.UNSURE:
            worst = found
    if a.keys() != b.keys():
        # {} against a full object may be a refusal to fill it in: no claim either way.
        return unsure("other keys")
    return worst


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lists(a: list[Any], b: list[Any], texts: Texts, key: str) -> Comparison:
    if a == b and repr(a) == repr(b):
        return same("equal structure")
    ordered = key.lower() in ORDERED or any(_number(value) or isinstance(value, list) for value in (*a, *b))
    pairs = [compare_values(x, y, texts) for x, y in zip(a, b, strict=False)] if len(a) == len(b) else []
    if pairs and all(found.verdict is Same.SAME for found in pairs):
        return same("equal structure")
    one, two = (sorted(map(_written, values)) for values in (a, b))
    if one == two:
        # Numbers stand where they stand; names in another order are the same names, unless the key says otherwise.
        return different("another order") if ordered else same("the same items")
    if not a or not b:
        return different("an empty list")
    differing = [found for found in pairs if found.verdict is Same.DIFFERENT]
    # One item of several that differs in place is a change; all of them may be another order.
    if differing and (ordered or len(a) == 1 or len(differing) < len(a)):
        return differing[0]
    return _as_sets(a, b, texts)


def _as_sets(a: list[Any], b: list[Any], texts: Texts) -> Comparison:
    """Compare two lists of scalars as sets: each item that one has alone must be another than all the other's."""
    if all(isinstance(value, str | int | float | bool) for value in (*a, *b)):
        ours = [value for value in a if _written(value) not in set(map(_written, b))]
        others = [value for value in b if _written(value) not in set(map(_written, a))]
        if len(ours) * len(others) <= MOST_COMPARED:
            met = [compare_values(x, y, texts).verdict for x in ours for y in others]
            if all(verdict is Same.DIFFERENT for verdict in met) and all(_short(value) for value in (*ours, *others)):
                return different("other items of a list")
    return unsure("other items of a list")


MOST_COMPARED = 400
"""Pairs of items of two lists that are compared with each other."""


def _short(value: Any) -> bool:
    return not isinstance(value, str) or len(value.split()) <= 3


def _written(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(" ".join(value.lower().split()).strip(".,"))
    return json.dumps(float(value)) if _number(value) else json.dumps(value, sort_keys=True, default=str)


def _strings(a: str, b: str, texts: Texts) -> Comparison:
    """Compare two string values: short ones are data, longer ones are texts."""
    one, two = (" ".join(value.lower().split()).strip(" .!?,;:\"'") for value in (a, b))
    if one == two:
        return same("equal structure")
    found = texts(a, b)
    if found.verdict is not Same.UNSURE or max(len(one.split()), len(two.split())) > 2:
        return found
    return different("another value") if _apart(one, two) else unsure("another value")


def _apart(one: str, two: str) -> bool:
    """Return True when two short values are no spellings of one another."""
    found = evidence(facts(one), facts(two), 0.0)
    return found.overlap < 0.2 and one not in two and two not in one and (found.numbers == 1 or found.names == 1)
