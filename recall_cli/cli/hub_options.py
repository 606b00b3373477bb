"""Options that several commands of `recall hub` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recall_cli.cli import options

ASK = "Asking"

Slug = Annotated[str, typer.Argument(metavar="HUB", help="The hub's name.", show_default=False)]
HubDir = Annotated[
    Path | None,
    options.option("--hub-dir", "Folder of the hubs (default: in your settings folder).", options.OUTPUT, "FOLDER"),
]
Rerank = Annotated[
    str,
    options.option(
        "--rerank",
        "none, or llm[:MODEL] to let a language model reorder. Address: RECALL_RERANK_URL or ANTHROPIC_BASE_URL; key: "
        "RECALL_RERANK_KEY or ANTHROPIC_API_KEY.",
        ASK,
        "SPEC",
    ),
]
RerankDeadline = Annotated[
    float, options.option("--rerank-deadline", "Seconds after which the order stays as it is.", ASK, min=0.05)
]


def hub_place(chosen: Path | None) -> Path:
    """Return the folder of the hubs: the one that was named, or the one beside the cache's store."""
    return chosen if chosen is not None else Path(typer.get_app_dir("recall")) / "hubs"
