"""`recall hub token` as its users type it, and what a server on the same folder makes of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cli.app import main
from recall_cli.hub.api.errors import INGEST, RECALL, ApiError
from recall_cli.hub.api.tokens import Tokens
from recall_cli.hub.models import Visibility
from recall_cli.hub.stores.folder import make_hub
from recall_cli.hub.stores.signing_keys import FILE, KeyRing

URL = "https://hub.example.org"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three hubs: two of ann's, one of nobody's."""
    for slug, owner in (("docs", "ann"), ("wiki", "ann"), ("stray", "")):
        make_hub(tmp_path / "hubs", slug, make_embedder("hash-v1"), visibility=Visibility.PRIVATE, owner=owner)
    monkeypatch.setenv("RECALL_HUB_DIR", str(tmp_path / "hubs"))
    monkeypatch.setenv("RECALL_HUB_URL", URL)
    return tmp_path / "hubs"


@pytest.fixture
def server(folder: Path) -> Iterator[Tokens]:
    """What a running server knows tokens by."""
    ring = KeyRing(folder / FILE)
    yield Tokens(ring, URL)
    ring.close()


@pytest.fixture
def mint(capsys: pytest.CaptureFixture[str]) -> Any:
    """Mint a token and return it: nothing else is on standard output."""

    def run(*arguments: str) -> str:
        assert main(["hub", "token", "mint", *arguments]) == 0
        return capsys.readouterr().out.strip()

    return run


def test_a_minted_token_is_good_for_what_was_said(server: Tokens, mint: Any) -> None:
    grant = server.verify(mint("docs", "wiki", "--sub", "ci", "--scope", "hub:ingest", "--scope", "hub:recall"))
    assert (grant.subject, grant.hubs, grant.scopes) == ("ci", {"docs", "wiki"}, {RECALL, INGEST})
    assert server.verify(mint("docs", "--sub", "ci")).scopes == {RECALL}


def test_the_owner_has_a_token_that_names_no_scope(server: Tokens, mint: Any) -> None:
    grant = server.verify(mint("docs", "wiki", "--owner"))
    assert (grant.subject, grant.scopes) == ("ann", None)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["docs"], 2),
        (["nowhere", "--sub", "ci"], 4),
        (["docs", "--sub", "ci", "--scope", "hub:everything"], 2),
        (["docs", "--sub", "ci", "--ttl", "2592001"], 2),
        (["docs", "--sub", "ci", "--hub-url", "hub.example.org"], 2),
        (["docs", "--owner", "--sub", "ann"], 2),
        (["stray", "--owner"], 2),
        (["docs", "stray", "--owner"], 2),
    ],
)
def test_what_cannot_be_minted_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert main(["hub", "token", "mint", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) >= 2


def test_a_revoked_token_is_refused_by_a_running_server(
    server: Tokens, mint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, other = mint("docs", "--sub", "ci"), mint("docs", "--sub", "ci")
    monkeypatch.setattr("sys.stdin", io.StringIO(token + "\n"))
    assert main(["hub", "token", "revoke", "-"]) == 0
    with pytest.raises(ApiError, match="revoked"):
        server.verify(token)
    assert server.verify(other).subject == "ci"


def test_two_rotations_refuse_what_was_minted_before(
    server: Tokens, mint: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    token = mint("docs", "--sub", "ci")
    assert main(["hub", "token", "rotate"]) == 0
    assert server.verify(token).subject == "ci"
    assert main(["hub", "token", "rotate"]) == 0
    with pytest.raises(ApiError, match="key"):
        server.verify(token)
    capsys.readouterr()
    assert main(["hub", "token", "keys", "--json"]) == 0
    printed = capsys.readouterr().out
    assert [row["signs"] for row in json.loads(printed)["rows"]] == [True, False]
    assert server.ring.signing()[1].hex() not in printed
