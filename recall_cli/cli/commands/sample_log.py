"""`recall sample-log`: a synthetic request log, to try the other commands on."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.output import note


class KindName(StrEnum):
    """What the log is of."""

    help_desk = "help-desk"
    summaries = "summaries"


def sample_log(
    kind: Annotated[
        KindName,
        typer.Argument(help="help-desk repeats itself, as such traffic does; summaries never does.", metavar="KIND"),
    ] = KindName.help_desk,
    requests: Annotated[
        int, typer.Option("--requests", "-n", envvar="RECALL_SAMPLE_REQUESTS", min=1, help="Calls in the log.")
    ] = 2_000,
    seed: options.Seed = 0,
) -> None:
    """Write a synthetic request log to standard output, to try recall on before you have a log of your own.

    Its questions, prices and hours are made up: what it shows is how to read a report, and no forecast.

    Example: recall sample-log help-desk > traffic.jsonl
    """
    from recall_cli.measure.synthetic.sample_log import log_lines

    sys.stdout.buffer.writelines(log_lines(kind.value, requests, seed))
    note(f"{requests:,} synthetic calls ({kind.value}): an example to read reports with, no forecast of any traffic")
