"""How often is the comparator wrong? Answer pairs of known class, each with the verdicts it gets.

What counts is the share of false "different" among pairs of one answer (it starves a policy) and of false
"same" among pairs of two (it hides wrong hits). Unsure costs a label, nothing else. The templates are ours:
the rates hold for answers like these; with `pairs` a user measures his own.

A template has several wordings of one answer, which differ as models' do (incidental numbers, negations and names come
and go between them), and slots whose value is the answer. `{n}` takes a number, `{e}` a name, `{t}` a time;
`{is}` takes "is" or "is not" and the like, and is what a flipped answer flips.
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
from recall_cli.measure.result import new_result
from recall_cli.measure.synthetic.grammar import pick
from recall_cli.stats import wilson
from recall_cli.types import Result


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer in several wordings, its slots, and the wordings of the opposite answer where there is one."""

    wordings: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    opposite: tuple[str, ...] = ()


ANSWERS = (
    Answer(
        (
            "You can return the item within {n} days of delivery for a full refund.",
            "Returns are accepted for {n} days after delivery, and you get all your money back.",
            "Our return window is {n} days from the day the parcel arrives. Refunds are in full.",
            "Sure! You have {n} days from delivery to send it back. You won't lose any money.",
        ),
        numbers=("14", "30", "45", "60", "90"),
    ),
    Answer(
        (
            "Yes, {e} supports single sign-on. You can enable it under Settings > Security.",
            "Yes. Single sign-on is available on {e}; switch it on in the security settings.",
            "Yes, it does: {e} includes single sign-on, which you find in Settings under Security.",
            "Yes, single sign-on comes with {e}. No extra licence is needed.",
        ),
        names=("Starter", "Business", "Enterprise", "Nimbus", "Team"),
        opposite=(
            "No, {e} does not support single sign-on.",
            "No. Single sign-on is not available on {e}; you would need to upgrade.",
            "Unfortunately not: {e} comes without single sign-on.",
        ),
    ),
    Answer(
        (
            "The capital of {e} is what most people guess: its largest city.",
            "For {e}, the capital and the largest city are one and the same.",
            "{e}'s capital is also its largest city.",
        ),
        names=("Portugal", "Norway", "Hungary", "Finland", "Greece"),
        opposite=("The capital of {e} is not its largest city.", "{e}'s largest city is not the capital."),
    ),
    Answer(
        (
            "The train to {e} leaves at {n} from platform 4.",
            "Your train to {e} departs at {n}. It goes from platform 4.",
            "Departure for {e} is at {n}, platform 4.",
        ),
        numbers=("9:15", "11:40", "14:05", "17:30", "20:50"),
        names=("Lisbon", "Turin", "Antwerp", "Graz", "Malmo"),
    ),
    Answer(
        (
            "Your account is charged {n} euros per month, billed on the first working day.",
            "It costs {n} euros a month. We bill you on the first working day of each month.",
            "The price is €{n} monthly, and the invoice goes out on the first working day.",
        ),
        numbers=("9", "19", "29", "49", "120"),
    ),
    Answer(
        (
            "Yes, you can take {e} with food.",
            "Yes, taking {e} together with a meal is fine.",
            "Yes. {e} may be taken with food; it does not change how it works.",
        ),
        names=("Calmoryl", "Ventrazine", "Doluprax", "Ibutane"),
        opposite=("No, {e} should not be taken with food.", "No, take {e} on an empty stomach, not with a meal."),
    ),
    Answer(
        (
            "To undo the last {n} commits and keep your changes, run git reset --soft HEAD~{n}.",
            "Run `git reset --soft HEAD~{n}`. That removes the last {n} commits but keeps your changes.",
            "Use git reset with --soft and HEAD~{n}: the commits go, your changes stay.",
        ),
        numbers=("2", "3", "4", "5", "10"),
    ),
    Answer(
        (
            "Revenue in {e} grew by {n} percent over last year.",
            "Compared with last year, revenue in {e} is up {n} %.",
            "{e} saw revenue rise {n} percent year on year.",
        ),
        numbers=("3", "7", "12", "18", "25"),
        names=("Austria", "Poland", "Spain", "Denmark"),
        opposite=(
            "Revenue in {e} fell by {n} percent over last year.",
            "{e} saw revenue drop {n} percent year on year.",
        ),
    ),
    Answer(
        (
            "Full-time employees in {e} get {n} days of annual leave.",
            "In {e}, annual leave for full-time staff is {n} days a year.",
            "You are entitled to {n} days of paid leave per year if you work full time in {e}.",
        ),
        numbers=("20", "22", "25", "28", "30"),
        names=("Ireland", "Belgium", "Sweden", "Italy"),
    ),
    Answer(
        (
            "The warranty covers water damage for {n} months.",
            "Water damage is covered by the warranty during the first {n} months.",
            "For {n} months the warranty includes damage by water. After that it doesn't.",
        ),
        numbers=("6", "12", "18", "24", "36"),
        opposite=("The warranty does not cover water damage.", "Water damage is excluded from the warranty."),
    ),
    Answer(
        (
            "Please contact {e} at the help desk; they can reset your badge.",
            "{e} from the help desk is able to reset your badge, so get in touch there.",
            "Your badge can be reset by {e} at the help desk.",
        ),
        names=("Marisol", "Henrik", "Anneke", "Tobias", "Oluwaseun"),
    ),
    Answer(
        (
            "No, the deposit is not refundable once the booking is confirmed.",
            "No. After confirmation of the booking you do not get the deposit back.",
            "No, once we have confirmed the booking, the deposit stays with us.",
        ),
        opposite=(
            "Yes, the deposit is refundable even once the booking is confirmed.",
            "Yes. After confirmation of the booking you still get the deposit back.",
        ),
    ),
    Answer(
        (
            "The checked bag may weigh up to {n} kg on {e} flights.",
            "On {e}, the limit for a checked bag is {n} kilograms.",
            "{e} allows {n} kg for each checked bag.",
        ),
        numbers=("20", "23", "25", "32"),
        names=("Skyfarer", "BlueHeron", "Lufthansa", "Finnair"),
    ),
    Answer(
        (
            "Use the {e} library; it parses the file in one call and needs no configuration.",
            "I'd recommend {e} for that: one call parses the whole file, without any configuration.",
            "The simplest way is {e}. A single call is enough to parse the file.",
        ),
        names=("orjson", "lxml", "pyarrow", "polars", "openpyxl"),
    ),
    Answer(
        (
            "Orders placed before {n} are shipped the same day.",
            "If you order before {n}, we ship today.",
            "Same-day shipping applies to orders that reach us before {n}.",
        ),
        numbers=("10am", "noon", "2pm", "4pm", "6pm"),
        opposite=("Orders placed after {n} are shipped the same day.", "If you order after {n}, we ship today."),
    ),
    Answer(
        ("{n}", "The answer is {n}.", "It's {n}.", "{n}, if I count correctly."),
        numbers=("7", "42", "365", "1,250", "12.5"),
    ),
)

LISTS = (
    (("Open the settings", "Choose your profile", "Press delete"), True),
    (("passport", "proof of address", "last three payslips", "a recent photo"), False),
    (("Python", "Go", "Rust", "TypeScript"), False),
    (("chest X-ray", "blood test", "sleep study"), False),
    (("free shipping", "priority support", "an extended warranty"), False),
)
"""Items, and whether they are steps, whose order is part of the answer."""

OBJECTS: tuple[dict[str, object], ...] = (
    {"city": "Oslo", "date": "2026-03-14", "guests": 2, "breakfast": True},
    {"order": "A-1043", "status": "shipped", "items": ["lamp", "desk"], "total": 129.5},
    {"name": "get_weather", "arguments": {"location": "Graz", "unit": "celsius", "days": 3}},
    {"sentiment": "negative", "score": 0.82, "language": "de"},
    {"table": "orders", "filter": {"country": "Japan", "year": 2024}, "limit": 50},
)

PREAMBLES = ("", "", "Sure! ", "Happy to help. ", "Great question. ", "Here is what I found: ", "Of course. ")
CAVEATS = (
    " Let me know if you need anything else.",
    " Please note that local rules may apply.",
    " Prices and conditions can change, so check the website.",
    " If in doubt, contact support.",
    " I hope this helps!",
)


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
