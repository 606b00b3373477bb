"""Options of `recall savings` that say what is replayed, and how."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

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
    typer.Option(
        "--log-format",
        envvar="RECALL_LOG_FORMAT",
        metavar="NAME",
        help="Read the log as this format only; an unknown name lists them. Without it each file is looked at.",
        rich_help_panel=READING,
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
    typer.Option(
        envvar="RECALL_TIERS",
        metavar="NAME[,NAME]",
        help="exact, normalised (but for spaces, case, closing marks, JSON key order), semantic. "
        "Without semantic nothing is embedded.",
        rich_help_panel=REPLAY,
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        envvar="RECALL_POLICY",
        metavar="static|adaptive",
        help="Of the semantic tier: serve from --tau on, or learn from the logged answers.",
        rich_help_panel=REPLAY,
    ),
]
Target = Annotated[
    float,
    typer.Option(
        envvar="RECALL_TARGET",
        metavar="RATE",
        help="Adaptive: wrong answers among semantic hits.",
        rich_help_panel=REPLAY,
    ),
]
Confidence = Annotated[
    float, typer.Option(envvar="RECALL_CONFIDENCE", help="Adaptive: of that promise.", rich_help_panel=REPLAY)
]
VerifySample = Annotated[
    Decimal | None,
    typer.Option(
        envvar="RECALL_VERIFY_SAMPLE",
        metavar="0..1",
        parser=amount,
        help="Share of semantic hits that the model answers too, to compare: each costs a call. "
        "None under --policy static, 0.05 under adaptive.",
        rich_help_panel=REPLAY,
    ),
]
Ttl = Annotated[
    str,
    typer.Option(
        "--ttl",
        envvar="RECALL_TTL_SWEEP",
        metavar="TIME[,TIME]",
        help="Lifetimes of an answer to try: s, m, h, d, w or inf.",
        rich_help_panel=REPLAY,
    ),
]
Capacity = Annotated[
    str,
    typer.Option(
        envvar="RECALL_CAPACITY_SWEEP",
        metavar="N[,N]",
        help="Cache sizes to try, least recently used out first: entries, bytes as in 64MB, or inf.",
        rich_help_panel=REPLAY,
    ),
]
Sample = Annotated[
    float,
    typer.Option(
        envvar="RECALL_SAMPLE",
        metavar="SHARE",
        help="Measure this share of the namespaces (tenant, model, system prompt), for very large logs.",
        rich_help_panel=REPLAY,
    ),
]
