"""`recall hub` as its users type it: made, fed, asked, carried elsewhere, removed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cli.app import main
from recall_cli.cli.commands.hub_view import list_view
from recall_cli.cli.render.text import draw
from recall_cli.hub.stores.folder import make_hub
from recall_cli.types import Result


def write_documents(docs: Path) -> None:
    docs.mkdir()
    (docs / "password.md").write_text(
        "---\ntitle: Passwords\nid: pw\n---\nTo reset your password press the red button.\n"
    )
    (docs / "moon.html").write_text("<title>The moon</title><nav>menu</nav><p>The moon is made of cheese.")
    (docs / "fees.txt").write_text("A transfer abroad costs four euros.\n")
    (docs / "photo.jpg").write_bytes(b"\xff\xd8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of documents and a hub called books that was fed them, to be copied: its embedder loads at once."""
    place = tmp_path_factory.mktemp("made")
    write_documents(place / "docs")
    hubs = ("--hub-dir", str(place / "hubs"))
    assert main(["hub", "add", "books", "--embedder", "hash-v1", *hubs]) == 0
    assert main(["hub", "ingest", "books", str(place / "docs"), *hubs]) == 0
    return place


@pytest.fixture
def books(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with those documents and that hub."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECALL_HUB_DIR", str(tmp_path / "hubs"))
    return tmp_path


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that prints a result document, and return it."""

    def run(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["hub", *arguments, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def test_documents_come_in_once_and_then_only_what_has_changed(books: Path, asked: Any) -> None:
    assert main(["hub", "add", "fresh"]) == 0
    first = asked("ingest", "fresh", "docs")["rows"][0]
    assert (first["added"], first["embedded"], first["skipped"]) == (3, 3, {"other_type": 1})
    again = asked("ingest", "fresh", "docs")["rows"][0]
    assert (again["added"], again["unchanged"], again["embedded"], again["revision"]) == (0, 3, 0, first["revision"])
    (books / "docs/fees.txt").write_text("A transfer abroad costs five euros.\n")
    (books / "docs/moon.html").unlink()
    planned = asked("ingest", "fresh", "docs", "--prune", "--dry-run")["rows"][0]
    assert (planned["changed"], planned["removed"], planned["revision"]) == (1, 1, first["revision"])
    done = asked("ingest", "fresh", "docs", "--prune")["rows"][0]
    assert (done["changed"], done["unchanged"], done["removed"], done["embedded"]) == (1, 1, 1, 1)
    assert asked("status", "fresh")["summary"]["documents"] == 2


def test_a_file_that_was_emptied_is_found_no_more(books: Path, asked: Any) -> None:
    (books / "docs/fees.txt").write_text(" \n")
    row = asked("ingest", "books", "docs")["rows"][0]
    assert (row["skipped"]["empty"], row["removed"], row["unchanged"]) == (1, 1, 2)


def test_a_question_finds_its_document(books: Path, asked: Any) -> None:
    answer = asked("query", "books", "how do I reset my password?", "-k", "2")
    best, _ = answer["rows"]
    assert (best["doc_id"], best["title"]) == ("pw", "Passwords")
    assert answer["summary"]["hub"] == "books"
    strict = asked("query", "books", "how do I reset my password?", "--min-score", "0.9999")
    assert strict["rows"] == []


def test_what_is_exported_comes_in_equal(books: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def export(hub: str) -> bytes:
        capfdbinary.readouterr()
        assert main(["hub", "export", hub]) == 0
        return capfdbinary.readouterr().out

    exported = export("books")
    (books / "books.jsonl").write_bytes(exported)
    assert main(["hub", "add", "copy", "--embedder", "hash-v1"]) == 0
    assert main(["hub", "ingest", "copy", "books.jsonl"]) == 0
    assert export("copy") == exported
    assert {json.loads(line)["id"] for line in exported.splitlines()} == {"pw", "moon.html", "fees.txt"}


def test_a_reader_of_an_export_may_leave(books: Path) -> None:
    # More than a pipe holds: the rest of it can be written to nobody.
    (books / "docs/long.txt").write_text("word " * 100_000)
    assert main(["hub", "ingest", "books", "docs"]) == 0
    command = f"{sys.executable} -m recall_cli hub export books | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_nothing_is_pruned_while_something_cannot_be_read(books: Path, asked: Any) -> None:
    (books / "docs/fees.txt").unlink()
    (books / "docs/lost.md").symlink_to("nowhere.md")
    result = asked("ingest", "books", "docs", "--prune")
    assert result["rows"][0]["removed"] == 0
    assert [warning["code"] for warning in result["warnings"]] == ["not_pruned"]
    (books / "docs/lost.md").unlink()
    assert asked("ingest", "books", "docs", "--prune")["rows"][0]["removed"] == 1


def test_a_source_of_another_kind_is_refused_in_words(books: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (books / "scan.pdf").write_text("%PDF-1.7\n")
    assert main(["hub", "ingest", "books", "scan.pdf"]) == 4
    assert "scan.pdf holds no document (lines that are no JSON: 1)" in capsys.readouterr().err


def test_a_source_without_documents_empties_no_hub(books: Path, asked: Any) -> None:
    (books / "empty").mkdir()
    assert main(["hub", "ingest", "books", "empty", "--prune"]) == 4
    assert asked("status", "books")["summary"]["documents"] == 3


def test_documents_and_hubs_are_removed(books: Path, asked: Any) -> None:
    assert main(["hub", "rm", "books", "pw", "gone"]) == 0
    assert main(["hub", "rm", "books", "pw"]) == 4
    assert asked("list")["rows"][0]["documents"] == 2
    assert main(["hub", "rm", "books", "--yes"]) == 0
    assert asked("list")["rows"] == []


def test_settings_are_changed_one_by_one(books: Path, asked: Any) -> None:
    before = asked("status", "books")["summary"]
    assert main(["hub", "set", "books", "--visibility", "private", "--min-score", "0.4"]) == 0
    after = asked("status", "books")["summary"]
    assert (after["visibility"], after["min_score"], after["alpha"]) == ("private", 0.4, before["alpha"])
    assert after["revision"] > before["revision"]
    assert main(["hub", "set", "books", "--no-min-score"]) == 0
    assert asked("status", "books")["summary"]["min_score"] is None
    assert main(["hub", "set", "books", "--no-min-score", "--min-score", "0.4"]) == 2
    assert main(["hub", "set", "books"]) == 2


def test_a_hub_moves_to_another_embedder_with_all_it_holds(books: Path, asked: Any) -> None:
    row = asked("reembed", "books", "--embedder", "static")["rows"][0]
    assert (row["unchanged"], row["embedded"]) == (3, 3)
    assert asked("status", "books")["summary"]["embedder"] == "static"
    assert asked("query", "books", "how do I reset my password?", "-k", "1")["rows"][0]["doc_id"] == "pw"
    again = asked("ingest", "books", "docs")["rows"][0]
    assert (again["unchanged"], again["embedded"]) == (3, 0)


@pytest.mark.parametrize("format", ["table", "markdown", "csv"])
def test_people_see_what_happened(format: str, books: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["ingest", "books", "docs"], "unchanged"),
        (["query", "books", "reset password", "--explain"], "Passwords"),
        (["list"], "books"),
    ):
        capsys.readouterr()
        assert main(["hub", *arguments, "--format", format]) == 0
        assert said in capsys.readouterr().out


CASES = {
    "no such hub": (["query", "gone", "x"], 4),
    "a name that is none": (["add", "No Such Name"], 2),
    "a name that is taken": (["add", "books"], 2),
    "an embedder that is none": (["add", "more", "-e", "best"], 4),
    "a remote embedder without an address": (["add", "more", "-e", "openai:"], 2),
    "a source that is not there": (["ingest", "books", "nowhere"], 4),
    "a file that holds no documents": (["ingest", "books", "docs/photo.jpg"], 4),
    "an encoding that is none": (["ingest", "books", "docs", "--encoding", "klingon"], 2),
    "an empty question": (["query", "books", "  "], 2),
    "too many results": (["query", "books", "x", "-k", "21"], 2),
    "a reranker that is none": (["query", "books", "x", "--rerank", "best"], 2),
    "a reranker without a key": (["query", "books", "x", "--rerank", "llm"], 2),
    "a server that is not there": (["query", "books", "x", "--url", "http://127.0.0.1:1"], 5),
    "a server that is no URL": (["query", "books", "x", "--url", "example.org"], 2),
    "a folder to watch that is not there": (["watch", "books", "nowhere"], 4),
    "a hub to watch that is not there": (["watch", "gone", "docs"], 4),
    "an encoding to watch in that is none": (["watch", "books", "docs", "--encoding", "klingon"], 2),
    "nothing to set": (["set", "books"], 2),
    "documents that are not there": (["rm", "books", "gone"], 4),
    "a hub that was never fed": (["query", "bare", "x"], 4),
    "a token of nobody": (["token", "mint", "books"], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_a_next_step_and_the_exit_code(
    name: str, books: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "RECALL_RERANK_KEY", "RECALL_RERANK_URL"):
        monkeypatch.delenv(variable, raising=False)
    arguments, code = CASES[name]
    if "bare" in arguments:
        assert main(["hub", "add", "bare", "-e", "hash-v1"]) == 0
    capsys.readouterr()
    assert main(["hub", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert len([line for line in printed.err.splitlines() if line.strip()]) >= 2, printed.err
    assert "did not expect" not in printed.err


def test_every_kind_of_embedder_is_named_to_who_asks_for_none_of_them(
    books: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hub", "add", "more", "-e", "best"]) == 4
    assert "openai:MODEL@URL" in capsys.readouterr().err


def test_where_nothing_is_found_the_limit_is_named(books: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["hub", "query", "books", "reset password", "--min-score", "0.99"]) == 0
    assert "a cosine of 0.99 or more" in capsys.readouterr().out
    assert main(["hub", "set", "books", "--min-score", "0.99"]) == 0
    assert "min-score 0.99" in capsys.readouterr().err
    assert main(["hub", "query", "books", "reset password"]) == 0
    assert "recall hub status books" in capsys.readouterr().out


def test_many_hubs_fit_eighty_columns(books: Path, asked: Any) -> None:
    rows = asked("list")["rows"]
    row = {**rows[0], "hub": "handbook", "embedder": "openai:small@https://a-long-name.example.org/v1"}
    (shown,) = list_view(Result("hub list", {}, {}, "", [*rows, row], {}, []))
    buffer = io.StringIO()
    draw([shown], Console(file=buffer, width=80))
    assert " handbook " in buffer.getvalue().splitlines()[-2]
    assert "openai:small " in buffer.getvalue()


def test_a_hub_that_cannot_be_read_is_listed_with_why(books: Path, asked: Any) -> None:
    database = books / "hubs/books/hub.db"
    for beside in ("-wal", "-shm"):
        database.with_name(database.name + beside).unlink(missing_ok=True)
    database.write_bytes(os.urandom(4096))
    row = asked("list")["rows"][0]
    assert row["hub"] == "books"
    assert row["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("rm", "docs", "caf\udce9"),
        ("set", "docs", "--owner", "\udcff"),
        ("token", "mint", "docs", "--sub", "\udcff"),
        ("token", "revoke", "\udcff"),
    ],
)
def test_a_stray_byte_in_an_argument_is_told(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_hub(tmp_path, "docs", make_embedder("hash-v1"))
    assert main(["hub", *arguments, "--hub-dir", str(tmp_path)]) == 2
    assert "no UTF-8" in capsys.readouterr().err
