from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main

THINGS = ("kettle", "router", "passport", "tomato")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with a hub, called home, and labelled questions of it."""
    monkeypatch.setenv("RECALL_HUB_DIR", str(tmp_path / "hubs"))
    write(
        tmp_path / "docs.jsonl", *({"id": name, "text": f"The {name} stands here.", "title": name} for name in THINGS)
    )
    write(tmp_path / "q.jsonl", *({"_id": name, "text": f"where is the {name}?"} for name in THINGS))
    write(tmp_path / "r.jsonl", *({"query-id": name, "corpus-id": name, "score": 1} for name in THINGS))
    write(tmp_path / "f.jsonl", {"text": "what is inflation?"}, {"text": "who won the cup?"})
    assert main(["hub", "add", "home", "-e", "hash-v1"]) == 0
    assert main(["hub", "ingest", "home", str(tmp_path / "docs.jsonl")]) == 0
    capsys.readouterr()
    return tmp_path


def write(path: Path, *rows: object) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def command(files: Path, *more: str) -> list[str]:
    return ["hub", "eval", "home", "--queries", str(files / "q.jsonl"), "--qrels", str(files / "r.jsonl"), *more]


def test_the_document_holds_a_row_a_leg(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, "--fit", "--foreign", str(files / "f.jsonl"), "--json")) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [row["leg"] for row in document["rows"]] == ["lexical", "vector", "fused"]
    for row in document["rows"]:
        assert row["queries"] == len(THINGS)
        low, high = row["ndcg_at_10_interval"]
        assert 0 <= low <= row["ndcg_at_10"] <= high <= 1 + 1e-12
    learned = document["summary"]["hubs"]["home"]
    assert learned["fit"]["folds"] == len(THINGS)
    assert learned["min_score"]["foreign"] == 2


def test_the_table_names_legs_and_what_was_learned(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, "--fit", "--foreign", str(files / "f.jsonl"), "--save")) == 0
    shown = capsys.readouterr().out
    for text in ("lexical", "vector", "fused", "nDCG@10", "min_score", "home: nDCG@10 by weight", "home keeps"):
        assert text in shown
    assert "…" not in shown


def test_a_reranker_that_cannot_be_reached_costs_no_answer(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_RERANK_URL", "http://127.0.0.1:9")
    assert main(command(files, "--rerank", "llm:m", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    fused, reranked = document["rows"][2:]
    assert reranked["leg"] == "reranked"
    assert reranked["ndcg_at_10"] == fused["ndcg_at_10"]
    assert document["summary"]["hubs"]["home"]["rerank_failures"] == {"connection_failed": len(THINGS)}


@pytest.mark.parametrize(
    ("more", "code"),
    [(["--false-answers", "2"], 2), (["--rerank", "magic"], 2), (["--foreign", "nowhere.jsonl"], 4)],
)
def test_what_cannot_be_measured_is_said(files: Path, more: list[str], code: int) -> None:
    assert main(command(files, *more)) == code


def test_a_hub_that_holds_none_of_the_judged_documents_is_not_measured(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(files / "r.jsonl", *({"query-id": name, "corpus-id": f"{name}.md", "score": 1} for name in THINGS))
    assert main(command(files)) == 4
    assert "none of the 4 judged documents" in capsys.readouterr().err


def test_files_that_do_not_fit_each_other_are_said(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(files / "r.jsonl", {"query-id": "nobody", "corpus-id": "kettle", "score": 1})
    assert main(command(files)) == 4
    assert "ids of both must be the same" in capsys.readouterr().err
