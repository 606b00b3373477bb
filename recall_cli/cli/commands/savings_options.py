"""Options of `recall savings` that say what is replayed, and how."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from recall_cli.cli.options import option
from recall_cli.errors import UsageError

READING = "Reading the log"
REPLAY = "Replay"


def amount(text: str) -> Decimal:
    """Return a number as it was written, not as the nearest float."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise typer.BadParameter(f"{text!r} is no number")
    return value


def named_columns(fields: Sequence[str]) -> dict[str, str]:
    """Return {meaning: column} of `MEANING=COLUMN` options."""
    found: dict[str, str] = {}
    for text in fields:
        meaning, equals, column = text.partition("=")
        if not equals or not meaning.strip() or not column.strip():
            raise UsageError(f"--field {text!r} names no column", hint="write it as in --field prompt=question")
        if meaning.strip() in found:
            raise UsageError(f"--field names {meaning.strip()} twice", hint="keep one of them")
        found[meaning.strip()] = column.strip()
    return found


LogFormat = Annotated[
    str,
    option(
        "--log-format",
        "Read the log as this format only; an unknown name lists them. Without it each file is looked at.",
        READING,
        "NAME",
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="MEANING=COLUMN",
        help="Column of a plain table, as in prompt=question. Repeatable.",
        rich_help_panel=READING,
    ),
]
Tiers = Annotated[
    str,
    option(
        "--tiers",
        "exact, normalised (but for spaces, case, closing marks, JSON key order), semantic. "
        "Without semantic nothing is embedded.",
        REPLAY,
        "NAME[,NAME]",
    ),
]
PolicyName = Annotated[
    str,
    option(
        "--policy",
        "Of the semantic tier: none (exact), serve from --tau on, or learn from the logged answers.",
        REPLAY,
        "exact|static|adaptive",
    ),
]
Target = Annotated[
    float,
    option("--target", "Adaptive: wrong answers among semantic hits.", REPLAY, "RATE"),
]
Confidence = Annotated[float, option("--confidence", "Adaptive: of that promise.", REPLAY)]
VerifySample = Annotated[
    Decimal | None,
    option(
        "--verify-sample",
        "Share of semantic hits that the model answers too, to compare: each costs a call. "
        "None under --policy static, 0.05 under adaptive.",
        REPLAY,
        "0..1",
        parser=amount,
    ),
]
Ttl = Annotated[
    str,
    option(
        "--ttl",
        "Lifetimes of an answer to try: s, m, h, d, w or inf.",
        REPLAY,
        "TIME[,TIME]",
        envvar="RECALL_TTL_SWEEP",
    ),
]
Capacity = Annotated[
    str,
    option(
        "--capacity",
        "Cache sizes to try, least recently used out first: entries, bytes as in 64MB, or inf.",
        REPLAY,
        "N[,N]",
        envvar="RECALL_CAPACITY_SWEEP",
    ),
]
Sample = Annotated[
    float,
    option(
        "--sample",
        "Measure this share of the namespaces (tenant, model, system prompt), for very large logs.",
        REPLAY,
        "SHARE",
    ),
]
