"""The quantities a text names, in one form each: 5pm and 17:00, 1st and first, 1,000 and a thousand.

Only run on texts that hold a digit or a number word, so it may cost some microseconds.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recall_cli.cache.evidence.lexicon import (
    CLOCK_WORDS,
    MONTHS,
    NUMBER_WORDS,
    ORDINALS,
    SCALES,
    UNSURE_DATES,
    WEEKDAYS,
    in_order,
    listed,
    plain,
)

_TOKEN = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}:\d{2}|\d+(?:\.\d+){2,}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+|[%$£€¥]"
)
_AM_PM = frozenset({"am", "pm"})
_SUFFIX = frozenset({"st", "nd", "rd", "th"})
_SHORT_SCALES = {"k": 1000, "thousand": 1000, "m": None, "million": 10**6, "mn": 10**6, "bn": 10**9, "billion": 10**9}
_DATE_BEFORE = listed("in of by until till since from next last this early late mid before after")

_UNITS = {
    unit: units.split()[0]
    for units in in_order(
        """
        kg kilo kilogram kilograms kilos | g gram grams | lb lbs pound-weight | oz ounce ounces | km kilometer
        kilometers kilometre kilometres | mile miles mi | m meter meters metre metres | cm centimeter
        centimeters centimetre centimetres | mm | ft foot feet | inch inches in-unit | yard yards | second
        seconds sec secs | minute minutes min mins | hour hours hr hrs h | day days | week weeks | month months
        | year years yr yrs | gb gigabyte gigabytes | mb megabyte megabytes | tb terabyte terabytes | kb
        kilobyte kilobytes | celsius centigrade | fahrenheit | liter liters litre litres | gallon gallons | ml |
        mg | mcg | usd $ dollar dollars | gbp £ pound pounds quid | eur € euro euros | yen ¥ jpy | cent cents |
        ms milliseconds | px pixels pixel | kwh | watt watts | mph | kph | acre acres | hectare hectares |
        calorie calories
        """,
        "|",
    )
    for unit in units.split()
}


TIME_UNITS = frozenset({"second", "minute", "hour", "day", "week", "month", "year"})
_MINUTES = {"second": 1 / 60, "minute": 1.0, "hour": 60.0, "day": 1440.0, "week": 10080.0}
_MONTHS = {"month": 1.0, "year": 12.0}


class Quantities(NamedTuple):
    """The numbers of a text: those that must agree, those that may, and the units they are counted in."""

    hard: frozenset[str]
    soft: frozenset[str]
    units: frozenset[str]
    spans: frozenset[tuple[str, str]]
    """Numbers that count time, with that time in one measure: 48 hours and 2 days are one span."""


NONE: frozenset[str] = frozenset()

REPEATS = 3
"""How often one number is told apart from itself: a table of zeros must not cost the square of its length."""


def quantities(text: str) -> Quantities:
    """Return the numbers, dates, times and units of a text.

    Soft ones ("one", "first", "second") are as often pronouns or idioms as numbers: they may match a
    number of the other text, and never speak against a text that has none.
    """
    tokens: list[str] = _TOKEN.findall(
        plain(text).replace("a.m.", "am").replace("p.m.", "pm").replace("o'clock", "oclock")
    )
    hard: set[str] = set()
    soft: set[str] = set()
    units: set[str] = set()
    spans: set[tuple[str, str]] = set()
    n = len(tokens)
    i = 0
    while i < n:
        token = tokens[i]
        after = tokens[i + 1] if i + 1 < n else ""
        before = tokens[i - 1] if i else ""
        if token[0].isdecimal():
            i += _digits(token, before, after, hard, units, spans)
        elif token in NUMBER_WORDS or token in SCALES:
            i += _spelled(tokens, i, hard, soft, units, spans)
            continue
        elif token in ORDINALS:
            _put(soft if token in ("first", "second") else hard, str(ORDINALS[token]))
        elif token in MONTHS:
            near_number = before[:1].isdecimal() or after[:1].isdecimal() or before in _SUFFIX
            if token not in UNSURE_DATES or near_number or before in _DATE_BEFORE:
                _put(hard, f"month {MONTHS[token]}")
        elif token in WEEKDAYS:
            if token not in UNSURE_DATES or before in _DATE_BEFORE or before in ("on", "to", "every", "and", "or", ""):
                hard.add(f"weekday {WEEKDAYS[token]}")
        elif token in CLOCK_WORDS:
            _put(hard, f"clock {CLOCK_WORDS[token]}")
        elif before in ("in", "many") and token in _UNITS:
            units.add(_UNITS[token])
        i += 1
    return Quantities(frozenset(hard) or NONE, frozenset(soft) or NONE, frozenset(units) or NONE, frozenset(spans))


def _put(numbers: set[str], number: str) -> None:
    """Add a number; one that is named again counts again, so that "2 every 4" is not "2 every 2"."""
    for _ in range(REPEATS):
        if number not in numbers:
            break
        number += " again"
    numbers.add(number)


def _digits(token: str, before: str, after: str, hard: set[str], units: set[str], spans: set[tuple[str, str]]) -> int:
    """Read one token of digits; return how many tokens behind it belong to it."""
    if token.count("-") == 2:
        year, month, day = (int(part) for part in token.split("-"))
        for part in (str(year), f"month {month}", str(day)):
            _put(hard, part)
        return 0
    if ":" in token:
        hour, minute = (int(part) for part in token.split(":"))
        _put(hard, f"clock {_minutes(hour, minute, after)}")
        return int(after in _AM_PM)
    if token.count(".") > 1:
        _put(hard, token)
        return 0
    if after in _AM_PM and "." not in token and "," not in token:
        _put(hard, f"clock {_minutes(int(token), 0, after)}")
        return 1
    if after == "oclock" and token.isdecimal():
        _put(hard, f"clock {_minutes(int(token), 0, '')}")
        return 1
    value = float(token.replace(",", ""))
    used = 0
    scale = _SHORT_SCALES.get(after)
    if scale:
        value *= scale
        used = 1
    written = f"{value:.10g}"
    if after in ("%", "percent"):
        _put(hard, written + "%")
        return 1
    if before in ("$", "£", "€", "¥"):
        units.add(_UNITS[before])
    if used:
        _put(hard, written)
        return 1
    return _measured(value, after, hard, units, spans) or int(after in _SUFFIX)


def _measured(value: float, unit: str, hard: set[str], units: set[str], spans: set[tuple[str, str]]) -> int:
    """Add a number and what it counts; return whether the unit was one."""
    name = _UNITS.get(unit, "")
    written = f"{value:.10g}"
    _put(hard, written)
    if name:
        units.add(name)
    if name in _MINUTES:
        spans.add((written, f"{value * _MINUTES[name]:.10g} minutes"))
    elif name in _MONTHS:
        spans.add((written, f"{value * _MONTHS[name]:.10g} months"))
    return int(bool(name))


def _minutes(hour: int, minute: int, half: str) -> int:
    if half == "pm" and hour < 12:
        hour += 12
    elif half == "am" and hour == 12:
        hour = 0
    return hour * 60 + minute


def _spelled(
    tokens: list[str], i: int, hard: set[str], soft: set[str], units: set[str], spans: set[tuple[str, str]]
) -> int:
    """Read a number in words from token i on; return how many tokens it took."""
    start = i
    total = current = 0
    while i < len(tokens):
        token = tokens[i]
        if token in NUMBER_WORDS:
            value = NUMBER_WORDS[token]
            # "five six" is two numbers, "twenty six" one.
            if current % 100 and not (current % 10 == 0 and value < 10):
                break
            current += value
        elif token in SCALES:
            scale = SCALES[token]
            current = max(current, 1) * scale
            if scale >= 1000:
                total, current = total + current, 0
        elif (
            token == "and"
            and i > start
            and i + 1 < len(tokens)
            and tokens[i - 1] in SCALES
            and tokens[i + 1] in NUMBER_WORDS
        ):
            pass
        else:
            break
        i += 1
    value = total + current
    after = tokens[i] if i < len(tokens) else ""
    if after in ("%", "percent"):
        _put(hard, f"{value}%")
        return i - start + 1
    if i == start + 1 and tokens[start] == "one" and after not in _UNITS:
        soft.add("1")
        return 1
    return i - start + _measured(value, after, hard, units, spans)
