"""Answers of our own with known meaning: several wordings of one answer, and slots whose value is the answer.

The wordings differ as models' do: incidental numbers, negations and names come and go between them.
`{n}` takes a number, `{e}` a name, `{t}` a time; `{is}` takes "is" or "is not" and the like, and is what a
flipped answer flips.
"""

from __future__ import annotations

from dataclasses import dataclass


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
