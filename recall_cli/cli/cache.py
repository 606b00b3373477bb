"""`recall cache`: look at a store, and make its vectors anew with another embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.blocks import Block, count, table
from recall_cli.cli.options import FormatName
from recall_cli.cli.render import Output
from recall_cli.types import Result

app = typer.Typer(help="Look after a store.", no_args_is_help=True)

StorePath = Annotated[str, typer.Argument(metavar="STORE", help="A store's SQLite file.", show_default=False)]


@app.command("stats")
def stats(
    store: StorePath,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Show what a store holds: entries, bytes, partitions, and whose vectors they are."""
    with Output(format, json, out) as output:
        from recall_cli.measure.store_stats import run

        output.emit(run(store), view)


@app.command("reembed")
def reembed(store: StorePath, embedder: options.Embedder = "static") -> None:
    """Embed every stored prompt again with another embedder; answers stay as they are."""
    from recall_cli.cli.render import note
    from recall_cli.core.embed import make_embedder
    from recall_cli.core.upkeep import reembed

    made = reembed(store, make_embedder(embedder))
    note(f"{made:,} vectors in {store} are now {embedder}'s")


def view(result: Result) -> Sequence[Block]:
    """Return what people see of a store."""
    facts = result.summary
    namespaces = [(row["namespace"], count(row["entries"]), count(row["bytes"])) for row in result.rows]
    return [
        table(
            "Store",
            ("embedder", "entries", "with vector", "partitions", "bytes"),
            [
                (
                    f"{facts['embedder']} ({facts['fingerprint'][:12]})",
                    count(facts["entries"]),
                    count(facts["vectors"]),
                    count(facts["partitions"]),
                    count(facts["bytes"]),
                )
            ],
        ),
        table("Namespaces", ("namespace", "entries", "bytes"), namespaces),
    ]
