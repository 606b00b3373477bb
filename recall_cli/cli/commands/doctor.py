"""`recall doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from recall_cli.cli import options
from recall_cli.cli.config_file import settings_files
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, Line, table
from recall_cli.cli.service_links import links, options_of
from recall_cli.types import Result

PREFIX = "RECALL_"
BY_NAME = (
    "RECALL_ADMIN_TOKEN",
    "RECALL_EMBED_KEY",
    "RECALL_HUB_TOKEN",
    "RECALL_JUDGE_KEY",
    "RECALL_JUDGE_URL",
    "RECALL_RERANK_KEY",
    "RECALL_RERANK_URL",
)
"""Variables without an option: secrets and addresses, read where they are used."""


def doctor(
    context: typer.Context,
    embedder: options.Embedder = "static",
    store: Annotated[
        str | None,
        typer.Option(
            envvar="RECALL_STORE",
            metavar="STORE",
            help="A SQLite file or postgresql:// URL to look at; nothing in it is changed.",
        ),
    ] = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Look at what recall stands on here: what is broken (exit 1), what is slow and why, and what to do about it.

    Example: recall doctor --store cache.db
    """
    with Output(format, json, out, inputs=[store or ""]) as output:
        from recall_cli.measure import doctor as measure

        plan = measure.DoctorPlan(
            embedder=embedder,
            store=store,
            settings=tuple(str(path) for path in settings_files()),
            variables=tuple(sorted(name for name in os.environ if name.startswith(PREFIX))),
            links=tuple(links(os.environ)),
            known_variables=(*BY_NAME, *_variables(context.find_root().command)),
        )
        result = measure.run(plan)
        output.emit(result, view)
        measure.check(result)


def _variables(command: Any) -> Iterator[str]:
    """Yield the variables that options of a command and of those under it read."""
    for param in options_of(command):
        if isinstance(param.envvar, str):
            yield param.envvar
        else:
            yield from param.envvar or ()


def view(result: Result) -> Sequence[Block]:
    """Return what people see: every finding, then what to do about those that are not well."""
    rows = [(row["check"], row["state"], row["found"]) for row in result.rows]
    blocks: list[Block] = [table("What recall stands on here", ("", "state", "found"), rows, left=3)]
    for state in ("broken", "slow", "absent"):
        told = [row for row in result.rows if row["state"] == state and row["hint"]]
        blocks += [Line(f"{row['check']} ({state}): {row['hint']}") for row in told]
    return blocks
