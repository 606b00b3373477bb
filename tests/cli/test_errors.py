"""What users do wrong: each a sentence, a next step and the right exit code, and no traceback."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from recall_cli.cli.app import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that users mistake for others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n\n")
    (tmp_path / "binary.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "letter.txt").write_text("dear friend\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a question"}\n{"prompt": \n')
    return tmp_path


CASES = {
    "missing prompts": (["bench", "--prompts", "nowhere.txt"], 4),
    "empty prompts": (["bench", "--prompts", "empty.txt"], 4),
    "blank prompts": (["bench", "--prompts", "blank.txt"], 4),
    "binary prompts": (["bench", "--prompts", "binary.bin"], 4),
    "folder as prompts": (["bench", "--prompts", "folder"], 4),
    "broken prompts": (["bench", "--prompts", "broken.jsonl"], 4),
    "tau as a distance": (["bench", "--tau", "1.2"], 2),
    "negative tau": (["savings", "letter.txt", "--tau", "-0.1"], 2),
    "tau is no number": (["bench", "--tau", "nan"], 2),
    "unknown embedder": (["bench", "-e", "statik"], 4),
    "missing model folder": (["bench", "-e", "model2vec:./nowhere"], 4),
    "unwritable out": (["bench", "--out", "nowhere/bench.json"], 2),
    "folder as out": (["bench", "--out", "folder"], 2),
    "entries are no numbers": (["bench", "--entries", "many"], 2),
    "no entries": (["bench", "--entries", "0"], 2),
    "more entries than there are": (["bench", "--entries", "99000000"], 2),
    "no lookups": (["bench", "--lookups", "0"], 2),
    "store with two embedders": (["bench", "--store", "s.db", "-e", "static", "-e", "hash-v1"], 2),
    "letter as store": (["bench", "--store", "letter.txt"], 4),
    "missing store": (["cache", "stats", "nowhere.db"], 4),
    "letter as a store to read": (["cache", "stats", "letter.txt"], 4),
    "nothing to embed again": (["cache", "reembed", "nowhere.db"], 4),
    "missing log": (["savings", "nowhere.jsonl"], 4),
    "empty log": (["savings", "empty.txt"], 4),
    "binary log": (["savings", "binary.bin"], 4),
    "folder as log": (["savings", "folder"], 4),
    "unknown command": (["bensh"], 2),
    "unknown option": (["bench", "--tua", "0.9"], 2),
    "two formats": (["bench", "--json", "--format", "csv"], 2),
    "unknown format": (["bench", "--format", "xml"], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_a_next_step_and_the_exit_code(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, code = CASES[name]
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    lines = [line for line in printed.err.splitlines() if line.strip()]
    assert len(lines) >= 2, printed.err
    assert "did not expect" not in printed.err


def test_another_embedders_store_is_refused_with_the_way_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--store", "s.db", "--lookups", "5", "-e", "static"]) == 0
    capsys.readouterr()
    assert main(["bench", "--store", "s.db", "--lookups", "5", "-e", "hash-v1"]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "recall cache reembed s.db --embedder hash-v1" in printed.err
    # And the way out is a way out.
    assert main(["cache", "reembed", "s.db", "--embedder", "hash-v1"]) == 0
    assert main(["bench", "--store", "s.db", "--lookups", "5", "-e", "hash-v1"]) == 0


def test_a_failed_run_leaves_the_old_result(here: Path) -> None:
    (here / "out.json").write_text("old")
    assert main(["bench", "--prompts", "empty.txt", "--out", "out.json"]) == 4
    assert (here / "out.json").read_text() == "old"
    assert not list(here.glob(".out.json*"))


def test_did_you_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bensh"]) == 2
    assert "bench" in capsys.readouterr().err


def test_debug_shows_the_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "bench", "--prompts", "empty.txt"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_defect_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("recall_cli.measure.bench.bench.run", fail)
    assert main(["bench"]) == 1
    printed = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in printed
    assert "--debug" in printed
    assert "Traceback" not in printed


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recall_cli.measure.bench.bench.run", interrupt)
    assert main(["bench", "--out", "out.json"]) == 130
    assert not list(here.glob("*out.json*")) + list(here.glob(".out.json*"))


def test_a_reader_that_leaves_is_no_error() -> None:
    command = (
        f"{sys.executable} -m recall_cli bench --lookups 5 --json | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0"
    assert "BrokenPipe" not in done.stderr


# --- settings --------------------------------------------------------------------------------


def test_settings_flag_over_environment_over_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    def tau(*flags: str) -> float:
        assert main(["bench", "--lookups", "5", "-e", "hash-v1", "--json", *flags]) == 0
        return float(json.loads(capsys.readouterr().out)["params"]["tau"])

    assert tau() == 0.8
    (here / "recall.toml").write_text("[bench]\ntau = 0.7\n")
    assert tau() == 0.7
    monkeypatch.setenv("RECALL_TAU", "0.6")
    assert tau() == 0.6
    assert tau("--tau", "0.5") == 0.5


def test_a_lone_value_for_a_repeatable_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "recall.toml").write_text('[bench]\nembedders = "hash-v1"\nlookups = 5\n')
    assert main(["bench", "--json"]) == 0
    assert {row["embedder"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"hash-v1"}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("[bench]\ntua = 0.7\n", 2, "did you mean tau"),
        ("[bensh]\ntau = 0.7\n", 2, "did you mean bench"),
        ("[bench\n", 4, "cannot be read"),
        ("[bench]\ntau = 7\n", 2, "similarity between 0 and 1"),
    ],
)
def test_a_mistake_in_the_settings_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, said: str
) -> None:
    (here / "recall.toml").write_text(text)
    assert main(["bench", "--lookups", "5"]) == code
    assert said in capsys.readouterr().err


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RECALL_TAU", "high")
    assert main(["bench"]) == 2
    assert "RECALL_TAU" in capsys.readouterr().err


# --- odd surroundings ------------------------------------------------------------------------


def run_process(command: str, **options: object) -> subprocess.CompletedProcess[str]:
    line = command.replace("recall ", f"{sys.executable} -m recall_cli ")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("recall bench --lookups 5 --json > /dev/full", 1),
        ("recall bench --lookups 5 --json >&-", 1),
        ("recall bench --lookups 5 --prompts - <&-", 4),
        ("recall savings - <&-", 4),
        ("recall bench --lookups 5 --out /dev/full", 1),
        ("recall bench --seed -1", 2),
        ("recall bench --seed 99999999999999999999999", 2),
        ("recall bench --lookups 5 --out no/such/folder.json", 2),
    ],
)
def test_odd_surroundings_are_a_sentence_too(command: str, code: int, here: Path) -> None:
    done = run_process(command, cwd=here)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "did not expect" not in done.stderr
    assert done.stderr.strip()


def test_a_home_that_cannot_be_read_is_no_settings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    assert main(["cache", "--help"]) == 0
    monkeypatch.undo()


def test_out_to_standard_output_is_both(here: Path) -> None:
    import json

    done = run_process("recall bench --lookups 5 -e hash-v1 --out /dev/stdout > both.txt && cat both.txt", cwd=here)
    document, _, table = done.stdout.partition("\n}\n")
    assert json.loads(document + "}")["command"] == "bench"
    assert "What it answers" in table
    assert Path("/dev/stdout").exists()


def test_out_follows_a_link(here: Path) -> None:
    (here / "real.json").write_text("old")
    (here / "link.json").symlink_to(here / "real.json")
    assert main(["bench", "--lookups", "5", "-e", "hash-v1", "--out", "link.json"]) == 0
    assert (here / "link.json").is_symlink()
    assert (here / "real.json").read_text().startswith("{")


def test_out_over_its_own_input_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p.txt").write_text("one question\n")
    assert main(["bench", "--prompts", "p.txt", "--out", "p.txt"]) == 2
    assert main(["model", "eval", "--pairs", "other.csv", "--pairs", "p.txt", "--out", "p.txt"]) == 2
    assert (here / "p.txt").read_text() == "one question\n"
    assert "the file that is read" in capsys.readouterr().err


def test_an_interrupted_bench_leaves_no_entries_in_a_store(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recall_cli.cache.stores.sqlite_file import read_facts

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recall_cli.measure.bench.bench.interleave", interrupt)
    assert main(["bench", "--store", "s.db", "--lookups", "5"]) == 130
    assert read_facts(here / "s.db")[0]["entries"] == 0


def test_control_characters_do_not_reach_the_terminal() -> None:
    from recall_cli.cli.render.blocks import Bars, Line, table
    from recall_cli.cli.render.text import cleaned, to_markdown

    evil = "ev\x1b[31mil\x1b]0;PWN\x07\n\u202etxt"
    blocks = [table(evil, ("a",), [(evil,)]), Line(evil), Bars("t", ("p",), ((evil, (1.0,)),), "us")]
    text = to_markdown(cleaned(blocks))
    assert not set(text) & set("\x1b\x07\u202e")
    assert "ev\ufffd[31mil" in text


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("eval --classes /dev/zero --runs 1", 4, "not UTF-8 text"),
        ("eval --pairs /dev/zero", 4, "not UTF-8 text"),
        ("bench --prompts /dev/zero", 4, "not UTF-8 text"),
        ("savings p.txt --prices /dev/zero", 4, "not JSON"),
        ("savings p.txt --field model=a --field model=b", 2, "names model twice"),
        ("eval --tau-for a=0.9 --tau-for a=0.8 --runs 1", 2, "names a twice"),
        ("savings p.txt --out new.x --report new.x", 2, "written already"),
    ],
)
def test_what_has_no_end_or_stands_twice_is_refused(
    command: str, code: int, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "p.txt").write_text("hi\n")
    assert main(command.split()) == code
    assert says in capsys.readouterr().err


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("recall_cli.measure.savings.savings.run", full)
    assert main(["savings", "log.jsonl"]) == 1
    err = capsys.readouterr().err
    assert "is full" in err
    assert "TMPDIR" in err
