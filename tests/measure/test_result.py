"""The result document and the file it goes to."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.result import OutFile, from_json, new_result, to_document, to_json
from recall_cli.types import Outcome, Warn


def test_keys_and_plain_values() -> None:
    result = new_result("bench", {"entries": (1, 2), "outcome": Outcome.MISS})
    result.rows = [{"n": np.int64(3), "rate": np.float32(0.5), "none": float("nan"), "usd": Decimal("0.1")}]
    result.warnings = [Warn("CODE", "what", "next")]
    document = json.loads(to_json(result))
    assert list(document) == [
        "schema_version",
        "command",
        "recall_version",
        "params",
        "environment",
        "started_at",
        "rows",
        "summary",
        "warnings",
    ]
    assert document["params"] == {"entries": [1, 2], "outcome": "MISS"}
    assert document["rows"] == [{"n": 3, "rate": 0.5, "none": None, "usd": 0.1}]
    assert document["warnings"] == [{"code": "CODE", "message": "what", "hint": "next"}]
    assert to_document(from_json(to_json(result))) == document


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema_version": 1}', b"not json"])
def test_what_is_no_result(data: bytes) -> None:
    with pytest.raises(InputError, match="not a recall result"):
        from_json(data)


def test_a_newer_schema_is_said() -> None:
    document = to_document(new_result("bench", {})) | {"schema_version": 2}
    with pytest.raises(InputError, match="schema 2"):
        from_json(json.dumps(document).encode())


def test_out_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    out = OutFile(str(path))
    assert path.read_text() == "old"
    out.write(b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["r.json"]


def test_out_may_be_a_device() -> None:
    out = OutFile("/dev/null")
    out.write(b"x")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["nowhere/r.json", "."])
def test_out_is_refused_at_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--out") as raised:
        OutFile(name)
    assert raised.value.hint
