"""The contract of the API: every status, in which order they come, and what an answer holds."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.hub.ingest.documents import MAX_ID_CHARS, from_row
from recall_cli.hub.models import Document, Visibility
from tests.hub.hub_server import URL, Answer, HubServer, Serve

RECALL = "/api/hub/docs/recall"


def test_an_answer_holds_what_the_contract_says(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    answer = server.ask(k=2)
    assert answer.status == 200
    said = answer.json
    assert set(said) == {"hub", "revision", "embedder", "level", "reranked", "cached", "timings_ms", "results"}
    assert (said["hub"], said["level"], said["reranked"], said["cached"]) == ("docs", "doc", False, False)
    assert set(said["timings_ms"]) >= {"embed", "vector", "lexical", "fuse", "rerank"}
    first = next(result for result in said["results"] if result["doc_id"] == "reset.md")
    assert (first["doc_id"], first["title"], first["url"]) == ("reset.md", "Passwords", "https://x/reset")
    assert set(first) == {"doc_id", "title", "url", "chunk_id", "ordinal", "text", "score", "source", "scores"}
    assert set(first["scores"]) == {"cosine", "bm25", "fused", "rerank"}
    assert first["source"] in ("vector", "lexical", "both")
    assert len(said["results"]) == 2
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]


def test_nothing_found_is_an_answer(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    answer = server.ask(min_score=1.0)
    assert (answer.status, answer.json["results"]) == (200, [])


BODIES: list[tuple[Any, int, str]] = [
    (b"", 400, ""),
    (b"{", 400, ""),
    (b"[]", 400, ""),
    (b"null", 400, ""),
    (b'"question"', 400, ""),
    (b"\xff\xfe", 400, ""),
    (b'{"question": "\xff"}', 400, ""),
    (b'{"question": NaN}', 400, ""),
    (b"[" * 60_000, 400, ""),
    ({}, 400, "question"),
    ({"question": 7}, 400, "question"),
    ({"question": ["x"]}, 400, "question"),
    ({"question": "x" * 2_001}, 400, "question"),
    ({"question": ""}, 422, "question"),
    ({"question": " \n\t "}, 422, "question"),
    *[({"question": "x", "k": k}, 400, "k") for k in (0, 21, -1, 1.5, "3", True, None)],
    *[({"question": "x", "level": level}, 400, "level") for level in ("docs", "", 1, None, True, ["doc"])],
    *[({"question": "x", "rerank": flag}, 400, "rerank") for flag in ("true", 1, None)],
    *[({"question": "x", "min_score": score}, 400, "min_score") for score in (1.1, -1.1, "0.5", True, [])],
    ({"question": "x", "stream": 1}, 400, "stream"),
    ({"question": "x", "questions": "y"}, 400, "questions"),
]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server for requests that change nothing."""
    from tests.hub.hub_server import FakeUpstream, reordered

    folder = tmp_path_factory.mktemp("hubs")
    model = FakeUpstream(reordered)
    server = HubServer(folder, model)
    server.add("docs")
    server.add("secret", visibility=Visibility.PRIVATE)
    yield server
    server.close()
    model.close()


@pytest.mark.parametrize(("body", "status", "field"), BODIES, ids=lambda value: str(value)[:40])
def test_a_body_that_breaks_the_contract(one_server: HubServer, body: Any, status: int, field: str) -> None:
    answer = one_server.request("POST", RECALL, body)
    assert answer.status == status, answer.body
    error = answer.json["error"]
    assert error.get("field", "") == field
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["cache-control"] == "no-store"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["question", "k", "level", "rerank", "min_score", "stream"])


@given(st.binary(max_size=300) | st.dictionaries(names, json_values).map(lambda body: json.dumps(body).encode()))
def test_no_body_breaks_the_server(one_server: HubServer, body: bytes) -> None:
    assert one_server.request("POST", RECALL, body).status in (200, 400, 422)


@given(st.text(min_size=1, max_size=200))
def test_no_question_breaks_the_server(one_server: HubServer, question: str) -> None:
    answer = one_server.ask(question=question)
    lone = any("\ud800" <= letter <= "\udfff" for letter in question)
    assert answer.status == (400 if lone else 422 if not question.strip() else 200)


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_another_type_is_415(one_server: HubServer, kind: str) -> None:
    answer = one_server.request("POST", RECALL, b'{"question": "x"}', headers={"Content-Type": kind})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_an_encoded_body_is_415(one_server: HubServer) -> None:
    answer = one_server.request("POST", RECALL, {"question": "x"}, headers={"Content-Encoding": "gzip"})
    assert answer.status == 415


def test_json_may_name_its_charset(one_server: HubServer) -> None:
    kind = {"Content-Type": "Application/JSON; charset=UTF-8"}
    assert one_server.request("POST", RECALL, {"question": "x"}, headers=kind).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", RECALL, "POST"),
        ("PUT", RECALL, "POST"),
        ("DELETE", "/api/hub/docs", "GET"),
        ("POST", "/api/hub/docs/documents/a.md", "PUT, DELETE"),
        ("GET", "/api/hub/nowhere/recall", "POST"),
    ],
)
def test_another_method_is_405(one_server: HubServer, method: str, path: str, allow: str) -> None:
    answer = one_server.request(method, path)
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", allow)


@pytest.mark.parametrize("slug", ["nowhere", "Docs", "..", "%2e%2e", "docs%00", "a%2Fb", "-", "x" * 300])
def test_an_unknown_hub_is_404(one_server: HubServer, slug: str) -> None:
    answer = one_server.ask(slug)
    assert (answer.status, answer.json["error"]["code"][:8]) == (404, "no_such_")


@pytest.mark.parametrize("path", ["/api/hub/", "/api/hub/docs/", "/api/hub/docs/else", "/api/hub/docs/recall/"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404(one_server: HubServer, method: str, path: str) -> None:
    answer = one_server.request(method, path)
    assert (answer.status, answer.code) == (404, "no_such_path")


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND", "POST"])
@pytest.mark.parametrize("path", ["/api/hub/docs/nowhere", "/.well-known/oauth-protected-resource/api/hub/docs"])
def test_every_method_is_answered_in_the_contracts_words(one_server: HubServer, method: str, path: str) -> None:
    answer = one_server.request(method, path)
    wanted = (404, "no_such_path") if path.startswith("/api") else (405, "method_not_allowed")
    assert (answer.status, answer.code) == wanted
    assert ("allow" in answer.headers) == (answer.status == 405)


def test_a_body_of_64_kib_is_the_largest(one_server: HubServer) -> None:
    start = b'{"question": "x"'
    fits = start + b" " * (65_536 - len(start) - 1) + b"}"
    assert one_server.request("POST", RECALL, fits).status == 200
    answer = one_server.request("POST", RECALL, fits + b" ")
    assert (answer.status, answer.code) == (413, "too_large")


def test_a_body_that_does_not_say_its_size_is_measured(one_server: HubServer) -> None:
    head = f"POST {RECALL} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"2000\r\n" + b" " * 8192 + b"\r\n"
    with socket.create_connection(("127.0.0.1", one_server.port), timeout=20) as sock:
        sock.sendall(head.encode() + piece * 9)
        assert sock.recv(13) == b"HTTP/1.1 413 ", "before its end"


def test_whoever_sends_too_much_reads_why_and_may_go_on(one_server: HubServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", one_server.port, timeout=20)
    for body, status in ((b" " * (8 << 20), 413), (b'{"question": "x"}', 200)):
        connection.request("POST", RECALL, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (status, True)
    connection.close()


def test_a_caller_that_asks_too_often_waits(serve: Serve) -> None:
    server = serve(per_s=0.5)
    server.add("docs")
    server.add("wiki")
    bob, eve = server.mint("docs").token, server.mint("docs", sub="eve").token
    answers = [server.ask(token=bob) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[1].code == "rate_limited"
    assert 1 <= int(answers[1].headers["retry-after"]) <= 2
    assert server.ask(token=eve).status == 200, "another caller"
    assert server.ask().status == 200, "nobody in particular"
    assert server.ask("wiki", token=bob).status == 200, "another hub"


def test_a_hub_that_was_never_fed_is_503(serve: Serve) -> None:
    server = serve()
    server.add("docs", [])
    answer = server.ask()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


def test_a_hub_that_cannot_be_read_is_503_and_tells_no_path(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    (server.folder / "docs" / "hub.db").write_bytes(b"no database" * 1000)
    answer = server.ask()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert str(server.folder) not in answer.body.decode()


def test_a_hub_of_another_embedder_is_422(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    server.add("docs")
    other = type("Other", (), {"name": "hash-v1", "dim": 256, "fingerprint": "0" * 64})()
    monkeypatch.setattr(server.face.hubs, "_make_embedder", lambda spec, dim: other)
    answer = server.ask()
    assert (answer.status, answer.code) == (422, "embedder_mismatch")
    server.set("docs", Visibility.PRIVATE)
    assert server.ask().status == 401, "that is nobody's business who may not ask"


def wrong_in(*faults: str) -> tuple[str, str, bytes, dict[str, str]]:
    """Return a request (method, path, body, headers) that is wrong in several ways at once."""
    body = b" " * 70_000 if "size" in faults else b"{" if "body" in faults else b'{"question": "x"}'
    path = "/api/hub/nowhere/recall" if "slug" in faults else "/api/hub/secret/recall"
    headers = {"Content-Type": "application/json"}
    if "token" in faults:
        headers["Authorization"] = "Bearer wrong"
    return "GET" if "method" in faults else "POST", path, body, headers


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        (("method", "size", "slug", "token", "body"), 405),
        (("size", "slug", "token"), 413),
        (("slug", "token", "body"), 404),
        (("token", "body"), 401),
        ((), 401),
    ],
)
def test_what_is_wrong_first_is_said_first(one_server: HubServer, faults: tuple[str, ...], status: int) -> None:
    method, path, body, headers = wrong_in(*faults)
    assert one_server.request(method, path, body, headers=headers).status == status


def test_whoever_may_not_come_in_is_told_before_its_body_is_read(one_server: HubServer) -> None:
    head = "POST /api/hub/docs/documents HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", one_server.port), timeout=20) as sock:
        sock.sendall(head.encode())
        assert sock.recv(13) == b"HTTP/1.1 401 ", "nothing of the body was sent"


def test_the_right_comes_before_the_rate_and_the_rate_before_the_body(serve: Serve) -> None:
    server = serve(per_s=0.5)
    server.add("docs", visibility=Visibility.RESTRICTED)
    wrong = server.mint("docs", scopes=["hub:ingest"]).token
    assert {server.ask(token=wrong).status for _ in range(3)} == {403}
    right = server.mint("docs").token
    assert [server.request("POST", RECALL, b"{", token=right).status for _ in range(2)] == [400, 429]


def test_a_token_in_the_query_is_none(serve: Serve) -> None:
    server = serve()
    server.add("docs", visibility=Visibility.RESTRICTED)
    token = server.mint("docs").token
    answer = server.request("POST", f"{RECALL}?access_token={token}", {"question": "x"})
    assert (answer.status, answer.code) == (401, "token_required")


def test_a_refused_caller_is_told_how_to_ask(one_server: HubServer) -> None:
    said = one_server.ask("secret").headers["www-authenticate"]
    metadata = f"{URL}/.well-known/oauth-protected-resource/api/hub/secret"
    assert said == f'Bearer resource_metadata="{metadata}", scope="hub:recall"'
    said = one_server.ask("secret", token="wrong").headers["www-authenticate"]
    assert 'error="invalid_token"' in said
    assert 'scope="hub:recall"' in said
    wrong = one_server.mint("secret", scopes=["hub:ingest"]).token
    answer = one_server.ask("secret", token=wrong)
    assert (answer.status, answer.code) == (403, "insufficient_scope")
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("resource", ["api", "api/hub/docs", "api/hub/secret", "api/hub/nowhere"])
def test_the_metadata_say_how_to_ask_and_not_what_there_is(one_server: HubServer, resource: str) -> None:
    answer = one_server.request("GET", f"/.well-known/oauth-protected-resource/{resource}")
    assert answer.status == 200
    assert answer.json == {
        "resource": f"{URL}/{resource}",
        "scopes_supported": ["hub:recall", "hub:ingest"],
        "bearer_methods_supported": ["header"],
    }


def test_a_hub_says_what_it_holds_to_whoever_may_ask_it(serve: Serve) -> None:
    server = serve()
    server.add("docs", visibility=Visibility.RESTRICTED)
    answer = server.request("GET", "/api/hub/docs", token=server.mint("docs").token)
    said = answer.json
    assert (said["hub"], said["documents"], said["visibility"], said["dim"]) == ("docs", 3, "restricted", 256)
    assert "owner" not in said
    assert server.request("GET", "/api/hub/docs").status == 401


def put(server: HubServer, id: str, body: Any, token: str) -> Answer:
    return server.request("PUT", f"/api/hub/docs/documents/{id}", body, token=token)


def test_a_document_is_put_found_changed_and_removed(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    token = server.mint("docs", scopes=["hub:ingest"]).token
    new = {"text": "Zebras are striped.", "title": "Zebra", "url": "https://x/z", "updated": 1.5}
    answer = put(server, "zoo/zebra%20one.md", new, token)
    assert (answer.status, answer.json["id"], answer.json["added"]) == (201, "zoo/zebra one.md", 1)
    assert server.ask(question="zebra").worded == ["zoo/zebra one.md"]
    assert put(server, "zoo/zebra%20one.md", new, token).json["unchanged"] == 1
    answer = put(server, "zoo/zebra%20one.md", {"text": "Giraffes are tall."}, token)
    assert (answer.status, answer.json["changed"]) == (200, 1)
    assert server.ask(question="giraffes").worded == ["zoo/zebra one.md"]
    gone = server.request("DELETE", "/api/hub/docs/documents/zoo/zebra%20one.md", token=token)
    assert (gone.status, gone.json["removed"]) == (200, 1)
    assert "zoo/zebra one.md" not in server.ask(question="giraffes").found
    again = server.request("DELETE", "/api/hub/docs/documents/zoo/zebra%20one.md", token=token)
    assert (again.status, again.code) == (404, "no_such_document")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        ({"text": 1}, 400),
        ({"text": "x", "title": None}, 400),
        ({"text": "x", "updated": "today"}, 400),
        ({"text": "x", "updated": True}, 400),
        ({"text": "x", "updated": 1_700_000_000_000}, 400),
        ({"text": "x", "title": "x" * 1_001}, 400),
        ({"text": "x", "url": "x" * 8_001}, 400),
        ({"text": "x", "owner": "eve"}, 400),
        ({"text": "  "}, 422),
        ({"text": "x" * (4 << 20)}, 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_document_that_breaks_the_contract(one_server: HubServer, body: Any, status: int) -> None:
    token = one_server.mint("docs", scopes=["hub:ingest"]).token
    assert put(one_server, "new.md", body, token).status == status


def post(server: HubServer, lines: list[Any], token: str | None = None, **headers: str) -> Answer:
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    kind = {"Content-Type": "application/x-ndjson", **headers}
    return server.request("POST", "/api/hub/docs/documents", body, token=token, headers=kind)


def test_documents_sent_together_are_one_write(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    before = server.ask().json["revision"]
    token = server.mint("docs", scopes=["hub:ingest"]).token
    lines = [{"id": f"n/{n}", "text": f"number{n} of many", "title": "N"} for n in range(50)]
    answer = post(server, [*lines, b"", {"id": "reset.md", "text": "Press the red button."}], token)
    assert (answer.status, answer.json["added"], answer.json["changed"]) == (200, 50, 1)
    assert answer.json["revision"] == before + 1
    assert server.ask(question="number7").worded == ["n/7"]
    assert post(server, lines, token).json["unchanged"] == 50


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        ({"text": "x"}, 400),
        ({"id": 7, "text": "x"}, 400),
        ({"id": "", "text": "x"}, 400),
        ({"id": "good", "text": "again"}, 400),
        ({"id": "x", "text": "x", "more": 1}, 400),
        ({"id": "x", "text": " "}, 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_one_bad_line_keeps_all_out(one_server: HubServer, last: Any, status: int) -> None:
    token = one_server.mint("docs", scopes=["hub:ingest"]).token
    before = one_server.ask().json["revision"]
    refused = post(one_server, [{"id": "good", "text": "good"}, last], token)
    assert refused.status == status
    assert "line 2" in refused.json["error"]["message"] or "comes twice" in refused.json["error"]["message"]
    assert one_server.ask().json["revision"] == before


def test_documents_sent_together_take_the_scope_and_the_type(one_server: HubServer) -> None:
    line = [{"id": "x", "text": "x"}]
    assert post(one_server, line).status == 401
    assert post(one_server, line, one_server.mint("docs").token).status == 403
    token = one_server.mint("docs", scopes=["hub:ingest"]).token
    assert post(one_server, line, token, **{"Content-Type": "application/json"}).status == 415


@pytest.mark.parametrize("id", ["%00", "a%09b", "x" * (MAX_ID_CHARS + 1), "%20", "%20%20"])
def test_an_id_that_no_document_has(one_server: HubServer, id: str) -> None:
    token = one_server.mint("docs", scopes=["hub:ingest"]).token
    assert put(one_server, id, {"text": "x"}, token).status == 400


@pytest.mark.parametrize("id", ["x" * MAX_ID_CHARS, "寸" * MAX_ID_CHARS])
def test_an_id_that_a_file_may_have_can_be_put(serve: Serve, id: str) -> None:
    server = serve()
    document = from_row({"id": id, "text": "from a file"})
    assert isinstance(document, Document)
    server.add("docs", [document])
    assert put(server, quote(id), {"text": "put"}, server.owner("docs")).status == 200


def test_a_document_that_nobody_may_put_can_be_removed(serve: Serve) -> None:
    server = serve()
    server.add("docs", [Document("of a\tfile.md", "odd")])
    path = "/api/hub/docs/documents/of%20a%09file.md"
    assert server.request("DELETE", path, token=server.owner("docs")).status == 200
    assert server.request("DELETE", path, token=server.owner("docs")).status == 404


def test_writing_takes_its_own_scope_even_where_reading_is_open(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    path = "/api/hub/docs/documents/reset.md"
    assert server.request("DELETE", path).status == 401
    assert server.request("DELETE", path, token=server.mint("docs").token).status == 403
    assert server.request("DELETE", path, token=server.owner("docs", sub="eve")).status == 403
    assert server.request("DELETE", path, token=server.owner("docs")).status == 200


def test_an_edit_by_another_process_is_found_at_once(serve: Serve) -> None:
    from recall_cli.hub.ingest.pipeline import ingest
    from recall_cli.hub.stores.open import opened
    from tests.hub.hub_server import HASH

    server = serve()
    server.add("docs")
    assert server.ask(question="walrus").worded == []
    with opened(server.folder, "docs") as engine:
        ingest(engine, HASH, [Document("new.md", "The walrus has tusks.")])
    assert server.ask(question="walrus").worded == ["new.md"]
