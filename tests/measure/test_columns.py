"""Rows on disk: what goes in comes out, and nothing stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import RecallError
from recall_cli.measure import columns
from recall_cli.measure.columns import PREFIX, Columns, Names, Workspace, key64, number

SCHEMA = {"digest": "u8", "amount": "i8", "at": "f8", "known": "?", "kind": "u1"}
row = st.tuples(
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.just(float("nan")), st.floats(0, 1e10)),
    st.booleans(),
    st.integers(0, 255),
)


@given(st.lists(row, max_size=25), st.sampled_from([1, 4, 25, 100]))
def test_columns_hold_what_was_appended(rows: list[tuple[object, ...]], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch, Workspace() as folder:
        patch.setattr(columns, "BATCH_ROWS", batch)
        held = Columns(SCHEMA, folder.path)
        for one in rows:
            held.append(one)
        assert len(held) == len(rows)
        assert len(list(folder.path.glob("*.parquet"))) == len(rows) // batch
        for place, (name, kind) in enumerate(SCHEMA.items()):
            found = held.read(name)
            assert found.dtype == np.dtype(kind)
            np.testing.assert_array_equal(found, np.array([one[place] for one in rows], dtype=kind))


@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=20), max_size=30), st.sampled_from([1, 3, 1000]))
def test_texts_are_found_again_and_written_about_once(texts: list[str], known: int) -> None:
    with pytest.MonkeyPatch.context() as patch, Workspace() as folder:
        patch.setattr(columns, "KNOWN", known)
        spool = folder.spool("texts")
        places = [spool.add(text) for text in texts]
        assert [spool.read(at) for at in places] == texts
        if known == 1000:
            assert len(set(places)) == len(set(texts))


def test_names_share_a_number_once_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "LIMIT", 3)
    names = Names()
    assert [names.number(name) for name in ("a", "b", "a", "c", "d", "e", "d", "b")] == [0, 1, 0, 2, 3, 3, 3, 1]
    assert names.all() == ["a", "b", "c", Names.OTHER]
    assert names.merged == 3


def test_numbers_are_equal_where_keys_are() -> None:
    keys = np.array([7, 2**63, 7, 0, 2**63], dtype=np.uint64)
    numbers, first = number(keys)
    assert (numbers.dtype, numbers[0] == numbers[2], numbers[1] == numbers[4]) == (np.int32, True, True)
    assert len(set(numbers.tolist())) == 3
    np.testing.assert_array_equal(keys[first[numbers]], keys)


def test_keys_fit_64_bits() -> None:
    assert all(0 <= key64(text) < 2**64 for text in ("", "a", "\ud800", "x" * 10_000))
    assert key64("a") != key64("b")


def test_nothing_is_left_when_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted() -> None:
        with Workspace() as folder:
            folder.spool("texts").add("a")
            assert folder.path.parent == tmp_path
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time\nfrom recall_cli.measure.columns import Workspace\n"
        "with Workspace() as folder:\n    folder.spool('texts').add('a')\n    print(folder.path, flush=True)\n"
        "    sys.stdin.read()"
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with Workspace():
            assert left.is_dir(), "a run under way keeps its folder"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert left.is_dir()
    assert left.parent == tmp_path
    other = tmp_path / f"{PREFIX}notes"
    other.mkdir()
    with Workspace():
        assert not left.exists()
        assert other.is_dir(), "not ours"


@given(st.lists(row, min_size=1, max_size=25), st.data())
def test_amended_rows_read_anew_and_the_others_as_they_were(
    rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    with pytest.MonkeyPatch.context() as patch, Workspace() as folder:
        patch.setattr(columns, "BATCH_ROWS", 4)
        held = Columns(SCHEMA, folder.path)
        for one in rows:
            held.append(one)
        before = held.read("amount")
        values = np.arange(len(chosen))
        held.amend(np.array(chosen, dtype=np.int64), {"amount": values})
        expected = before.copy()
        expected[chosen] = values
        assert held.read("amount").tolist() == expected.tolist()
        assert held.read("kind").tolist() == [one[4] for one in rows]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Workspace() as folder:
        # What it holds back until it is closed does not fit.
        (folder.path / "texts").symlink_to("/dev/full")
        folder.spool("texts").add("a text")
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_no_temporary_folder_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(RecallError, match="no temporary folder"):
        Workspace()
