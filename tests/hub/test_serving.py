"""Hubs beside the proxy: shared computations, headers, numbers, the log, and who has which path."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.hub.api.app import HubPlan
from recall_cli.hub.models import Visibility
from recall_cli.hub.stores.folder import make_hub
from tests.hub.hub_server import HASH, URL, Reply, Seen, Serve, reordered
from tests.proxy.conftest import Start
from tests.proxy.conftest import start as start_proxy
from tests.proxy.fake import ask

start = start_proxy


def test_equal_questions_at_once_cost_one_call_of_the_model(serve: Serve) -> None:
    go = threading.Event()

    def slow(seen: Seen) -> Reply:
        return Reply([go, *reordered(seen).pieces])

    server = serve(slow)
    server.face._reranker.deadline_s = 60.0  # type: ignore[union-attr]
    server.add("docs")
    counts = server.face.counts.results
    with ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(server.ask, stream=n % 2 == 0) for n in range(8)]
        other = pool.submit(server.ask, question="invoices")
        deadline = time.monotonic() + 20
        while sum(counts.values()) < 9 and time.monotonic() < deadline:
            time.sleep(0.005)  # until all have come
        go.set()
        answers = [one.result() for one in asked]
        assert other.result().status == 200
    assert {answer.status for answer in answers} == {200}
    assert (counts["computed"], counts["joined"]) == (2, 7)
    assert server.face.counts.reranks == {"ok": 2}
    assert len(server.model.seen) == 2
    plain = {json.dumps(answer.json["results"]) for answer in answers[1::2]}
    assert len(plain) == 1


def test_the_answer_of_a_failed_reranker_is_served_and_not_kept(serve: Serve) -> None:
    server = serve(lambda seen: Reply([b"{}"], status=429))
    server.add("docs")
    for _ in range(2):
        answer = server.ask()
        said = answer.json
        assert (answer.status, said["reranked"], said["rerank_error"], said["cached"]) == (
            200,
            False,
            "status_429",
            False,
        )
        assert answer.headers["cache-control"] == "no-store"
    assert len(server.model.seen) == 2
    assert server.face.counts.reranks == {"status_429": 2}


def test_headers_say_how_long_an_answer_is_good(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    fresh, kept = server.ask(), server.ask()
    assert fresh.headers["cache-control"] == kept.headers["cache-control"] == "public, max-age=60"
    assert "age" not in fresh.headers
    assert int(kept.headers["age"]) >= 0
    assert fresh.headers["vary"] == "Authorization, Accept"
    assert fresh.headers["etag"] == kept.headers["etag"]
    server.set("docs", Visibility.RESTRICTED)
    token = server.mint("docs").token
    closed = server.ask(token=token)
    assert closed.headers["cache-control"] == "private, no-store"
    assert closed.headers["etag"] != fresh.headers["etag"]
    assert server.request("GET", "/api/hub/docs", token=token).headers["etag"] == closed.headers["etag"]


def test_one_spelling_of_letters_is_one_question(serve: Serve) -> None:
    server = serve()
    server.add("docs")
    assert [server.ask(question=text).json["cached"] for text in ("caf\u00e9", "cafe\u0301", " caf\u00e9 ")] == [
        False,
        True,
        True,
    ]


def test_a_revoked_token_is_refused_at_the_next_request(serve: Serve) -> None:
    server = serve()
    server.add("docs", visibility=Visibility.PRIVATE)
    minted = server.mint("docs")
    assert server.ask(token=minted.token).status == 200
    server.tokens.revoke(minted.token)
    answer = server.ask(token=minted.token)
    assert (answer.status, answer.code) == (401, "invalid_token")


def numbers(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(recall_hub_\S+) (\S+)$", text, re.MULTILINE)}


def test_the_numbers_are_beside_the_proxys_and_name_no_hub(serve: Serve) -> None:
    server = serve(reordered)
    server.add("docs")
    server.add("secret", visibility=Visibility.PRIVATE)
    for _ in range(2):
        server.ask()
    server.ask("secret")
    server.request("GET", "/api/hub/docs")
    said = server.request("GET", "/metrics").body.decode()
    found = numbers(said)
    assert found['recall_hub_requests_total{operation="recall",status="200"}'] == 2
    assert found['recall_hub_requests_total{operation="recall",status="401"}'] == 1
    assert found['recall_hub_requests_total{operation="status",status="200"}'] == 1
    assert found['recall_hub_latency_seconds_count{operation="recall"}'] == 3
    assert found['recall_hub_results_total{kind="cache"}'] == found['recall_hub_results_total{kind="computed"}'] == 1
    assert found['recall_hub_reranks_total{kind="ok"}'] == 1
    assert "recall_requests_total" in said or "recall_stored_total" in said
    assert "docs" not in said
    assert "secret" not in said


@pytest.mark.parametrize("log_text", [False, True])
def test_the_log_holds_no_credential_and_a_question_only_when_told_to(
    serve: Serve, tmp_path: Path, log_text: bool
) -> None:
    log = tmp_path / "log.jsonl"
    server = serve(log=str(log), log_text=log_text)
    server.add("docs", visibility=Visibility.PRIVATE)
    token = server.mint("docs").token
    server.ask(question="where is the walrus", token=token)
    server.request("POST", f"/api/hub/docs/recall?access_token={token}", {"question": "where is the walrus"})
    server.proxy.server.log.close()
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["status"] for line in lines] == [200, 401]
    assert (lines[0]["hub"], lines[0]["subject"], lines[0]["operation"]) == ("docs", "bob", "recall")
    assert token.rpartition(".")[2] not in log.read_text()
    assert ("walrus" in log.read_text()) is log_text


def test_the_proxy_goes_on_beside_hubs(serve: Serve) -> None:
    server = serve(lambda seen: Reply([b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}']))
    assert ask(server.proxy).text == "hi"
    assert server.request("GET", "/healthz").status == 200
    server.request("GET", "/api/other")
    assert server.model.seen[-1].target == "/api/other"


def test_without_a_folder_the_paths_are_the_upstreams(start: Start) -> None:
    proxy, upstream = start(lambda seen: Reply([b"upstream"]))
    answer = ask(proxy, to="/api/hub/docs/recall")
    assert (answer.status, answer.body) == (200, b"upstream")
    assert upstream.seen[-1].target == "/api/hub/docs/recall"


def test_the_metadata_of_others_are_the_upstreams(serve: Serve) -> None:
    server = serve(lambda seen: Reply([b"upstream"]))
    assert server.request("GET", "/.well-known/oauth-protected-resource/mcp").body == b"upstream"
    assert server.request("GET", "/.well-known/oauth-protected-resource/api").json["resource"] == f"{URL}/api"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--hub-dir", "{hubs}"], 4, "others can read"),
        (["--hub-dir", "{hubs}/nowhere"], 4, "cannot be opened"),
        (["--hub-dir", "{empty}", "--hub-url", "hub.example.org"], 2, "no server's URL"),
        (["--hub-dir", "{empty}", "--hub-url", "https://x/recall"], 2, "beyond the host"),
        (["--hub-dir", "{empty}", "--hub-rerank", "llama"], 2, "no reranker"),
    ],
)
def test_what_cannot_be_served_is_told_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, why: str
) -> None:
    for name in ("hubs", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "hubs" / "keys.db").touch(mode=0o644)
    given = [argument.format(hubs=tmp_path / "hubs", empty=tmp_path / "empty") for argument in arguments]
    assert main(["serve", "--port", "0", "--store", "memory", "--log", "none", *given]) == code
    assert why in capsys.readouterr().err


def test_the_command_serves_hubs_until_it_is_told_to_end(tmp_path: Path) -> None:
    make_hub(tmp_path, "docs", HASH)
    command = [
        sys.executable,
        "-m",
        "recall_cli",
        "serve",
        "--port",
        "0",
        "--store",
        "memory",
        "--hub-dir",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("=")[2].removesuffix("/v1")
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        connection.request("GET", "/.well-known/oauth-protected-resource/api/hub/docs")
        assert json.loads(connection.getresponse().read())["resource"] == f"{url}/api/hub/docs", "its own address"
        connection.close()
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert f"hubs under {url}/api/hub/: docs; tokens are for {url}" in said


def test_the_commands_options_reach_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    monkeypatch.setattr("recall_cli.proxy.serve.run", lambda plan, **more: plans.append(plan) or 0)
    told = ["--hub-url", URL, "--hub-rerank", "llm:small", "--hub-cache-ttl", "5", "--hub-rate", "3", "--log-text"]
    assert main(["serve", "--hub-dir", str(tmp_path), *told, "--hub-cache-private", "--hide-private"]) == 0
    assert plans[0].hub == HubPlan(
        tmp_path,
        url=URL,
        reranker="llm:small",
        cache_ttl_s=5.0,
        cache_private=True,
        hide_private=True,
        per_s=3.0,
        log_text=True,
    )
    assert main(["serve", "--hub-dir", str(tmp_path)]) == 0
    assert plans[1].hub == HubPlan(tmp_path), "what is not said is as the library has it"
    assert main(["serve"]) == 0
    assert plans[2].hub is None
