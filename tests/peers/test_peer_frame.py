"""The frame that runs other caches beside ours: the protocol, the processes, the environments, what does not run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import latency, venvs
from benchmarks.peers.bench import Bench
from benchmarks.peers.client import Peer, PeerError
from benchmarks.peers.protocol import Found, Turns, flood, handle
from benchmarks.peers.roster import ARMS, PACKAGES, Arm
from tests.peers.chatty import Chatty


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(sys.executable, "tests.peers.chatty", tmp_path / "log") as running:
        running.ask("open", folder="", threshold=0.5)
        yield running


def test_a_stream_stores_what_it_does_not_find_and_a_get_does_not() -> None:
    adapter = Chatty()
    asked = {"prompts": ["a", "b", "a"], "answers": ["1", "2", "3"]}
    assert handle(adapter, {"op": "get", "prompts": asked["prompts"]})["answers"] == [None, None, None]
    assert handle(adapter, {"op": "stream", **asked})["answers"] == [None, None, "1"]
    assert handle(adapter, {"op": "get", "prompts": ["b", "c"]})["answers"] == ["2", None]


def test_every_call_is_timed_and_many_are_stored_by_the_adapters_own_way() -> None:
    class Many(Chatty):
        def fill(self, prompts: list[Turns], answers: list[str]) -> None:
            self.held |= {turns[-1]: f"many {answer}" for turns, answer in zip(prompts, answers, strict=True)}

    for adapter, said in ((Chatty(), "1"), (Many(), "many 1")):
        handle(adapter, {"op": "fill", "prompts": [["before", "reply", "a"]], "answers": ["1"]})
        found = handle(adapter, {"op": "get", "prompts": ["a", "b"]})
        assert found["answers"] == [said, None]
        assert len(found["ns"]) == 2
        assert all(taken > 0 for taken in found["ns"])


def test_a_flood_counts_what_went_upstream() -> None:
    gate = threading.Barrier(8)

    class Together(Chatty):
        def get(self, turns: Turns) -> Found:
            found = super().get(turns)
            gate.wait()  # nobody stores before all have looked
            return found

    assert flood(Together(), ["a"], "1", 8, 0.0) == {"upstream_calls": 8, "errors": []}
    stored = Chatty()
    stored.put(["a"], "1")
    assert flood(stored, ["a"], "1", 8, 0.0)["upstream_calls"] == 0


def test_a_flood_tells_what_a_peer_raises_between_threads() -> None:
    class OneThread(Chatty):
        def get(self, turns: Turns) -> Found:
            raise RuntimeError("made in another thread")

    told = flood(OneThread(), ["a"], "1", 2, 0.0)
    assert told["upstream_calls"] == 0
    assert told["errors"] == ["RuntimeError: made in another thread"] * 2


def test_what_a_peer_prints_does_not_reach_the_driver(peer: Peer, tmp_path: Path) -> None:
    assert peer.ask("stream", prompts=["a", "a"], answers=["1", "1"])["answers"] == [None, "1"]
    assert "asked ['a']" in (tmp_path / "log").read_text()


def test_versions_are_told_of_what_is_installed(peer: Peer) -> None:
    assert list(peer.ask("hello")["packages"]) == ["numpy"]


def test_what_a_peer_raises_comes_back_and_it_goes_on(peer: Peer) -> None:
    with pytest.raises(PeerError, match="RuntimeError: no such mode"):
        peer.ask("open", folder="", threshold=None, mode="broken")
    with pytest.raises(PeerError, match="no operation 'dance'"):
        peer.ask("dance")
    assert peer.ask("get", prompts=["a"])["answers"] == [None]


def test_a_peer_that_dies_or_hangs_is_an_error(peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="exit code 7"):
        peer.ask("get", prompts=["die"])
    with pytest.raises(PeerError):
        peer.ask("get", prompts=["a"])
    with (
        Peer(sys.executable, "tests.peers.chatty", tmp_path / "log") as slow,
        pytest.raises(PeerError, match="exit code -9"),
    ):
        slow.ask("flood", timeout=0.3, prompt="a", answer="", callers=1, upstream_s=60)


def test_an_environment_is_made_once_and_again_when_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    outcome = [1, 0, 0]

    def install(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        made.append(command)
        return subprocess.CompletedProcess(command, outcome.pop(0), "", "no such package\n")

    monkeypatch.setattr(venv, "create", lambda folder, **_: folder.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(subprocess, "run", install)
    with pytest.raises(venvs.VenvError, match="no such package"):
        venvs.python_of("peer", ["one==1"], tmp_path)
    first = venvs.python_of("peer", ["one==1"], tmp_path)
    assert venvs.python_of("peer", ["one==1"], tmp_path) == first
    assert len(made) == 2
    assert venvs.python_of("peer", ["one==2"], tmp_path) != first
    assert venvs.python_of("recall", [], tmp_path) == Path(sys.executable)


def test_every_arm_has_its_adapter_and_every_requirement_its_version() -> None:
    for arm in ARMS:
        spec = importlib.util.find_spec(f"benchmarks.peers.{arm.module}")
        assert spec is not None, arm.name
        assert arm.package in PACKAGES
    assert len({arm.name for arm in ARMS}) == len(ARMS)
    for package in PACKAGES.values():
        assert all("==" in one for one in package.requirements), package.name


def test_hits_are_timed_and_checked_and_what_does_not_start_is_a_row(tmp_path: Path) -> None:
    ours = next(arm for arm in ARMS if arm.name == "recall")
    gone = Arm("gone", "gptcache", "adapt_nobody")
    monkey = {"gptcache": PACKAGES["recall"]}
    beside = Arm("beside", "recall", "adapt_recall", {"memory": True}, ("exact",))
    bench = Bench(tmp_path, tmp_path, [ours, beside, gone], quick=True, software={**PACKAGES, **monkey})
    rows = latency.run(bench)
    absent = [row for row in rows if not row["ran"]]
    assert [row["arm"] for row in absent] == ["gone"]
    assert "ended during hello" in absent[0]["why"]
    ran = [row for row in rows if row["ran"]]
    assert [(row["arm"], row["kind"]) for row in ran] == [
        ("recall", "exact"),
        ("beside", "exact"),
        ("recall", "semantic"),
    ]
    assert ran[1]["cpu_over_recall"]["ratio"] > 0
    assert "over_recall" not in ran[0]
    assert all(row["right"] == 1 and row["lookup_us"]["p50"] > 0 and row["cpu_us"] > 0 for row in ran)
