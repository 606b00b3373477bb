"""Running it: health, numbers, the log, the admin API, limits, an orderly and a disorderly end."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cli.app import main
from recall_cli.cli.commands.serve import cost_of
from recall_cli.proxy.settings import Limits
from recall_cli.types import Completion, Outcome, Usage
from tests.proxy.answers import SSE, chat, chat_stream, provider
from tests.proxy.conftest import Start
from tests.proxy.fake import EMBEDDER, FakeUpstream, Reply, RunningProxy, ask, make_plan, talk
from tests.proxy.test_rules import NEAR, fill, wait_for

TOKEN = "secret-admin-token"


def get(proxy: RunningProxy, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_health_and_readiness(start: Start) -> None:
    proxy, upstream = start()
    assert get(proxy, "/healthz") == (200, b'{"status":"ok"}')
    assert json.loads(get(proxy, "/readyz")[1]) == {"status": "ready", "store": "ok"}
    assert not upstream.seen


def test_metrics_count_what_happened(start: Start) -> None:
    proxy, _ = start()
    fill(proxy)
    ask(proxy)
    ask(proxy, NEAR)
    ask(proxy, temperature=1)
    status, text = get(proxy, "/metrics")
    assert status == 200
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    assert found["recall_requests_total", "", "EXACT", "openai"] == 1
    assert found["recall_requests_total", "", "SEMANTIC", "openai"] == 1
    assert found["recall_requests_total", "BYPASS", "openai", "sampled"] == 1
    assert found["recall_saved_tokens_total", "input"] == 24
    assert found["recall_entries",] == 1
    assert found["recall_latency_seconds_count", "embed"] == 2
    assert found["recall_latency_seconds_count", "upstream"] == 2


def test_dollars_saved_are_those_of_the_price_table(start: Start) -> None:
    cost = cost_of()
    proxy, _ = start()
    fill(proxy)
    metrics = proxy.server.metrics
    for _ in range(2):
        ask(proxy)
    metrics.price()
    assert (metrics.saved_usd, metrics.unpriced) == (0, 2), "without prices none is invented"
    metrics.cost = cost
    for _ in range(3):
        ask(proxy)
    metrics.price()
    each = cost("openai", Completion(b"", "gpt-4o-2024-08-06", Usage(12, 7)))
    assert each is not None
    assert metrics.saved_usd == pytest.approx(3 * each)
    assert metrics.unpriced == 2


@pytest.mark.parametrize("log_text", [False, True])
def test_the_log_holds_no_credential_and_a_prompt_only_when_told(log_text: bool, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    proxy, _ = start(log=str(log), log_text=log_text)
    fill(proxy, "A very secret question about my health?", key="sk-very-secret")
    ask(proxy, "A very secret question about my health?", key="sk-very-secret")
    get(proxy, "/v1/models")
    proxy.server.log.close()
    text = log.read_text()
    assert "sk-very-secret" not in text
    assert ("very secret question" in text) == log_text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row.get("outcome") for row in rows if "event" not in row] == ["MISS", "EXACT", "PASS"]
    assert [row["entry"] for row in rows if row.get("event") == "stored"] == [1]
    assert os.stat(log).st_mode & 0o077 == 0


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RECALL_ADMIN_TOKEN", TOKEN)
    return TOKEN


ADMIN = [("GET", "/recall/entries"), ("GET", "/recall/entries/1"), ("DELETE", "/recall/entries/1"),
         ("POST", "/recall/purge"), ("GET", "/recall/export"), ("POST", "/recall/import")]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_the_admin_api_takes_the_token(method: str, path: str, token: str, start: Start) -> None:
    proxy, _ = start()
    fill(proxy)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}):
        assert get(proxy, path, method, {"all": True}, **headers)[0] == 401
    assert ask(proxy).outcome == "EXACT"


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_without_a_token_or_beyond_this_machine_there_is_no_admin_api(
    method: str, path: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECALL_ADMIN_TOKEN", raising=False)
    proxy, upstream = start()
    assert get(proxy, path, method, Authorization="Bearer ")[0] == 404
    monkeypatch.setenv("RECALL_ADMIN_TOKEN", TOKEN)
    public, _ = start(host="0.0.0.0")
    assert get(public, path, method, Authorization=f"Bearer {TOKEN}")[0] == 404
    assert not upstream.seen, "our paths never reach an upstream"


SEEN = ("/recall", "/recall/live", "/metrics")
OPEN = ("/healthz", "/readyz")


def test_numbers_are_not_for_any_web_page(start: Start, token: str) -> None:
    proxy, _ = start()
    for path in SEEN:
        assert get(proxy, path)[0] == 200
        assert get(proxy, path, Host=f"localhost:{proxy.port}")[0] == 200
        assert get(proxy, path, Host="evil.example")[0] == 403
        assert get(proxy, path, Host="evil.example", Authorization=f"Bearer {token}")[0] == 200
        assert get(proxy, path, Host="evil.example", Authorization="Bearer wrong")[0] == 403


def test_numbers_are_not_for_another_address(start: Start, token: str) -> None:
    proxy, _ = start()
    for path in (*SEEN, *OPEN):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20, source_address=("127.0.0.2", 0))
        connection.request("GET", path)
        refused = connection.getresponse()
        assert (refused.status, bool(refused.read())) == (200 if path in OPEN else 403, True)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
        connection.close()


def test_numbers_are_for_a_token_beyond_this_machine_only_where_admin_is_on(start: Start, token: str) -> None:
    for admin, status in ((False, 403), (True, 200)):
        public, _ = start(host="0.0.0.0", admin=admin)
        for path in SEEN:
            assert get(public, path, Host="recall.internal", Authorization=f"Bearer {token}")[0] == status


@pytest.mark.parametrize("host", ["[::1", "[", "evil.example", "127.0.0.1.evil.example", "", "user@evil.example"])
def test_a_strange_host_sees_nothing(host: str, start: Start) -> None:
    proxy, _ = start()
    for path in SEEN:
        assert get(proxy, path, Host=host)[0] == 403
    for path in OPEN:
        assert get(proxy, path, Host=host)[0] == 200


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP", "X-Client-IP", "CF-Connecting-IP"],
)
def test_who_asks_a_terminator_on_this_machine_need_not_be_here(header: str, start: Start, token: str) -> None:
    proxy, _ = start()
    for path in SEEN:
        assert get(proxy, path, **{header: "127.0.0.1"})[0] == 403
        assert get(proxy, path, **{header: "203.0.113.9"}, Authorization=f"Bearer {token}")[0] == 200
    for path in OPEN:
        assert get(proxy, path, **{header: "127.0.0.1"})[0] == 200


@pytest.mark.parametrize(
    "asked",
    [{}, [], None, {"all": False}, {"all": 1}, {"all": True, "namespace": "x"}, {"namespace": None}, {"contains": 5},
     {"older_s": "9"}, {"older_s": None}, {"older_s": -1}, {"older_s": True}, {"every": True}],
    ids=str,
)  # fmt: skip
def test_a_purge_that_says_nothing_clear_removes_nothing(asked: Any, start: Start, token: str) -> None:
    proxy, _ = start()
    fill(proxy)
    status, told = get(proxy, "/recall/purge", "POST", asked, Authorization=f"Bearer {token}")
    assert status == 400
    assert json.loads(told)["hint"]
    assert ask(proxy).outcome == "EXACT"


@pytest.mark.parametrize("path", ["entries/x", f"entries/{2**70}", "entries/-1", f"entries?limit={2**70}"])
def test_numbers_that_are_none(path: str, start: Start, token: str) -> None:
    proxy, _ = start()
    assert get(proxy, f"/recall/{path}", Authorization=f"Bearer {token}")[0] == 400


def test_a_purge_of_everything_and_bytes_that_are_no_json(start: Start, token: str) -> None:
    proxy, _ = start()
    fill(proxy)
    head = f"POST /recall/purge HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
    assert b" 400 " in talk(proxy.port, head.encode() + b"Content-Length: 4\r\n\r\n{\xff}}")[:20]
    assert get(proxy, "/recall/purge", "POST", {"all": True}, Authorization=f"Bearer {token}") == (
        200,
        b'{"removed":1}',
    )


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["cache", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.mark.parametrize("kind", ["file", "server"])
def test_the_cache_commands(
    kind: str, start: Start, token: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "answers.db"
    proxy, upstream = start(provider(lambda prompt: f"to {prompt}"), store=str(store))
    fill(proxy, "Where is my invoice?")
    fill(proxy, "How do I reset my password?")
    fill(proxy, "May I bring my dog to the hotel?", to="/v1/messages")
    where = proxy.url if kind == "server" else str(store)
    code, out, _ = run(capfd, "ls", where, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [row["id"] for row in rows] == [3, 2, 1]
    assert rows[1]["prompt"] == "How do I reset my password?"
    assert [row["id"] for row in json.loads(run(capfd, "ls", where, "--json", "--contains", "INVOICE")[1])["rows"]] == [
        1
    ]
    code, out, _ = run(capfd, "show", where, "2")
    assert code == 0
    assert json.loads(out)["body"]["choices"][0]["message"]["content"] == "to How do I reset my password?"
    assert run(capfd, "show", where, "99")[0] == 4
    code, exported, _ = run(capfd, "export", where)
    assert code == 0
    assert len(exported.splitlines()) == 4

    assert ask(proxy).outcome == "EXACT"
    assert run(capfd, "rm", where, "2")[0] == 0
    assert run(capfd, "rm", where, "2")[0] == 4
    if kind == "file":  # the server notices within a second; here, at once
        store_of = proxy.server.keeper.cache.store
        proxy.server.keeper.ask_writer(store_of.refresh).result(20)  # type: ignore[attr-defined]
    assert ask(proxy).outcome == "MISS", "an answer that was taken out is served no more"
    proxy.settle()
    assert run(capfd, "purge", where)[0] == 2
    assert run(capfd, "purge", where, "--contains", "dog")[2].startswith("removed 1 ")
    assert run(capfd, "purge", where, "--older", "3600")[2].startswith("removed 0 ")
    assert run(capfd, "purge", where, "--all")[2].startswith("removed 2 ")
    assert json.loads(run(capfd, "ls", where, "--json")[1])["rows"] == []

    file = tmp_path / "export.jsonl"
    file.write_text(exported)
    assert run(capfd, "import", where, str(file))[2].startswith("stored 3 ")
    if kind == "server":
        asked = len(upstream.seen)
        assert ask(proxy).outcome == "EXACT"
        assert ask(proxy, "may i bring my dog to the hotel", to="/v1/messages").outcome == "SEMANTIC"
        assert len(upstream.seen) == asked
    file.write_text("{}\n")
    assert run(capfd, "import", where, str(file))[0] == 4
    head, first = exported.splitlines()[:2]
    file.write_text(head + "\n" + json.dumps(json.loads(first) | {"vector": "AAAA"}) + "\n")
    assert run(capfd, "import", where, str(file))[0] == 4
    code, _, said = run(capfd, "stats", proxy.url)
    assert (code, "/metrics" in said) == (2, True)


def test_an_export_moves_a_cache_to_another_machine(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy, _ = start(store=str(tmp_path / "a.db"))
    fill(proxy)
    _, exported, _ = run(capfd, "export", str(tmp_path / "a.db"))
    (tmp_path / "x").write_text(exported)
    other = tmp_path / "b.db"
    SqliteStore(other, embedder=EMBEDDER).close()
    assert run(capfd, "import", str(other), str(tmp_path / "x"))[0] == 0
    moved, upstream = start(store=str(other))
    assert ask(moved).outcome == "EXACT"
    assert ask(moved, NEAR).outcome == "SEMANTIC"
    assert not upstream.seen
    third, _ = start(store=str(tmp_path / "c.db"))
    fill(third, "Another question of another key?")
    code, _, said = run(capfd, "import", str(tmp_path / "c.db"), str(tmp_path / "x"))
    assert code == 4
    assert "keyed otherwise" in said


SMUGGLED = [
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n",
    b"GET /v1/x HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    b"GET /v1/x y HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
]


@pytest.mark.parametrize("data", SMUGGLED, ids=range(len(SMUGGLED)))
def test_what_two_parsers_could_read_in_two_ways_is_refused(data: bytes, start: Start) -> None:
    proxy, upstream = start(limits=Limits(header_s=0.3, body_s=0.3))
    got = talk(proxy.port, data)
    assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408")), got
    assert got.count(b"HTTP/1.1") == 1
    assert not any(seen.body for seen in upstream.seen)


def test_headers_that_are_too_large(start: Start) -> None:
    proxy, upstream = start(limits=Limits(header_bytes=4_096))
    for data in (
        b"GET /v1/x HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 8_000 + b"\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 8_000,
        b"GET /" + b"x" * 8_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\n" + b"A: b\r\n" * 2_000 + b"\r\n",
    ):
        assert talk(proxy.port, data).startswith(b"HTTP/1.1 431"), data[:30]
    assert not upstream.seen
    assert ask(proxy).status == 200


def test_a_body_that_is_too_large(start: Start) -> None:
    proxy, upstream = start(limits=Limits(body_bytes=10_000))
    assert ask(proxy, "x" * 20_000).status == 413
    assert not upstream.seen
    got = talk(proxy.port, b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000)
    assert got.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nHo",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_come_is_not_waited_for(data: bytes, start: Start) -> None:
    proxy, _ = start(limits=Limits(header_s=0.2, body_s=0.2))
    assert talk(proxy.port, data).startswith(b"HTTP/1.1 408")


def test_more_connections_than_allowed_are_told_so(start: Start) -> None:
    proxy, _ = start(limits=Limits(connections=3))
    held = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(3)]
    try:
        got = talk(proxy.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 503")
    finally:
        for one in held:
            one.close()


def test_an_answer_that_is_not_read_is_not_kept_for_ever(start: Start) -> None:
    proxy, _ = start(
        lambda seen: Reply([b"x" * (1 << 20)] * 32, headers=[("Content-Type", "application/json")]),
        limits=Limits(write_s=0.3, held_bytes=1 << 20),
    )
    with socket.create_connection(("127.0.0.1", proxy.port)) as caller:
        caller.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        wait_for(lambda: proxy.server.metrics.in_flight() == 1)
        wait_for(lambda: proxy.server.metrics.in_flight() == 0)


def test_an_answer_too_large_to_be_kept_is_relayed_whole(start: Start) -> None:
    proxy, _ = start(
        lambda seen: Reply([b"x" * (1 << 20)] * 8, headers=[("Content-Type", "application/json")]),
        limits=Limits(held_bytes=1 << 20),
    )
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    assert talk(proxy.port, head).count(b"x" * (1 << 20)) == 8


def test_hits_survive_a_restart(start: Start, tmp_path: Path) -> None:
    first, _ = start(store=str(tmp_path / "s.db"))
    fill(first)
    again, fresh = start(store=str(tmp_path / "s.db"))
    assert ask(again).outcome == "EXACT"
    assert ask(again, NEAR, stream=True).outcome == "SEMANTIC"
    assert ask(again, key="k-2").outcome == "MISS"
    assert len(fresh.seen) == 1
    assert os.stat(tmp_path / "s.db").st_mode & 0o077 == 0


def test_a_damaged_store_does_not_keep_the_service_down(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s.db"
    store.write_bytes(b"this is no database" * 1000)
    proxy, _ = start(store=str(store))
    fill(proxy)
    assert ask(proxy).outcome == "EXACT"
    assert "serving without it" in caplog.text
    assert json.loads(get(proxy, "/readyz")[1])["store"] != "ok"
    assert store.read_bytes().startswith(b"this is no database"), "and is left as it is"


def test_a_store_that_breaks_while_serving(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "s.db"
    proxy, _ = start(store=str(store))
    fill(proxy)
    inner = proxy.server.keeper.cache.store.store  # type: ignore[attr-defined]

    def broken() -> None:
        inner._db.close()
        inner._reader.close()

    proxy.server.keeper.ask_writer(broken).result(20)
    for prompt in ("Where is my invoice?", "Where is my invoice?", "May I bring my dog to the hotel?"):
        got = ask(proxy, prompt)
        assert (got.status, got.text) == (200, "Use the link.")
        proxy.settle()
    metrics = proxy.server.metrics
    assert metrics.faults["write"] == 3
    assert not metrics.store_ok
    assert b"recall_store_up 0" in get(proxy, "/metrics")[1]
    assert "the cache failed" in caplog.text


def test_a_full_disk(start: Start, tmp_path: Path) -> None:
    proxy, _ = start(store=str(tmp_path / "s.db"))
    fill(proxy)
    inner = proxy.server.keeper.cache.store.store  # type: ignore[attr-defined]

    def fill_up() -> None:
        pages = inner._db.execute("PRAGMA page_count").fetchone()[0]
        inner._db.execute(f"PRAGMA max_page_count = {pages}")

    proxy.server.keeper.ask_writer(fill_up).result(20)
    for n in range(8):
        assert ask(proxy, f"How many of {n} sizes does the shop sell?" + "x" * 3000).status == 200
        proxy.settle()
    assert proxy.server.metrics.faults["write"] > 0
    assert ask(proxy).outcome == "EXACT", "what is there is still served"


class Process:
    """`recall serve` as a process."""

    def __init__(self, upstream: FakeUpstream, store: Path, log: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recall_cli", "serve", "--port", "0", "--store", str(store), "--log", str(log),
             "--upstream-openai", upstream.url, "--upstream-anthropic", upstream.url, *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"OPENAI_BASE_URL=http://127\.0\.0\.1:(\d+)/v1", line)
        assert found, (line, self.process.stderr and self.process.stderr.read())
        self.port = int(found.group(1))

    def end(self, signal_number: int) -> tuple[int, str]:
        self.process.send_signal(signal_number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate(timeout=60)


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    made = FakeUpstream(provider(lambda prompt: f"to {prompt}"))
    yield made
    made.close()


def test_no_acknowledged_answer_is_lost_to_kill_9(
    upstream: FakeUpstream, processes: list[Process], tmp_path: Path
) -> None:
    store, log = tmp_path / "s.db", tmp_path / "log.jsonl"
    first = Process(upstream, store, log, "--tau", "1")
    processes.append(first)
    stop = threading.Event()

    def hammer(worker: int) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            try:
                ask(first, f"What does article {worker * 100_000 + n} of the catalogue cost?")  # type: ignore[arg-type]
            except (OSError, HTTPException):  # it was killed, perhaps in the middle of an answer
                return

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(hammer, worker) for worker in range(4)]
        try:
            wait_for(lambda: log.exists() and log.read_text().count('"stored"') > 100)
            assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
        finally:
            stop.set()
        for one in work:
            one.result(60)
    lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    acknowledged = {row["identity"] for row in map(json.loads, lines) if row.get("event") == "stored"}
    assert len(acknowledged) > 100
    opened = SqliteStore(store, embedder=EMBEDDER)
    there = {entry.identity.hex() for entry in opened.entries()}
    opened.close()
    assert acknowledged <= there
    again = Process(upstream, store, tmp_path / "log2.jsonl")
    processes.append(again)
    before = len(upstream.seen)
    got = ask(again, "What does article 5 of the catalogue cost?")  # type: ignore[arg-type]
    assert (got.outcome, got.text) == ("EXACT", "to What does article 5 of the catalogue cost?")
    assert len(upstream.seen) == before
    code, err = again.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err


def test_sigterm_lets_answers_under_way_end(processes: list[Process], tmp_path: Path) -> None:
    go = threading.Event()
    frames = chat_stream(chat(), usage=True)
    upstream = FakeUpstream(lambda seen: Reply([*frames[:2], go, *frames[2:]], headers=SSE, chunked=True))
    try:
        one = Process(upstream, tmp_path / "s.db", tmp_path / "log.jsonl")
        processes.append(one)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(ask, one, stream=True)  # type: ignore[arg-type]
            wait_for(lambda: len(upstream.seen) == 1)
            one.process.send_signal(signal.SIGTERM)
            wait_for(lambda: refuses(one.port))
            go.set()
            assert future.result(20).text == "Use the link."
        code, err = one.end(signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in err
        opened = SqliteStore(tmp_path / "s.db", embedder=EMBEDDER)
        assert len(list(opened.entries())) == 1, "and its answer is stored"
        opened.close()
    finally:
        upstream.close()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--policy", "none"], 2),
        (["--tau", "2"], 2),
        (["--upstream-openai", "ftp://x"], 2),
        (["--upstream-openai", "https://user:pw@x"], 2),
        (["--verify-on-hit", "guess"], 2),
        (["--verify-sample", "2"], 2),
        (["--index", "tree"], 2),
        (["--embedder", "nobody"], 4),
        (["--log", "/nowhere/at/all"], 4),
        (["--store", "/nowhere/at/all.db"], 4),
        (["--port", "{used}"], 5),
        (["--host", "256.1.1.1"], 5),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_said(arguments: list[str], code: int) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        given = [part.replace("{used}", str(used.getsockname()[1])) for part in arguments]
        chosen = [] if "--store" in given else ["--store", "memory"]
        command = [sys.executable, "-m", "recall_cli", "serve", "--port", "0", *chosen, *given]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.strip()
    assert "Traceback" not in ended.stderr


def test_a_store_of_another_embedder_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    SqliteStore(tmp_path / "s.db", embedder=EMBEDDER).close()
    assert main(["serve", "--port", "0", "--embedder", "hash-v1", "--store", str(tmp_path / "s.db")]) == 4
    assert "reembed" in capfd.readouterr().err


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium here to look at the page with")
def test_the_page_in_a_real_browser(start: Start, tmp_path: Path) -> None:
    proxy, _ = start(log_text=True)
    fill(proxy, "<b>bold</b> How do I reset my password?")
    ask(proxy, "<b>bold</b> how do i reset my password")
    out = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
         "--virtual-time-budget=3000", "--dump-dom", f"{proxy.url}/recall"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert "policy static" in out
    assert re.search(r"hit rate</dt><dd>50.0 %", out), out
    assert re.search(r"<td>SEMANTIC</td>", out)
    assert re.search(r"<td>MISS</td><td>empty_partition</td>", out)
    assert "<b>bold</b>" not in out, "what callers send is text, not markup"


def test_make_plan_is_for_tests_only() -> None:
    """The helper passes every option on: a misspelt one must not be lost."""
    upstream = FakeUpstream(provider())
    try:
        with pytest.raises(TypeError):
            make_plan(upstream, nonsense=1)
    finally:
        upstream.close()


def test_a_lookup_that_takes_too_long_is_gone_on_without(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, _ = start(limits=Limits(lookup_s=0.05))
    long = "How do I reset my password? " + "It is the one of my account. " * 55
    fill(proxy, long)
    held = threading.Event()
    cache = proxy.server.keeper.cache
    whole = cache.match
    monkeypatch.setattr(cache, "match", lambda *given: (held.wait(20), whole(*given))[1])
    try:
        got = ask(proxy, long + "Please.")
        assert (got.status, got.reason) == (200, "lookup_deadline")
        assert proxy.server.metrics.faults["lookup_deadline"] == 1
        assert ask(proxy, long).outcome == "EXACT", "and holds up nobody else"
    finally:
        held.set()


def test_answers_that_cannot_be_stored_in_time_are_dropped_and_counted(start: Start) -> None:
    proxy, _ = start(limits=Limits(writes=3), tau=1.0)
    held = threading.Event()
    proxy.server.keeper.ask_writer(lambda: held.wait(20))
    for n in range(5):
        assert ask(proxy, f"What does article {n} of the catalogue cost?").status == 200
    held.set()
    proxy.settle()
    proxy.settle()
    assert proxy.server.metrics.dropped["write"] == 2
    assert proxy.server.metrics.stored == 3
    assert len(proxy.server.keeper.cache) == 3


def test_what_lands_together_is_stored_together(start: Start, tmp_path: Path) -> None:
    proxy, _ = start(provider(lambda prompt: f"to {prompt}"), store=str(tmp_path / "s.db"), tau=1.0)
    held = threading.Event()
    proxy.server.keeper.ask_writer(lambda: held.wait(20))
    prompts = [f"What does article {n} of the catalogue cost?" for n in range(20)]
    for prompt in prompts:
        ask(proxy, prompt)
    ask(proxy, "An odd one?", headers={"x-recall-namespace": "n"})
    assert len(proxy.server.keeper.cache) == 0
    held.set()
    proxy.settle()
    proxy.settle()
    assert len(proxy.server.keeper.cache) == 21
    assert [ask(proxy, prompt).text for prompt in prompts] == [f"to {prompt}" for prompt in prompts]
    assert proxy.server.metrics.count(Outcome.EXACT) == 20
