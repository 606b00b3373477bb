"""What comes in: every document under an id that stays, and everything else under its reason."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from functools import partial
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.hub.ingest import sources
from recall_cli.hub.ingest.documents import MAX_CHARS, MAX_TITLE_CHARS, Intake, from_file, from_row, split
from recall_cli.hub.ingest.html import read_page
from recall_cli.hub.ingest.html_worker import PageReader
from recall_cli.hub.ingest.pipeline import warnings
from recall_cli.hub.ingest.sources import File, documents, read_file
from recall_cli.hub.models import Document


def read(source: Path | str, **options: str) -> tuple[dict[str, Document], Intake]:
    intake = Intake()
    found = list(documents(str(source), intake, **options))
    assert len({document.id for document in found}) == len(found)
    return {document.id: document for document in found}, intake


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_folder_gives_its_documents_under_their_paths(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "# Resetting\n\nPress the button.")
    write(tmp_path / "deep/er/b.txt", "plain text")
    write(tmp_path / "deep/c.html", "<title>C</title><h1>See</h1><nav>menu</nav>")
    found, intake = read(tmp_path)
    assert list(found) == ["a.md", "deep/c.html", "deep/er/b.txt"]
    assert found["a.md"].title == "Resetting"
    assert found["deep/c.html"].title == "C"
    assert found["deep/c.html"].text == "# See"
    assert found["a.md"].updated == pytest.approx(os.stat(tmp_path / "a.md").st_mtime)
    assert not intake.skipped
    assert intake.is_whole


def test_front_matter_names_what_a_document_is(tmp_path: Path) -> None:
    head = 'title: "Yes: no"\nurl: https://example.org/a\nid: 007\nupdated: 2026-03-04T05:06:07Z\ntags: [x, y]'
    write(tmp_path / "a.md", f"---\n{head}\n---\nThe text.\n")
    found, _ = read(tmp_path)
    assert found == {"007": Document("007", "The text.\n", "Yes: no", "https://example.org/a", 1772600767.0)}


@pytest.mark.parametrize(
    "text",
    ["---\nno: [end\n---\nbody", "---\njust a sentence\n---\nbody", "---\ntitle: never closed\nbody", "--- \nbody"],
)
def test_what_is_no_front_matter_is_text(text: str) -> None:
    assert split(text) == ({}, text)


@pytest.mark.parametrize("chars", [100, MAX_CHARS - 10, MAX_CHARS, 10 * MAX_CHARS])
def test_a_block_that_is_too_long_is_text(chars: int) -> None:
    head = "---\ntitle: T\nnote: "
    text = head + "x" * (chars - len(head) - len("\n---\n")) + "\n---\nbody"
    facts, body = split(text)
    assert (facts.get("title"), body) == (("T", "body") if chars < MAX_CHARS else (None, text))


def test_a_bomb_in_front_matter_costs_nothing() -> None:
    layers = "".join(f"l{n + 1}: &l{n + 1} [{', '.join([f'*l{n}'] * 9)}]\n" for n in range(9))
    text = f"---\nl0: &l0 [x]\n{layers}title: fine\n---\nbody"
    assert split(text) == ({"title": "fine"}, "body")


@given(st.text(), st.text())
def test_no_front_matter_breaks_a_document(head: str, body: str) -> None:
    found = from_file(f"---\n{head}\n---\n{body}".encode("utf-8", "replace"), id="x", suffix=".md")
    assert isinstance(found, (Document, str))


SKIPPED: dict[str, tuple[str, str | bytes]] = {
    "binary": ("x.md", b"PK\0\1\2"),
    "other_type": ("x.png", b"\x89PNG"),
    "hidden": (".git/x.md", "text"),
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_what_is_no_document_is_counted_under_its_reason(reason: str, tmp_path: Path) -> None:
    name, content = SKIPPED[reason]
    write(tmp_path / name, content)
    write(tmp_path / "kept.md", "kept")
    found, intake = read(tmp_path)
    assert list(found) == ["kept.md"]
    assert dict(intake.skipped) == {reason: 1}
    assert intake.is_whole


def test_what_cannot_be_read_is_not_known_to_be_gone(tmp_path: Path) -> None:
    write(tmp_path / "kept.md", "kept")
    # A link into nothing cannot be read by anybody, root or not.
    (tmp_path / "broken.md").symlink_to(tmp_path / "nowhere.md")
    _, intake = read(tmp_path)
    assert dict(intake.skipped) == {"unreadable": 1}
    assert not intake.is_whole


def test_what_cannot_be_decoded_is_there_all_the_same_and_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "kept")
    write(tmp_path / "b/odd.txt", "Größe".encode("latin-1"))
    write(tmp_path / "c.txt", "Maß".encode("latin-1"))
    found, intake = read(tmp_path)
    assert list(found) == ["a.md"]
    assert dict(intake.skipped) == {"unknown_encoding": 2}
    assert not intake.is_whole
    (warning,) = warnings(str(tmp_path), intake, prune=False)
    assert "2 files, such as b/odd.txt, are" in warning.message


def test_a_page_that_would_hang_the_ingest_is_named_and_not_known_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PageReader", partial(PageReader, patience_s=0.1))
    write(tmp_path / "a.html", "<p>kept")
    write(tmp_path / "b.html", "<ul><li>" * 20_000)
    write(tmp_path / "c.html", "<p>kept too " * 2_000)
    found, intake = read(tmp_path)
    assert list(found) == ["a.html", "c.html"]
    assert dict(intake.skipped) == {"too_tangled": 1}
    assert not intake.is_whole
    (warning,) = warnings(str(tmp_path), intake, prune=False)
    assert warning.message == "b.html takes more time or memory than a page may, and was left out"


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    secret = write(tmp_path / "outside/secret.md", "secret")
    inside = write(tmp_path / "folder/a.md", "a")
    (tmp_path / "folder/out.md").symlink_to(secret)
    (tmp_path / "folder/away").symlink_to(secret.parent)
    (tmp_path / "folder/again.md").symlink_to(inside)
    (tmp_path / "folder/pipe.md").parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / "folder/pipe.md")
    found, intake = read(tmp_path / "folder")
    assert {id: document.text for id, document in found.items()} == {"a.md": "a", "again.md": "a"}
    assert dict(intake.skipped) == {"link_to_outside": 1, "other_type": 1, "not_a_file": 1}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_and_plain_unicode_is_read(encoding: str, tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Größe 寸法\r\nzwei".encode(encoding))
    found, _ = read(tmp_path)
    assert found["a.txt"].text == "Größe 寸法\nzwei"


def test_other_encodings_are_read_where_somebody_names_them(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Größe – “so”".encode("cp1252"))
    write(tmp_path / "b.html", b"<meta charset=windows-1251><p>" + "Привет".encode("cp1251"))
    write(tmp_path / "c.html", "<meta charset=latin-1><p>doch UTF-8: ß".encode())
    found, _ = read(tmp_path, encoding="cp1252")
    assert [document.text for document in found.values()] == ["Größe – “so”", "Привет", "doch UTF-8: ß"]
    with pytest.raises(UsageError):
        read(tmp_path, encoding="klingon")


def test_one_file_is_one_document(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path / "a.md", "text"))
    assert list(found) == ["a.md"]


ROWS = [
    ({"id": "a", "title": "A", "url": "https://x.org/a", "text": "t", "updated": "2026-03-04T05:06:07Z"}, "a"),
    ({"id": 7, "text": "t"}, "7"),
    ({"_id": "8", "title": "A", "text": "t"}, "8"),
    ({"id": "a", "_id": "b", "text": "t"}, "a"),
    ({"url": "https://x.org/b", "text": "t"}, "https://x.org/b"),
    ({"id": "a", "text": 3}, "no_text"),
    ({"text": "t"}, "no_id"),
    ({"id": True, "text": "t"}, "no_id"),
    ({"id": "x" * 2000, "text": "t"}, "id_too_long"),
]


@pytest.mark.parametrize(("row", "said"), ROWS)
def test_a_row_is_a_document_or_a_reason(row: dict[str, object], said: str) -> None:
    found = from_row(row)
    assert (found if isinstance(found, str) else found.id) == said


def lines(*rows: object) -> str:
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def test_rows_are_read_and_what_is_none_is_counted(tmp_path: Path) -> None:
    rows = lines({"id": "a", "text": "first"}, "\n", "not json\n", [1], {"id": "b", "text": "x"})
    found, intake = read(write(tmp_path / "docs.jsonl", rows))
    assert {id: document.text for id, document in found.items()} == {"a": "first", "b": "x"}
    assert dict(intake.skipped) == {"malformed_json": 1, "not_an_object": 1}
    assert not intake.is_whole


def test_packed_rows_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lines({"id": "a", "text": "t"}).encode()
    found, _ = read(write(tmp_path / "docs.jsonl.gz", gzip.compress(rows)))
    assert list(found) == ["a"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
    found, _ = read("-")
    assert list(found) == ["a"]


def test_a_broken_archive_is_not_whole(tmp_path: Path) -> None:
    rows = lines(*({"id": str(n), "text": str(n) * 50} for n in range(2_000))).encode()
    _, intake = read(write(tmp_path / "docs.jsonl.gz", gzip.compress(rows)[:-200]))
    assert not intake.is_whole


@pytest.mark.parametrize(
    ("line", "title"),
    [("# A", "A"), ("# A ##", "A"), ("##\tA # B\t", "A # B"), ("# C#", "C"), ("# ##", "##"), ("#  \n# A", "A")],
)
def test_a_heading_is_a_title_without_its_marks(line: str, title: str) -> None:
    found = from_file(f"{line}\ntext".encode(), id="a.md", suffix=".md")
    assert isinstance(found, Document)
    assert found.title == title


@pytest.mark.parametrize("blank", [" ", "\t", "#"])
def test_a_heading_is_read_once(blank: str) -> None:
    line = f"# a{blank * 300_000}b"
    # Read in no time, or not within the life of the test.
    found = from_file(line.encode(), id="a.md", suffix=".md")
    assert isinstance(found, Document)
    assert found.title


@pytest.mark.parametrize("name", ["unicode_escape", "raw_unicode_escape", "utf-7", "punycode", "idna"])
def test_what_python_calls_text_is_no_encoding(name: str) -> None:
    page = b'---\ntitle: \\ud800\n---\n<meta charset="%s"><p>\xff' % name.encode()
    assert from_file(page, id="a.html", suffix=".html") == "unknown_encoding"
    with pytest.raises(UsageError, match="no encoding"):
        read("-", encoding=name)


def test_the_lines_of_a_files_title_are_one() -> None:
    found = from_file(b"---\ntitle: |\n  two\n  lines\n---\ntext", id="a", suffix=".md")
    assert isinstance(found, Document)
    assert found.title == "two lines"


def test_a_title_is_no_longer_than_a_title() -> None:
    # Every chunk is embedded with it: at full length this one would take gigabytes.
    page = b"<title>" + b"long " * 200_000 + b"</title><p>" + b"text " * 200_000
    found = from_file(page, id="a.html", suffix=".html")
    assert isinstance(found, Document)
    assert len(found.title) == MAX_TITLE_CHARS
    row = from_row({"id": "a", "text": "x", "title": "y" * (MAX_TITLE_CHARS + 1)})
    assert isinstance(row, Document)
    assert row.title == "y" * MAX_TITLE_CHARS
    assert from_row({"id": "a", "text": "x", "url": "y" * 8_001}) == "url_too_long"


WELL_FORMED = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.builds(
        Document,
        id=WELL_FORMED.filter(lambda id: bool(id.strip())),
        text=WELL_FORMED,
        title=WELL_FORMED,
        url=WELL_FORMED,
        updated=st.none() | st.floats(-1e9, 1e10, exclude_min=True, exclude_max=True),
    )
)
def test_a_document_comes_back_from_its_row_as_it_was(document: Document) -> None:
    assert from_row(orjson.loads(orjson.dumps(document))) == document


def test_a_manifest_gives_pages_under_their_urls(tmp_path: Path) -> None:
    write(tmp_path / "site/pages/1", "<title>One</title><p>first</p>")
    write(tmp_path / "site/pages/2.md", "---\nid: https://x.org/1\n---\nsecond")
    manifest = lines(
        {"url": "https://x.org/1", "path": "pages/1"},
        {"url": "https://x.org/2", "path": "pages/2.md", "title": "Two"},
        {"url": "https://x.org/3", "path": "../outside.html"},
        {"url": "https://x.org/4", "path": "/etc/hostname"},
        {"url": "https://x.org/5", "path": "pages"},
        {"url": "https://x.org/6", "path": "pages/gone.html"},
        {"path": "pages/1"},
        {"url": "https://x.org/7", "path": "pages/\ud800"},
    )
    write(tmp_path / "outside.html", "outside")
    found, intake = read(write(tmp_path / "site/m.jsonl", manifest))
    assert {id: (document.title, document.text) for id, document in found.items()} == {
        "https://x.org/1": ("One", "first"),
        "https://x.org/2": ("Two", "second"),
    }
    assert dict(intake.skipped) == {"path_to_outside": 2, "not_a_file": 1, "unreadable": 1, "no_url_or_path": 2}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(InputError, match="is not a file"):
        read(tmp_path / "pipe.md")
    # It was a file when the folder was looked at.
    assert read_file(File("a.md", str(tmp_path / "pipe.md"), 1, 1), read_page) == "not_a_file"


@pytest.mark.parametrize("source", ["nowhere", "nowhere.md", "nowhere.jsonl"])
def test_a_source_that_is_not_there_is_said(source: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read(tmp_path / source)
