"""`recall hub query` against a running server, and with a model that reranks: one answer, whichever way it is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.errors import UsageError
from recall_cli.hub.client import ask_served
from recall_cli.hub.models import Question, Visibility
from tests.hub.hub_server import Reply, Seen, Serve, reordered

QUESTION = "reset a password"


@pytest.fixture
def query(capsys: pytest.CaptureFixture[str]) -> Any:
    """Ask the hub called docs, and return the result document."""

    def run(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["hub", "query", "docs", QUESTION, "--json", *arguments]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def places(serve: Serve, **options: Any) -> tuple[Any, tuple[str, str], tuple[str, str]]:
    """Return a server with a hub, and what names the two ways to it: the server's, and the folder's."""
    server = serve(**options)
    server.add("docs")
    return server, ("--url", server.proxy.url), ("--hub-dir", str(server.folder))


def test_a_server_and_its_folder_answer_alike(serve: Serve, query: Any) -> None:
    _, served, local = places(serve)
    here, there = query(*local), query(*served)
    assert here["rows"] == there["rows"]
    assert here["rows"][0]["doc_id"] == "reset.md"
    assert here["summary"].keys() == there["summary"].keys()


def test_a_private_hub_takes_the_token_of_the_environment(
    serve: Serve, query: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, served, _ = places(serve)
    server.set("docs", Visibility.PRIVATE)
    monkeypatch.delenv("RECALL_HUB_TOKEN", raising=False)
    assert main(["hub", "query", "docs", QUESTION, *served]) == 4
    assert "RECALL_HUB_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("RECALL_HUB_TOKEN", server.owner("docs"))
    assert query(*served)["rows"]
    monkeypatch.setenv("RECALL_HUB_TOKEN", server.owner("others"))
    assert main(["hub", "query", "docs", QUESTION, *served]) == 4


def test_a_hub_that_is_not_served_is_said(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve()
    assert main(["hub", "query", "docs", QUESTION, "--url", server.proxy.url]) == 4
    assert capsys.readouterr().err.count("\n") >= 2


def test_a_model_reorders_here_as_on_the_server(serve: Serve, query: Any) -> None:
    _, served, local = places(serve, handler=reordered)
    plain, here, there = query(*local), query(*local, "--rerank", "llm:small"), query(*served, "--rerank", "llm:small")
    assert [row["doc_id"] for row in here["rows"]] == [row["doc_id"] for row in plain["rows"]][::-1]
    assert here["rows"] == there["rows"]
    assert here["summary"]["reranked"]
    assert not plain["summary"]["reranked"]


def test_a_server_without_a_reranker_is_not_taken_for_one_that_reordered(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    _, served, _ = places(serve)
    assert main(["hub", "query", "docs", QUESTION, "--rerank", "llm", *served]) == 0
    assert "recall serve --hub-rerank" in capsys.readouterr().out
    assert main(["hub", "query", "docs", QUESTION, *served]) == 0
    assert "not reranked" not in capsys.readouterr().out


def test_a_server_that_is_not_there_is_said_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "query", "docs", QUESTION, "--url", "http://127.0.0.1:1"]) == 5
    assert "urlopen" not in capsys.readouterr().err


def test_a_model_that_fails_leaves_the_fused_order(
    serve: Serve, query: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(seen: Seen) -> Reply:
        return Reply([b"{}"], 429)

    _, _, local = places(serve, handler=busy)
    plain, fallen = query(*local), query(*local, "--rerank", "llm:small")
    assert fallen["rows"] == plain["rows"]
    assert fallen["summary"]["rerank_error"] == "status_429"
    assert main(["hub", "query", "docs", QUESTION, *local, "--rerank", "llm:small"]) == 0
    assert "status_429" in capsys.readouterr().out


def test_a_token_follows_no_redirect(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_HUB_TOKEN", "secret")
    seen: list[Seen] = []

    def away(request: Seen) -> Reply:
        seen.append(request)
        return Reply([b""], 302, [("Location", f"http://127.0.0.1:{server.port}/elsewhere")])

    server = serve(handler=away)
    assert main(["hub", "query", "docs", QUESTION, "--url", server.model.url]) == 4
    assert len(seen) == 1


def test_a_token_that_no_header_carries_is_refused_and_not_shown() -> None:
    # Nobody is asked: the address would not answer.
    with pytest.raises(UsageError, match="holds a space") as refused:
        ask_served("http://127.0.0.1:9", "docs", Question("?"), environ={"RECALL_HUB_TOKEN": "s3cret\nline"})
    assert "s3cret" not in f"{refused.value} {refused.value.hint}"
