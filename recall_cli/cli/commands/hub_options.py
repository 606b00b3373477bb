"""Options that several commands of `recall hub` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from recall_cli.cli import options
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from recall_cli.hub.models import Settings
    from recall_cli.hub.stores.open import Place

ASK = "Asking"

Slug = Annotated[str, typer.Argument(metavar="HUB", help="The hub's name.", show_default=False)]
HubDir = Annotated[
    Path | None,
    options.option("--hub-dir", "Folder of the hubs (default: in your settings folder).", options.OUTPUT, "FOLDER"),
]
HubStore = Annotated[
    str | None,
    options.option(
        "--store",
        "postgresql:// URL of the hubs, instead of a folder.",
        options.OUTPUT,
        "URL",
        envvar="RECALL_HUB_STORE",
    ),
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


def hub_folder(chosen: Path | None) -> Path:
    """Return the folder of the hubs and the keys: the one that was named, or the one beside the cache's store."""
    return chosen if chosen is not None else Path(typer.get_app_dir("recall")) / "hubs"


def hub_place(chosen: Path | None, store: str | None) -> Place:
    """Return where the hubs are. Raises UsageError for a store that is no database, or a URL with a password."""
    folder = hub_folder(chosen)
    return folder if store is None else database_place(store, folder)


def target_place(named: str) -> Place:
    """Return the place that a folder or a URL names. Raises UsageError as `hub_place` does."""
    return database_place(named, hub_folder(None)) if "://" in named else Path(named)


def database_place(url: str, folder: Path) -> Place:
    """Return a database of hubs, whose keys are in a folder. Raises UsageError as `hub_place` does."""
    from recall_cli.hub.stores.open import DatabasePlace
    from recall_cli.postgres.urls import check_url, is_database_url

    if not is_database_url(url):
        raise UsageError(
            f"{url} is no postgresql:// URL", hint="hubs are in a database, or in the folder that --hub-dir names"
        )
    return DatabasePlace(check_url(url), folder)


def named_settings(*, min_score: float | None, no_min_score: bool, **named: Any) -> Settings:
    """Return the settings of a hub that somebody named. Raises UsageError for none, or two that contradict."""
    if no_min_score and min_score is not None:
        raise UsageError("--min-score sets a limit and --no-min-score takes it away", hint="name one of the two")
    changes = {name: value for name, value in {**named, "min_score": min_score}.items() if value is not None}
    if no_min_score:
        changes["min_score"] = None
    if not changes:
        raise UsageError("there is nothing to set", hint="name a setting, as in --visibility private")
    return cast("Settings", changes)
