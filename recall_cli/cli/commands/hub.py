"""`recall hub`: make hubs of documents, feed them, ask them."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.commands import hub_eval
from recall_cli.cli.commands.hub_options import (
    ASK,
    HubDir,
    HubStore,
    Rerank,
    RerankDeadline,
    Slug,
    hub_place,
    named_settings,
    target_place,
)
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output, note
from recall_cli.errors import InputError
from recall_cli.hub.models import MOST, Level, Visibility

app = typer.Typer(help="Answer questions from a hub of documents.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder, a file, JSON lines of documents {id, title, url, text, updated} or of saved pages "
        "{url, path, title}; - is such lines on standard input.",
        show_default=False,
    ),
]
Embedder = Annotated[
    str,
    typer.Option(
        "--embedder",
        "-e",
        envvar="RECALL_HUB_EMBEDDER",
        help="hash-v1, static, minilm, model2vec:PATH-OR-NAME, or openai:MODEL@URL (key: RECALL_EMBED_KEY).",
        metavar="NAME",
    ),
]
VisibilityOf = Annotated[
    Visibility, typer.Option("--visibility", help="Who may ask it of a server: everybody, or whoever has a token.")
]
Owner = Annotated[str, typer.Option("--owner", help="Whose tokens (sub) may do everything with it.", metavar="NAME")]
Encoding = Annotated[str, typer.Option("--encoding", help="Of files that are not UTF-8 and do not say what they are.")]


@app.command("add")
def add(
    hub: Slug,
    visibility: VisibilityOf = Visibility.PUBLIC,
    owner: Owner = "",
    embedder: Embedder = "static",
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Make an empty hub."""
    from recall_cli.hub.search.embedders import hub_embedder
    from recall_cli.hub.stores.open import open_place

    place = hub_place(hub_dir, store)
    with closing(open_place(place)) as hubs:
        hubs.make(hub, hub_embedder(embedder), visibility=visibility, owner=owner)
    note(f"made the {visibility.value} hub {hub} in {place}", f"feed it with: recall hub ingest {hub} FOLDER")


@app.command("list")
def list_hubs(
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """List the hubs there are."""
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.hub_view import list_view
        from recall_cli.hub.session import states
        from recall_cli.measure.result import new_result

        place = hub_place(hub_dir, store)
        result = new_result("hub list", {"hub_dir": str(place)})
        result.rows = states(place)
        output.emit(result, list_view)


@app.command("status")
def status(
    hub: Slug,
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Show what a hub holds, and how fresh a watched one is."""
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.hub_view import status_view
        from recall_cli.hub.session import state
        from recall_cli.measure.result import new_result

        place = hub_place(hub_dir, store)
        result = new_result("hub status", {"hub": hub, "hub_dir": str(place)})
        result.summary = state(place, hub)
        output.emit(result, status_view)


@app.command("set")
def set_up(
    hub: Slug,
    visibility: Annotated[Visibility | None, typer.Option("--visibility", help="Who may ask it of a server.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Whose tokens may do everything with it.")] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", min=0, max=1, help="Weight of vectors against words in the order.")
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option("--min-score", min=-1, max=1, help="Cosine below which nothing is returned."),
    ] = None,
    no_min_score: Annotated[bool, typer.Option("--no-min-score", help="Take that limit away.")] = False,
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Change a hub's settings; a server obeys within a second. `recall hub eval --fit` finds good ones."""
    from recall_cli.hub.stores.open import opened

    changes = named_settings(
        visibility=visibility, owner=owner, alpha=alpha, min_score=min_score, no_min_score=no_min_score
    )
    with opened(hub_place(hub_dir, store), hub) as engine:
        info = engine.configure(**changes)
    limit = "" if info.min_score is None else f", min-score {info.min_score:g}"
    note(f"{hub} is at revision {info.revision}: {info.visibility.value}, alpha {info.alpha:g}{limit}")


@app.command("ingest")
def ingest(
    hub: Slug,
    source: Source,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove all documents of the hub that the source does not have.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    encoding: Encoding = "",
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Bring documents in: only what has changed is embedded, and searches see all of it at once.

    Example: recall hub ingest handbook docs/ --prune
    """
    with Output(format, json, out, inputs=[source]) as output:
        from recall_cli.cli.commands.hub_view import ingest_view
        from recall_cli.hub.api.views import report_json
        from recall_cli.hub.ingest.pipeline import feed
        from recall_cli.hub.session import local_hub
        from recall_cli.measure.result import new_result

        result = new_result("hub ingest", {"hub": hub, "source": source, "prune": prune, "dry_run": dry_run})
        with local_hub(hub_place(hub_dir, store), hub) as opened:
            fed = feed(
                opened.engine,
                opened.embedder,
                source,
                prune=prune,
                dry_run=dry_run,
                encoding=encoding,
                progress=output.progress,
            )
        result.rows, result.warnings = [report_json(fed.report)], fed.warnings
        output.emit(result, ingest_view)


@app.command("reembed")
def reembed(
    hub: Slug,
    embedder: Embedder = "static",
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Move a hub to another embedder; until that is done, it answers with the one before."""
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.hub_view import ingest_view
        from recall_cli.hub.api.views import report_json
        from recall_cli.hub.session import reembed
        from recall_cli.measure.result import new_result

        result = new_result("hub reembed", {"hub": hub, "embedder": embedder})
        result.rows = [report_json(reembed(hub_place(hub_dir, store), hub, embedder, progress=output.progress))]
        output.emit(result, ingest_view)


@app.command("watch")
def watch(
    hub: Slug,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder to watch.", show_default=False)],
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents that the folder does not have.")] = False,
    paranoid: Annotated[
        bool, typer.Option("--paranoid", help="Read every file at every look: sizes and times may lie.")
    ] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.", min=0.05, max=15)] = 2.0,
    encoding: Encoding = "",
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Keep a hub like a folder until it is stopped: an edit is searchable within seconds.

    `recall hub status` says how fresh it is.
    """
    from recall_cli.cli.commands.hub_view import say_failed, say_refreshed
    from recall_cli.hub.ingest.watch import watch_hub

    watch_hub(
        hub_place(hub_dir, store),
        hub,
        folder,
        prune=prune,
        paranoid=paranoid,
        encoding=encoding,
        interval_s=interval,
        told=say_refreshed,
        failed=say_failed,
    )


@app.command("query")
def query(
    hub: Slug,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)],
    k: Annotated[int, options.option("--k", "Results at most.", ASK, short="-k", min=1, max=MOST)] = 10,
    level: Annotated[Level, options.option("--level", "What a result is.", ASK)] = Level.DOC,
    rerank: Rerank = "none",
    rerank_deadline: RerankDeadline = 1.0,
    min_score: Annotated[
        float | None,
        options.option("--min-score", "Leave out what has a lower cosine.", ASK, "-1..1", min=-1, max=1, envvar=None),
    ] = None,
    explain: Annotated[bool, options.option("--explain", "Show every score, and what took how long.", ASK)] = False,
    url: Annotated[
        str | None,
        options.option("--url", "Ask a running server instead; token: RECALL_HUB_TOKEN.", ASK, "URL", envvar=None),
    ] = None,
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Ask a hub: the documents or passages that answer a question best.

    Example: recall hub query handbook "how do I reset my password?" -k 3
    """
    with Output(format, json, out) as output:
        from recall_cli.cli.commands.hub_view import answer_view
        from recall_cli.hub.client import AskPlan, asked
        from recall_cli.measure.result import new_result

        wanted = AskPlan(question, k=k, level=level, min_score=min_score, reranker=rerank, deadline_s=rerank_deadline)
        params = {"k": k, "level": level, "rerank": rerank, "min_score": min_score, "url": url}
        result = new_result("hub query", {"hub": hub, "question": question, **params})
        answer = asked(wanted, hub, hub_place(hub_dir, store) if url is None else url)
        result.rows = answer.pop("results")
        result.summary = answer
        output.emit(result, answer_view(explain=explain))


app.command("eval")(hub_eval.evaluate)


@app.command("mcp")
def mcp(
    hub: Slug,
    rerank: Rerank = "none",
    rerank_deadline: RerankDeadline = 1.0,
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Be an MCP server on standard input and output, with one tool: recall (extra: mcp).

    Whoever starts it may ask the hub, whatever its visibility: it is theirs to read.
    """
    from recall_cli.hub.mcp import serve

    serve(hub_place(hub_dir, store), hub, reranker=rerank, deadline_s=rerank_deadline)


@app.command("rm")
def rm(
    hub: Slug,
    documents: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Documents to remove.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove a whole hub unasked.")] = False,
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Remove documents of a hub, or the hub with everything in it."""
    from recall_cli.hub.session import remove_documents
    from recall_cli.hub.stores.open import open_place

    place = hub_place(hub_dir, store)
    if documents:
        gone = remove_documents(place, hub, documents)
        if not gone:
            raise InputError("none of these documents is there", hint=f"list them with: recall hub export {hub}")
        note(f"removed {gone:,} of {len(documents):,} documents")
        return
    if not yes and not typer.confirm(f"Remove the hub {hub} and all it holds?", err=True):
        raise typer.Exit(1)
    with closing(open_place(place)) as hubs:
        hubs.remove(hub)
    note(f"removed the hub {hub}")


@app.command("export")
def export(hub: Slug, hub_dir: HubDir = None, store: HubStore = None) -> None:
    """Write all documents to standard output as JSON lines, which `recall hub ingest` reads."""
    import sys

    from recall_cli.hub.session import exported
    from recall_cli.hub.stores.open import opened

    with opened(hub_place(hub_dir, store), hub) as engine:
        for line in exported(engine):
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


@app.command("migrate")
def migrate(
    hub: Slug,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder of hubs or a postgresql:// URL.", show_default=False)
    ],
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Carry a hub into a database, or back into a folder, and check that all of it arrived.

    What is there already is left: a run that was broken off goes on. Nothing is embedded anew; the source stays.
    """
    from recall_cli.hub.stores.migrate import carry

    source = hub_place(hub_dir, store)
    moved = carry(source, target_place(target), hub, lambda done: note(f"{done:,} documents copied"))
    note(f"{moved.documents:,} documents are in both, {moved.copied:,} of them copied now; digest {moved.digest}")
