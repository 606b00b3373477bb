"""How often is the comparator wrong? Answer pairs of known class, each with the verdicts it gets.

What counts is the share of false "different" among pairs of one answer (it starves a policy) and of false
"same" among pairs of two (it hides wrong hits). Unsure costs a label, nothing else. Our own templates:
the rates hold for answers like these; with `pairs` a user measures his own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recall_cli.cache.answers.compare import compare
from recall_cli.cache.answers.verdict import Comparison, Same
from recall_cli.measure.evaluate.compare_answers import ANSWERS, CAVEATS, LISTS, OBJECTS, PREAMBLES, Answer
from recall_cli.measure.result import new_result
from recall_cli.measure.synthetic.chance import pick
from recall_cli.stats import wilson
from recall_cli.types import Result

Compare = Callable[[str, str], Comparison]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers, the class they are made by, and the truth; None where neither verdict would be wrong."""

    a: str
    b: str
    kind: str
    same: bool | None


def answer_pairs(each: int, seed: int) -> list[AnswerPair]:
    """Return up to `each` distinct pairs of every kind."""
    found: list[AnswerPair] = []
    for number, (kind, make) in enumerate(KINDS.items()):
        rng = np.random.default_rng([seed, 31, number])
        seen: set[tuple[str, str]] = set()
        for _ in range(each * 20):
            pair = make(rng)
            if pair is None or pair[:2] in seen or pair[0] == pair[1]:
                continue
            seen.add(pair[:2])
            found.append(AnswerPair(pair[0], pair[1], kind, pair[2]))
            if len(seen) == each:
                break
    return found


Made = tuple[str, str, bool | None] | None


def _fill(wording: str, slots: tuple[str, str]) -> str:
    return wording.replace("{n}", slots[0]).replace("{e}", slots[1])


def _slots(answer: Answer, rng: Rng) -> tuple[str, str]:
    return (
        str(pick(rng, answer.numbers)) if answer.numbers else "",
        str(pick(rng, answer.names)) if answer.names else "",
    )


def _say(answer: Answer, slots: tuple[str, str], rng: Rng) -> str:
    return str(pick(rng, PREAMBLES)) + _fill(pick(rng, answer.wordings), slots)


def _reworded(rng: Rng) -> Made:
    answer = pick(rng, ANSWERS)
    slots = _slots(answer, rng)
    return _say(answer, slots, rng), _say(answer, slots, rng), True


def _caveat(rng: Rng) -> Made:
    answer = pick(rng, ANSWERS)
    said = _say(answer, _slots(answer, rng), rng)
    return said, said + str(pick(rng, CAVEATS)), True


_SPELLED = {"2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "9": "nine", "10": "ten"}
_SPELLED |= {"12": "twelve", "20": "twenty", "30": "thirty", "2pm": "14:00", "4pm": "4 p.m.", "noon": "12pm"}


def _spelled(rng: Rng) -> Made:
    answer = pick(rng, [one for one in ANSWERS if one.numbers])
    number, name = _slots(answer, rng)
    if number not in _SPELLED:
        return None
    wording = pick(rng, answer.wordings)
    return _fill(wording, (number, name)), _fill(wording, (_SPELLED[number], name)), True


def _markup(rng: Rng) -> Made:
    answer = pick(rng, ANSWERS)
    number, name = _slots(answer, rng)
    wording = pick(rng, answer.wordings)
    marked = _fill(wording, (f"**{number}**" if number else "", f"`{name}`" if name else ""))
    return _fill(wording, (number, name)), f"{marked.rstrip('.')}\n", True


def _bullets(items: Sequence[str], mark: str) -> str:
    return "\n".join(f"{i}. {item}" if mark == "1" else f"{mark} {item}" for i, item in enumerate(items, 1))


def _list_reordered(rng: Rng) -> Made:
    items, steps = pick(rng, LISTS)
    other = [items[i] for i in rng.permutation(len(items))]
    if steps or other == list(items):
        return None
    return _bullets(items, pick(rng, "-*")), _bullets(other, pick(rng, "-*")), True


def _steps_reordered(rng: Rng) -> Made:
    items, steps = pick(rng, LISTS)
    other = [items[i] for i in rng.permutation(len(items))]
    if not steps or other == list(items):
        return None
    return _bullets(items, "1"), _bullets(other, "1"), None


def _list_item(rng: Rng) -> Made:
    items, _ = pick(rng, LISTS)
    mark = pick(rng, "-*1")
    place = int(rng.integers(len(items)))
    other = [*items]
    other[place] = str(pick(rng, [item for listed, _ in LISTS for item in listed if item not in items]))
    return _bullets(items, mark), _bullets(other, mark), False


def _json_order(rng: Rng) -> Made:
    value = pick(rng, OBJECTS)
    keys = [list(value)[i] for i in rng.permutation(len(value))]
    other = {key: value[key] for key in keys}
    indent = pick(rng, (None, 2))
    text = json.dumps(other, indent=indent)
    return json.dumps(value), f"```json\n{text}\n```" if rng.random() < 0.5 else text, True


def _json_value(rng: Rng) -> Made:
    value = pick(rng, OBJECTS)
    other = json.loads(json.dumps(value))
    places = [(other, key) for key in other if not isinstance(other[key], (dict, list))]
    places += [(inner, key) for inner in other.values() if isinstance(inner, dict) for key in inner]
    holder, key = pick(rng, places)
    old = holder[key]
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, (int, float)):
        holder[key] = old + int(rng.integers(1, 9))
    else:
        holder[key] = pick(rng, [w for w in ("Turin", "fahrenheit", "cancelled", "positive", "users") if w != old])
    return json.dumps(value), json.dumps(other), False


def _other_number(rng: Rng) -> Made:
    answer = pick(rng, [one for one in ANSWERS if one.numbers])
    number, name = _slots(answer, rng)
    other = str(pick(rng, [value for value in answer.numbers if value != number]))
    return _say(answer, (number, name), rng), _say(answer, (other, name), rng), False


def _other_name(rng: Rng) -> Made:
    answer = pick(rng, [one for one in ANSWERS if one.names])
    number, name = _slots(answer, rng)
    other = str(pick(rng, [value for value in answer.names if value != name]))
    return _say(answer, (number, name), rng), _say(answer, (number, other), rng), False


def _flipped(rng: Rng) -> Made:
    answer = pick(rng, [one for one in ANSWERS if one.opposite])
    slots = _slots(answer, rng)
    return _say(answer, slots, rng), _fill(pick(rng, answer.opposite), slots), False


def _truncated(rng: Rng) -> Made:
    answer = pick(rng, ANSWERS)
    words = _say(answer, _slots(answer, rng), rng).split()
    if len(words) < 8:
        return None
    return " ".join(words), " ".join(words[: int(rng.integers(3, len(words) - 2))]), None


def _unrelated(rng: Rng) -> Made:
    one, two = rng.choice(len(ANSWERS), 2, replace=False)
    a, b = ANSWERS[int(one)], ANSWERS[int(two)]
    return _say(a, _slots(a, rng), rng), _say(b, _slots(b, rng), rng), False


KINDS: dict[str, Callable[[Rng], Made]] = {
    "reworded": _reworded,
    "caveat added": _caveat,
    "number spelled otherwise": _spelled,
    "markup": _markup,
    "list reordered": _list_reordered,
    "JSON key order": _json_order,
    "other number": _other_number,
    "other name": _other_name,
    "yes and no": _flipped,
    "list item replaced": _list_item,
    "JSON value": _json_value,
    "unrelated": _unrelated,
    "truncated": _truncated,
    "steps reordered": _steps_reordered,
}
"""How each kind of pair is made. Of the last two neither verdict is wrong: unsure is what is hoped for."""


def run(*, each: int = 300, seed: int = 0, comparator: Compare = compare, name: str = "rules") -> Result:
    """Return the comparator's verdicts kind by kind, and its two error rates with intervals."""
    result = new_result("compare eval", {"each": each, "seed": seed, "comparator": name})
    pairs = answer_pairs(each, seed)
    verdicts = [comparator(pair.a, pair.b).verdict for pair in pairs]
    for kind in KINDS:
        mine = [(pair, verdict) for pair, verdict in zip(pairs, verdicts, strict=True) if pair.kind == kind]
        count = Counter(verdict for _, verdict in mine)
        row: dict[str, Any] = {"kind": kind, "same_truth": mine[0][0].same if mine else None, "n": len(mine)}
        result.rows.append(row | {verdict.value: count[verdict] for verdict in Same})
    for key, truth, wrong in (("false_different", True, Same.DIFFERENT), ("false_same", False, Same.SAME)):
        mine_verdicts = [v for pair, v in zip(pairs, verdicts, strict=True) if pair.same is truth]
        errors, n = mine_verdicts.count(wrong), len(mine_verdicts)
        labelled = n - mine_verdicts.count(Same.UNSURE)
        result.summary[f"{key}_rate"] = errors / n if n else None
        result.summary[f"{key}_interval"] = list(wilson(errors, n))
        result.summary[f"{key}_n"] = n
        # Of pairs that got a label at all: what a policy that learns from labels sees.
        result.summary[f"{key}_rate_of_labels"] = errors / labelled if labelled else None
        result.summary[f"{key}_labelled"] = labelled
        # Labels are not missing at random: where these two differ, a policy sees more of one class than there is.
        result.summary[f"label_share_{'same' if truth else 'different'}"] = labelled / n if n else None
    return result


def mistakes(pairs: Sequence[AnswerPair], comparator: Compare = compare) -> Iterator[tuple[AnswerPair, Comparison]]:
    """Yield the pairs on which the comparator is wrong, with what it said."""
    for pair in pairs:
        found = comparator(pair.a, pair.b)
        if pair.same is not None and found.label is not None and found.label != pair.same:
            yield pair, found
