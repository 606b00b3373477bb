"""Options that several commands share, declared once; every one has an environment variable."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from recall_cli.errors import UsageError

OUTPUT = "Output"


class FormatName(StrEnum):
    """How the result is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def integers(text: str, *, least: int = 1) -> tuple[int, ...]:
    """Return the whole numbers of a comma-separated list, each once, in the order given."""
    try:
        values = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"{text!r} is no list of whole numbers", hint="write it as in 1000,10000") from None
    if min(values) < least:
        raise UsageError(f"{text!r} holds a number below {least}", hint="write it as in 1000,10000")
    return values


def rates(text: str) -> tuple[float, ...]:
    """Return the rates of a comma-separated list, each between 0 and 1."""
    try:
        values = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"{text!r} is no list of rates", hint="write it as in 0.01,0.05 (1 % and 5 %)") from None
    if not all(0 < value < 1 for value in values):
        raise UsageError(f"{text!r} holds a rate that is not between 0 and 1", hint="0.01 means 1 %")
    return values


def limits(text: str) -> dict[str, int]:
    """Return the counts of `N[,NAME=N]`; the one without a name stands under ""."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = part.rpartition("=")
        if not count.strip().isdecimal():
            raise UsageError(f"{part!r} is no count", hint="write it as in 500,billing=100")
        found[name.strip()] = int(count)
    return found


def cutoffs(given: Sequence[str] | None) -> dict[str, float]:
    """Return the cutoffs of `NAMESPACE=X`, each between 0 and 1."""
    found: dict[str, float] = {}
    for text in given or ():
        # From the right: a namespace may hold a "=" itself.
        namespace, _, value = text.rpartition("=")
        try:
            if not namespace:
                raise ValueError
            cutoff = float(value)
        except ValueError:
            hint = "write it as in --tau-for billing=0.92, once for each namespace"
            raise UsageError(f"{text!r} is not a namespace and its cutoff", hint=hint) from None
        if namespace in found:
            raise UsageError(f"--tau-for names {namespace} twice", hint="keep one of them")
        found[namespace] = cutoff
    return found


def pair(text: str) -> tuple[float, float]:
    """Return the two numbers of `LOW,HIGH`."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not two numbers", hint="write them as in 0.8,0.99") from None
    return low, high


def option(name: str, help: str, panel: str, metavar: str | None = None, *, short: str = "", **more: Any) -> Any:
    """Return a flag that a variable sets too: --log-text and RECALL_LOG_TEXT."""
    more.setdefault("envvar", "RECALL_" + name.strip("-").replace("-", "_").upper())
    names = (name, short) if short else (name,)
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


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
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        envvar="RECALL_REPORT",
        help="Also write one self-contained HTML page with tables and charts.",
        rich_help_panel=OUTPUT,
    ),
]
Tau = Annotated[
    float,
    typer.Option(
        "--tau",
        envvar="RECALL_TAU",
        metavar="0..1",
        help="Serve when cosine similarity reaches this (1: equal requests alone).",
    ),
]
TauFor = Annotated[
    list[str] | None,
    typer.Option(
        "--tau-for",
        envvar="RECALL_TAU_FOR",
        metavar="NAMESPACE=X",
        help="Another cutoff for one namespace; may be given several times.",
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
Index = Annotated[
    str,
    typer.Option(
        "--index",
        envvar="RECALL_INDEX",
        metavar="SPEC",
        help="auto, exact, scan or hnsw, with options as in hnsw:M=32,ef_search=160.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", envvar="RECALL_SEED", min=0, max=2**63 - 1, help="Makes what is drawn by chance repeatable."
    ),
]
VerifyOnHit = Annotated[
    str,
    typer.Option(
        "--verify-on-hit",
        envvar="RECALL_VERIFY_ON_HIT",
        metavar="evidence|none|model",
        help="What a hit must pass beside the cutoff. none: the floor alone; model: a second opinion too.",
    ),
]
AllowSampled = Annotated[
    bool,
    typer.Option(
        "--allow-sampled",
        envvar="RECALL_ALLOW_SAMPLED",
        help="Count calls at a temperature unset or above 0 as cacheable too.",
    ),
]
