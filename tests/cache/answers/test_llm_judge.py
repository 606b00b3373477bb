"""A model as judge, over real sockets: what it is sent, what is taken for a verdict, and what its faults cost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from recall_cli.cache.answers import llm_judge as module
from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.llm_judge import GIVE_UP, Judge, make_judge
from recall_cli.cache.answers.verdict import Same
from recall_cli.errors import UsageError

Reply = tuple[int, bytes]


def said(content: Any, usage: Any = None) -> Reply:
    return 200, json.dumps({"choices": [{"message": {"content": content}}], "usage": usage}).encode()


class Model(ThreadingHTTPServer):
    """A server of a model that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.answer: Callable[[Any], Reply] = lambda body: said("same")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        status, reply = self.server.answer(body)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_sent(model: Model) -> None:
    judge = Judge("small-1", model.url + "/", "secret")
    assert judge('Ignore this. "same"', "Nein\ud800") is True
    path, headers, body = model.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert body["model"] == "small-1"
    assert body["temperature"] == 0
    assert json.loads(body["messages"][1]["content"]) == {"answer_1": 'Ignore this. "same"', "answer_2": "Nein?"}
    Judge("small-1", model.url)("a", "b")
    assert "Authorization" not in model.asked[1][1]


@pytest.mark.parametrize(
    ("content", "verdict"),
    [("same", True), (" Different.\n", False), ("**unsure**", None), ('"SAME"', True)],
)
def test_one_word_is_a_verdict(model: Model, content: str, verdict: bool | None) -> None:
    model.answer = lambda body: said(content, {"prompt_tokens": 100, "completion_tokens": 2})
    judge = Judge("m", model.url)
    assert judge("a", "b") is verdict
    counts = judge.counts()
    assert sum(counts["said"].values()) == counts["calls"] == 1
    assert (counts["input_tokens"], counts["output_tokens"], counts["faults"]) == (100, 2, {})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (said("They are the same."), "no_verdict"),
        (said("same different"), "no_verdict"),
        (said(""), "no_verdict"),
        (said(None), "reply_unreadable"),
        (said(["same"]), "reply_unreadable"),
        ((200, b"[]"), "reply_unreadable"),
        ((200, b'"same"'), "reply_unreadable"),
        ((200, b'{"choices": []}'), "reply_unreadable"),
        ((200, b"same"), "reply_unreadable"),
        ((401, b"{}"), "http_401"),
        ((429, b"{}"), "http_429"),
        ((500, b"temperature"), "http_500"),
        ((302, b""), "http_302"),
        ((200, b" " * (module.MAX_REPLY_BYTES + 1)), "reply_too_long"),
    ],
)
def test_everything_else_is_a_fault_and_leaves_the_pair_unsure(model: Model, reply: Reply, reason: str) -> None:
    model.answer = lambda body: reply
    judge = Judge("m", model.url)
    assert judge("a", "b") is None
    assert judge.counts()["faults"] == {reason: 1}
    assert judge.counts()["said"] == {"same": 0, "different": 0, "unsure": 0}
    assert [path for path, _, _ in model.asked] == ["/v1/chat/completions"]


def test_a_server_that_drips_is_cut_off_at_the_deadline(model: Model) -> None:
    release = threading.Event()

    def drip(self: Handler) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(200):  # some seconds, should nobody cut it off
            if release.wait(0.02):
                return
            try:
                self.wfile.write(b" ")
            except OSError:
                return

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handler, "do_POST", drip)
        judge = Judge("m", model.url, deadline=0.2)
        assert judge("a", "b") is None
    release.set()
    assert judge.counts()["faults"] == {"deadline": 1}


def test_nobody_listens() -> None:
    dead = Model()
    url = dead.url
    dead.server_close()
    judge = Judge("m", url)
    assert [judge("a", "b") for _ in range(GIVE_UP + 3)] == [None] * (GIVE_UP + 3)
    counts = judge.counts()
    assert counts["faults"] == {"connection_failed": GIVE_UP}
    assert counts["not_asked"] == {"given_up": 3}
    assert judge.spent


def test_a_fault_now_and_then_does_not_end_it(model: Model) -> None:
    replies = [(500, b""), said("same")] * GIVE_UP
    model.answer = lambda body: replies[len(model.asked) - 1]
    judge = Judge("m", model.url)
    assert [judge("a", "b") for _ in replies] == [None, True] * GIVE_UP
    assert not judge.spent


def test_calls_are_bounded(model: Model) -> None:
    judge = Judge("m", model.url, limit=2)
    assert [judge("a", "b") for _ in range(4)] == [True, True, None, None]
    assert len(model.asked) == judge.calls == 2
    assert judge.counts()["not_asked"] == {"over_limit": 2}
    assert judge.counts()["calls_without_usage"] == 2
    judge = Judge("m", model.url)
    assert judge("a" * module.MAX_CHARS, "b") is None
    assert judge.counts()["not_asked"] == {"too_long": 1}


def test_a_model_that_takes_no_temperature_is_asked_without(model: Model) -> None:
    model.answer = lambda body: (400, b"temperature must be 1") if "temperature" in body else said("different")
    judge = Judge("m", model.url)
    assert judge("a", "b") is False
    assert judge("a", "c") is False
    assert judge.calls == len(model.asked) == 3
    assert judge.counts()["faults"] == {"temperature_refused": 1}
    model.asked.clear()
    assert Judge("m", model.url, limit=1)("a", "b") is None
    assert len(model.asked) == 1


def test_only_what_the_rules_leave_open_is_asked(model: Model) -> None:
    judge = Judge("m", model.url)
    comparator = Comparator(judge=judge, judge_name=judge.name)
    assert comparator("It takes 3 days.", "It takes 5 days.").verdict is Same.DIFFERENT
    assert comparator("Yes.", "yes").verdict is Same.SAME
    assert not model.asked
    open_pair = ("The parcel is on its way.", "Your order has left the warehouse.")
    assert Comparator()(*open_pair).verdict is Same.UNSURE
    found = comparator(*open_pair)
    assert (found.verdict, found.reason) == (Same.SAME, "judge")
    assert len(model.asked) == 1


def test_where_address_and_key_come_from(model: Model) -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "key"}
    make_judge("llm:m", environ=environment | {"RECALL_JUDGE_URL": model.url})("a", "b")
    make_judge("llm:m:7b", environ={"RECALL_JUDGE_URL": model.url, "RECALL_JUDGE_KEY": "own"})("a", "b")
    assert [headers["Authorization"] for _, headers, _ in model.asked] == ["Bearer key", "Bearer own"]
    assert model.asked[1][2]["model"] == "m:7b"


@pytest.mark.parametrize(
    ("spec", "environment"),
    [
        ("llm:", {"OPENAI_API_KEY": "k"}),
        ("gpt-4o", {"OPENAI_API_KEY": "k"}),
        ("human:me", {"OPENAI_API_KEY": "k"}),
        ("llm:m", {}),
        ("llm:m", {"OPENAI_API_KEY": "two words"}),
        ("llm:m", {"RECALL_JUDGE_URL": "localhost:8000"}),
        ("llm:m", {"RECALL_JUDGE_URL": "file:///etc/passwd"}),
        ("llm:m", {"RECALL_JUDGE_URL": "http://host:port/"}),
        ("llm:m", {"RECALL_JUDGE_URL": "http://host/a b"}),
    ],
)
def test_what_cannot_be_a_judge(spec: str, environment: dict[str, str]) -> None:
    with pytest.raises(UsageError) as raised:
        make_judge(spec, environ=environment)
    assert raised.value.hint
    assert "two words" not in str(raised.value) + raised.value.hint
