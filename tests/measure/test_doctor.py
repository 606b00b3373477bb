"""`recall doctor`: each thing that can be wrong, made wrong."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from recall_cli.cache.embed import registry
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index import hnsw_library
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cli.app import app, main
from recall_cli.cli.commands.doctor import BY_NAME, _variables
from recall_cli.measure import doctor
from recall_cli.measure.doctor import Finding, State
from recall_cli.types import Completion

PACKAGE = Path(doctor.__file__).parents[1]


def the(name: str, found: Iterable[Finding]) -> Finding:
    return next(finding for finding in found if finding.check == name)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "cache.db"
    model = make_embedder("static")
    held = SqliteStore(path, embedder=model)
    for number in range(40):
        text = f"What is the answer to question {number}?"
        held.append(
            text_request(text), Completion(b'{"a": 1}' * 200, "m"), model.embed(text), created=1.0, expires=None
        )
    held.close()
    return path


def test_here_all_of_it_is_looked_at() -> None:
    result = doctor.run(doctor.DoctorPlan())
    states = {row["check"]: row["state"] for row in result.rows}
    assert {
        "python",
        "processor",
        "BLAS",
        "OpenMP",
        "hnswlib",
        "faiss",
        "tantivy",
        "SQLite",
        "bundled model",
        "embedder",
    } <= states.keys()
    for check in ("bundled model", "embedder", "python", "tantivy"):
        assert states[check] == "ok"
    assert sum(result.summary.values()) == len(result.rows)
    assert all(row["hint"] for row in result.rows if row["state"] in ("broken", "slow"))


def test_a_store_is_looked_at_and_left_as_it_is(store: Path) -> None:
    before = (store.read_bytes(), store.stat().st_mtime_ns)
    finding = the("store", doctor.store(str(store), "static"))
    assert finding.state is State.OK
    assert "40 entries, 40 vectors of static" in finding.found
    assert (store.read_bytes(), store.stat().st_mtime_ns) == before
    assert os.listdir(store.parent) == [store.name]


def test_a_store_of_another_embedder(store: Path) -> None:
    finding = the("store", doctor.store(str(store), "hash-v1"))
    assert finding.state is State.BROKEN
    assert "reembed" in finding.hint


def test_a_damaged_store(store: Path) -> None:
    content = bytearray(store.read_bytes())
    content[-9_000:-5_000] = b"\xff" * 4_000
    store.write_bytes(content)
    finding = the("store", doctor.store(str(store), "static"))
    assert finding.state is State.BROKEN
    assert "damaged" in finding.found


def test_no_store_and_none_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert the("store", doctor.store(None, "static")).state is State.ABSENT
    assert main(["doctor", "--store", str(tmp_path / "nowhere.db")]) == 1
    said = capsys.readouterr()
    assert "broken" in said.out
    assert "there is no store" in said.err
    assert not os.listdir(tmp_path), "looking made no file"


def test_a_shared_store_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = [
        row
        for row in doctor.run(doctor.DoctorPlan(store="postgresql://nobody@127.0.0.1:1/x")).rows
        if row["check"] == "store"
    ]
    assert row["state"] == "broken"
    assert row["hint"]


def test_a_model_with_a_flipped_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    shutil.copytree(registry.bundled_folder(), folder)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.setattr(registry, "bundled_folder", lambda: folder)
    assert the("bundled model", doctor.bundled_model()).state is State.BROKEN
    weights.unlink()
    assert "model.safetensors" in the("bundled model", doctor.bundled_model()).found


def test_an_embedder_that_does_not_load_is_a_finding() -> None:
    rows = doctor.run(doctor.DoctorPlan(embedder="model2vec:./nowhere")).rows
    (row,) = [row for row in rows if row["check"] == "embedder"]
    assert row["state"] == "broken"
    assert row["hint"]


def test_an_index_that_loses_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_finds", lambda index, rows: False)
    for look, name in ((doctor.graph, "hnswlib"), (doctor.codes, "faiss")):
        assert the(name, look()).state is State.BROKEN


def test_a_portable_build_of_hnswlib_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_cpu_ratio", lambda one, other: 2.5)
    finding = the("hnswlib", doctor.graph())
    assert finding.state is State.SLOW
    assert "--no-binary hnswlib" in finding.hint


def test_a_machine_without_hnswlib_is_told_what_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw_library, "graph_library", lambda: hnsw_library.FAISS)
    finding = the("hnswlib", doctor.graph())
    assert finding.state is State.ABSENT
    assert "faiss" in finding.found
    assert "'.[hnsw]'" in finding.hint


def test_a_check_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterable[Finding]:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(doctor, "blas", fail)
    (row,) = [row for row in doctor.run(doctor.DoctorPlan()).rows if row["check"] == "BLAS"]
    assert row["state"] == "broken"
    assert row["found"] == "ZeroDivisionError: by nothing"


def test_the_machine(tmp_path: Path) -> None:
    quota, info = tmp_path / "cpu.max", tmp_path / "cpuinfo"
    quota.write_text("50000 100000\n")
    info.write_text("model name : x\nflags : fpu sse2\n")
    found = list(doctor.processor(quota, info))
    assert the("cpu quota", found).state is State.SLOW
    assert "OMP_NUM_THREADS=1" in the("cpu quota", found).hint
    assert the("instructions", found).state is State.SLOW
    quota.write_text("max 100000\n")
    info.write_text("flags : fpu sse2 avx2\n")
    assert {finding.check for finding in doctor.processor(quota, info)} == {"processor"}
    missing = tmp_path / "nowhere"
    assert {finding.check for finding in doctor.processor(missing, missing)} == {"processor"}


def test_every_extra_is_looked_at() -> None:
    found = {finding.check.removeprefix("extra ") for finding in doctor.extras()}
    named = set(metadata.metadata("recall-cli").get_all("Provides-Extra") or ())
    assert found == {name for name in named if not name.startswith("test")}


def test_variables_are_named_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RECALL_JUDGE_KEY", "very-secret")
    monkeypatch.setenv("RECALL_EMBEDER", "static")
    monkeypatch.setenv("RECALL_OF_ANOTHER_PROGRAM", "x")
    assert main(["doctor"]) == 1
    said = capsys.readouterr()
    assert "did you mean RECALL_EMBEDDER?" in said.out
    assert "RECALL_JUDGE_KEY" in said.out
    assert "very-secret" not in said.out + said.err
    monkeypatch.delenv("RECALL_EMBEDER")
    assert main(["doctor"]) == 0, "a name like none of ours is another program's"


def test_every_variable_that_the_code_names_is_known() -> None:
    import typer

    known = {*BY_NAME, *_variables(typer.main.get_command(app))}
    named = set()
    for path in PACKAGE.rglob("*.py"):
        named |= set(re.findall(r"\bRECALL_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    assert named <= known


def test_settings_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    assert "no recall.toml" in capsys.readouterr().out
    (tmp_path / "recall.toml").write_text('[doctor]\nembedder = "hash-v1"\n')
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"settings +ok +recall.toml", said)
    assert "hash-v1: 256 dimensions" in said
