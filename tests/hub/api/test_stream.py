"""Answers in steps: put together they equal the plain answer, and nobody pays for what nobody reads."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.hub.api.ask import SSE, events, ndjson, sse, wanted
from recall_cli.hub.api.errors import NDJSON
from recall_cli.hub.api.views import answer_json
from recall_cli.hub.models import Answer, HubInfo, Match, Passage, Question, Source, Visibility
from tests.hub.hub_server import Reply, Seen, Serve, reordered

INFO = HubInfo("docs", "uid", Visibility.PUBLIC, "", "hash-v1", "f", 256, 3, 9, 9, 1.0, 0.4, None)


def put_together(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer that a reader of the events ends with."""
    answer: dict[str, Any] = {}
    results: list[dict[str, Any]] = []
    for event in said:
        kind = event["event"]
        if kind == "meta":
            answer |= {name: event[name] for name in ("hub", "revision", "embedder", "level")}
        elif kind == "union":
            results = event["results"]
        elif kind == "reranked":
            known = {result["chunk_id"]: result for result in results}
            results = []
            for chunk in event["order"]:
                scores = dict(event["scores"][str(chunk)])
                results.append({**known[chunk], "score": scores.pop("score"), "scores": scores})
        else:
            assert kind == "done"
            answer |= {name: value for name, value in event.items() if name != "event"}
    return answer | {"results": results}


def match(id: int, fused: float, rerank: float | None = None) -> Match:
    return Match(Passage(id, f"d{id}", f"T{id}", "", 0, f"text \n {id}"), Source.BOTH, 0.5, 1.5, fused, rerank)


@st.composite
def answers(draw: st.DrawFn) -> list[Answer]:
    """One or two answers, as the query path yields them: the last is a reordered part of the first, or its start."""
    ids = draw(st.lists(st.integers(1, 1_000), max_size=8, unique=True))
    question = Question("q", k=draw(st.integers(1, 5)))
    found = [match(id, 1.0 / (rank + 1)) for rank, id in enumerate(ids)]
    error = draw(st.sampled_from(["", "timeout"]))
    if not draw(st.booleans()):
        return [Answer(INFO, question, found[: question.k])]
    if error:
        return [Answer(INFO, question, found), Answer(INFO, question, found[: question.k], rerank_error=error)]
    judged = [match(m.passage.chunk_id, m.fused, draw(st.floats(0, 1))) for m in draw(st.permutations(found))]
    return [Answer(INFO, question, found), Answer(INFO, question, judged[: question.k], reranked=True)]


async def heard(steps: list[Answer]) -> list[dict[str, Any]]:
    async def given() -> AsyncIterator[Answer]:
        for step in steps:
            yield step

    return [event async for event in events(given(), "req")]


@given(answers())
def test_events_put_together_equal_the_plain_answer(steps: list[Answer]) -> None:
    said = asyncio.run(heard(steps))
    lines = b"".join(map(ndjson, said)).splitlines()
    assert [json.loads(line) for line in lines] == said
    blocks = b"".join(map(sse, said)).split(b"\n\n")[:-1]
    assert [json.loads(block.partition(b"data: ")[2]) for block in blocks] == said
    plain = json.loads(json.dumps(answer_json(steps[-1])))
    assert put_together([json.loads(line) for line in lines]) == plain
    assert [event["event"] for event in said][:: len(said) - 1] == ["meta", "done"]


@given(answers())
def test_no_text_is_sent_twice(steps: list[Answer]) -> None:
    said = asyncio.run(heard(steps))
    texts = [result["text"] for event in said for result in event.get("results", ())]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("accept", "stream", "kind"),
    [
        ("", False, None),
        ("*/*", False, None),
        ("application/json", False, None),
        ("application/json", True, NDJSON),
        ("application/x-ndjson", False, NDJSON),
        ("text/event-stream", False, SSE),
        ("Text/Event-Stream; q=0.9, */*", True, SSE),
    ],
)
def test_how_a_stream_is_asked_for(accept: str, stream: bool, kind: str | None) -> None:
    assert wanted(accept, stream) == kind


def raw(*, stream: bool) -> bytes:
    """Return a request as bytes, for a connection of one's own."""
    body = json.dumps({"question": "reset", "stream": stream})
    head = ["POST /api/hub/docs/recall HTTP/1.1", "Host: x", "Content-Type: application/json", "Connection: close"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode()


def read(kind: str, body: bytes) -> list[dict[str, Any]]:
    if kind == SSE:
        return [json.loads(block.partition(b"data: ")[2]) for block in body.split(b"\n\n") if block]
    return [json.loads(line) for line in body.splitlines()]


@pytest.mark.parametrize("kind", [NDJSON, SSE])
@pytest.mark.parametrize("rerank", [True, False])
def test_a_stream_over_a_socket_equals_the_plain_answer(serve: Serve, kind: str, rerank: bool) -> None:
    server = serve(reordered, cache_ttl_s=0.0)
    server.add("docs")
    streamed = server.ask(headers={"Accept": kind}, rerank=rerank)
    assert streamed.headers["content-type"].startswith(kind)
    said = read(kind, streamed.body)
    assert [event["event"] for event in said] == ["meta", "union", *["reranked"] * rerank, "done"]
    plain = server.ask(rerank=rerank).json
    assert plain["reranked"] is rerank
    whole = put_together(said)
    for answer in (whole, plain):
        answer.pop("timings_ms")
    assert whole == plain


def test_the_union_comes_before_the_model_has_answered(serve: Serve) -> None:
    go = threading.Event()

    def slow(seen: Seen) -> Reply:
        return Reply([go, *reordered(seen).pieces])

    server = serve(slow)
    server.add("docs")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(raw(stream=True))
        got = b""
        while b'"union"' not in got:
            got += sock.recv(65_536)
        assert b'"done"' not in got
        go.set()
        while more := sock.recv(65_536):
            got += more
    assert b'"done"' in got


@pytest.mark.parametrize("stream", [True, False])
def test_a_caller_that_hangs_up_ends_the_models_call(serve: Serve, stream: bool) -> None:
    never, asked = threading.Event(), threading.Event()

    def silent(seen: Seen) -> Reply:
        asked.set()
        return Reply([never])

    server = serve(silent)
    server.face._reranker.deadline_s = 60.0  # type: ignore[union-attr]
    server.add("docs")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(raw(stream=stream))
        assert asked.wait(20)
    assert server.model.hung_up.wait(20)
    for _ in range(4_000):
        if server.face.counts.requests:
            break
        never.wait(0.005)
    assert server.face.counts.requests == {("recall", 499): 1}


def test_an_error_before_the_first_step_has_a_status(serve: Serve) -> None:
    server = serve()
    server.add("docs", [])
    answer = server.ask(stream=True)
    assert (answer.status, answer.code) == (503, "unavailable")
    assert server.ask(stream=True, k=0).status == 400


def test_an_error_after_it_is_an_event(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(reordered)
    server.add("docs")

    async def broken(self: Any, *args: Any) -> Any:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr("recall_cli.hub.search.pipeline.Hub._reranked", broken)
    answer = server.ask(stream=True)
    assert answer.status == 200
    said = read(NDJSON, answer.body)
    assert [event["event"] for event in said] == ["meta", "union", "error"]
    assert (said[-1]["error"]["code"], "not foreseen" in answer.body.decode()) == ("internal", False)


def test_a_kept_answer_is_streamed_too(serve: Serve) -> None:
    server = serve(reordered)
    server.add("docs")
    plain = server.ask().json
    streamed = server.ask(stream=True)
    said = read(NDJSON, streamed.body)
    assert [event["event"] for event in said] == ["meta", "union", "done"]
    assert put_together(said) == {**plain, "cached": True}
    assert len(server.model.seen) == 1
