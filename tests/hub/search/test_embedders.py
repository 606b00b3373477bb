"""An embedder over HTTP, against an endpoint on a real socket: what it answers is checked before it is taken."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recall_cli.cli.app import main
from recall_cli.errors import UpstreamError, UsageError
from recall_cli.hub.search import embedders
from recall_cli.hub.search.embedders import (
    BATCH_TEXTS,
    BULK,
    Patience,
    RemoteEmbedder,
    hub_embedder,
    make_remote,
    retry_after,
)
from tests.proxy.fake import FakeUpstream, Handler, Reply, Seen

DIM = 3
NOW = 1_800_000_000.0


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(text.count("e")), 1.0]


def answer(seen: Seen, *, change: Callable[[list[dict[str, Any]]], Any] = lambda rows: rows) -> Reply:
    rows = [{"index": at, "embedding": vector_of(text)} for at, text in enumerate(seen.json["input"])]
    return Reply([json.dumps({"data": change(rows), "usage": {"total_tokens": 1}}).encode()])


@contextmanager
def endpoint(handler: Handler = answer, **options: Any) -> Iterator[tuple[RemoteEmbedder, FakeUpstream, list[float]]]:
    upstream = FakeUpstream(handler)
    waits: list[float] = []
    embedder = RemoteEmbedder("m", f"{upstream.url}/v1", "k-1", **({"dim": DIM, "sleep": waits.append} | options))
    try:
        yield embedder, upstream, waits
    finally:
        upstream.close()


def test_the_dimension_is_asked_for_once_and_vectors_have_unit_length() -> None:
    with endpoint(dim=None) as (embedder, upstream, _):
        assert embedder.dim == DIM
        vectors = embedder.embed_many(["one", "three", " ", "seventeen"])
    assert len(upstream.seen) == 2
    expected = np.array([vector_of(text) for text in ("one", "three", "seventeen")], dtype=np.float32)
    np.testing.assert_allclose(
        vectors[[0, 1, 3]], expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6
    )
    assert not vectors[2].any()
    assert upstream.seen[1].json == {"model": "m", "input": ["one", "three", "seventeen"], "encoding_format": "float"}
    assert upstream.seen[1].header("authorization") == "Bearer k-1"
    assert upstream.seen[1].target == "/v1/embeddings"


def test_many_texts_travel_in_batches_and_come_back_in_their_order() -> None:
    texts = [f"text {'e' * (n % 7)} {n}" for n in range(5 * BATCH_TEXTS + 3)]
    with endpoint() as (embedder, upstream, _):
        many = embedder.embed_many(texts)
        assert sorted(len(seen.json["input"]) for seen in upstream.seen) == [3] + [BATCH_TEXTS] * 5
        np.testing.assert_array_equal(many[::100], np.stack([embedder.embed(text) for text in texts[::100]]))
        assert embedder.embed_many([]).shape == (0, DIM)


def test_an_answer_in_another_order_is_put_right() -> None:
    def handler(seen: Seen) -> Reply:
        return answer(seen, change=lambda rows: rows[::-1])

    with endpoint(handler) as (embedder, _, _):
        shuffled = embedder.embed_many(["a", "eee"])
    with endpoint() as (embedder, _, _):
        np.testing.assert_array_equal(shuffled, embedder.embed_many(["a", "eee"]))


WRONG: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "one short": lambda rows: rows[1:],
    "one twice": lambda rows: [rows[0], *rows],
    "an index twice": lambda rows: [{**row, "index": 0} for row in rows],
    "another dimension": lambda rows: [{**row, "embedding": [1.0, 2.0]} for row in rows],
    "rows of two dimensions": lambda rows: [rows[0], {**rows[1], "embedding": [1.0]}],
    "no number": lambda rows: [{**row, "embedding": [1.0, None, "x"]} for row in rows],
    "infinite": lambda rows: [{**row, "embedding": [1e39, 1.0, 1.0]} for row in rows],
    "no list": lambda rows: {"0": rows},
    "nothing": lambda rows: None,
    "indices of two kinds": lambda rows: [rows[0], {**rows[1], "index": "1"}],
    "no indices": lambda rows: [{**row, "index": None} for row in rows],
    "true for one": lambda rows: [rows[0], {**rows[1], "index": True}],
    "no numbers": lambda rows: [{**row, "embedding": []} for row in rows],
    "numbers for rows": lambda rows: [{**row, "embedding": 1.0} for row in rows],
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_not_one_vector_a_text_is_never_taken(wrong: str) -> None:
    with endpoint(lambda seen: answer(seen, change=WRONG[wrong])) as (embedder, _, waits):
        with pytest.raises(UpstreamError) as caught:
            embedder.embed_many(["a", "b"])
        assert caught.value.hint
        assert not waits


def test_an_endpoint_without_numbers_has_no_dimension() -> None:
    empty = lambda rows: [{**row, "embedding": []} for row in rows]  # noqa: E731
    with pytest.raises(UpstreamError), endpoint(lambda seen: answer(seen, change=empty), dim=None):
        pass


def test_the_longest_vector_has_unit_length_too() -> None:
    long = lambda rows: [{**row, "embedding": [3e38, 0.0, 3e38]} for row in rows]  # noqa: E731
    with endpoint(lambda seen: answer(seen, change=long)) as (embedder, _, _):
        assert np.linalg.norm(embedder.embed("a")) == pytest.approx(1.0)


@pytest.mark.parametrize("said", [True, False])
def test_an_answer_that_does_not_end_is_given_up(said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedders, "MOST_REPLY_BYTES", 1_000)
    huge = Reply([b" " * 600] * 3, headers=[("Content-Length", "1800")] if said else [])
    with endpoint(lambda seen: huge) as (embedder, upstream, waits):
        with pytest.raises(UpstreamError, match="more than 1,000 bytes"):
            embedder.embed("a")
        assert (len(upstream.seen), waits) == (1, [])


@pytest.mark.parametrize("before", [b"", b'{"data"'])
def test_an_answer_that_drips_is_given_up(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    # Never silent for long enough, as far as this test can wait: silence is not what ends it.
    monkeypatch.setattr(embedders, "QUESTION", Patience(2, 60.0, 1.0, 0.1))
    never = threading.Event()
    pieces: list[bytes | threading.Event] = [before, never, b"x"] if before else [never, b"x"]
    slow = Reply(pieces, headers=[("Content-Length", "99")])
    with endpoint(lambda seen: slow) as (embedder, upstream, waits):
        with pytest.raises(UpstreamError, match=r"no whole answer within 0.1 s"):
            embedder.embed("a")
        assert (len(upstream.seen), len(waits)) == (2, 1)


def failing(times: int, reply: Reply) -> Handler:
    left = iter(range(times))
    return lambda seen: answer(seen) if next(left, None) is None else reply


BUSY = {
    "429": Reply([b"{}"], 429),
    "503": Reply([b"{}"], 503),
    "529": Reply([b"{}"], 529),
    "torn": Reply([b'{"data"'], headers=[("Content-Length", "99")], end="reset"),
    "cut short": Reply([b'{"data"'], headers=[("Content-Length", "99")], end="close"),
}


@pytest.mark.parametrize("how", BUSY)
def test_a_busy_endpoint_is_asked_again_later_each_time(how: str) -> None:
    with endpoint(failing(3, BUSY[how])) as (embedder, upstream, waits):
        assert embedder.embed_many(["a"]).shape == (1, DIM)
        assert len(upstream.seen) == 4
    assert [round(math.log2(wait)) for wait in waits] == [-1, 0, 1]


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    with endpoint(failing(1, Reply([b"{}"], 429, [("Retry-After", "7")]))) as (embedder, _, waits):
        embedder.embed_many(["a"])
        assert waits == [7.0]
    with endpoint(failing(1, Reply([b"{}"], 429, [("Retry-After", "3600")]))) as (embedder, _, waits):
        with pytest.raises(UpstreamError, match="429"):
            embedder.embed_many(["a"])
        assert not waits


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("0.5", 0.5), ("-1", 0), ("soon", 0), (None, 0), ("Fri, 15 Jan 2027 08:00:09 GMT", 9)],
)
def test_a_retry_after_is_seconds_or_a_date(value: str | None, seconds: float) -> None:
    assert retry_after(value, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        (Reply([b"{}"], 401), "RECALL_EMBED_KEY"),
        (Reply([b'{"error": "no such model"}'], 404), "no such model"),
        (Reply([b'{"error": {"code": "insufficient_quota"}}'], 429), "insufficient_quota"),
        (Reply([b""], 302, [("Location", "http://127.0.0.1:1/")]), ""),
    ],
)
def test_what_no_wait_mends_is_said_at_once(reply: Reply, hint: str) -> None:
    with endpoint(lambda seen: reply) as (embedder, upstream, waits):
        with pytest.raises(UpstreamError) as caught:
            embedder.embed_many(["a"])
        assert hint in caught.value.hint
        assert len(upstream.seen) == 1
        assert not waits


def test_an_endpoint_that_stays_busy_is_given_up_and_a_question_sooner() -> None:
    with endpoint(lambda seen: Reply([b"{}"], 500)) as (embedder, upstream, waits):
        with pytest.raises(UpstreamError):
            embedder.embed("a")
        assert len(upstream.seen) == 2
        with pytest.raises(UpstreamError):
            embedder.embed_many(["a"])
        assert len(upstream.seen) == 2 + BULK.tries
        assert len(waits) == 1 + BULK.tries - 1


def test_a_connection_that_was_closed_meanwhile_costs_no_try() -> None:
    closing = threading.Event()

    def handler(seen: Seen) -> Reply:
        reply = answer(seen)
        if not closing.is_set():
            reply.end = "close"
            closing.set()
        return reply

    with endpoint(handler) as (embedder, _, waits):
        embedder.embed("a")
        embedder.embed("b")
        assert not waits


def test_nobody_at_the_address_is_a_sentence() -> None:
    waits: list[float] = []
    embedder = RemoteEmbedder("m", "http://127.0.0.1:1/v1", dim=DIM, sleep=waits.append)
    with pytest.raises(UpstreamError, match="could not be reached"):
        embedder.embed("a")
    assert len(waits) == 1


SPECS = {
    "openai:text-embedding-3-small": ("text-embedding-3-small", "https://api.openai.com/v1"),
    "openai:@cf/baai/bge@http://127.0.0.1:1/v1": ("@cf/baai/bge", "http://127.0.0.1:1/v1"),
}


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_names_model_and_address(spec: str) -> None:
    embedder = make_remote(spec, dim=4, environ={})
    assert (embedder.model, embedder.url) == SPECS[spec]
    assert make_remote(embedder.name, dim=4, environ={}).fingerprint == embedder.fingerprint


@pytest.mark.parametrize(
    "spec",
    [
        "openai:",
        "openai:@https://x.org/v1",
        "openai:m@http://",
        "openai:m@https://x y/v1",
        "openai:m@127.0.0.1:1/v1",
        "openai:m@ftp://x/v1",
    ],
)
def test_what_is_no_spec_is_said(spec: str) -> None:
    with pytest.raises(UsageError):
        make_remote(spec, dim=4, environ={})


def test_openais_key_goes_to_openai_alone() -> None:
    upstream = FakeUpstream(answer)
    try:
        for environ, sent in (({"OPENAI_API_KEY": "secret"}, None), ({"RECALL_EMBED_KEY": "mine"}, "Bearer mine")):
            make_remote(f"openai:m@{upstream.url}/v1", environ=environ)
            assert upstream.seen[-1].header("authorization") == sent
    finally:
        upstream.close()


def test_another_address_is_another_space() -> None:
    one, other = (make_remote(f"openai:m@https://{host}/v1", dim=4, environ={}) for host in ("a.org", "b.org"))
    assert one.fingerprint != other.fingerprint


def test_a_hub_may_have_any_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECALL_EMBED_KEY", raising=False)
    assert hub_embedder("hash-v1").dim == 256
    assert hub_embedder("openai:m@https://a.org/v1", dim=1536).dim == 1536


def test_a_hub_embeds_over_http_what_is_new_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALL_HUB_DIR", str(tmp_path / "hubs"))
    rows = [{"id": str(n), "title": f"Title {n}", "text": "e" * n + " text"} for n in range(1, 6)]
    source = tmp_path / "docs.jsonl"

    def ingest() -> dict[str, Any]:
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        capsys.readouterr()
        assert main(["hub", "ingest", "far", str(source), "--json"]) == 0
        row: dict[str, Any] = json.loads(capsys.readouterr().out)["rows"][0]
        return row

    upstream = FakeUpstream(answer)
    try:
        assert main(["hub", "add", "far", "--embedder", f"openai:m@{upstream.url}/v1"]) == 0
        upstream.seen.clear()
        assert ingest()["embedded"] == 5
        assert [len(seen.json["input"]) for seen in upstream.seen] == [5]
        rows[2]["text"] = "another text"
        assert ingest()["embedded"] == 1
        assert [len(seen.json["input"]) for seen in upstream.seen] == [5, 1]
        assert main(["hub", "query", "far", "another"]) == 0
        assert upstream.seen[-1].json["input"] == ["another"]
    finally:
        upstream.close()
    # An endpoint that is down fails the ingest whole: the hub stays as it was.
    rows[0]["text"] = "new"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("recall_cli.hub.search.embedders.FIRST_WAIT_S", 0.0)
    assert main(["hub", "ingest", "far", str(source)]) == 5
    capsys.readouterr()
    assert main(["hub", "status", "far", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["documents"] == 5
