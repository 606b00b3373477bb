"""`recall explain`: the gates, one by one, on real files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cli.app import main
from recall_cli.types import Completion


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "p.txt").write_text("How do I cancel order 41?\nWhat time does the pharmacy open?\n")
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["explain", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_hit_miss_and_exact(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for prompt, outcome, gate in [
        ("How do I cancel order 41?", "EXACT", ""),
        ("how do i cancel order 41", "SEMANTIC", ""),
        ("Which river flows through Vienna?", "MISS", "cutoff"),
    ]:
        document = explained(capsys, prompt, "--against", "p.txt")
        assert document["summary"]["outcome"] == outcome
        assert document["summary"]["gate"].partition(":")[0] == gate
    assert document["rows"][0]["rank"] == 1
    assert document["rows"][0]["similarity"] >= document["rows"][1]["similarity"]


def test_a_veto_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "dog.txt").write_text("Can I bring my dog on the train?\n")
    asked = ("Can't I bring my dog on the train?", "--against", "dog.txt", "--tau", "0.5")
    for options in ((), ("--veto", "negation"), ("--verify-on-hit", "evidence")):
        document = explained(capsys, *asked, *options)
        assert document["rows"][0]["gate"] == "veto: negation"
        assert document["rows"][0]["negation"] == 1
    for options in (("--veto", "numbers"), ("--verify-on-hit", "none")):
        assert explained(capsys, *asked, *options)["rows"][0]["gate"] == ""


@pytest.mark.parametrize(
    ("asked", "reason"),
    [("How do I cancel order 42?", "not_told_apart: "), ("Какая сегодня погода в Москве?", "unread_text: ")],
)
def test_the_floor_is_named(asked: str, reason: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, asked, "--against", "p.txt", "--tau", "0", "--verify-on-hit", "none")
    assert document["rows"][0]["gate"].startswith(reason)
    assert document["summary"]["outcome"] == "MISS"


def test_an_anaphora_never_matches(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.txt").write_text("And how do I fix it?\n")
    document = explained(capsys, "and how do I fix it", "--against", "a.txt")
    assert document["rows"][0]["gate"].startswith("anaphoric")


def test_a_store_is_read_and_left_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    static = make_embedder("static")
    cache = Cache(embedder=static, policy=StaticPolicy(), store=SqliteStore("s.db", embedder=static))
    cache.put(text_request("How do I reset my password?"), Completion(b"a"))
    cache.close()
    document = explained(capsys, "how do i reset my password", "--against", "s.db")
    assert document["summary"] == {
        "outcome": "SEMANTIC",
        "namespace": "default",
        "cutoff": 0.8,
        "gate": "",
        "partition_entries": 1,
    }
    assert main(["explain", "x", "--against", "s.db", "-e", "hash-v1"]) == 4


def test_the_fields_that_wall_off_a_logged_request_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "How do I reset my password?"}]}
    other = {**body, "model": "n", "messages": [{"role": "system", "content": "Be brief."}, *body["messages"]]}  # type: ignore[misc]
    (here / "log.jsonl").write_text(json.dumps({"request": other, "response": {}}) + "\n")
    document = explained(capsys, json.dumps(body), "--against", "log.jsonl")
    assert document["rows"][0]["gate"] == "partition: differs in earlier messages, model"
    assert document["summary"]["partition_entries"] == 0


def test_a_namespace_may_have_its_own_cutoff(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["How do I cancel my order 41?", "--against", "p.txt"]
    assert explained(capsys, *asked)["summary"]["outcome"] == "SEMANTIC"
    document = explained(capsys, *asked, "--tau-for", "default=1", "--tau-for", "a=b=0.3")
    assert document["summary"]["outcome"] == "MISS"
    assert document["summary"]["cutoff"] == 1
    assert document["params"]["taus"] == {"default": 1, "a=b": 0.3}
    # The other one decided nothing, which a typing error in its name would look like.
    (warning,) = document["warnings"]
    assert warning["code"] == "UNKNOWN_NAMESPACE"
    assert "a=b" in warning["message"]
    assert "default" in warning["hint"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("piped", [False, True])
def test_a_log_is_read_as_elsewhere_and_what_is_left_out_is_said(
    pack: Callable[[bytes], bytes],
    piped: bool,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "How do I reset my password?"}]}
    rows = [{"request": body, "response": {}}, {"request": {**body, "tools": [{"type": "function"}]}, "response": {}}]
    # A rotated log begins with half a line.
    data = pack(b'lf a line"}}\n' + b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    (here / "log").write_bytes(data)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    document = explained(capsys, json.dumps(body), "--against", "-" if piped else "log")
    assert document["summary"]["outcome"] == "EXACT"
    assert document["params"]["against_entries"] == 1
    (warning,) = document["warnings"]
    assert warning["code"] == "LINES_LEFT_OUT"
    assert "malformed_json 1" in warning["message"]
    assert "tools 1" in warning["message"]


def test_no_text_shows_no_prompt(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "how do I cancel order 41", "--against", "p.txt", "--no-text"]) == 0
    assert "pharmacy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a question", "--against", "nowhere.txt"], 4),
        (["a question", "--against", "p.txt", "--veto", "colours"], 2),
        (["a question", "--against", "p.txt", "--tau", "3"], 2),
        (["a question", "--against", "p.txt", "--tau-for", "billing"], 2),
        (["a question", "--against", "p.txt", "--tau-for", "=0.9"], 2),
        (["a question", "--against", "p.txt", "--tau-for", "billing=high"], 2),
        (["a question", "--against", "p.txt", "--tau-for", "billing=nan"], 2),
        (["a question", "--against", "empty.txt"], 4),
        (["a question", "--against", "p.txt", "-k", "0"], 2),
        (['{"messages": [], "model": "m"}', "--against", "p.txt"], 2),
        (["a question"], 2),
    ],
)
def test_mistakes(arguments: list[str], code: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "did not expect" not in printed.err


def call(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}], **more}


def write_log(path: Path, calls: list[dict[str, Any]], **more: Any) -> None:
    path.write_text("".join(json.dumps({"request": body, "response": {}, **more}) + "\n" for body in calls))


def test_what_is_behind_a_wall_does_not_hide_what_would_be_served(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [call("How do I reset my password?", model=f"m{i}") for i in range(6)]
    write_log(here / "log.jsonl", [*others, call("how can I reset my password")])
    document = explained(capsys, json.dumps(call("How do I reset my password?")), "--against", "log.jsonl", "-k", "3")
    assert document["summary"]["outcome"] == "SEMANTIC"
    first, *rest = document["rows"]
    assert first["where"] == "log.jsonl:7"
    assert first["serves"]
    assert [row["gate"] for row in rest] == ["partition: differs in model"] * 2
    # No rival in its partition: the same evidence as if the others were not there.
    write_log(here / "alone.jsonl", [call("how can I reset my password")])
    alone = explained(capsys, json.dumps(call("How do I reset my password?")), "--against", "alone.jsonl")["rows"][0]
    assert first["margin"] == alone["margin"]


def test_equal_requests_are_one_entry(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(here / "log.jsonl", [call("How do I reset my password?")] * 9 + [call("Where is my invoice?")])
    document = explained(capsys, json.dumps(call("how do I reset my password")), "--against", "log.jsonl")
    assert [row["where"] for row in document["rows"]] == ["log.jsonl:1", "log.jsonl:10"]
    assert document["summary"]["partition_entries"] == 2
    assert document["warnings"] == []


def test_a_bare_prompt_against_a_log_is_told_why_it_meets_walls_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(here / "log.jsonl", [call("How do I reset my password?")])
    (warning,) = explained(capsys, "how do I reset my password", "--against", "log.jsonl")["warnings"]
    assert warning["code"] == "BARE_PROMPT"
    assert '"messages"' in warning["hint"]


def test_any_known_log_is_a_log_and_no_list_of_prompts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (here / "helicone.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, ["response_id", "request_created_at", "response_status", "request_body", "model"])
        out.writeheader()
        for text in ("How do I reset my password?", "Where is my invoice?"):
            row = {"response_id": "r", "request_created_at": "2026-01-05T09:00:00Z", "response_status": "200"}
            out.writerow({**row, "request_body": json.dumps(call(text)), "model": "m"})
    asked = json.dumps(call("how do I reset my password"))
    document = explained(capsys, asked, "--against", "helicone.csv")
    assert document["summary"]["outcome"] == "SEMANTIC"
    assert document["params"]["against_entries"] == 2
    (here / "p.jsonl").write_text('{"prompt": "How do I reset my password?"}\n{"prompt": "Where is my invoice?"}\n')
    assert explained(capsys, "how do I reset my password", "--against", "p.jsonl")["summary"]["outcome"] == "SEMANTIC"


def test_a_named_pipe_is_read_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "pipe")
    writer = threading.Thread(target=(here / "pipe").write_text, args=("How do I cancel order 41?\n",), daemon=True)
    writer.start()
    assert explained(capsys, "how do I cancel order 41", "--against", "pipe")["summary"]["outcome"] == "SEMANTIC"
    writer.join()
