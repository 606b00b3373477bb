"""Options that several commands share, declared once; every one has an environment variable."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

SYNTHETIC = "What is measured"
OUTPUT = "Output"


class FormatName(StrEnum):
    """How the result is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def numbers(text: str) -> list[int]:
    """Return the whole numbers of a comma-separated list, 1,000 written as 1000."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers such as 1000,10000") from None
    if any(value < 1 for value in values):
        raise typer.BadParameter(f"{text!r} holds a number below 1")
    return values


Format = Annotated[
    FormatName, typer.Option("--format", "-f", envvar="RECALL_FORMAT", help="How to print.", rich_help_panel=OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=OUTPUT)]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        envvar="RECALL_OUT",
        help="Also write the whole result document (JSON) to this file.",
        rich_help_panel=OUTPUT,
    ),
]
Tau = Annotated[
    float,
    typer.Option(
        "--tau", envvar="RECALL_TAU", metavar="0..1", help="Serve when cosine similarity reaches this (1 = identical)."
    ),
]
Embedder = Annotated[
    str,
    typer.Option(
        "--embedder", "-e", envvar="RECALL_EMBEDDER", help="hash-v1, static or model2vec:PATH-OR-NAME.", metavar="NAME"
    ),
]
Embedders = Annotated[
    list[str] | None,
    typer.Option(
        "--embedder",
        "-e",
        envvar="RECALL_EMBEDDER",
        help="hash-v1, static or model2vec:PATH-OR-NAME; may be given several times.",
        metavar="NAME",
    ),
]
Entries = Annotated[
    str, typer.Option("--entries", envvar="RECALL_ENTRIES", metavar="N[,N]", help="Entries in the cache.")
]
Seed = Annotated[int, typer.Option("--seed", envvar="RECALL_SEED", help="Makes synthetic parts repeatable.")]
