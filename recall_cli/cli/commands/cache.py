"""`recall cache`: look into a store or a running server, take entries out, carry them elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output
from recall_cli.cli.render.blocks import Block, count, table
from recall_cli.errors import InputError, UsageError
from recall_cli.types import Result

app = typer.Typer(help="Look after a store.", no_args_is_help=True)

Where = Annotated[
    str,
    typer.Argument(
        metavar="STORE|URL",
        help="A store's SQLite file or postgresql:// URL, or a running server's.",
        show_default=False,
    ),
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Only entries of this namespace.")]
Contains = Annotated[str | None, typer.Option("--contains", help="Only entries whose prompt holds this text.")]
StorePath = Annotated[str, typer.Argument(metavar="STORE", help="A store's SQLite file.", show_default=False)]
AnyStore = Annotated[
    str, typer.Argument(metavar="STORE", help="A store's SQLite file or postgresql:// URL.", show_default=False)
]


@app.command("stats")
def stats(
    store: AnyStore,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Show what a store holds: entries, bytes, partitions, and whose vectors they are."""
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.cache_stores import store_alone
        from recall_cli.measure.store_logs import run

        output.emit(run(store_alone(store)), view)


@app.command("reembed")
def reembed(store: StorePath, embedder: options.Embedder = "static") -> None:
    """Embed every stored prompt again with another embedder; answers stay as they are."""
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.stores.sqlite_file import reembed
    from recall_cli.cli.commands.cache_stores import file_alone
    from recall_cli.cli.output import note

    made = reembed(file_alone(store), make_embedder(embedder))
    note(f"{made:,} vectors in {store} are now {embedder}'s")


@app.command("ls")
def ls(
    where: Where,
    namespace: Namespace = None,
    contains: Contains = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Entries to list.")] = 20,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """List entries, latest first."""
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.cache_stores import place
        from recall_cli.measure.result import new_result

        result = new_result("cache ls", {"where": where, "namespace": namespace, "contains": contains, "limit": limit})
        result.rows = place(where).listed(namespace, contains, limit)
        output.emit(result, list_view)


@app.command("show")
def show(where: Where, id: Annotated[int, typer.Argument(metavar="ID", help="The entry's number.")]) -> None:
    """Print all of one entry as JSON: its prompt, its answer, and what labels said of it."""
    import orjson

    from recall_cli.cli.commands.cache_stores import place

    row = place(where).shown(id)
    if row is None:
        raise InputError(f"there is no entry {id} in {where}", hint=f"list them with: recall cache ls {where}")
    print(orjson.dumps(row, option=orjson.OPT_INDENT_2).decode())


@app.command("rm")
def rm(where: Where, ids: Annotated[list[int], typer.Argument(metavar="ID...", help="Entries by number.")]) -> None:
    """Remove entries: an answer found wrong is served no more."""
    from recall_cli.cli.commands.cache_stores import place
    from recall_cli.cli.output import note

    gone = place(where).remove(ids)
    note(f"removed {gone:,} of {len(ids):,} entries")
    if not gone:
        raise InputError("none of these entries is there", hint=f"list them with: recall cache ls {where}")


@app.command("purge")
def purge(
    where: Where,
    namespace: Namespace = None,
    contains: Contains = None,
    older: Annotated[float | None, typer.Option("--older", metavar="SECONDS", min=0, help="Stored longer ago.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
) -> None:
    """Remove all entries that fit; with no filter it takes --all."""
    from recall_cli.cli.commands.cache_stores import place
    from recall_cli.cli.output import note

    if all == (namespace is not None or contains is not None or older is not None):
        raise UsageError("purge takes a filter, or --all", hint="as in --namespace NAME, --older 86400, or --all alone")
    note(f"removed {place(where).purge(namespace, older, contains):,} entries")


@app.command("export")
def export(where: Where) -> None:
    """Write all entries to standard output as JSON lines: prompts, answers, and the key that finds them."""
    import sys

    from recall_cli.cli.commands.cache_stores import place

    for line in place(where).exported():
        sys.stdout.buffer.write(line)


@app.command("import")
def take_in(
    where: Where,
    file: Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    embedder: options.Embedder = "static",
) -> None:
    """Store the entries of an export; one of an equal request is replaced."""
    from recall_cli.cli.commands.cache_stores import place
    from recall_cli.cli.output import note

    note(f"stored {place(where).take_in(file, embedder):,} entries")


@app.command("migrate")
def migrate(source: AnyStore, target: AnyStore) -> None:
    """Carry a store into another one, SQLite or PostgreSQL, and check that all of it arrived.

    What is there already is left: a run that was broken off goes on. The source stays as it is.
    """
    from recall_cli.cache.stores.maintenance import move
    from recall_cli.cli.commands.cache_stores import open_named, store_alone
    from recall_cli.cli.output import note

    with ExitStack() as ends:
        old = ends.enter_context(closing(open_named(store_alone(source), None)))
        new = ends.enter_context(closing(open_named(store_alone(target), old.embedder)))
        moved = move(old, new, lambda done: note(f"{done:,} entries copied"))
    note(f"{moved.entries:,} entries are in both stores, {moved.copied:,} of them copied now; digest {moved.digest}")


@app.command("upkeep")
def upkeep(
    url: Annotated[str, typer.Argument(metavar="URL", help="A postgresql:// URL, as the tables' owner.")],
) -> None:
    """Bring a database's tables up to date, and index its large partitions for searches by other replicas."""
    from recall_cli.cli.output import note
    from recall_cli.postgres.open import look_after

    made, dropped = look_after(url)
    note(f"the tables are up to date; {made:,} graphs made, {dropped:,} dropped")


def list_view(result: Result) -> Sequence[Block]:
    """Return what people see of a list of entries."""
    from datetime import UTC, datetime

    rows = [
        (
            str(row["id"]),
            datetime.fromtimestamp(row["created"], UTC).isoformat(" ", "seconds"),
            count(row["bytes"]),
            f"{row['wrong']}/{row['labels']}",
            row["namespace"],
            row["prompt"],
        )
        for row in result.rows
    ]
    return [table("Entries", ("id", "stored", "bytes", "wrong", "namespace", "prompt"), rows)]


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
