"""ann-bench on the user's own vectors: arrays, prompts and logs, packed or piped; nothing is dropped unsaid."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from blake3 import blake3

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import InputError
from recall_cli.measure.ann.data import load

STATIC = make_embedder("static")


def test_own_vectors_are_scaled_and_made_distinct(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6))
    np.save(tmp_path / "v.npy", np.vstack([rows, rows[:10] * 3]))
    loaded = load(str(tmp_path / "v.npy"), STATIC).rows
    assert loaded.shape == (50, 6)
    np.testing.assert_allclose(np.linalg.norm(loaded, axis=1), 1, atol=1e-6)


def test_own_prompts_and_logs_are_embedded(tmp_path: Path) -> None:
    texts = [f"how do I clean the {thing}" for thing in ("oven", "car", "sofa", "roof", "oven")]
    (tmp_path / "p.txt").write_text("\n".join(texts))
    body = {"model": "m", "messages": [{"role": "user", "content": ""}]}
    lines = [{"request": {**body, "messages": [{"role": "user", "content": t}]}, "response": {}} for t in texts]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    from_text, from_log = (load(str(tmp_path / name), STATIC).rows for name in ("p.txt", "log.jsonl"))
    assert from_text.shape == (4, STATIC.dim)
    np.testing.assert_array_equal(from_text, from_log)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((3, 4)), "zeros"),
        (np.full((3, 4), np.nan), "NaN"),
        (np.ones(4), "shape"),
        (np.ones((0, 4)), "shape"),
        (np.array([["a", "b"]]), "not rows of numbers"),
    ],
)
def test_arrays_that_are_no_vectors(tmp_path: Path, rows: np.ndarray, said: str) -> None:
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(InputError, match=said) as raised:
        load(str(tmp_path / "v.npy"), STATIC)
    assert raised.value.hint


def saved(path: Path, rows: np.ndarray) -> str:
    np.save(path, rows)
    return str(path)


def test_an_array_is_known_by_its_first_bytes_and_by_its_name(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 6))
    saved(tmp_path / "v.npy", rows)
    (tmp_path / "V.NPY").write_bytes((tmp_path / "v.npy").read_bytes())
    assert load(str(tmp_path / "V.NPY"), STATIC).rows.shape == (20, 6)
    (tmp_path / "text.NPY").write_text("how do I clean the oven")
    with pytest.raises(InputError, match=r"not an \.npy file") as raised:
        load(str(tmp_path / "text.NPY"), STATIC)
    assert "pickle" not in str(raised.value) + raised.value.hint


@pytest.mark.parametrize("size", [0, 7, 60, 200])
def test_an_array_that_is_cut_short(size: int, tmp_path: Path) -> None:
    saved(tmp_path / "v.npy", np.ones((9, 6)))
    whole = (tmp_path / "v.npy").read_bytes()
    (tmp_path / "v.npy").write_bytes(whole[:size])
    with pytest.raises(InputError) as raised:
        load(str(tmp_path / "v.npy"), STATIC)
    assert "pickle" not in str(raised.value) + raised.value.hint


@pytest.mark.parametrize("scale", [1e300, 1e-300, 3e-320])
def test_the_length_of_a_row_does_not_matter(scale: float, tmp_path: Path) -> None:
    rows = np.array([[3.0, 4.0], [-4.0, 3.0]])
    loaded = load(saved(tmp_path / "v.npy", rows * scale), STATIC).rows
    np.testing.assert_allclose(loaded, rows / 5, atol=1e-3 if scale < 1e-310 else 1e-6)


def test_numbers_beyond_double_precision(tmp_path: Path) -> None:
    huge = np.full((2, 3), np.finfo(np.longdouble).max)
    if float(huge[0, 0]) != np.inf:
        pytest.skip("long double is double here")
    with pytest.raises(InputError, match="infinity"):
        load(saved(tmp_path / "v.npy", huge), STATIC)


TEXTS = [f"how do I clean the {thing}" for thing in ("oven", "car", "sofa", "roof")]


def log_lines(texts: list[str]) -> bytes:
    return b"".join(
        json.dumps({"request": {"model": "m", "messages": [{"role": "user", "content": t}]}, "response": {}}).encode()
        + b"\n"
        for t in texts
    )


PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", ["log.jsonl", "prompts.txt", "prompts.jsonl"])
@pytest.mark.parametrize("piped", [False, True])
def test_what_savings_reads_is_read(
    name: str, suffix: str, piped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {
        "log.jsonl": log_lines(TEXTS),
        "prompts.txt": "\n".join(TEXTS).encode(),
        "prompts.jsonl": "\n".join(json.dumps({"prompt": text}) for text in TEXTS).encode(),
    }
    data = PACKERS[suffix](lines[name])
    source = "-" if piped else str(tmp_path / (name + suffix))
    if piped:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    else:
        Path(source).write_bytes(data)
    loaded = load(source, STATIC)
    np.testing.assert_allclose(loaded.rows, STATIC.embed_many(TEXTS), atol=1e-6)
    assert loaded.digest == blake3(data).hexdigest()
    assert not loaded.warnings


def test_an_array_may_be_piped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(saved(tmp_path / "v.npy", np.eye(3))).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    np.testing.assert_array_equal(load("-", STATIC).rows, np.eye(3))


def test_what_a_log_leaves_out_is_counted(tmp_path: Path) -> None:
    bypassed = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}
    odd = b'lf a line"}}\n' + json.dumps({"request": bypassed, "response": {}}).encode() + b"\n"
    (tmp_path / "log.jsonl").write_bytes(odd + log_lines([*TEXTS, " "]))
    loaded = load(str(tmp_path / "log.jsonl"), STATIC)
    assert len(loaded.rows) == 4  # though the first line is no record
    (warning,) = loaded.warnings
    assert warning.code == "LINES_LEFT_OUT"
    for said in ("3 lines", "malformed_json 1", "tools 1", "no_text 1"):
        assert said in warning.message


def test_what_prompts_leave_out_is_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": text}) for text in [*TEXTS, "", "\u2603\u2603"]]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    loaded = load(str(tmp_path / "p.jsonl"), STATIC)
    said = {warning.code: warning.message for warning in loaded.warnings}
    assert "without a prompt 1" in said["LINES_LEFT_OUT"]
    assert len(loaded.rows) + ("TEXTS_WITHOUT_VECTOR" in said) == 5


def test_a_packed_log_that_is_cut_short_is_said(tmp_path: Path) -> None:
    many = [f"{text} {n}" for text in TEXTS for n in range(2_000)]
    packed = gzip.compress(log_lines(many))
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) // 2])
    loaded = load(str(tmp_path / "log.gz"), STATIC)
    assert 0 < len(loaded.rows) < len(many)
    assert "DAMAGED_FILE" in {warning.code for warning in loaded.warnings}


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfea\0", b"PK\x03\x04\0\0", b"\xff\xff"])
def test_errors_name_standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(InputError, match="standard input") as raised:
        load("-", STATIC)
    assert "/" not in str(raised.value)
    assert raised.value.hint


def test_a_log_of_nothing_but_bypassed_requests(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "store": True}
    (tmp_path / "log.jsonl").write_text(json.dumps({"request": body, "response": {}}))
    with pytest.raises(InputError, match="server_state 1"):
        load(str(tmp_path / "log.jsonl"), STATIC)


def test_pickled_arrays_are_not_executed(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="Python objects"):
        load(str(tmp_path / "v.npy"), STATIC)
