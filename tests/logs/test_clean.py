"""What a log's names may do to a terminal: nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError
from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport, clean


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gpt-4o", "gpt-4o"),
        ("模型 é", "模型 é"),
        ("a\\b", "a\\b"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\r\nb\t", "a\\r\\nb\\t"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202egpj", "\\u202egpj"),
        ("\ud800", "\\ud800"),
    ],
)
def test_names(name: str, shown: str) -> None:
    assert clean(name) == shown


@given(st.text())
def test_what_is_clean_is_printable_and_stays_so(name: str) -> None:
    assert clean(name).isprintable()
    assert clean(clean(name)) == clean(name)


def test_models_and_places_of_a_record_are_clean(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[1mb.jsonl"
    row = {"request": {"model": "x\x1b]0;hi\x07\ny", "messages": [{"role": "user", "content": "Hi"}]}, "team": "t\x1b"}
    path.write_text(json.dumps(row))
    (record,) = read_log(str(path), ReadReport())
    assert record.model == "x\\x1b]0;hi\\x07\\ny"
    assert record.source == f"{tmp_path}/a\\x1b[1mb.jsonl:1"
    # A key, not a name: two tenants that look alike when cleaned must not share answers.
    assert record.tenant == '[["team","t\\u001b"]]'


@pytest.mark.parametrize("content", [None, b"", b"hello", b"\0", b"\xff\xfe"])
def test_errors_name_the_file_cleanly(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a\x1b[1m\nb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_log(str(path), ReadReport()))
    assert str(caught.value).isprintable()
    assert "a\\x1b[1m\\nb" in str(caught.value)
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(InputError, match="the folder") as caught:
        list(read_log(str(path), ReadReport()))
    assert str(caught.value).isprintable()
