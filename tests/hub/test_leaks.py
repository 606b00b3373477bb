"""Who gets what of a hub: visibility x principal x what is kept x flips, as tables."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from recall_cli.hub.models import Answer, Document, Question, Visibility
from recall_cli.hub.search.pipeline import Hub
from tests.hub.hub_server import URL, HubServer, Serve

PUBLIC, RESTRICTED, PRIVATE = Visibility.PUBLIC, Visibility.RESTRICTED, Visibility.PRIVATE
SECRET = "the launch code is 0000"
TEXTS = [Document("code.md", f"For those who may know: {SECRET}.")]


def principals(server: HubServer) -> dict[str, str | None]:
    """Return a token for everybody who may come."""
    return {
        "nobody": None,
        "forger": "eyJhbGciOiJub25lIn0.e30.",
        "reader of another hub": server.mint("wiki").token,
        "reader of another hub, wide audience": server.mint("wiki", "atlas").token,
        "writer": server.mint("docs", scopes=["hub:ingest"]).token,
        "reader": server.mint("docs", "wiki").token,
        "owner": server.owner("docs"),
        "owner of another hub": server.owner("docs", sub="eve"),
    }


STATUS: dict[tuple[Visibility, bool], dict[str, int]] = {
    (PUBLIC, False): {
        "nobody": 200,
        "forger": 401,
        "reader of another hub": 200,
        "reader of another hub, wide audience": 200,
        "writer": 200,
        "reader": 200,
        "owner": 200,
        "owner of another hub": 200,
    },
    (RESTRICTED, False): {
        "nobody": 401,
        "forger": 401,
        "reader of another hub": 403,
        "reader of another hub, wide audience": 403,
        "writer": 403,
        "reader": 200,
        "owner": 200,
        "owner of another hub": 403,
    },
}
STATUS[PRIVATE, False] = STATUS[RESTRICTED, False]
STATUS[PUBLIC, True] = STATUS[PUBLIC, False]
STATUS[RESTRICTED, True] = STATUS[RESTRICTED, False]
STATUS[PRIVATE, True] = STATUS[PRIVATE, False] | {
    "reader of another hub": 404,
    "reader of another hub, wide audience": 404,
}
"""By visibility and --hide-private: what each principal is answered."""

ALL_FLIPS = (PUBLIC, RESTRICTED, PUBLIC, PRIVATE, RESTRICTED, PRIVATE, PUBLIC)


def test_the_walk_holds_every_flip() -> None:
    flips = {(before, after) for before in Visibility for after in Visibility if before is not after}
    assert set(pairwise(ALL_FLIPS)) == flips


@pytest.mark.parametrize("hide", [False, True], ids=["open names", "hidden names"])
@pytest.mark.parametrize("keep", [False, True], ids=["public kept", "all kept"])
def test_nothing_leaks_across_a_flip(serve: Serve, hide: bool, keep: bool) -> None:
    server = serve(hide_private=hide, cache_private=keep)
    server.add("docs", TEXTS, visibility=ALL_FLIPS[0])
    who = principals(server)
    for visibility in ALL_FLIPS:
        server.set("docs", visibility)
        expected = STATUS[visibility, hide]
        # Those who may not come first: what was kept before the flip is as young as it can be.
        for name in sorted(who, key=lambda name: expected[name], reverse=True):
            for stream in (False, True, False):
                answer = server.ask(question="launch code", token=who[name], stream=stream)
                assert answer.status == expected[name], (visibility, name, stream)
                assert (SECRET.encode() in answer.body) is (answer.status == 200)
                shared = answer.headers["cache-control"].startswith("public")
                assert shared is (answer.status == 200 and visibility is PUBLIC and not stream)
                status = server.request("GET", "/api/hub/docs", token=who[name])
                assert status.status == expected[name]


def test_kept_answers_are_there_and_gone_with_a_flip(serve: Serve) -> None:
    """The walk above would pass with a cache that keeps nothing; this one would not."""
    server = serve()
    server.add("docs", TEXTS)
    assert [server.ask().json["cached"] for _ in range(2)] == [False, True]
    server.set("docs", PRIVATE)
    assert server.ask().status == 401
    token = server.mint("docs").token
    assert [server.ask(token=token).json["cached"] for _ in range(2)] == [False, False], "private: nothing is kept"
    server.set("docs", PUBLIC)
    assert [server.ask().json["cached"] for _ in range(2)] == [False, True], "kept before the flip, never served after"


def test_callers_of_a_private_hub_share_nothing(serve: Serve) -> None:
    server = serve(cache_private=True)
    server.add("docs", TEXTS, visibility=PRIVATE)
    bob, again = server.mint("docs").token, server.mint("docs").token
    eve = server.mint("docs", sub="eve").token
    more = server.mint("docs", scopes=["hub:recall", "hub:ingest"]).token
    asked = [
        server.ask(token=token).json["cached"] for token in (bob, bob, again, eve, eve, more, server.owner("docs"))
    ]
    assert asked == [False, True, True, False, True, False, False]


def test_callers_of_a_public_hub_share_all(serve: Serve) -> None:
    server = serve()
    server.add("docs", TEXTS)
    assert [server.ask(token=token).json["cached"] for token in (None, server.mint("docs").token)] == [False, True]


def test_a_hub_made_anew_under_its_name_has_none_of_the_old_answers(serve: Serve) -> None:
    from recall_cli.hub.stores.folder import remove_hub

    server = serve()
    server.add("docs", TEXTS)
    assert SECRET.encode() in server.ask(question="launch code").body
    remove_hub(server.folder, "docs")
    assert server.ask(question="launch code").status == 404
    server.add("docs", [Document("code.md", "Nothing to see.")])
    assert SECRET.encode() not in server.ask(question="launch code").body


def test_hidden_names_cannot_be_told_from_names_that_are_free(serve: Serve) -> None:
    server = serve(hide_private=True)
    server.add("docs", TEXTS, visibility=PRIVATE)
    who = principals(server)
    for name in ("nobody", "forger", "reader of another hub", "reader of another hub, wide audience"):
        for method, path in (("GET", ""), ("POST", "/recall"), ("DELETE", "/documents/code.md"), ("PUT", "/recall")):
            there = server.request(method, f"/api/hub/docs{path}", {"question": "x"}, token=who[name])
            free = server.request(method, f"/api/hub/free{path}", {"question": "x"}, token=who[name])
            assert there.status == free.status != 200
            there.json["error"].pop("request_id")
            assert said(there.body, "docs") == said(free.body, "free")
            challenge = there.headers.get("www-authenticate", ""), free.headers.get("www-authenticate", "")
            assert challenge[0].replace("docs", "free") == challenge[1]


@pytest.mark.parametrize("slug", ["%0d%0aX-Sent:%20by", "a%22,%20x=%22", "%F0%9F%98%80", "%00", "%ff"])
def test_what_no_header_can_carry_is_a_name_like_others(serve: Serve, slug: str) -> None:
    server = serve(hide_private=True)
    for token in (None, "no.token.atall"):
        answer = server.ask(slug, token=token)
        assert answer.status == 401
        named = answer.headers["www-authenticate"].partition('resource_metadata="')[2].partition('", scope=')[0]
        assert re.fullmatch(f"{URL}/.well-known/oauth-protected-resource/api/hub/[a-zA-Z0-9%-]+", named)


def test_a_hidden_hub_that_cannot_be_read_is_hidden_too(serve: Serve) -> None:
    server = serve(hide_private=True)
    server.add("docs", TEXTS, visibility=PRIVATE)
    (server.folder / "docs" / "hub.db").write_bytes(b"no database" * 1000)
    assert server.ask().status == server.ask("free").status == 401
    other = server.mint("wiki").token
    assert server.ask(token=other).status == server.ask("free", token=other).status == 404
    assert server.ask(token=server.mint("docs").token).status == 503


def said(body: bytes, slug: str) -> bytes:
    """Return a refusal without its number and its hub's name."""
    return body.split(b'"request_id"')[0].replace(slug.encode(), b"")


@pytest.mark.parametrize("stream", [False, True])
def test_a_flip_while_an_answer_is_made_is_obeyed(serve: Serve, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    server = serve()
    server.add("docs", TEXTS)
    made = Hub.stream

    async def after_a_flip(hub: Hub, question: Question) -> AsyncIterator[Answer]:
        server.set("docs", PRIVATE)
        async for answer in made(hub, question):
            yield answer

    monkeypatch.setattr(Hub, "stream", after_a_flip)
    answer = server.ask(question="launch code", stream=stream)
    assert (answer.status, answer.code) == (401, "token_required")
    assert server.ask(question="launch code", token=server.mint("docs").token, stream=stream).status == 200
