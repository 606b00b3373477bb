"""Answers that are an amount and no more: a number with its unit, a range, a rating, a date.

Equal amounts in other units are the same (5 kg, 5000 g). A number without a unit against one with it says too
little, and so does a date that two countries read in two ways.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from recall_cli.cache.answers.verdict import Comparison, different, same, unsure
from recall_cli.cache.evidence.lexicon import MONTHS, in_order, plain

MOST_CHARS = 60
"""Of an amount with its words: what is longer is a text."""

_UNITS: dict[str, tuple[str, float]] = {
    unit: (dimension, float(factor))
    for line in """
mass 0.001 mg milligram milligrams
mass 0.000001 mcg µg μg
mass 1 g gram grams gr
mass 1000 kg kilo kilos kilogram kilograms kgs
mass 1000000 t ton tons tonne tonnes
mass 453.59237 lb lbs
mass 28.349523125 oz ounce ounces
length 0.001 mm millimeter millimeters millimetre millimetres
length 0.01 cm centimeter centimeters centimetre centimetres
length 1 m meter meters metre metres
length 1000 km kilometer kilometers kilometre kilometres kms
length 1609.344 mi mile miles
length 0.3048 ft foot feet
length 0.0254 in inch inches
length 0.9144 yd yard yards
time 0.001 ms millisecond milliseconds msec
time 1 s sec secs second seconds
time 60 min mins minute minutes
time 3600 h hr hrs hour hours
time 86400 d day days
time 604800 week weeks wk wks
months 1 month months
months 12 year years yr yrs
volume 0.001 ml milliliter milliliters millilitre millilitres
volume 0.01 cl
volume 1 l liter liters litre litres
volume 3.785411784 gallon gallons gal
data 1 byte bytes b
data 1000 kb kilobyte kilobytes
data 1000000 mb megabyte megabytes
data 1000000000 gb gigabyte gigabytes
data 1000000000000 tb terabyte terabytes
share 1 % percent pct
celsius 1 °c celsius centigrade
fahrenheit 1 °f fahrenheit
degree 1 ° degree degrees
speed 1 km/h kph kmh
mph 1 mph
energy 1 kcal
kwh 1 kwh
watt 1 w watt watts
usd 1 $ usd us$ dollar dollars
usd 0.01 cent cents
eur 1 € eur euro euros
gbp 1 £ gbp quid
jpy 1 jpy yen
yuan 1 cny rmb yuan
inr 1 ₹ inr rupee rupees
krw 1 ₩ krw won
rub 1 ₽ rub ruble rubles
chf 1 chf
cad 1 cad c$
aud 1 aud a$
sek 1 sek
nok 1 nok
dkk 1 dkk
brl 1 brl r$
pln 1 pln
""".strip().splitlines()
    for dimension, factor, *units in [in_order(line)]
    for unit in units
}
_SCALES = {"k": 1e3, "thousand": 1e3, "million": 1e6, "mio": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9}
_CAPITAL_M = re.compile(r"(?<=\d)\s?M\b(?!\w)")
_NUMBER = r"[-+−]?\d[\d,.'\u202f\u00a0]*(?<![,.'])"
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_SCALE = "|".join(_SCALES)
_AMOUNT = re.compile(
    rf"(?P<lead>(?:{_UNIT})(?=[\s\d+−-]))?\s*(?P<number>{_NUMBER})\s*(?P<scale>(?:{_SCALE})\b)?\s*"
    rf"(?P<unit>(?:{_UNIT})(?![^\W\d_]))?"
)
_DASH = re.compile(r"\s*(?:-|–|—|\bto\b|\band\b|\bthrough\b|\.\.\.?)\s*")
_RATIO = re.compile(rf"({_NUMBER})\s*(?:/|out of|of|:)\s*({_NUMBER})(?:\s+(?:stars?|points?))?")
_BOUND = re.compile(
    r"(<=|>=|<|>|≤|≥|at least|at most|up to|more than|less than|over|under|above|below|no more than|no less than)\s*"
)
_BOUNDS = {
    "<=": "at most", "≤": "at most", "up to": "at most", "no more than": "at most", ">=": "at least", "≥": "at least",
    "no less than": "at least", "<": "below", "less than": "below", "under": "below", ">": "above",
    "more than": "above", "over": "above",
}  # fmt: skip
_UPWARDS = {"at least": 1, "above": 1, "at most": -1, "below": -1}
_AROUND = re.compile(r"^(?:about|around|approximately|approx\.?|roughly|nearly|almost|circa|ca\.?|~|≈)\s*")
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?"
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    (re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:t00:00(?::00)?(?:\.0+)?z?)?"), "ymd"),
    (re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})"), "ymd"),
    (re.compile(rf"{_WEEKDAY}(?:the\s+)?{_NTH}\.?\s+(?:of\s+)?({_MONTH})\.?,?(?:\s+(\d{{4}}))?"), "dMy"),
    (re.compile(rf"{_WEEKDAY}({_MONTH})\.?\s+(?:the\s+)?{_NTH}(?:,?\s+(\d{{4}}))?"), "Mdy"),
    (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), "dmy"),
    (re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})"), "dmy mdy"),
    (re.compile(rf"({_MONTH})\.?,?\s+(\d{{4}})"), "My"),
)
Date = tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Amount:
    """What an answer amounts to."""

    low: float
    high: float
    unit: str
    """Dimension, "" for a bare number."""
    factor: float = 1.0
    digits: int = 0
    """Decimals as written."""
    bound: str = ""
    around: bool = False


def compare_amounts(a: str, b: str) -> Comparison | None:
    """Compare two answers that are amounts or dates; None when one of them is neither."""
    if max(len(a), len(b)) > MOST_CHARS:
        return None
    one, two = (_bare(text) for text in (a, b))
    dates = _dates(one), _dates(two)
    if dates[0] and dates[1]:
        return _compare_dates(*dates)
    ratios = _RATIO.fullmatch(one), _RATIO.fullmatch(two)
    if ratios[0] and ratios[1] and not (dates[0] or dates[1]):
        return _compare_ratios(ratios[0], ratios[1])
    mine, theirs = amount(one), amount(two)
    return None if mine is None or theirs is None else _compare(mine, theirs)


def _bare(text: str) -> str:
    # "5M" is five million and "5m" are five metres: told apart before the case is lost.
    text = _CAPITAL_M.sub(" million", text)
    text = plain(text).strip("*`\"' \t\n").rstrip(".!;,").strip("*`\"' ")
    return re.sub(r"^(?:it is|it's|that is|that's|=)\s+", "", text)


def amount(text: str) -> Amount | None:
    """Return the amount that a text in lower case is, None when it is something else or more."""
    text = text.replace("µ", "μ").strip()
    around = bool(_AROUND.match(text))
    text = _AROUND.sub("", text)
    said = _BOUND.match(text)
    bound = "" if said is None else _BOUNDS.get(said[1], said[1])
    text = text[said.end() :] if said else re.sub(r"^(?:between|from)\s+", "", text)
    whole = _AMOUNT.fullmatch(text)
    if whole is not None:
        return _amount([whole], bound, around)
    first = _AMOUNT.match(text)
    dash = _DASH.match(text, first.end()) if first else None
    second = _AMOUNT.fullmatch(text, dash.end()) if dash else None
    return None if first is None or second is None else _amount([first, second], bound, around)


def _amount(found: list[re.Match[str]], bound: str, around: bool) -> Amount | None:
    named = [match["unit"] or match["lead"] or "" for match in found]
    values = []
    digits = 0
    for match in found:
        value = _value(match["number"])
        if value is None:
            return None
        digits = max(digits, len(match["number"].partition(".")[2]))
        values.append(value)
    scales = [match["scale"] or "" for match in found]
    # "5 to 10 kg", "1-2 million": what stands behind the second holds for both.
    scales = [scale or scales[-1] for scale in scales]
    named = [name or named[-1] or named[0] for name in named]
    units = [_UNITS.get(name, ("", 1.0)) for name in named]
    if len({dimension for dimension, _ in units}) > 1:
        return None
    numbers = [
        value * _SCALES.get(scale, 1.0) * factor
        for value, scale, (_, factor) in zip(values, scales, units, strict=True)
    ]
    factor = units[0][1] * _SCALES.get(scales[0], 1.0)
    return Amount(numbers[0], numbers[-1], units[0][0], factor, digits, bound, around)


def _value(written: str) -> float | None:
    """Return a number as it is written in English, or with a decimal comma where it can be nothing else."""
    text = re.sub(r"['\u202f\u00a0]", "", written).replace("−", "-")
    if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[-+]?\d{1,3}(?:\.\d{3})+,\d+|[-+]?\d+,\d+|[-+]?\d{1,3}(?:\.\d{3}){2,}", text):
        text = text.replace(".", "").replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _compare(one: Amount, two: Amount) -> Comparison:
    equal = _equal(one.low, two.low) and _equal(one.high, two.high)
    if one.unit and two.unit and one.unit != two.unit:
        if {one.unit, two.unit} in ({"celsius", "degree"}, {"fahrenheit", "degree"}) and equal:
            return unsure("degrees of another kind")
        return unsure("another unit") if _converted(one, two) else different("another unit")
    if bool(one.unit) != bool(two.unit):
        bare, named = (one, two) if two.unit else (two, one)
        if any(
            _equal(bare.low * factor, named.low) for dimension, factor in _UNITS.values() if dimension == named.unit
        ) or (named.unit == "share" and _equal(bare.low * 100, named.low)):
            return unsure("a number without a unit")
        return different("another number")
    if one.bound != two.bound:
        ways = _UPWARDS.get(one.bound, 0) * _UPWARDS.get(two.bound, 0)
        return different("another bound") if ways < 0 else unsure("another bound")
    if equal:
        return same("the same amount") if one.around == two.around else unsure("one is rounded")
    if _equal(one.low, one.high) != _equal(two.low, two.high):
        apart = one.low > two.high or two.low > one.high
        return different("another number") if apart else unsure("a number within a range")
    if any(x.digits == 3 and _equal(1000 * x.low, y.low) for x, y in ((one, two), (two, one))):
        return unsure("a point that may part thousands")
    if one.around or two.around or _rounded(one, two):
        near = abs(one.low - two.low) <= 0.1 * max(abs(one.low), abs(two.low))
        return unsure("one is rounded") if near else different("another number")
    return different("another number")


def _converted(one: Amount, two: Amount) -> bool:
    """Return True when one may be the other in a unit of another kind: 30 days and a month, 20 °C and 68 °F."""
    for x, y in ((one, two), (two, one)):
        convert = _CONVERSIONS.get((x.unit, y.unit))
        if convert is not None:
            return abs(convert(x.low) - y.low) <= max(0.04 * abs(y.low), 1.0 if x.unit == "celsius" else 0.0)
    return False


_CONVERSIONS: dict[tuple[str, str], Callable[[float], float]] = {
    ("time", "months"): lambda seconds: seconds / 86400 / 30.44,
    ("celsius", "fahrenheit"): lambda degrees: degrees * 1.8 + 32,
    ("speed", "mph"): lambda speed: speed / 1.609344,
}


def _rounded(one: Amount, two: Amount) -> bool:
    """Return True when one may be the other with fewer decimals, or in a unit that was converted."""
    if one.factor == two.factor:
        digits = min(one.digits, two.digits)
        return one.digits != two.digits and _equal(
            round(one.low / one.factor, digits), round(two.low / two.factor, digits)
        )
    return abs(one.low - two.low) <= 0.01 * max(abs(one.low), abs(two.low))


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _compare_ratios(one: re.Match[str], two: re.Match[str]) -> Comparison | None:
    values = [[_value(number) for number in found.groups()] for found in (one, two)]
    (a, b), (c, d) = values
    if a is None or b is None or c is None or d is None:
        return None
    if (a, b) == (c, d):
        return same("the same amount")
    return unsure("the same share") if b and d and _equal(a / b, c / d) else different("another number")


def _dates(text: str) -> set[Date]:
    """Return the days that a text may name, none when it is no date."""
    for shape, orders in _DATES:
        found = shape.fullmatch(text)
        if found is None:
            continue
        days: set[Date] = set()
        for order in orders.split():
            parts: dict[str, int] = {}
            for name, said in zip(order, found.groups(), strict=True):
                if said is not None:
                    parts[name.lower()] = MONTHS[said] if name == "M" else int(said)
            if 1 <= parts["m"] <= 12 and 1 <= parts.get("d", 1) <= 31:
                days.add((parts.get("y"), parts["m"], parts.get("d")))
        return days
    return set()


def _compare_dates(one: set[Date], two: set[Date]) -> Comparison:
    if one == two and len(one) == 1:
        return same("the same date")
    agree = [
        all(x is None or y is None or x == y for x, y in zip(mine, theirs, strict=True))
        for mine in one
        for theirs in two
    ]
    if one == two or any(agree):
        return unsure("a date that may be the same")
    return different("another date")
