"""`recall hub token`: who may ask which hubs of a server, for how long, and who no more."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.commands.hub_options import HubDir, HubStore, hub_place
from recall_cli.cli.options import FormatName
from recall_cli.cli.output import Output, note
from recall_cli.cli.render.blocks import Block, table
from recall_cli.errors import UsageError
from recall_cli.hub.api.errors import RECALL
from recall_cli.hub.models import TOKEN_S
from recall_cli.types import Result

if TYPE_CHECKING:
    from recall_cli.hub.api.tokens import Tokens

app = typer.Typer(help="Make and revoke the tokens of hubs that are not public.", no_args_is_help=True)

TOKENS = "Tokens"
DEFAULT_URL = "http://127.0.0.1:8484"

Slugs = Annotated[list[str], typer.Argument(metavar="HUB...", help="The hubs it is good for.", show_default=False)]
HubUrl = Annotated[
    str, options.option("--hub-url", "How callers name the server, as it was told to `recall serve`.", TOKENS, "URL")
]
Subject = Annotated[str, options.option("--sub", "Whose token it is.", TOKENS, "NAME", envvar=None)]
Scopes = Annotated[
    list[str] | None,
    options.option("--scope", "hub:recall (the default) or hub:ingest; may be repeated.", TOKENS, envvar=None),
]
ForOwner = Annotated[
    bool, options.option("--owner", "The owner's own token, which may do everything.", TOKENS, envvar=None)
]
Ttl = Annotated[int, options.option("--ttl", "Seconds until it expires, 30 days at most.", TOKENS, min=1, envvar=None)]


@app.command("mint")
def mint(
    hubs: Slugs,
    sub: Subject = "",
    scope: Scopes = None,
    owner: ForOwner = False,
    ttl: Ttl = TOKEN_S,
    hub_url: HubUrl = DEFAULT_URL,
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Print a new token: `Authorization: Bearer TOKEN`. Its id, for `revoke`, goes to standard error.

    Example: recall hub token mint handbook --sub ci --scope hub:ingest --ttl 86400
    """
    from recall_cli.hub.session import owner_of

    # Asked in any case: a token for a hub that is not there is a typing error.
    owns = owner_of(hub_place(hub_dir, store), hubs)
    if owner and (sub or scope):
        raise UsageError("--owner says whose token it is and what it may do", hint="leave out --sub and --scope")
    if owner and not owns:
        raise UsageError("these hubs have no owner in common", hint="set one with: recall hub set HUB --owner NAME")
    with _tokens(hub_dir, store, hub_url) as tokens:
        minted = tokens.mint(owns if owner else sub, hubs, None if owner else scope or [RECALL], ttl_s=ttl)
    print(minted.token)
    note(f"token {minted.jti} of {minted.subject} for {minted.audience}", f"good until {_when(minted.expires)}")


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN|ID", help="A token or its id; - reads standard input.")],
    hub_dir: HubDir = None,
    store: HubStore = None,
) -> None:
    """Refuse a token from now on; a running server obeys at once."""
    with _tokens(hub_dir, store) as tokens:
        note(f"revoked {tokens.revoke(sys.stdin.read() if token == '-' else token)}")


@app.command("rotate")
def rotate(hub_dir: HubDir = None, store: HubStore = None) -> None:
    """Sign with a new key. Tokens of the one before stay good until the next rotation."""
    with _tokens(hub_dir, store) as tokens:
        note(f"key {tokens.ring.rotate()} signs from now on", "rotate again to refuse all tokens of older keys")


@app.command("keys")
def keys(
    hub_dir: HubDir = None,
    store: HubStore = None,
    format: options.Format = FormatName.table,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """List the keys that verify, newest first; their secrets are never shown."""
    with Output(format, json, out) as output:
        from recall_cli.measure.result import new_result

        result = new_result("hub token keys", {"hub_dir": str(hub_place(hub_dir, store))})
        with _tokens(hub_dir, store) as tokens:
            rows = tokens.ring.live()
        result.rows = [{"kid": key.kid, "created": key.created, "signs": key.signs} for key in rows]
        output.emit(result, keys_view)


def keys_view(result: Result) -> Sequence[Block]:
    """Return what people see of the keys."""
    rows = [(row["kid"], _when(row["created"]), "signs" if row["signs"] else "verifies") for row in result.rows]
    return [table("Keys", ("key", "made", "does"), rows, left=3)]


@contextmanager
def _tokens(hub_dir: Path | None, store: str | None, url: str = DEFAULT_URL) -> Iterator[Tokens]:
    from recall_cli.hub.api.tokens import Tokens
    from recall_cli.hub.stores.open import open_place

    with closing(open_place(hub_place(hub_dir, store))) as hubs, closing(hubs.ring()) as ring:
        yield Tokens(ring, url)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")
