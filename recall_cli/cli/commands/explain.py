"""`recall explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, Line, table
from recall_cli.types import Result

CHECKS = ("margin", "overlap", "length_ratio", "numbers", "negation", "roles", "names", "detail")


def explain(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="A prompt, or a request body as JSON.")],
    against: Annotated[
        str,
        typer.Option(
            metavar="STORE|LOG|FILE",
            help="A store, a request log as recall savings reads it, or a file of prompts; - is stdin.",
        ),
    ],
    tau: options.Tau = 0.8,
    tau_for: options.TauFor = None,
    veto: Annotated[
        str,
        typer.Option(
            envvar="RECALL_VETO",
            metavar="CHECK[,CHECK]",
            help="Checks that forbid a hit alone; all of them if not given.",
        ),
    ] = "",
    verify_on_hit: options.VerifyOnHit = "auto",
    k: Annotated[int, typer.Option("-k", metavar="N", help="Candidates to show.")] = 5,
    no_text: Annotated[bool, typer.Option("--no-text", help="Show no stored prompt.")] = False,
    embedder: options.Embedder = "static",
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Show why a prompt would, or would not, be answered from what is stored: candidates, evidence, gates.

    A log walls its calls off by tenant, model, system prompt and parameters: ask it with a request body.

    Example: recall explain "How do I reset my password?" --against answers.db --veto numbers,negation
    """
    with Output(format, json, out, inputs=[against]) as output:
        from recall_cli.measure import explain as measure

        checks = tuple(filter(None, veto.split(",")))
        plan = measure.ExplainPlan(
            prompt,
            against,
            embedder=embedder,
            tau=tau,
            taus=options.cutoffs(tau_for),
            veto=checks or None,
            verify_on_hit=verify_on_hit,
            k=k,
            show_text=not no_text,
        )
        output.emit(measure.run(plan), view)


def view(result: Result) -> Sequence[Block]:
    """Return what people see: the outcome, the candidates with their evidence, and what each is refused for."""
    summary, rows = result.summary, result.rows
    because = "nothing speaks against the nearest one" if not summary["gate"] else summary["gate"]
    blocks: list[Block] = [
        Line(f"{summary['outcome']}: {because}. {summary['partition_entries']:,} entries share its partition."),
        table(
            "Candidates, nearest first, those of its partition before all others",
            ("", "where", "similarity", *CHECKS),
            [
                (str(row["rank"]), row["where"], f"{row['similarity']:.4f}", *(f"{row[name]:.2f}" for name in CHECKS))
                for row in rows
            ],
            left=2,
        ),
    ]
    if "second_opinion" in rows[0]:
        blocks.append(
            table(
                "What the second opinion weighs: a doubt counts by how much the texts have in common",
                ("", *rows[0]["second_opinion"], "logit of wrong"),
                [
                    (
                        str(row["rank"]),
                        *(f"{value:.2f}" for value in (*row["second_opinion"].values(), row["second_opinion_logit"])),
                    )
                    for row in rows
                ],
            )
        )
    for row in rows:
        blocks.append(Line(f"{row['rank']}. {row.get('text', row['where'])}"))
        blocks.append(Line(f"   {row['gate'] or 'serves'}"))
    return blocks
